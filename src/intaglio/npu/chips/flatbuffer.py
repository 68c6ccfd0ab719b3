"""FlatBuffers by a schema in plain words: `read` gives dicts and lists, `write` takes them.

A schema names tables and structs; each lists `field:type` in the order of the ids. Types are u8,
bool, i32, u32, i64, u64, f32, str, bytes, a table or struct of the schema, and [any of these]. An
absent field reads as 0, "", None (table, struct) or []; a default other than 0 is written
`field:type=value`. `field:Table?kind=2` is read only if the field `kind` before it is 2 (a union).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intaglio.errors import BadFile, BadInput

NUMBERS = {"u8": "B", "bool": "?", "i32": "i", "u32": "I", "i64": "q", "u64": "Q", "f32": "f"}
DEEPEST = 16  # tables in tables


@dataclass(frozen=True)
class Field:
    """One field of a table or struct."""

    name: str
    type: str
    default: float = 0
    only_if: tuple[str, int] | None = None  # a field before it, and the value that it must have


class Schema:
    """Tables and structs by name."""

    def __init__(self, tables: Mapping[str, str], structs: Mapping[str, str]):
        self.tables = {name: _fields(text) for name, text in tables.items()}
        self.structs = {name: _fields(text) for name, text in structs.items()}
        self.packing = {
            name: "".join(NUMBERS[f.type] for f in fields) for name, fields in self.structs.items()
        }

    def inline(self, kind: str) -> str | None:
        """The format of a value that lies in its table or vector; None: it is an offset."""
        return NUMBERS.get(kind) or self.packing.get(kind)


def _fields(text: str) -> list[Field]:
    fields = []
    for item in text.split():
        name, kind = item.split(":")
        kind, _, condition = kind.partition("?")
        if condition:
            tag, _, value = condition.partition("=")
            fields.append(Field(name, kind, only_if=(tag, int(value))))
            continue
        kind, _, default = kind.partition("=")
        fields.append(Field(name, kind, float(default) if default else 0))
    return fields


class _Reader:
    def __init__(self, data: bytes, schema: Schema, what: str):
        self.data, self.schema, self.what = data, schema, what
        self.left = len(data)  # bytes that may still be read: parts of a file are not shared

    def numbers(self, form: str, at: int) -> tuple[Any, ...]:
        size = struct.calcsize("<" + form)
        self.left -= size
        if self.left < -len(self.data):
            raise BadFile(f"{self.what}: its tables overlap")
        if at < 0 or at + size > len(self.data):
            raise BadFile(
                f"{self.what}: a table points to byte {at}; there are {len(self.data)} bytes"
            )
        return struct.unpack_from("<" + form, self.data, at)

    def offset(self, at: int) -> int:
        return at + int(self.numbers("I", at)[0])

    def table(self, kind: str, at: int, depth: int) -> dict[str, Any]:
        if depth > DEEPEST:
            raise BadFile(f"{self.what}: tables are nested more than {DEEPEST} deep")
        vtable = at - int(self.numbers("i", at)[0])
        size = int(self.numbers("H", vtable)[0])
        values: dict[str, Any] = {}
        for i, field in enumerate(self.schema.tables[kind]):
            where = 4 + 2 * i
            offset = int(self.numbers("H", vtable + where)[0]) if where + 2 <= size else 0
            if field.only_if and values[field.only_if[0]] != field.only_if[1]:
                offset = 0
            values[field.name] = self.field(field, at + offset if offset else 0, depth)
        return values

    def field(self, field: Field, at: int, depth: int) -> Any:
        kind = field.type
        if kind[0] == "[":
            return self.vector(kind[1:-1], self.offset(at), depth) if at else []
        if kind == "str":
            return self.text(self.offset(at)) if at else ""
        if kind == "bytes":
            return self.blob(self.offset(at)) if at else b""
        if kind in NUMBERS:
            return self.numbers(NUMBERS[kind], at)[0] if at else type_of(kind)(field.default)
        if not at:
            return None
        if kind in self.schema.structs:
            return self.struct(kind, at)
        return self.table(kind, self.offset(at), depth + 1)

    def struct(self, kind: str, at: int) -> dict[str, Any]:
        values = self.numbers(self.schema.packing[kind], at)
        return {f.name: v for f, v in zip(self.schema.structs[kind], values, strict=True)}

    def text(self, at: int) -> str:
        return self.blob(at).decode("utf-8", "replace")

    def blob(self, at: int) -> bytes:
        count = int(self.numbers("I", at)[0])
        return bytes(self.numbers(f"{count}s", at + 4)[0])

    def vector(self, kind: str, at: int, depth: int) -> list[Any]:
        count = int(self.numbers("I", at)[0])
        form = self.schema.inline(kind)
        each = struct.calcsize("<" + form) if form else 4
        if at + 4 + count * each > len(self.data):
            raise BadFile(
                f"{self.what}: a list of {count} items does not fit into {len(self.data)} bytes"
            )
        if kind in NUMBERS:
            return list(self.numbers(f"{count}{form}", at + 4))
        places = range(at + 4, at + 4 + count * each, each)
        if form:
            return [self.struct(kind, p) for p in places]
        if kind == "str":
            return [self.text(self.offset(p)) for p in places]
        return [self.table(kind, self.offset(p), depth + 1) for p in places]


def type_of(kind: str) -> type[int] | type[float]:
    """The Python type of a number."""
    return float if kind == "f32" else int


def read(data: bytes, schema: Schema, root: str, what: str) -> dict[str, Any]:
    """The root table of a buffer; BadFile where an offset or size is wrong."""
    reader = _Reader(data, schema, what)
    return reader.table(root, reader.offset(0), 0)


class _Writer:
    """Parents first, so that every offset points forward."""

    def __init__(self, schema: Schema):
        self.schema = schema
        self.out = bytearray(4)

    def align(self, to: int, before: int = 0) -> None:
        self.out += bytes(-(len(self.out) + before) % to)

    def point(self, at: int) -> None:
        struct.pack_into("<I", self.out, at, len(self.out) - at)

    def table(self, where: int, kind: str, values: Mapping[str, Any]) -> None:
        """Append a table and all that it points to; `where` is the place of its own offset."""
        fields = self.schema.tables[kind]
        if extra := values.keys() - {f.name for f in fields}:
            raise BadInput(f"{kind} has no field '{min(extra)}'")
        given = [
            (i, f, v)
            for i, f in enumerate(fields)
            if (v := values.get(f.name)) is not None and v != [] and v != f.default
        ]
        forms = [self.schema.inline(f.type) or "I" for _, f, _ in given]
        order = sorted(range(len(given)), key=lambda k: -_widest(forms[k]))
        count = max((i for i, _, _ in given), default=-1) + 1
        places, at = [0] * count, 4
        starts = {}
        for k in order:
            at += -at % _widest(forms[k])
            starts[k] = places[given[k][0]] = at
            at += struct.calcsize("<" + forms[k])
        vtable = struct.pack(f"<{count + 2}H", 4 + 2 * count, at, *places)
        self.align(8, len(vtable))  # the table itself is aligned
        self.out += vtable
        start = len(self.out)
        self.point(where)
        self.out += struct.pack("<i", len(vtable)) + bytes(at - 4)
        later = []
        for k, (_, field, value) in enumerate(given):
            place = start + starts[k]
            if self.schema.inline(field.type):
                struct.pack_into("<" + forms[k], self.out, place, *self.inline(field.type, value))
            else:
                later.append((place, field.type, value))
        self.fill(later)

    def inline(self, kind: str, value: Any) -> list[Any]:
        if kind in NUMBERS:
            return [value]
        return [value[f.name] for f in self.schema.structs[kind]]

    def fill(self, later: list[tuple[int, str, Any]]) -> None:
        """Append what the offsets point to."""
        for where, kind, value in later:
            if kind in ("str", "bytes"):
                self.align(4)
                self.point(where)
                text = value.encode() if kind == "str" else value
                self.out += struct.pack("<I", len(text)) + text + b"\0"
            elif kind[0] == "[":
                self.vector(where, kind[1:-1], value)
            else:
                self.table(where, kind, value)

    def vector(self, where: int, kind: str, values: list[Any]) -> None:
        form = self.schema.inline(kind)
        self.align(max(4, _widest(form or "I")), before=4)
        self.point(where)
        self.out += struct.pack("<I", len(values))
        if form:
            for value in values:
                self.out += struct.pack("<" + form, *self.inline(kind, value))
            return
        first = len(self.out)
        self.out += bytes(4 * len(values))
        self.fill([(first + 4 * i, kind, v) for i, v in enumerate(values)])


def _widest(form: str) -> int:
    return max(struct.calcsize("<" + c) for c in form)


def write(values: Mapping[str, Any], schema: Schema, root: str) -> bytes:
    """The buffer of a root table."""
    writer = _Writer(schema)
    writer.fill([(0, root, values)])
    writer.align(8)
    return bytes(writer.out)
