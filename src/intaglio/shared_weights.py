"""The constants of several packages in memory: equal ones are kept once.

A package is one piece of memory: its records, then its constants. Here the records of every package
lie in the first part of one block, and all constants behind them, so that each package reaches the
constants of all. A package that is no longer used frees what no other one uses.
"""

from __future__ import annotations

import weakref
import zlib
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from intaglio.ir import Array
from intaglio.package import Package
from intaglio.package import format as f
from intaglio.package.constant_pool import ByContent
from intaglio.package.read import sections
from intaglio.package.write import write_head
from intaglio.plan import MEMORIES
from intaglio.reserved_memory import ReservedMemory

RECORD_BYTES = 256 << 20  # of address space for the records of all packages in a block
LEAST_BYTES = 256 << 20  # of address space for constants
ROOM = 16  # times the constants of the first package that a block has room for
CONST = MEMORIES.index("const")


@dataclass(eq=False)
class _Piece:
    """A constant in the block."""

    offset: int
    raw: Array
    users: int = 0  # packages


@dataclass
class _Use:
    """What one package uses of a block."""

    records: int
    records_size: int
    pieces: list[_Piece] = field(default_factory=list)


class SharedWeights:
    """Memory for the packages of one model. Not for several threads at once."""

    def __init__(self) -> None:
        self._block: _Block | None = None

    def adopt(self, package: Package) -> Package:
        """The same package with its constants in shared memory; itself where that is impossible."""
        size = len(package.image)
        block, made = self._block, None
        if block is not None:
            made = block.adopt(package)
        if made is None:
            try:
                block = _Block(RECORD_BYTES + max(ROOM * size, LEAST_BYTES))
            except (OSError, OverflowError, ValueError):
                return package
            self._block, made = block, block.adopt(package)
        return package if made is None else made


class _Block:
    def __init__(self, size: int):
        self.memory = ReservedMemory(size)
        self.known: ByContent[_Piece] = ByContent()
        self.dropped: deque[_Use] = deque()  # by the garbage collector, in any thread

    def adopt(self, package: Package) -> Package | None:
        """The package in this block; None if there is no room for it."""
        while self.dropped:
            self._release(self.dropped.popleft())
        parts, isa = sections(package.image, trust=True)
        constants = np.frombuffer(parts.pop("CNST"), np.uint8)
        ends = np.cumsum([f.align(len(p)) for p in parts.values()])
        head = f.align(f.HEADER.itemsize + (len(parts) + 1) * f.SECTION.itemsize)
        size = head + int(ends[-1])
        records = self.memory.take(size, last=RECORD_BYTES)
        if records is None:
            return None
        use = _Use(records, size)
        moved = self._moved(parts, constants, use)
        if moved is None:
            self._release(use)
            return None
        end = max(self.memory.used_end, RECORD_BYTES)
        image = self.memory.bytes[records:end]
        _write(image, moved, isa, head, RECORD_BYTES - records)
        weakref.finalize(image, self.dropped.append, use).atexit = False
        return Package(image, sealed=False)

    def _moved(
        self, parts: dict[str, memoryview], constants: Array, use: _Use
    ) -> dict[str, Array] | None:
        """The sections with the constants' offsets in this block; None if there is no room."""
        result = {kind: np.frombuffer(p, np.uint8) for kind, p in parts.items()}
        tensors = result["TENS"].copy().view(f.TENSOR)
        states = result.get("STAT", np.empty(0, np.uint8)).copy().view(f.STATE)
        begun = (states["initial"] != f.ZEROS) & (states["file"] == 0)  # else in a weight file
        sizes = _state_sizes(result, states, tensors)
        chosen = (tensors["memory"] == CONST) & (tensors["slot"] == 0)
        places: dict[tuple[int, int], int] = {}
        for start, size in {
            *zip(tensors["offset"][chosen].tolist(), tensors["size"][chosen].tolist(), strict=True),
            *zip(states["initial"][begun].tolist(), sizes[begun].tolist(), strict=True),
        }:
            place = self._place(constants[start : start + size], use)
            if place is None:
                return None
            places[start, size] = place - RECORD_BYTES
        for row in np.flatnonzero(chosen):
            t = tensors[row]
            t["offset"] = places[int(t["offset"]), int(t["size"])]
        for row in np.flatnonzero(begun):
            states[row]["initial"] = places[int(states[row]["initial"]), int(sizes[row])]
        result["TENS"] = tensors.view(np.uint8)
        if len(states):
            result["STAT"] = states.view(np.uint8)
        return result

    def _place(self, raw: Array, use: _Use) -> int | None:
        """The offset of an equal constant in the block; of a copy if there is none."""
        piece = self.known.get(raw)
        if piece is None:
            offset = self.memory.take(len(raw), first=RECORD_BYTES)
            if offset is None:
                return None
            piece = _Piece(offset, self.memory.bytes[offset : offset + len(raw)])
            piece.raw[...] = raw
            self.known.add(piece.raw, piece)
        piece.users += 1
        use.pieces.append(piece)
        return piece.offset

    def _release(self, use: _Use) -> None:
        self.memory.give_back(use.records, use.records_size)
        for piece in use.pieces:
            piece.users -= 1
            if not piece.users:
                self.known.remove(piece.raw, piece)
                self.memory.give_back(piece.offset, len(piece.raw))


def _state_sizes(parts: dict[str, Array], states: Array, tensors: Array) -> Array:
    """The bytes that each state begins with: those of its input."""
    plans, args = parts["PLAN"].view(f.PLAN), parts["ARGS"].view("<u4")
    inputs = args[plans["inputs"][states["plan"]] + states["input"]]
    sizes: Array = tensors["size"][inputs]
    return sizes


def _write(image: Array, parts: dict[str, Array], isa: int, head: int, constants: int) -> None:
    """Write header, section table and all sections but CNST, which lies at offset `constants`."""
    table = np.zeros(len(parts) + 1, f.SECTION)
    at = head
    for row, (kind, data) in zip(table, parts.items(), strict=False):
        row["kind"], row["offset"], row["size"] = kind.encode(), at, len(data)
        row["flags"] = f.REQUIRED if kind in f.REQUIRED_KINDS else 0
        row["crc"] = zlib.crc32(data.data)
        image[at : at + len(data)] = data
        at += f.align(len(data))
    last = table[-1]
    last["kind"], last["offset"], last["size"] = b"CNST", constants, len(image) - constants
    write_head(image, table, isa)
