"""Large weights stay in the model's file until they are read: protobuf would copy them twice."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from intaglio.errors import BadFile
from intaglio.frontends import protobuf

LARGE = 4 << 20  # bytes of a file that is read like this, and of
WEIGHTS = 4096  # what a tensor holds
GRAPH, INITIALIZER = 7, 5  # fields of ModelProto and GraphProto
NAME, RAW, LOCATION = 8, 9, 14  # of TensorProto
Raws = Mapping[str, memoryview]  # what tensors hold, by name


def read(path: Path) -> tuple[bytes, Raws, int]:
    """A model's bytes without the large weights of its graph, those, and the size of the file."""
    with path.open("rb") as file:
        whole = _mapped(file)
        if whole is not None:
            try:
                return *_split(whole), len(whole)
            except BadFile:
                pass  # protobuf says what is wrong with it
        data = file.read()
    return data, {}, len(data)


def _mapped(file: BinaryIO) -> memoryview | None:
    """The content of a large file; None of what is small, or no file on a disk."""
    try:
        found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    return memoryview(found) if LARGE <= len(found) < 1 << 31 else None


def _split(model: memoryview) -> tuple[bytes, Raws]:
    """The model without weights, and the weights; BadFile where its bytes are no message."""
    fields = list(protobuf.fields(model, "onnx"))
    if sum(number == GRAPH for number, *_ in fields) != 1:
        raise BadFile("onnx: parts of a graph are merged")
    raws: dict[str, memoryview] = {}
    for i, (number, kind, value) in enumerate(fields):
        if number == GRAPH:
            fields[i] = (number, kind, memoryview(_without(protobuf.inside(value, "onnx"), raws)))
    return _message(fields), raws


def _without(graph: memoryview, raws: dict[str, memoryview]) -> bytes:
    """A graph whose tensors' large contents went to `raws`."""
    fields = list(protobuf.fields(graph, "onnx"))
    for i, (number, kind, value) in enumerate(fields):
        if number != INITIALIZER or len(protobuf.inside(value, "onnx")) < WEIGHTS:
            continue
        parts = list(protobuf.fields(protobuf.inside(value, "onnx"), "onnx"))
        held = [protobuf.inside(v, "onnx") for n, _, v in parts if n == RAW]
        names = [protobuf.text(v) for n, _, v in parts if n == NAME]
        if len(held) != 1 or len(names) != 1 or any(n == LOCATION for n, *_ in parts):
            continue
        if names[0] in raws:
            raise BadFile(f"onnx: two initialisers are called '{names[0]}'")
        raws[names[0]] = held[0]
        fields[i] = (number, kind, memoryview(_message([f for f in parts if f[0] != RAW])))
    return _message(fields)


def _message(fields: list[protobuf.Field]) -> bytes:
    """The bytes of a message with these fields."""
    made = bytearray()
    for number, kind, value in fields:
        made += _varint(number << 3 | kind)
        if isinstance(value, int):
            made += _varint(value)
            continue
        if kind == protobuf.BYTES:
            made += _varint(len(value))
        made += value
    return bytes(made)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)
