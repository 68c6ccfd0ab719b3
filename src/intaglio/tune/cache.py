"""What was measured, kept on disk by layer and machine."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec

from intaglio import native
from intaglio.errors import BadInput
from intaglio.files import write_atomically


class Way(msgspec.Struct, frozen=True):
    """One way to compute a layer: how long it takes, and how large its weights are."""

    microseconds: Annotated[float, msgspec.Meta(gt=0)]
    weights: Annotated[int, msgspec.Meta(ge=0)]  # bytes


Ways = dict[str, Way | None]  # by name; None: that one cannot be compiled


class Entry(msgspec.Struct):
    """One layer: what it is, for people, and what was measured."""

    layer: str
    ways: Ways


class _File(msgspec.Struct):
    machine: dict[str, str]
    layers: dict[str, Entry]


def folder() -> Path:
    """$INTAGLIO_CACHE, or `intaglio` in the user's cache folder."""
    if given := os.environ.get("INTAGLIO_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "intaglio"


@functools.cache
def machine() -> dict[str, str]:
    """What times depend on, beside the layer: the processor, and our kernels for it."""
    library = Path(native.library()._name).read_bytes()
    return {"cpu": _cpu_name(), "library": hashlib.sha256(library).hexdigest()[:16]}


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = {
            line.split(":")[0].strip(): line.split(":", 1)[1].strip()
            for line in lines
            if ":" in line
        }
        kind = [names[k] for k in ("cpu family", "model", "stepping") if k in names]
        return " ".join([names["model name"], *kind])
    except (OSError, KeyError):
        return platform.processor() or platform.machine()


class Cache:
    """The file of this machine; whatever cannot be read or written is said once and forgotten."""

    def __init__(self, where: Path, warn: Callable[[str], None]):
        self.warn = warn
        self.path = where / f"tune-{digest(*machine().values())}.json"
        self.layers = self._read()
        self.broken = False

    def _read(self) -> dict[str, Entry]:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_File).layers
        except FileNotFoundError:
            return {}
        except OSError as e:
            self.warn(f"cannot read {self.path}: {e.strerror}; every layer is measured anew")
        except msgspec.MsgspecError as e:
            self.warn(f"{self.path} is damaged ({e}); every layer is measured anew")
        return {}

    def get(self, key: str) -> Ways:
        """What was measured of a layer; empty where nothing was."""
        found = self.layers.get(key)
        return {} if found is None else found.ways

    def put(self, key: str, layer: str, ways: Ways) -> None:
        """Remember, and write at once: who is interrupted goes on from here."""
        self.layers[key] = Entry(layer, ways)
        if self.broken:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            told, self.warn = self.warn, lambda words: None
            self.layers = {**self._read(), **self.layers}  # with what another process measured
            self.warn = told
            file = _File(machine(), dict(sorted(self.layers.items())))
            write_atomically(self.path, msgspec.json.format(msgspec.json.encode(file)))
        except (OSError, BadInput) as e:
            self.broken = True
            self.warn(f"what is measured cannot be kept for the next time: {e}")


def digest(*texts: str) -> str:
    """A short name for texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
