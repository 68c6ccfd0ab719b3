"""Constants of the model: numbers, lists and .npy files as TensorProtos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.array_files import read_npy
from intaglio.edit.node_expression import Word
from intaglio.errors import BadInput
from intaglio.frontends.onnx.tensors import element_code, to_bytes
from intaglio.ir import Array


def fits(array: Array, dtype: str) -> bool:
    """Whether numbers may become this type: fractions do not become integers."""
    return not (array.dtype.kind == "f" and not dtypes.is_float(dtype))


def as_array(value: Any, name: str) -> Array:
    """Numbers as an array: i64, f32 or bool; a .npy file or an array keeps its type."""
    if isinstance(value, Word) and value.text.endswith(".npy"):
        return np.asarray(read_npy(Path(value.text)))
    if isinstance(value, Word | str):
        text = value.text if isinstance(value, Word) else value
        raise BadInput(f"constant '{name}' is '{text}'; give a number, a list or a .npy file")
    try:
        array = np.asarray(value)
        if not hasattr(value, "dtype") and array.dtype.kind in "f":
            array = array.astype(np.float32)
        dtypes.name_of(array.dtype)
    except (ValueError, KeyError):
        raise BadInput(
            f"constant '{name}': {str(value)[:40]!r} is no array of numbers; give a number, a list "
            "of equal rows or a .npy file"
        ) from None
    return array


def make_tensor(name: str, array: Array) -> Any:
    """A TensorProto."""
    import onnx

    code = element_code(dtypes.name_of(array.dtype))
    return onnx.TensorProto(name=name, data_type=code, dims=array.shape, raw_data=to_bytes(array))
