"""A kmodel: modules, functions and commands, the same for all versions of the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from intaglio.ir import Array

LOCATIONS = {0: "input", 1: "output", 2: "rdata", 3: "data", 4: "shared", 64: "kpu"}
LOCATION_NUMBERS = {name: number for number, name in LOCATIONS.items()}


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes of one of the memories."""

    place: str  # a value of LOCATIONS
    start: int
    size: int
    dtype: str = "u8"


@dataclass(frozen=True, slots=True)
class Port:
    """An input or an output of a function."""

    shape: tuple[int, ...]
    range: Range


@dataclass(frozen=True, slots=True)
class Upload:
    """Copy a dense map from main memory to the KPU's RAM."""

    source: Range
    line: int
    shape: tuple[int, ...]  # N, C, H, W


@dataclass(frozen=True, slots=True)
class Download:
    """Copy a map from the KPU's RAM to main memory, densely."""

    line: int
    target: Range
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Conv:
    """Execute a layer. `output`: also copy its result to main memory."""

    words: Array
    weights: bytes
    norm: bytes
    curve: bytes
    output: Range | None = None
    batches: int = 1


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy elements within main memory; strides count elements."""

    source: Range
    target: Range
    shape: tuple[int, ...]
    in_strides: tuple[int, ...]
    out_strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CpuLayer:
    """A layer of kmodel 3 that the chip's CPU executes; `fields` are those of the SDK's header."""

    kind: str
    fields: dict[str, Any]


Command = Upload | Download | Conv | Copy | CpuLayer


@dataclass(slots=True)
class Function:
    """Inputs, outputs, and the commands between them."""

    inputs: list[Port]
    outputs: list[Port]
    commands: list[Command]
    entry: int = 0  # of its code, in .text
    size: int = 0


@dataclass(slots=True)
class Module:
    """The functions of one device, and its memories."""

    kind: str  # k210, stackvm
    functions: list[Function]
    pools: dict[str, int] = field(default_factory=dict)  # bytes, by memory
    sections: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Kmodel:
    """A whole file."""

    version: int
    modules: list[Module]
    entry: tuple[int, int] = (0, 0)  # module and function
    header: dict[str, int] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)  # what Intaglio wrote beside the commands

    @property
    def main(self) -> Function:
        """The function where it starts."""
        return self.modules[self.entry[0]].functions[self.entry[1]]
