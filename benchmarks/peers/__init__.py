"""The engines that we measure ourselves beside: one file each, imported only where it is used.

Every file here, and ours.py, has the same four names:

    ENGINE      the module that is the engine, to import before anything is measured
    PACKAGES    the distributions that are needed, the engine's own first
    convert(case, folder, threads)     writes what the engine loads, and returns that file
    load(file, feeds, threads)         a Runner with those inputs in place

`convert` may be slow: what it writes is kept on disk; an engine that loads ONNX itself has none.
`load` is what a program does at its start. A peer whose `convert` may never end has a PATIENCE in
seconds, a second way `instead`, and `note(file)`, which tells readers of the table. An engine that
can compute in smaller floats lists them with f32 in PRECISIONS, and these functions take one more
argument. Files in int8/ have the same four names and quantise.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Protocol

import numpy as np

Array = np.ndarray
OURS = "intaglio"
PEERS = ("onnxruntime", "openvino", "litert", "ncnn", "mnn", "torch")
FLOAT = "intaglio f32"  # ourselves again, beside what quantisation makes of us
FILES = {OURS: "ours", FLOAT: "ours", **{p: f"{p}_peer" for p in PEERS}}
REFUSED = Path(sys.prefix) / "refused.json"  # what pip could not install, and why
INT8 = {OURS: "ours", "onnxruntime": "onnxruntime", "openvino": "openvino", "litert": "litert"}


class Runner(Protocol):
    """A loaded model with its inputs in place."""

    def run(self) -> object: ...

    def outputs(self) -> list[Array]:
        """Of the last run, in the model's order."""
        ...


class Refused(Exception):
    """A peer that cannot do this model, in one line for the notes."""


def module(name: str, precision: str = "f32") -> ModuleType:
    """The file of that engine; the engine itself is not imported by this."""
    file = f"int8.{INT8[name]}" if precision == "int8" and name != FLOAT else FILES[name]
    return importlib.import_module(f"benchmarks.peers.{file}")


def precisions(name: str) -> tuple[str, ...]:
    """The types of numbers that the engine can be asked to compute in."""
    floats: tuple[str, ...] = getattr(module(name), "PRECISIONS", ("f32",))
    return (*floats, "int8") if name in INT8 else floats


def versions(name: str, precision: str = "f32") -> dict[str, str] | None:
    """Of each distribution that the peer needs; None if one is not installed."""
    try:
        return {p: importlib.metadata.version(p) for p in module(name, precision).PACKAGES}
    except importlib.metadata.PackageNotFoundError:
        return None


def missing(name: str, precision: str = "f32") -> list[str]:
    """The distributions that the peer needs and this interpreter lacks."""
    return [p for p in module(name, precision).PACKAGES if not has(p)]


def why_missing(name: str, precision: str = "f32") -> str:
    """What the peer lacks, and what pip said if it was tried."""
    words = []
    refused = json.loads(REFUSED.read_text()) if REFUSED.exists() else {}
    for lacking in missing(name, precision):
        said = [why for r, why in refused.items() if re.split("[=><]", r)[0] == lacking]
        words.append(f"{lacking} ({said[0] if said else '`make bench` installs it'})")
    return ", ".join(words)


def has(distribution: str) -> bool:
    """Whether it is installed."""
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def installed(precision: str = "f32") -> list[str]:
    """The peers that can run here, in that precision."""
    return [p for p in PEERS if precision in precisions(p) and not missing(p, precision)]


def installed_bytes(distribution: str) -> int:
    """What a distribution takes on disk, without what it depends on."""
    found = importlib.metadata.distribution(distribution)
    paths = {Path(str(found.locate_file(f))) for f in found.files or []}
    return sum(p.stat().st_size for p in paths if p.is_file())
