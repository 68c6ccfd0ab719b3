"""The peers: the engines that we compare with. One file each, imported only when used.

Every file here, and ours.py, has the same four names:

    ENGINE      the engine's module, imported before anything is measured
    PACKAGES    the required distributions, the engine's own first
    convert(case, folder, threads)     writes the file that the engine loads, and returns its path
    load(file, feeds, threads)         a Runner with these inputs bound

`convert` may be slow, so its result is cached on disk; an engine that loads ONNX has no `convert`.
`load` is what a program does at its start. A peer whose `convert` may take too long has a time
limit PATIENCE in seconds, a fallback `instead`, and `note(file)` for readers of the table. An
engine with smaller floats lists them and f32 in PRECISIONS; its functions take one more argument.
Files in int8/ have the same four names and quantise the model.
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
FLOAT = "intaglio f32"  # our f32, as another column next to our int8
FILES = {OURS: "ours", FLOAT: "ours", **{p: f"{p}_peer" for p in PEERS}}
REFUSED = Path(sys.prefix) / "refused.json"  # packages that pip could not install, with the reason
INT8 = {OURS: "ours", "onnxruntime": "onnxruntime", "openvino": "openvino", "litert": "litert"}


class Runner(Protocol):
    """A loaded model with its inputs bound."""

    def run(self) -> object: ...

    def outputs(self) -> list[Array]:
        """The outputs of the last run, in the model's order."""
        ...


class Refused(Exception):
    """A peer cannot run this model; the message is one line for the notes."""


def module(name: str, precision: str = "f32") -> ModuleType:
    """The module of that peer; importing it does not import the engine."""
    file = f"int8.{INT8[name]}" if precision == "int8" and name != FLOAT else FILES[name]
    return importlib.import_module(f"benchmarks.peers.{file}")


def precisions(name: str) -> tuple[str, ...]:
    """The precisions that the engine supports."""
    floats: tuple[str, ...] = getattr(module(name), "PRECISIONS", ("f32",))
    return (*floats, "int8") if name in INT8 else floats


def versions(name: str, precision: str = "f32") -> dict[str, str] | None:
    """The versions of the required distributions; None if one is not installed."""
    try:
        return {p: importlib.metadata.version(p) for p in module(name, precision).PACKAGES}
    except importlib.metadata.PackageNotFoundError:
        return None


def missing(name: str, precision: str = "f32") -> list[str]:
    """The required distributions that are not installed."""
    return [p for p in module(name, precision).PACKAGES if not has(p)]


def why_missing(name: str, precision: str = "f32") -> str:
    """The missing distributions, with pip's error if there was one."""
    words = []
    refused = json.loads(REFUSED.read_text()) if REFUSED.exists() else {}
    for lacking in missing(name, precision):
        said = [why for r, why in refused.items() if re.split("[=><]", r)[0] == lacking]
        words.append(f"{lacking} ({said[0] if said else '`make bench` installs it'})")
    return ", ".join(words)


def has(distribution: str) -> bool:
    """Whether the peer is installed."""
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def installed(precision: str = "f32") -> list[str]:
    """The installed peers that support this precision."""
    return [p for p in PEERS if precision in precisions(p) and not missing(p, precision)]


def installed_bytes(distribution: str) -> int:
    """The installed size of a distribution, without its dependencies."""
    found = importlib.metadata.distribution(distribution)
    paths = {Path(str(found.locate_file(f))) for f in found.files or []}
    return sum(p.stat().st_size for p in paths if p.is_file())
