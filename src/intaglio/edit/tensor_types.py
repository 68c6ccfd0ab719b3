"""Element types and shapes in ONNX messages, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from intaglio import dtypes
from intaglio.edit.formula import Shape, shape_text
from intaglio.errors import BadInput, did_you_mean
from intaglio.frontends.onnx.input_binding import shape_of_type
from intaglio.frontends.onnx.tensors import ELEMENTS, element_code

COMMON = ("f32", "f16", "f64", "i8", "u8", "i16", "u16", "i32", "i64", "bool")
# Element types as people write them. Ours (u8) are known too.
_SPELLED = {
    **{dtypes.numpy_of(d).name: d for d in dtypes.TABLE},
    "float": "f32",
    "double": "f64",
    "half": "f16",
    "fp16": "f16",
    "fp32": "f32",
    **{d: d for d in dtypes.TABLE},
}


def element_type(word: str) -> str | None:
    """Our name of an element type that a user wrote: `uint8`, `float16`, `u8`; None if none."""
    return _SPELLED.get(word.lower())


def refuse_element_type(word: str) -> BadInput:
    known = ", ".join(dtypes.numpy_of(d).name for d in COMMON)
    near = did_you_mean(word, _SPELLED) or f"; known are {known} and others"
    return BadInput(f"'{word}' is no layout, element type or formula{near}")


def dtype_of(type: Any) -> str | None:
    """The element type of a tensor; None if it is unknown, or no tensor of numbers."""
    row = ELEMENTS.get(type.tensor_type.elem_type) if type is not None else None
    return row[0] if row else None


def shape_of(type: Any) -> Shape | None:
    """The shape of a tensor, open dimensions as symbols; None if the rank is unknown."""
    return shape_of_type(type) if type is not None else None


def tensor_type(dtype: str, shape: Sequence[int | str] | None) -> Any:
    """A TypeProto."""
    import onnx

    made = onnx.TypeProto()
    made.tensor_type.elem_type = element_code(dtype)
    if shape is not None:
        made.tensor_type.shape.SetInParent()
        for d in shape:
            dim = made.tensor_type.shape.dim.add()
            if isinstance(d, int):
                dim.dim_value = d
            elif d:
                dim.dim_param = d
    return made


def type_text(type: Any) -> str:
    """A type as it is printed: f32[1x3x224x224]."""
    if type is not None and type.WhichOneof("value") not in (None, "tensor_type"):
        return str(type.WhichOneof("value")).removesuffix("_type")
    shape = shape_of(type)
    return f"{dtype_of(type) or '?'}[{'...' if shape is None else shape_text(shape)}]"


def tensor_of(tensor: Any) -> Any:
    """The type of an initialiser."""
    import onnx

    made = onnx.TypeProto()
    made.tensor_type.elem_type = tensor.data_type
    made.tensor_type.shape.SetInParent()
    for extent in tensor.dims:
        made.tensor_type.shape.dim.add(dim_value=extent)
    return made
