"""Reads large ONNX files without copying the weights, which protobuf would copy twice."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from intaglio.errors import BadFile
from intaglio.files import open_regular
from intaglio.frontends import protobuf

MAX_FILE = 1 << 31  # bytes; protobuf has no larger messages
LARGE_FILE = 4 << 20  # bytes of a file from which its weights are mapped
LARGE_TENSOR = 4096  # bytes of a tensor from which it is kept out of the protobuf message
GRAPH, INITIALIZER = 7, 5  # field numbers of ModelProto and GraphProto
NAME, RAW, LOCATION = 8, 9, 14  # field numbers of TensorProto
RawWeights = Mapping[str, memoryview]  # raw_data of initialisers, by name


def read(path: Path) -> tuple[bytes, RawWeights, int]:
    """The model's bytes without its large weights, the large weights, and the size of the file."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size >= MAX_FILE:
            raise BadFile(
                f"'{path}' has {size >> 20} MiB; an ONNX file holds at most 2 GiB; "
                "save it with external data"
            )
        whole = _mapped(file)
        if whole is not None:
            try:
                return *_split(whole), len(whole)
            except BadFile:
                pass  # let protobuf report the damage
        data = file.read()
    return data, {}, len(data)


def _mapped(file: BinaryIO) -> memoryview | None:
    """A large file mapped into memory; None if it is small or cannot be mapped."""
    try:
        found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    return memoryview(found) if len(found) >= LARGE_FILE else None


def _split(model: memoryview) -> tuple[bytes, RawWeights]:
    """The model without large weights, and these; BadFile if the bytes are not a message."""
    fields = list(protobuf.fields(model, "onnx"))
    if sum(number == GRAPH for number, *_ in fields) != 1:
        raise BadFile("onnx: the file does not have exactly one graph field")
    raws: dict[str, memoryview] = {}
    for i, (number, kind, value) in enumerate(fields):
        if number == GRAPH:
            fields[i] = (number, kind, memoryview(_without(protobuf.inside(value, "onnx"), raws)))
    return _message(fields), raws


def _without(graph: memoryview, raws: dict[str, memoryview]) -> bytes:
    """The bytes of a GraphProto with the raw_data of large initialisers moved to `raws`."""
    fields = list(protobuf.fields(graph, "onnx"))
    for i, (number, kind, value) in enumerate(fields):
        if number != INITIALIZER or len(protobuf.inside(value, "onnx")) < LARGE_TENSOR:
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
    """The fields encoded as a protobuf message."""
    result = bytearray()
    for number, kind, value in fields:
        result += _varint(number << 3 | kind)
        if isinstance(value, int):
            result += _varint(value)
            continue
        if kind == protobuf.BYTES:
            result += _varint(len(value))
        result += value
    return bytes(result)


def _varint(value: int) -> bytes:
    result = bytearray()
    while value > 127:
        result.append(value & 127 | 128)
        value >>= 7
    result.append(value)
    return bytes(result)
