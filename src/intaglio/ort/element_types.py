"""Element types as onnxruntime names them: "tensor(float)" is ONNX's type 1 and numpy's float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ort.errors import BadValue

_WORDS = {"float32": "float", "float64": "double"}


def tensor_words(dtype: np.dtype[Any]) -> str:
    """The type of a tensor of this numpy dtype, such as "tensor(float)"."""
    return f"tensor({_WORDS.get(dtype.name, dtype.name.replace('_', ''))})"


def onnx_code(dtype: np.dtype[Any]) -> int:
    """ONNX's number of an element type."""
    name = dtypes.name_of(dtype)
    return next(code for code, (ours, _) in _elements().items() if ours == name)


def numpy_type(given: Any) -> np.dtype[Any]:
    """A numpy dtype from one, or from ONNX's number of an element type."""
    try:
        if isinstance(given, int) and not isinstance(given, bool):
            return dtypes.numpy_of(_elements()[given][0])
        dtype: np.dtype[Any] = np.dtype(given)
        dtypes.name_of(dtype)
        return dtype
    except (KeyError, TypeError):
        raise BadValue(
            f"{given!r} is no element type of numbers; give a numpy dtype such as np.float32, or "
            "ONNX's number of one"
        ) from None


def _elements() -> dict[int, tuple[str, str]]:
    from intaglio.frontends.onnx.tensors import ELEMENTS  # imports the importer

    return ELEMENTS
