"""Commands of CV181x and CV180x, and the command buffer that holds them.

A command buffer is a header of 8 bytes and a descriptor for each command. Both engines number their
commands from 1. When one reaches 65535, both start again at 1 and wait for nothing before that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from intaglio.errors import BadFile, BadInput
from intaglio.ir import Array
from intaglio.npu.chips.cv18xx.fields import COMMANDS, Table

HEADER = struct.Struct("<BBBBI")  # magic, bytes of the descriptor, engine, 0, 0
LAST_NUMBER = 0xFFFF
ENGINES = {"tiu": "tiu", "tdma": "dma"}  # name of a command: its engine
# What every command has; the runtime adds the end marks.
USUAL = {"tiu": {"cmd_en": 1, "cmd_id_en": 1}, "tdma": {"vld": 1, "bar_en": 1}}


@dataclass(frozen=True, slots=True)
class Chip:
    """The size of a chip of the family, and the first byte of its command headers."""

    name: str
    magic: int
    lanes: int
    units: int = 16  # int8 multipliers of a lane
    lane_bytes: int = 32 << 10  # local memory of a lane
    banks: int = 8
    clock: float = 500e6


CHIPS = {c.name: c for c in (Chip("cv181x", 0xA7, 8), Chip("cv180x", 0xA8, 2))}


@dataclass(slots=True)
class Command:
    """One command of the TIU or the TDMA; absent fields have the value that `default` gives."""

    engine: str  # "tiu" or "dma"
    name: str  # "tiu" or "tdma"
    fields: dict[str, int] = field(default_factory=dict)
    number: int = 0  # of its engine's commands, from 1; 0: encode() counts
    depends: int = 0  # number of the other engine's command that must have ended
    layer: int = -1  # -1: none; it is stored as 0

    def get(self, name: str) -> int:
        """The value of a field."""
        value = self.fields.get(name)
        return defaults(self.name)[name] if value is None else value

    def values(self) -> dict[str, int]:
        """The values of all fields but number, dependency and layer."""
        return defaults(self.name) | self.fields


def tiu(fields: dict[str, int], depends: int = 0, layer: int = -1) -> Command:
    """A command of the TIU."""
    return Command("tiu", "tiu", fields, 0, depends, layer)


def tdma(fields: dict[str, int], depends: int = 0, layer: int = -1) -> Command:
    """A command of the TDMA."""
    return Command("dma", "tdma", fields, 0, depends, layer)


@cache
def defaults(name: str) -> dict[str, int]:
    """The values of a command's fields that are not given."""
    table = COMMANDS[name]
    own = {table.number, table.depends, table.layer}
    return {k: v for k, v in (table.resets | USUAL[name]).items() if k not in own}


def find_chip(name: str) -> Chip:
    """A chip by its name."""
    if name not in CHIPS:
        raise BadInput(f"cv18xx: there is no chip '{name}'; one of {', '.join(CHIPS)} is needed")
    return CHIPS[name]


def encode(commands: Iterable[Command], chip: Chip | str) -> bytes:
    """The command buffer of a stream."""
    magic = (find_chip(chip) if isinstance(chip, str) else chip).magic
    parts, count = [], {"tiu": 0, "tdma": 0}
    start = dict(count)  # commands of each engine before the numbers last restarted
    for command in commands:
        name, other = command.name, "tdma" if command.name == "tiu" else "tiu"
        table = COMMANDS[name]
        count[name] += 1
        if command.number not in (0, count[name]):
            raise BadInput(
                f"cv18xx: {name} command {count[name]} has the number {command.number}; "
                "numbers count from 1 without a gap"
            )
        if not 0 <= command.depends <= count[other]:
            raise BadInput(
                f"cv18xx: {name} command {count[name]} waits for {other} command "
                f"{command.depends}; {count[other]} come before it"
            )
        values = USUAL[name] | command.fields
        values[table.number] = count[name] - start[name]
        values[table.depends] = max(0, command.depends - start[other])
        values[table.layer] = max(0, command.layer)
        parts += [HEADER.pack(magic, table.size, table.engine, 0, 0), table.pack(values)]
        if values[table.number] == LAST_NUMBER:
            start = dict(count)
    return b"".join(parts)


def split(data: bytes, chip: Chip | str | None = None) -> tuple[Array, dict[int, Array]]:
    """The engine of each command, and the descriptors of each engine; BadFile if data is cut."""
    chips = CHIPS.values() if chip is None else [find_chip(chip) if isinstance(chip, str) else chip]
    tables = {t.engine: t for t in COMMANDS.values()}
    heads = {
        HEADER.pack(c.magic, t.size, t.engine, 0, 0): t for c in chips for t in COMMANDS.values()
    }
    order: list[int] = []
    starts: dict[int, list[int]] = {engine: [] for engine in tables}
    at = 0
    while at < len(data):
        table = heads.get(data[at : at + HEADER.size])
        if table is None:
            raise BadFile(f"cvimodel: no header of a command at byte {at} of the commands")
        at += HEADER.size
        order.append(table.engine)
        starts[table.engine].append(at)
        at += table.size
    if at > len(data):
        raise BadFile(f"cvimodel: the last command lacks {at - len(data)} bytes")
    raw = np.frombuffer(data, np.uint8)
    rows = {
        engine: raw[np.array(places, np.int64)[:, None] + np.arange(tables[engine].size)]
        for engine, places in starts.items()
    }
    return np.array(order, np.uint8), rows


def decode(data: bytes, chip: Chip | str | None = None) -> list[Command]:
    """The commands of a command buffer; BadFile where it is not one."""
    order, rows = split(data, chip)
    streams = {t.engine: iter(_commands(name, t, rows[t.engine])) for name, t in COMMANDS.items()}
    found: list[Command] = []
    count = {"tiu": 0, "tdma": 0}
    start = dict(count)
    for engine in order.tolist():
        command = next(streams[engine])
        name = command.name
        count[name] += 1
        if command.number != count[name] - start[name]:
            raise BadFile(
                f"cvimodel: {name} command {count[name]} has the number {command.number}; "
                f"{count[name] - start[name]} is its place"
            )
        other = "tdma" if name == "tiu" else "tiu"
        if command.depends > count[other] - start[other]:
            raise BadFile(
                f"cvimodel: {name} command {count[name]} waits for {other} command "
                f"{command.depends}, which comes later"
            )
        restart = command.number == LAST_NUMBER
        command.number = count[name]
        if command.depends:
            command.depends += start[other]
        if restart:
            start = dict(count)
        found.append(command)
    return found


def _commands(name: str, table: Table, rows: Array) -> list[Command]:
    """The commands of one engine, with the numbers of their words."""
    values = table.unpack_all(rows)
    names = [f.name for f in table.fields]
    own = [names.index(n) for n in (table.number, table.depends, table.layer)]
    usual = np.array([defaults(name).get(n, 0) for n in names], np.uint32)
    differs = values != usual
    differs[:, own] = False
    given: list[dict[str, int]] = [{} for _ in values]
    for row, column in zip(*(a.tolist() for a in np.nonzero(differs)), strict=True):
        given[row][names[column]] = int(values[row, column])
    return [
        Command(ENGINES[name], name, fields, *numbers)
        for fields, numbers in zip(given, values[:, own].tolist(), strict=True)
    ]
