"""Decoding of TensorProto, TensorShapeProto and DataType."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, Unsupported
from intaglio.frontends import protobuf
from intaglio.ir import Array

DTYPES = {
    1: "f32",
    2: "f64",
    3: "i32",
    4: "u8",
    5: "i16",
    6: "i8",
    7: "string",
    8: "complex",
    9: "i64",
    10: "bool",
    11: "i8",
    12: "u8",
    13: "i32",
    14: "bf16",
    15: "i16",
    16: "u16",
    17: "u16",
    18: "complex",
    19: "f16",
    20: "resource",
    21: "variant",
    22: "u32",
    23: "u64",
}
_VALUES = {
    5: "f",
    6: "d",
    7: "i",
    10: "i",
    11: "i",
    13: "i",
    16: "i",
    17: "i",
}  # struct format by field number
MOST_DIMS = 16
MAX_REPEATED = 1 << 24  # elements of a tensor that stores fewer numbers


@dataclass(frozen=True)
class Tensor:
    """A tensor that is not decoded yet."""

    raw: memoryview


def read_shape(message: memoryview, what: str) -> tuple[int, ...] | None:
    """The extents, -1 for open ones; None if the rank is unknown."""
    dims = []
    for n, _, value in protobuf.fields(message, what):
        if n == 3 and value:
            return None
        if n == 2:
            size = 0
            for m, _, v in protobuf.fields(protobuf.inside(value, what), what):
                if m == 1:
                    size = protobuf.whole(v, what)
            dims.append(size)
    if len(dims) > MOST_DIMS or any(not -1 <= d < 1 << 40 for d in dims):
        raise BadFile(f"{what} has the invalid shape {dims[:8]}")
    return tuple(dims)


def read_tensor(tensor: Tensor, what: str) -> Array:
    """The array; if it stores fewer numbers than elements, the last one is repeated."""
    shape: tuple[int, ...] | None = ()
    code, content = 0, memoryview(b"")
    parts: list[Array] = []
    for n, _, value in protobuf.fields(tensor.raw, what):
        if n == 1:
            code = protobuf.whole(value, what)
        elif n == 2:
            shape = read_shape(protobuf.inside(value, what), what)
        elif n == 4:
            content = protobuf.inside(value, what)
        elif n in _VALUES:
            parts.append(_numbers(n, value, what))
    dtype = DTYPES.get(code, f"element type {code}")
    if dtype not in dtypes.TABLE:
        raise Unsupported(f"{what} holds {dtype}; only numbers are supported")
    kind = dtypes.numpy_of(dtype)
    if shape is None or min(shape, default=0) < 0:
        raise BadFile(f"{what} has the shape {shape}; it must be known")
    size = math.prod(shape)
    if len(content):
        if len(content) != size * kind.itemsize:
            raise BadFile(
                f"{what} has {len(content)} bytes, which do not fit {dtype} of shape {shape}"
            )
        return np.frombuffer(content, kind.newbyteorder("<")).astype(kind).reshape(shape)
    numbers = np.concatenate(parts) if parts else np.zeros(1)
    if dtype in ("f16", "bf16"):
        stored = numbers.astype(np.int64).astype(np.uint16).view(kind)
    else:
        with np.errstate(invalid="ignore"):  # a damaged file may hold floats for integers
            stored = numbers.astype(kind)
    if len(stored) > max(size, 1) or size > max(MAX_REPEATED, len(stored)):
        raise BadFile(f"{what} has {len(stored)} numbers, which do not fit shape {shape}")
    if size > len(stored):
        stored = np.concatenate([stored, np.full(size - len(stored), stored[-1])])
    return stored[:size].reshape(shape)


def _numbers(number: int, value: int | memoryview, what: str) -> Array:
    if _VALUES[number] == "f":
        return protobuf.floats(value, what)
    if _VALUES[number] == "d":
        return protobuf.floats(value, what, "<f8")
    return np.array(protobuf.wholes(value, what), np.int64)


def read_strings(tensor: Tensor, what: str) -> list[str]:
    """The strings of a string tensor."""
    return [protobuf.text(value) for n, _, value in protobuf.fields(tensor.raw, what) if n == 8]
