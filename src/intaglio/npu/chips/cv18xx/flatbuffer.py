"""Reads and writes flatbuffers by a small schema; every offset and count is checked.

A schema maps the name of a table to its slots: `name:type`, with `!` after a required one. Types
are numbers (u8 bool u32 i32 i64 f32), `string`, `bytes`, `bytes3` (a struct of three bytes), the name
of a table, and vectors of one of these, as in `[string]`. A table is a dict of its slots.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from intaglio import extras
from intaglio.errors import BadFile, BadInput

NUMBERS = {"u8": "B", "bool": "?", "u32": "I", "i32": "i", "i64": "q", "f32": "f"}
WRITERS = {
    "u8": "Uint8",
    "bool": "Bool",
    "u32": "Uint32",
    "i32": "Int32",
    "i64": "Int64",
    "f32": "Float32",
}
OFFSETS = ("string", "bytes")
MOST_VALUES = 1 << 21  # read from a file; tables that share parts could have far more
Schema = Mapping[str, str]


def slots(schema: Schema, table: str) -> list[tuple[str, str, bool]]:
    """Name, type and whether it is required, of each slot of a table."""
    found = []
    for part in schema[table].split():
        name, _, kind = part.partition(":")
        found.append((name, kind.rstrip("!"), kind.endswith("!")))
    return found


class Reader:
    """Reads tables from bytes; BadFile where something lies outside them."""

    def __init__(self, data: bytes, schema: Schema, what: str):
        self.data, self.schema, self.what = data, schema, what
        self.budget = MOST_VALUES

    def root(self, table: str) -> dict[str, Any]:
        """The table that the file is."""
        return self.table(table, self._number("I", 0))

    def table(self, table: str, at: int) -> dict[str, Any]:
        """The table at an offset; a slot that is absent is 0, None or an empty list."""
        vtable = at - self._number("i", at)
        size, inline = self._number("H", vtable), self._number("H", vtable + 2)
        self._need(at, inline)
        self._spend(1)
        found: dict[str, Any] = {}
        for i, (name, kind, required) in enumerate(slots(self.schema, table)):
            place = 4 + 2 * i
            offset = self._number("H", vtable + place) if place + 2 <= size else 0
            if not offset and required:
                raise BadFile(f"{self.what}: {table} has no {name}")
            found[name] = self._value(kind, at + offset) if offset else _absent(kind)
        return found

    def _value(self, kind: str, at: int) -> Any:
        if kind in NUMBERS:
            return self._number(NUMBERS[kind], at)
        if kind == "bytes3":
            self._need(at, 3)
            return self.data[at : at + 3]
        if kind in OFFSETS or kind.startswith("["):
            return self._vector(kind, at + self._number("I", at))
        return self.table(kind, at + self._number("I", at))

    def _vector(self, kind: str, at: int) -> Any:
        count = self._number("I", at)
        item = kind.strip("[]") if kind not in OFFSETS else "u8"
        size = struct.calcsize(NUMBERS[item]) if item in NUMBERS else 4
        self._need(at + 4, count * size)
        self._spend(count)
        start = at + 4
        if kind == "string":
            return self.data[start : start + count].decode("utf-8", "replace")
        if kind == "bytes":
            return self.data[start : start + count]
        if item in NUMBERS:
            return list(struct.unpack_from(f"<{count}{NUMBERS[item]}", self.data, start))
        return [self._value(item, start + 4 * i) for i in range(count)]

    def _number(self, form: str, at: int) -> Any:
        self._need(at, struct.calcsize(form))
        return struct.unpack_from("<" + form, self.data, at)[0]

    def _need(self, at: int, size: int) -> None:
        if at < 0 or at + size > len(self.data):
            raise BadFile(
                f"{self.what}: a record lies at bytes {at} to {at + size}; "
                f"there are {len(self.data)}"
            )

    def _spend(self, count: int) -> None:
        self.budget -= count
        if self.budget < 0:
            raise BadFile(f"{self.what}: its tables refer to the same bytes too often")


def _absent(kind: str) -> Any:
    if kind.startswith("["):
        return []
    return {"f32": 0.0, "bool": False}.get(kind, 0 if kind in NUMBERS else None)


def write(root: Mapping[str, Any], table: str, schema: Schema) -> bytes:
    """The bytes of a table; slots that are not given or None are left out."""
    try:
        import flatbuffers  # type: ignore[import-untyped]
    except ImportError:
        raise BadInput(
            "writing this file needs the package flatbuffers; "
            f"install it with: {extras.install_command('tflite')}"
        ) from None
    builder = flatbuffers.Builder(1024)
    builder.Finish(_table(builder, root, table, schema))
    return bytes(builder.Output())


def _table(builder: Any, values: Mapping[str, Any], table: str, schema: Schema) -> int:
    fields = slots(schema, table)
    made = {
        name: _offset(builder, values[name], kind, schema)
        for name, kind, _ in fields
        if kind not in NUMBERS and kind != "bytes3" and values.get(name) is not None
    }
    builder.StartObject(len(fields))
    for i, (name, kind, required) in enumerate(fields):
        value = values.get(name)
        if value is None:
            if required:
                raise BadInput(f"a {table} needs {name}")
        elif kind in NUMBERS:
            getattr(builder, f"Prepend{WRITERS[kind]}Slot")(i, value, 0)
        elif kind == "bytes3":
            builder.Prep(1, 3)
            for byte in reversed(value):
                builder.PrependUint8(byte)
            builder.PrependStructSlot(i, builder.Offset(), 0)
        else:
            builder.PrependUOffsetTRelativeSlot(i, made[name], 0)
    return int(builder.EndObject())


def _offset(builder: Any, value: Any, kind: str, schema: Schema) -> int:
    if kind == "string":
        return int(builder.CreateString(value))
    if kind == "bytes":
        return int(builder.CreateByteVector(value))
    if not kind.startswith("["):
        return _table(builder, value, kind, schema)
    item = kind.strip("[]")
    if item in NUMBERS:
        size = struct.calcsize(NUMBERS[item])
        builder.StartVector(size, len(value), size)
        for number in reversed(value):
            getattr(builder, f"Prepend{WRITERS[item]}")(number)
        return int(builder.EndVector())
    offsets = [_offset(builder, one, item, schema) for one in value]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())
