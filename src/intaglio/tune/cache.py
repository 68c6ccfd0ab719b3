"""The cache of measured times on disk, by layer and machine."""

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


class Timing(msgspec.Struct, frozen=True):
    """One implementation of a layer: its time and the size of its weights."""

    microseconds: Annotated[float, msgspec.Meta(gt=0)]
    weights: Annotated[int, msgspec.Meta(ge=0)]  # bytes


Timings = dict[str, Timing | None]  # by implementation; None: it does not compile


class Entry(msgspec.Struct):
    """The description and the measurements of one layer."""

    layer: str
    timings: Timings = msgspec.field(name="ways")  # the name in files


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
    """The processor and the version of the kernels: times depend on both."""
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
    """The cache file of this machine; a file that cannot be read or written is only a warning."""

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

    def get(self, key: str) -> Timings:
        """The measurements of a layer; empty if there are none."""
        found = self.layers.get(key)
        return {} if found is None else found.timings

    def put(self, key: str, layer: str, timings: Timings) -> None:
        """Add measurements and write the file, so that an interrupted run can continue."""
        self.layers[key] = Entry(layer, timings)
        if self.broken:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            told, self.warn = self.warn, lambda words: None
            self.layers = {
                **self._read(),
                **self.layers,
            }  # with the measurements of other processes
            self.warn = told
            file = _File(machine(), dict(sorted(self.layers.items())))
            write_atomically(self.path, msgspec.json.format(msgspec.json.encode(file)))
        except (OSError, BadInput) as e:
            self.broken = True
            self.warn(f"the measured times cannot be cached: {e}")


def digest(*texts: str) -> str:
    """A short hash of texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
