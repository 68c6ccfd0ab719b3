"""Element types by PyTorch's numbers and names, and stored tensors as arrays."""

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

LARGE = 1 << 26  # elements that a tensor may have beyond what its storage holds

# the number of an element type in TorchScript, and ours
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
# torch.export numbers them differently
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
    """Our name of an element type that TorchScript gives as a number."""
    if code not in CODES or isinstance(code, bool):
        raise Unsupported(f"element type {code} of PyTorch is not known")
    return CODES[code]


class Number(Value):
    """A constant that was a Python number before it was traced: it decides no element type."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """A tensor of PyTorch that carries its scale: what is stored, and what that means."""

    stored: Value
    scale: tuple[float, ...]
    zero: tuple[int, ...]
    axis: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A complex tensor: real and imaginary parts as a last axis of two."""

    pairs: Value


Read = Callable[[str], bytes]  # a storage's bytes by its key


def as_array(t: Stored, read: Read, what: str, swapped: bool = False) -> Array:
    """The elements of a stored tensor; `read` gives a storage's bytes."""
    kind = _STORAGES.get(t.storage.kind.removesuffix("Storage"))
    if kind is None:
        raise Unsupported(f"{what} stores a tensor as {t.storage.kind}, which is not read")
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
    """A view of `data`, after every index was found to lie inside of it."""
    sizes = (*shape, *stride, offset)
    if len(shape) != len(stride) or any(type(d) is not int or d < 0 for d in sizes):
        raise BadFile(f"{what}: a tensor has shape {shape} and strides {stride}; it is damaged")
    count, here = math.prod(shape), len(data) // dtype.itemsize
    last = offset + sum((d - 1) * s for d, s in zip(shape, stride, strict=True))
    if count and last >= here:
        raise BadFile(
            f"{what}: a tensor of shape {shape} needs {last + 1} elements, {here} are "
            "stored; it is truncated or damaged"
        )
    if count > here and count > LARGE:
        raise BadFile(
            f"{what}: a tensor of shape {shape} is spread out of {here} elements; the "
            "file is damaged or hostile"
        )
    if not count:
        return np.zeros(shape, dtype.newbyteorder("="))
    flat = np.frombuffer(data, dtype, here)
    bytes_ = tuple(s * dtype.itemsize for s in stride)
    view = np.lib.stride_tricks.as_strided(flat[offset:], shape, bytes_, writeable=False)
    made = np.ascontiguousarray(view).astype(dtype.newbyteorder("="), copy=False)
    return made.reshape(shape)  # numpy gives a lone element an axis


def loaded(t: Stored, read: Read, what: str, swapped: bool = False) -> Value | Quantized:
    """A stored tensor as a constant."""
    value = constant(as_array(t, read, what, swapped))
    if t.quant is None:
        return value
    scheme = t.quant[0].name if isinstance(t.quant[0], Name) else str(t.quant[0])
    if scheme in ("per_tensor_affine", "per_tensor_symmetric"):
        return Quantized(value, (float(t.quant[1]),), (int(t.quant[2]),))
    if scheme not in ("per_channel_affine", "per_channel_symmetric"):
        raise Unsupported(f"{what}: quantisation scheme '{scheme}' is not read")
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
