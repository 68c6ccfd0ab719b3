"""Element types of PyTorch, and decoding of stored tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.torch.unpickle import Name, Stored
from intaglio.ir import Array, Value, constant

MAX_EXPANDED = 1 << 26  # elements of a tensor with more elements than its storage

# element types by their number in TorchScript
CODES = {
    0: "u8",
    1: "i8",
    2: "i16",
    3: "i32",
    4: "i64",
    5: "f16",
    6: "f32",
    7: "f64",
    11: "bool",
    12: "i8",
    13: "u8",
    14: "i32",
    15: "bf16",
    23: "f8e5m2",
    24: "f8e4m3fn",
    25: "f8e5m2fnuz",
    26: "f8e4m3fnuz",
    27: "u16",
    28: "u32",
    29: "u64",
}
CODE_OF = {
    "u8": 0,
    "i8": 1,
    "i16": 2,
    "i32": 3,
    "i64": 4,
    "f16": 5,
    "f32": 6,
    "f64": 7,
    "bool": 11,
    "bf16": 15,
}
# number in torch.export -> number in TorchScript
EXPORTED = {
    1: 0,
    2: 1,
    3: 2,
    4: 3,
    5: 4,
    6: 5,
    7: 6,
    8: 7,
    12: 11,
    13: 15,
    28: 27,
    29: 24,
    30: 23,
    31: 26,
    32: 25,
    34: 28,
    35: 29,
}
_STORAGES = {
    "Byte": "u8",
    "Char": "i8",
    "Short": "i16",
    "Int": "i32",
    "Long": "i64",
    "Half": "f16",
    "Float": "f32",
    "Double": "f64",
    "Bool": "bool",
    "BFloat16": "bf16",
    "QInt8": "i8",
    "QUInt8": "u8",
    "QInt32": "i32",
}


def dtype_of(code: Any) -> str:
    """Our name for the element type with this TorchScript number."""
    if code not in CODES or isinstance(code, bool):
        raise Unsupported(f"element type {code} of PyTorch is not supported")
    return CODES[code]


class Number(Value):
    """A constant that was a Python number before tracing; it is weak in type promotion."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """A quantised PyTorch tensor: stored integers, scale and zero point."""

    stored: Value
    scale: tuple[float, ...]
    zero: tuple[int, ...]
    axis: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A complex tensor: real and imaginary parts as a last axis of two."""

    pairs: Value


class NamedTuple(tuple):  # type: ignore[type-arg]
    """A named tuple of the file."""

    fields: list[str]

    def __new__(cls, items: list[Any], fields: list[str]) -> NamedTuple:
        result = super().__new__(cls, items)
        result.fields = fields
        return result

    def get(self, name: str) -> Any:
        return self[self.fields.index(name)]


Read = Callable[[str], bytes]  # key of a storage -> its bytes


def as_array(t: Stored, read: Read, what: str, swapped: bool = False) -> Array:
    """The elements of a stored tensor; `read` returns the bytes of a storage."""
    kind = _STORAGES.get(t.storage.kind.removesuffix("Storage"))
    if kind is None:
        raise Unsupported(f"{what} stores a tensor as {t.storage.kind}, which is not supported")
    dtype = np.dtype(dtypes.numpy_of(kind))
    data = read(t.storage.key)
    if swapped:
        dtype = dtype.newbyteorder("S")
    return strided(data, dtype, t.offset, t.shape, t.stride, what)


def strided(
    data: bytes,
    dtype: np.dtype[Any],
    offset: int,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    what: str,
) -> Array:
    """A strided view of `data`; BadFile if an index is outside of it."""
    sizes = (*shape, *stride, offset)
    if len(shape) != len(stride) or any(type(d) is not int or d < 0 for d in sizes):
        raise BadFile(f"{what}: a tensor has shape {shape} and strides {stride}; it is damaged")
    count, here = math.prod(shape), len(data) // dtype.itemsize
    last = offset + sum((d - 1) * s for d, s in zip(shape, stride, strict=True))
    if count and last >= here:
        raise BadFile(
            f"{what}: a tensor of shape {shape} needs {last + 1} elements; {here} are "
            "stored; it is truncated or damaged"
        )
    if count > here and count > MAX_EXPANDED:
        raise BadFile(
            f"{what}: a tensor of shape {shape} is expanded from {here} elements; the "
            "file is damaged or malicious"
        )
    if not count:
        return np.zeros(shape, dtype.newbyteorder("="))
    flat = np.frombuffer(data, dtype, here)
    bytes_ = tuple(s * dtype.itemsize for s in stride)
    view = np.lib.stride_tricks.as_strided(flat[offset:], shape, bytes_, writeable=False)
    result = np.ascontiguousarray(view).astype(dtype.newbyteorder("="), copy=False)
    return result.reshape(shape)  # numpy adds an axis to a single element


def loaded(t: Stored, read: Read, what: str, swapped: bool = False) -> Value | Quantized:
    """A stored tensor as a constant."""
    value = constant(as_array(t, read, what, swapped))
    if t.quant is None:
        return value
    scheme = t.quant[0].name if isinstance(t.quant[0], Name) else str(t.quant[0])
    if scheme in ("per_tensor_affine", "per_tensor_symmetric"):
        return Quantized(value, (float(t.quant[1]),), (int(t.quant[2]),))
    if scheme not in ("per_channel_affine", "per_channel_symmetric"):
        raise Unsupported(f"{what}: quantisation scheme '{scheme}' is not supported")
    scale, zero = (as_array(p, read, what, swapped) for p in t.quant[1:3])
    return Quantized(
        value,
        tuple(scale.astype(float).tolist()),
        tuple(int(z) for z in zero.tolist()),
        int(t.quant[3]),
    )


def number(x: Any, dtype: str) -> Value:
    """A Python number as a constant of an element type."""
    return constant(np.asarray(x).astype(dtypes.numpy_of(dtype)))
