"""Decoding of ONNX tensors: typed fields, raw bytes, packed sub-byte types, external files."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, BadInput, Unsupported
from intaglio.files import open_regular
from intaglio.ir import Array

# TensorProto.DataType -> (our name, typed field of the elements without raw_data)
ELEMENTS: dict[int, tuple[str, str]] = {
    1: ("f32", "float_data"),
    2: ("u8", "int32_data"),
    3: ("i8", "int32_data"),
    4: ("u16", "int32_data"),
    5: ("i16", "int32_data"),
    6: ("i32", "int32_data"),
    7: ("i64", "int64_data"),
    9: ("bool", "int32_data"),
    10: ("f16", "int32_data"),
    11: ("f64", "double_data"),
    12: ("u32", "uint64_data"),
    13: ("u64", "uint64_data"),
    16: ("bf16", "int32_data"),
    17: ("f8e4m3fn", "int32_data"),
    18: ("f8e4m3fnuz", "int32_data"),
    19: ("f8e5m2", "int32_data"),
    20: ("f8e5m2fnuz", "int32_data"),
    21: ("u4", "int32_data"),
    22: ("i4", "int32_data"),
    23: ("f4e2m1fn", "int32_data"),
    24: ("f8e8m0fnu", "int32_data"),
    25: ("u2", "int32_data"),
    26: ("i2", "int32_data"),
}
_CODES = {name: code for code, (name, _) in ELEMENTS.items()}
_REFUSED = {0: "no element type", 8: "strings", 14: "complex numbers", 15: "complex numbers"}
_EXTERNAL = 1  # TensorProto.EXTERNAL
MAX_BYTES = 1 << 40  # of one tensor


def element_type(code: int, what: str) -> str:
    """Our name for an ONNX element type."""
    if code not in ELEMENTS:
        raise Unsupported(
            f"onnx: {what} has {_REFUSED.get(code, f'element type {code}')}; "
            "tensors of numbers and bools are supported"
        )
    return ELEMENTS[code][0]


def check_size(shape: tuple[int, ...], dtype: str, what: str) -> None:
    """BadInput if a tensor is larger than MAX_BYTES."""
    size = math.prod(shape) * dtypes.itemsize(dtype)
    if size > MAX_BYTES:
        raise BadInput(
            f"onnx: {what} has shape {'x'.join(map(str, shape))}: {size / 2**40:,.0f} TiB; "
            f"at most {MAX_BYTES >> 40} TiB is supported; check the shapes that you gave and the "
            "model"
        )


def to_array(
    tensor: Any, folder: Path | None, what: str = "", raw: memoryview | None = None
) -> Array:
    """The elements of a TensorProto. Raw bytes are viewed and external files mapped, not copied.

    `raw`, the raw_data that was kept out of the message, is copied because it may be unaligned.
    """
    what = what or f"tensor '{tensor.name}'"
    dtype = element_type(tensor.data_type, what)
    shape = tuple(tensor.dims)
    if any(d < 0 for d in shape):
        raise BadFile(f"onnx: {what} has shape {shape}; a stored tensor has no negative dimension")
    check_size(shape, dtype, what)
    count, row = math.prod(shape), dtypes.TABLE[dtype]
    bits = row.bits if row.bits in (2, 4) else row.numpy.itemsize * 8
    expected = -(-count * bits // 8)
    if raw is not None:
        held = np.frombuffer(raw, np.uint8).copy()
    elif tensor.data_location == _EXTERNAL:
        held = _external(tensor, folder, expected, what)
    elif tensor.HasField("raw_data"):
        held = np.frombuffer(tensor.raw_data, np.uint8)
    else:
        return _typed(tensor, dtype, bits, count, what).reshape(shape)
    if held.size != expected:
        raise BadFile(
            f"onnx: {what} holds {held.size} bytes; {dtype}{list(shape)} takes {expected}; "
            "the file is damaged"
        )
    return _decode(held, dtype, bits, count).reshape(shape)


def _decode(raw: Array, dtype: str, bits: int, count: int) -> Array:
    row = dtypes.TABLE[dtype]
    if bits < 8:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)  # the first element is in the lowest bits
        codes = ((raw[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:count]
        if row.kind == "f":
            return codes.view(row.numpy)
        signed = codes.astype(np.int8)
        if row.kind == "i":
            signed = np.where(signed >= 1 << (bits - 1), signed - (1 << bits), signed)
        return signed.astype(row.numpy)
    if dtype == "bool":
        return np.not_equal(raw, 0)
    return raw.view(row.numpy)


def to_bytes(array: Array) -> bytes:
    """The elements encoded for `raw_data` and external files; sub-byte types are packed."""
    row = dtypes.TABLE[dtypes.name_of(array.dtype)]
    if row.bits not in (2, 4):
        return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    codes = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & ((1 << row.bits) - 1)
    per_byte = 8 // row.bits
    codes = np.pad(codes, (0, -codes.size % per_byte)).reshape(-1, per_byte)
    shifts = np.arange(0, 8, row.bits, dtype=np.uint8)
    return np.bitwise_or.reduce(codes << shifts, 1).astype(np.uint8).tobytes()


def element_code(dtype: str) -> int:
    """The ONNX number of an element type."""
    return _CODES[dtype]


def _typed(tensor: Any, dtype: str, bits: int, count: int, what: str) -> Array:
    row, field = dtypes.TABLE[dtype], ELEMENTS[tensor.data_type][1]
    items = getattr(tensor, field)
    expected = -(-count * bits // 8) if bits < 8 else count
    if len(items) != expected:
        raise BadFile(
            f"onnx: {what} holds {len(items)} items in {field}; its shape needs {expected}; "
            "the file is damaged"
        )
    if field in ("float_data", "double_data") or dtype in ("i64", "u64", "u32", "i32"):
        return np.array(items, dtype=row.numpy)
    codes = np.array(items, dtype=np.int64)
    if bits < 8:
        return _decode(codes.astype(np.uint8), dtype, bits, count)
    if row.kind == "f":  # small floats are stored as their bit patterns
        return codes.astype(f"u{row.numpy.itemsize}").view(row.numpy)
    return codes != 0 if dtype == "bool" else codes.astype(row.numpy)


def _external(tensor: Any, folder: Path | None, expected: int, what: str) -> Array:
    info: Mapping[str, str] = {e.key: e.value for e in tensor.external_data}
    location = info.get("location", "")
    if folder is None:
        raise BadInput(
            f"onnx: {what} is in the external file '{location}', but the model is given as "
            "bytes; load it from its path"
        )
    path = _inside(folder, location, what)
    try:
        offset, length = int(info.get("offset") or 0), int(info.get("length") or expected)
    except ValueError:
        raise BadFile(f"onnx: {what} has a malformed external offset or length") from None
    if length != expected:
        raise BadFile(f"onnx: {what} has {length} external bytes; its shape takes {expected}")
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if offset < 0 or offset + length > size:
                raise BadFile(
                    f"onnx: {what} is at bytes {offset}..{offset + length} of '{location}', "
                    f"which has {size}; the external file is truncated or belongs to another model"
                )
            if not length:
                return np.zeros(0, np.uint8)
            start = offset - offset % mmap.ALLOCATIONGRANULARITY
            view = mmap.mmap(
                file.fileno(), offset - start + length, access=mmap.ACCESS_READ, offset=start
            )
    except OSError as e:
        raise BadFile(
            f"onnx: {what} needs the external file '{location}': {_why(e)}; "
            "it must be in the folder of the model"
        ) from None
    return np.frombuffer(view, np.uint8, length, offset - start)


def _why(e: OSError) -> str:
    return (e.strerror or str(e)).lower()


def _inside(folder: Path, location: str, what: str) -> Path:
    """The path of an external file, which must be inside of the model's folder, even via links."""
    root = folder.resolve()
    bad = not location or "\0" in location or Path(location).is_absolute() or "\\" in location
    path = root if bad else (root / location).resolve()
    if bad or ".." in Path(location).parts or not path.is_relative_to(root) or path == root:
        raise BadFile(
            f"onnx: {what} points at the external file '{location}'; it must be a relative path "
            "that stays inside the model's folder"
        )
    return path


def sparse_to_array(sparse: Any, folder: Path | None) -> Array:
    """A SparseTensorProto as a dense array."""
    what = f"sparse tensor '{sparse.values.name}'"
    values = to_array(sparse.values, folder, what)
    indices = to_array(sparse.indices, folder, what)
    shape = tuple(sparse.dims)
    if any(d < 0 for d in shape):
        raise BadFile(f"onnx: {what} has shape {shape}; a stored tensor has no negative dimension")
    check_size(shape, dtypes.name_of(values.dtype), what)
    if math.prod(shape) * values.dtype.itemsize > 1 << 34:
        raise Unsupported(f"onnx: {what} takes more than 16 GiB as a dense tensor")
    dense = np.zeros(shape, values.dtype)
    if indices.ndim == 1 and indices.size == values.size:
        coordinates, extents = indices[:, None], [dense.size]
    elif indices.shape == (values.size, len(shape)):
        coordinates, extents = indices, list(shape)
    else:
        raise BadFile(f"onnx: {what} has indices of shape {indices.shape} for {values.size} values")
    if np.any(coordinates < 0) or np.any(coordinates >= extents):
        raise BadFile(f"onnx: {what} has an index outside of its shape {shape}")
    flat = np.zeros(values.size, np.int64)
    for axis, extent in enumerate(extents):
        flat = flat * extent + coordinates[:, axis]
    dense.reshape(-1)[flat] = values.reshape(-1)
    return dense
