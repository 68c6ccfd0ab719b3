"""Readers of Darknet's cfg file (sections of settings) and weights file (a list of floats)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from intaglio.errors import BadFile
from intaglio.files import read_regular
from intaglio.ir import Array

MAX_CFG = 1 << 20  # characters; published ones have a few thousand


@dataclass(slots=True)
class Section:
    """One [section] of a cfg file and its settings."""

    name: str
    line: int
    settings: dict[str, str] = field(default_factory=dict)
    number: int = -1  # of the layer; -1 for [net]

    def text(self, key: str, default: str = "") -> str:
        return self.settings.get(key, default)

    def whole(self, key: str, default: int | None = None) -> int:
        """An integer; BadFile if it is invalid, or missing without a default."""
        return int(self._number(key, default))

    def real(self, key: str, default: float | None = None) -> float:
        return float(self._number(key, default))

    def wholes(self, key: str) -> list[int]:
        return [int(v) for v in self.reals(key)]

    def reals(self, key: str) -> list[float]:
        words = self.text(key).replace(" ", "").strip(",")
        try:
            return [float(w) for w in words.split(",") if w]
        except ValueError:
            raise BadFile(
                f"darknet: {self}: {key}={self.text(key)} is not a list of numbers"
            ) from None

    def _number(self, key: str, default: float | None) -> float:
        if key not in self.settings:
            if default is None:
                raise BadFile(f"darknet: {self} has no {key}")
            return default
        try:
            value = float(self.settings[key])
        except ValueError:
            value = float("nan")
        if not -(2**31) < value < 2**31:
            raise BadFile(f"darknet: {self}: {key}={self.settings[key]} is not a number")
        return value

    def __str__(self) -> str:
        return f"[{self.name}] in line {self.line}"


def read_cfg(path: Path) -> list[Section]:
    """The sections of a cfg file, [net] first."""
    try:
        text = read_regular(path, 4 * MAX_CFG).decode("utf-8", "replace")
    except OSError as e:
        raise BadFile(f"cannot read '{path}': {(e.strerror or str(e)).lower()}") from None
    if len(text) > MAX_CFG:
        raise BadFile(
            f"darknet: '{path}' has {len(text)} characters; at most {MAX_CFG} are supported"
        )
    sections: list[Section] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#")[0].split(";")[0].strip()
        if line.startswith("[") and line.endswith("]"):
            sections.append(Section(line[1:-1].strip(), number, number=len(sections) - 1))
        elif "=" in line and sections:
            key, value = line.split("=", 1)
            sections[-1].settings[key.strip()] = value.strip()
        elif line:
            raise BadFile(f"darknet: line {number} of '{path}' is neither [section] nor key=value")
    if not sections or sections[0].name not in ("net", "network"):
        raise BadFile(f"darknet: '{path}' does not begin with [net]")
    return sections


class Weights:
    """The floats of a weights file, read layer by layer."""

    def __init__(self, path: Path):
        self.path = path
        try:
            raw = read_regular(path)
        except OSError as e:
            raise BadFile(f"cannot read '{path}': {(e.strerror or str(e)).lower()}") from None
        if len(raw) < 16:
            raise self._truncated(len(raw), 16)
        major, minor, revision = np.frombuffer(raw, "<i4", 3)
        self.revision = int(revision)  # 0 in files of the original Darknet, 5 in AlexeyAB's fork
        wide = (
            major * 10 + minor >= 2 and major < 1000 and minor < 1000
        )  # the counter of seen images has 64 bits
        self.turned = bool(major > 1000 or minor > 1000)  # dense layers are stored transposed
        head = 20 if wide else 16
        if len(raw) < head:
            raise self._truncated(len(raw), head)
        self.floats = np.frombuffer(raw, "<f4", (len(raw) - head) // 4, head).astype(np.float32)
        self.at = 0

    def _truncated(self, size: int, head: int) -> BadFile:
        return BadFile(
            f"darknet: '{self.path}' has {size} bytes, less than the {head} of a weights file's "
            "header; it is truncated or no weights file; fetch it again"
        )

    def take(self, *shape: int, what: Section) -> Array:
        """The next floats, in this shape."""
        count = 1
        for extent in shape:
            count *= extent
        if self.at + count > len(self.floats):
            raise BadFile(
                f"darknet: '{self.path}' ends in {what}, which needs {count} floats after "
                f"{self.at} of {len(self.floats)}; it belongs to another cfg, or is truncated"
            )
        self.at += count
        return self.floats[self.at - count : self.at].reshape(shape)
