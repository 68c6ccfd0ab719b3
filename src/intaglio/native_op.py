"""An operation of the runtime's table, and the bytes of its attributes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from intaglio import symint
from intaglio.errors import BadInput

# enum itg_op_flags
INPLACE, VIEW, EXTENT, CONTROL, INPLACE_FIRST, VALUES, ROUNDS = 1, 2, 4, 8, 16, 32, 64
ANY_ISA, CALLER, TEXT = 128, 256, 512


@dataclass(frozen=True)
class Field:
    """One field of an attribute struct: `count` 8-byte numbers called `name`."""

    name: str
    kind: str  # "i" integer, "f" float, "e" index into `words`
    count: int
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plugin:
    """The plug-in that an operation comes from."""

    name: str
    version: str
    abi: int


@dataclass(frozen=True)
class NativeOp:
    """An operation of the runtime's table."""

    name: str
    declared: str  # its fields in words, as the table has them
    flags: int
    infer: Any = None
    scratch: Any = None
    plugin: Plugin | None = None  # None: the runtime itself

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return fields_of(self.declared)

    def numbers(self, attrs: Mapping[str, Any]) -> list[Any]:
        """The attributes as the numbers of the op's C struct, 8 bytes each."""
        if self.flags & TEXT:
            _refuse_open(self.name, attrs)
            return []
        return [n for f in self.fields for n in _field_numbers(self.name, f, attrs)]

    def pack_attrs(self, attrs: Mapping[str, Any]) -> bytes:
        """The attributes as the bytes that the op reads: its C struct, or text with its length."""
        if self.flags & TEXT:
            _refuse_open(self.name, attrs)
            text = json.dumps(dict(attrs), separators=(",", ":"), sort_keys=True).encode()
            return len(text).to_bytes(8, "little") + text
        out = bytearray()
        for f in self.fields:
            numbers = [symint.plain(n) for n in _field_numbers(self.name, f, attrs)]
            out += np.array(numbers, np.float64 if f.kind == "f" else np.int64).tobytes()
        return bytes(out)

    def unpack_attrs(self, raw: bytes) -> dict[str, Any]:
        """The inverse of `pack_attrs`."""
        if self.flags & TEXT:
            found = json.loads(raw[8:])
            if not isinstance(found, dict):
                raise ValueError("attributes are no JSON object")
            return {k: as_tuples(v) for k, v in found.items()}
        out: dict[str, Any] = {}
        at = 0
        for f in self.fields:
            items = np.frombuffer(raw, np.float64 if f.kind == "f" else np.int64, f.count, at)
            at += items.nbytes
            values = [f.words[i] for i in items] if f.kind == "e" else items.tolist()
            out[f.name] = values[0] if f.count == 1 else tuple(values)
        for name in [n for n in out if n.startswith("n_") and n[2:] in out]:
            value = out[name[2:]]
            out[name[2:]] = value[: out.pop(name)] if isinstance(value, tuple) else value
        return out


def fields_of(text: str) -> tuple[Field, ...]:
    """The fields of "stride:i2 alpha:f1 mode:e1(nearest|linear)"."""
    return tuple(_parse_field(word) for word in text.split())


def _parse_field(text: str) -> Field:
    found = re.fullmatch(r"(\w+):([ife])(\d+)(?:\((.*)\))?", text)
    if found is None:
        raise ValueError(f"attribute field {text!r} is not written as in stride:i2")
    name, kind, count, words = found.groups()
    return Field(name, kind, int(count), tuple(words.split("|")) if words else ())


def _field_numbers(op: str, f: Field, attrs: Mapping[str, Any]) -> list[Any]:
    if f.name not in attrs and f.name.startswith("n_"):
        return [len(attrs[f.name[2:]])]
    if f.name not in attrs:
        raise KeyError(
            f"op {op}: the kernel wants attribute {f.name!r}, the node has {sorted(attrs)}"
        )
    value = attrs[f.name]
    items = [value] if f.count == 1 and not isinstance(value, tuple | list) else list(value)
    if f.kind == "e":
        if unknown := [w for w in items if w not in f.words]:
            raise BadInput(
                f"op {op}: {f.name} is {unknown[0]!r}; the kernel knows {', '.join(f.words)}"
            )
        items = [f.words.index(w) for w in items]
    if len(items) > f.count:
        raise BadInput(
            f"op {op}: {f.name} has {len(items)} entries; the kernel takes at most {f.count}"
        )
    return items + [0] * (f.count - len(items))


def _refuse_open(op: str, attrs: Mapping[str, Any]) -> None:
    for name, value in attrs.items():
        if symint.is_symbolic(value):
            raise BadInput(f"op {op}: {name} depends on open dimensions ({value}); give a number")


def as_tuples(value: Any) -> Any:
    """Lists of JSON as tuples."""
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value
