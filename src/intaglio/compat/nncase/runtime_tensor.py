"""Tensors of nncase's runtime, and where they lie in its memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intaglio.compat.nncase.refusals import NncaseError
from intaglio.ir import Array

INPUT, OUTPUT, RDATA, DATA, SHARED = range(5)  # locations


@dataclass
class MemoryRange:
    """Place and type of an input or output: `location`, `dtype`, `start` and `size` in bytes."""

    location: int = INPUT
    dtype: Any = field(default_factory=lambda: np.dtype(np.float32))
    start: int = 0
    size: int = 0


class RuntimeTensor:
    """An array that a model reads or writes."""

    def __init__(self, array: Array | None = None):
        self._array: Array = np.zeros(0, np.float32) if array is None else array

    @staticmethod
    def from_numpy(arr: Any) -> RuntimeTensor:
        """A tensor with the values of a numpy array."""
        if arr is None:
            raise NncaseError(
                "from_numpy: the array is None; cv2.imread returns None if there is no such picture"
            )
        array = np.asarray(arr)
        if array.dtype == object or array.dtype.kind in "USV":
            raise NncaseError(
                f"from_numpy: the array is {array.dtype}; give one of numbers, such as np.float32"
            )
        return RuntimeTensor(np.array(array, order="C"))

    def to_numpy(self) -> Array:
        """The values as a numpy array."""
        return self._array

    def copy_to(self, to: RuntimeTensor) -> None:
        """Copy the values into another tensor of the same type and size."""
        if not isinstance(to, RuntimeTensor):
            raise NncaseError(f"copy_to: the target is {type(to).__name__}; give a RuntimeTensor")
        mine, other = self._array, to._array
        if mine.dtype != other.dtype or mine.size != other.size:
            raise NncaseError(
                f"copy_to: {mine.dtype}{list(mine.shape)} does not fit into "
                f"{other.dtype}{list(other.shape)}; convert or resize it first"
            )
        other[...] = mine.reshape(other.shape)

    @property
    def dtype(self) -> Any:
        """The numpy type of the elements."""
        return self._array.dtype

    @property
    def shape(self) -> list[int]:
        """The extents."""
        return list(self._array.shape)

    def __repr__(self) -> str:
        return f"RuntimeTensor({self.dtype}{self.shape})"
