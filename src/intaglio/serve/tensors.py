"""Tensors as the Open Inference Protocol describes them: data types, shapes, and their checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import Unsupported
from intaglio.ir import Array
from intaglio.serve.refusals import bad_request

DATATYPES = {  # our element types -> the protocol's
    "bool": "BOOL",
    "u8": "UINT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "u64": "UINT64",
    "i8": "INT8",
    "i16": "INT16",
    "i32": "INT32",
    "i64": "INT64",
    "f16": "FP16",
    "f32": "FP32",
    "f64": "FP64",
    "bf16": "BF16",
}
MAX_KNOWN_SHAPES = 256  # checked shapes that a tensor remembers


@dataclass
class TensorSpec:
    """An input or output of a model: an extent of -1 is open."""

    name: str
    datatype: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    highest: tuple[int, ...]  # largest extents, of inputs
    known: dict[tuple[int, ...], int] = field(default_factory=dict)  # checked shape -> bytes

    @classmethod
    def of(
        cls, name: str, dtype: str, shape: Sequence[int], highest: Sequence[int] = ()
    ) -> TensorSpec:
        """The description of a tensor of one of our element types."""
        if dtype not in DATATYPES:
            raise Unsupported(
                f"tensor '{name}' is {dtype}; the Open Inference Protocol has no such data type; "
                "compile the model with inputs and outputs of another type"
            )
        return cls(name, DATATYPES[dtype], dtypes.numpy_of(dtype), tuple(shape), tuple(highest))

    def bytes_of(self, datatype: str, shape: tuple[int, ...]) -> int:
        """The size of an input of this type and shape; Refused if the model does not take it."""
        if datatype != self.datatype:
            raise bad_request(
                f"input '{self.name}' has data type {datatype[:16]!r}; the model takes "
                f"{self.datatype}"
            )
        size = self.known.get(shape)
        return self._checked(shape) if size is None else size

    def _checked(self, shape: tuple[int, ...]) -> int:
        fits = len(shape) == len(self.shape) and all(
            0 <= given <= most if extent < 0 else given == extent
            for given, extent, most in zip(shape, self.shape, self.highest, strict=True)
        )
        if not fits:
            limits = ", ".join(
                f"at most {most}" if extent < 0 else str(extent)
                for extent, most in zip(self.shape, self.highest, strict=True)
            )
            shown = list(shape[:8])
            raise bad_request(f"input '{self.name}' has shape {shown}; the model takes [{limits}]")
        size = math.prod(shape) * self.dtype.itemsize
        if len(self.known) < MAX_KNOWN_SHAPES:
            self.known[shape] = size
        return size

    def from_bytes(self, raw: memoryview | bytes, shape: tuple[int, ...]) -> Array:
        """The array in these bytes, whose number was checked; not a copy, but of bools."""
        flat = np.frombuffer(raw, self.dtype)
        if self.datatype == "BOOL":  # perf_analyzer sends any bytes
            flat = flat.view(np.uint8) != 0
        return flat.reshape(shape)

    def from_numbers(self, numbers: Any, shape: tuple[int, ...]) -> Array:
        """The array of a JSON list, flat or nested."""
        kind = self.dtype.kind
        try:
            a = np.asarray(numbers)
            if not a.size:
                a = a.astype(self.dtype)
            if kind in "iu" and (a.dtype.kind not in "iu" or not _in_range(a, self.dtype)):
                raise ValueError
            if kind == "b" and not (a.dtype.kind == "b" or (a.dtype.kind == "i" and _is_bits(a))):
                raise ValueError
            if a.dtype.kind not in "biuf":
                raise ValueError
            with np.errstate(over="ignore"):
                made = a.astype(self.dtype)
        except (ValueError, TypeError, OverflowError):
            raise bad_request(
                f"input '{self.name}' has data that are no {self.datatype} numbers; give a list "
                "of numbers, flat or nested"
            ) from None
        if made.ndim != 1 and made.shape != shape:
            raise bad_request(
                f"input '{self.name}' has nested data of shape {list(made.shape[:8])}; its shape "
                f"is {list(shape)}"
            )
        if made.size != math.prod(shape):
            raise bad_request(
                f"input '{self.name}' has {made.size} numbers; its shape {list(shape)} has "
                f"{math.prod(shape)}"
            )
        return made.reshape(shape)


def _in_range(a: Array, dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return not a.size or (int(a.min()) >= limits.min and int(a.max()) <= limits.max)


def _is_bits(a: Array) -> bool:
    return not a.size or (int(a.min()) >= 0 and int(a.max()) <= 1)
