"""The engines that we measure ourselves beside: one file each, imported only where it is used.

Every file here, and ours.py, has the same four names:

    ENGINE      the module that is the engine, to import before anything is measured
    PACKAGES    the distributions that are needed, the engine's own first
    convert(case, folder, threads)     writes what the engine loads, and returns that file
    load(file, feeds, threads)         a Runner with those inputs in place

`convert` may be slow: what it writes is kept on disk; an engine that loads ONNX itself has none.
`load` is what a program does at its start. An engine that can compute in smaller floats lists them
with f32 in PRECISIONS, and both functions take one more argument.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from pathlib import Path
from types import ModuleType
from typing import Protocol

import numpy as np

Array = np.ndarray
OURS = "intaglio"
PEERS = ("onnxruntime", "openvino", "litert", "ncnn", "mnn", "torch")
FILES = {OURS: "ours", **{p: f"{p}_peer" for p in PEERS}}


class Runner(Protocol):
    """A loaded model with its inputs in place."""

    def run(self) -> object: ...

    def outputs(self) -> list[Array]:
        """Of the last run, in the model's order."""
        ...


class Refused(Exception):
    """A peer that cannot do this model, in one line for the notes."""


def module(name: str) -> ModuleType:
    """The file of that engine; the engine itself is not imported by this."""
    return importlib.import_module(f"benchmarks.peers.{FILES[name]}")


def precisions(name: str) -> tuple[str, ...]:
    """The types of numbers that the engine can be asked to compute in."""
    known: tuple[str, ...] = getattr(module(name), "PRECISIONS", ("f32",))
    return known


def versions(name: str) -> dict[str, str] | None:
    """Of each distribution that the peer needs; None if one is not installed."""
    try:
        return {p: importlib.metadata.version(p) for p in module(name).PACKAGES}
    except importlib.metadata.PackageNotFoundError:
        return None


def missing(name: str) -> list[str]:
    """The distributions that the peer needs and this interpreter lacks."""
    return [p for p in module(name).PACKAGES if not _installed(p)]


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def installed() -> list[str]:
    """The peers that can run here."""
    return [p for p in PEERS if not missing(p)]


def installed_bytes(distribution: str) -> int:
    """What a distribution takes on disk, without what it depends on."""
    found = importlib.metadata.distribution(distribution)
    paths = {Path(str(found.locate_file(f))) for f in found.files or []}
    return sum(p.stat().st_size for p in paths if p.is_file())
