"""OrtValue: a tensor in the CPU's memory, as onnxruntime wraps it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from intaglio.arguments import described
from intaglio.ir import Array
from intaglio.ort.element_types import numpy_type, onnx_code, tensor_words
from intaglio.ort.errors import BadValue, unsupported


class OrtDevice:
    """A device; the CPU is the only one."""

    def __init__(self, name: str = "cpu", number: int = 0):
        require_cpu(name, number)

    @staticmethod
    def make(name: str, device_id: int = 0, vendor_id: int = -1) -> OrtDevice:
        """The device with this name."""
        return OrtDevice(name, device_id)

    def device_type(self) -> int:
        """onnxruntime's number of the kind of device: 0, the CPU."""
        return 0

    def device_id(self) -> int:
        """The number of the device."""
        return 0

    def device_mem_type(self) -> int:
        """The kind of memory: 0, the default."""
        return 0


def require_cpu(name: Any, number: Any = 0) -> None:
    """BadValue unless this is the CPU."""
    if isinstance(name, OrtDevice):
        return
    if not isinstance(name, str) or name.lower() != "cpu" or number not in (0, None):
        raise BadValue(
            f"device {name!r}, number {number!r}, is not available; Intaglio computes on the CPU; "
            "give 'cpu' and 0"
        )


class OrtValue:
    """A tensor. It shares the memory of the array that it was made from."""

    def __init__(self, array: Array):
        if not isinstance(array, np.ndarray):
            raise BadValue(f"an OrtValue is made of a numpy array, got {described(array)}")
        if array.dtype.kind in "OUSV" and not _is_small(array.dtype):
            raise BadValue(f"an OrtValue holds numbers, got {described(array)}")
        numpy_type(array.dtype)
        self._array = np.ascontiguousarray(array).reshape(array.shape)

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Array, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """The tensor of an array; a C-contiguous one is not copied."""
        require_cpu(device_type, device_id)
        return cls(numpy_obj)

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, onnx_element_type: int) -> OrtValue:
        """The tensor of an array whose bytes are elements of another type (16: bfloat16)."""
        dtype = numpy_type(onnx_element_type)
        if dtype.itemsize != np.asarray(data).dtype.itemsize:
            raise BadValue(
                f"{described(data)} cannot hold {dtype.name}: its elements have another size; give "
                f"an array of {8 * dtype.itemsize} bits per element"
            )
        return cls(np.ascontiguousarray(data).view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """A new tensor whose elements are not set."""
        require_cpu(device_type, device_id)
        return cls(np.empty(tuple(int(d) for d in shape), numpy_type(element_type)))

    @classmethod
    def from_dlpack(cls, data: Any) -> OrtValue:
        """A tensor that shares the memory of an object with `__dlpack__`."""
        return cls(np.from_dlpack(data))

    def numpy(self) -> Array:
        """The tensor as an array, which shares its memory."""
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if dtype is not None and np.dtype(dtype) != self._array.dtype:
            return self._array.astype(dtype)
        return self._array.copy() if copy else self._array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self._array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def shape(self) -> list[int]:
        """The shape as a list."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """The type, such as "tensor(float)"."""
        return tensor_words(self._array.dtype)

    def element_type(self) -> int:
        """ONNX's number of the element type."""
        return onnx_code(self._array.dtype)

    def device_name(self) -> str:
        """The device: "cpu"."""
        return "cpu"

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._array.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """The bytes of all elements."""
        return int(self._array.nbytes)

    def has_value(self) -> bool:
        """Whether there is a tensor: always."""
        return True

    def is_tensor(self) -> bool:
        """Whether this is a dense tensor: always."""
        return True

    def is_sparse_tensor(self) -> bool:
        """Whether this is a sparse tensor: never."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Whether this is a sequence of tensors: never."""
        return False

    def as_sparse_tensor(self) -> NoReturn:
        """Refused: sparse tensors are not supported."""
        raise unsupported("sparse tensors are not supported; use the dense tensor")

    def update_inplace(self, data: Array) -> None:
        """Write other elements into the tensor's memory."""
        given = np.asarray(data)
        if given.dtype != self._array.dtype or given.size != self._array.size:
            raise BadValue(
                f"{described(given)} does not fit this tensor, {self._array.dtype}"
                f"{self.shape()}; give as many elements of the same type"
            )
        self._array[...] = given.reshape(self._array.shape)


def _is_small(dtype: np.dtype[Any]) -> bool:
    """Whether this is one of ml_dtypes' element types, which numpy calls void."""
    return dtype.kind == "V" and dtype.names is None and dtype.type is not np.void


def at_address(name: str, address: int, dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
    """The array that lies at an address; its owner must keep it alive."""
    extents = tuple(int(d) for d in shape)
    size = int(np.prod(extents, dtype=np.int64)) * dtype.itemsize
    if not isinstance(address, int) or (size and not address) or size < 0:
        raise BadValue(f"the buffer of '{name}' is at {address!r}; give the address of an array")
    raw: Any = (ctypes.c_uint8 * size).from_address(address) if size else b""
    return np.frombuffer(raw, dtype, size // dtype.itemsize).reshape(extents)
