"""Arrays of other libraries as numpy arrays over the same memory: the DLPack protocol.

`numpy.from_dlpack` knows neither bfloat16 nor 8-bit floats, and older versions make arrays that
cannot be written. So the capsule is read here.
"""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array

ON_CPU = (1, 3, 11)  # kDLCPU, and host memory of CUDA and ROCm
DEVICES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 13: "CUDA", 14: "oneAPI"}
TYPES: dict[tuple[int, int], Any] = {  # by DLDataTypeCode and bits
    **{(0, 8 * size): f"i{size}" for size in (1, 2, 4, 8)},
    **{(1, 8 * size): f"u{size}" for size in (1, 2, 4, 8)},
    **{(2, 8 * size): f"f{size}" for size in (2, 4, 8)},
    (4, 16): ml_dtypes.bfloat16,
    (6, 8): "?",
    (10, 8): ml_dtypes.float8_e4m3fn,
    (11, 8): ml_dtypes.float8_e4m3fnuz,
    (12, 8): ml_dtypes.float8_e5m2,
    (13, 8): ml_dtypes.float8_e5m2fnuz,
    (14, 8): ml_dtypes.float8_e8m0fnu,
}


class _Tensor(ctypes.Structure):
    """DLTensor, with which a DLManagedTensor begins."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),  # in elements; null: C-contiguous
        ("byte_offset", ctypes.c_uint64),
    ]


class _Memory:
    """Bytes at an address, for numpy; the capsule frees them when the last array is gone."""

    def __init__(self, capsule: object, **interface: Any):
        self.capsule = capsule
        self.__array_interface__ = {"version": 3, **interface}


def offers(given: object) -> bool:
    """Whether an object of another library can be read by the protocol."""
    return not isinstance(given, np.ndarray | np.generic) and hasattr(given, "__dlpack__")


def as_array(what: str, given: Any) -> Array:
    """A numpy array over the memory of an array of another library, which stays alive.

    BadInput, with `what` it is, if the memory is not the CPU's or its type is unknown. Other
    errors are those of the other library.
    """
    kind = int(given.__dlpack_device__()[0])
    if kind not in ON_CPU:
        device = DEVICES.get(kind, f"of DLPack's kind {kind}")
        raise BadInput(f"{what} lies in memory of a device ({device}); copy it to the CPU first")
    capsule = given.__dlpack__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    t = _Tensor.from_address(get(capsule, b"dltensor"))
    dtype = TYPES.get((t.code, t.bits)) if t.lanes == 1 else None
    if dtype is None:
        raise BadInput(
            f"{what} has elements of DLPack's type {t.code} with {t.bits} bits, which numpy lacks; "
            "convert it"
        )
    dtype = np.dtype(dtype)
    shape = tuple(t.shape[: t.ndim])
    if 0 in shape:
        return np.empty(shape, dtype)
    strides = tuple(n * dtype.itemsize for n in t.strides[: t.ndim]) if t.strides else None
    raw = _Memory(
        capsule,
        shape=shape,
        typestr=f"|V{dtype.itemsize}",  # numpy has no words for the types of ml_dtypes
        data=(t.data + t.byte_offset, False),
        strides=strides,
    )
    return np.asarray(raw).view(dtype)
