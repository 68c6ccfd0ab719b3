"""Importers of casts, copies, dropout, and ops that return their operand."""

from __future__ import annotations

from typing import Any

from intaglio import ops
from intaglio.errors import Unsupported
from intaglio.frontends.torch.importer import (
    Operand,
    as_dtype,
    cast_to,
    importer,
    result_type,
    tensor,
)
from intaglio.ir import Value


@importer("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "native_dropout")
def dropout(input: Value, p: float = 0.5, train: bool = False) -> Value:
    """The identity; Unsupported if the model was saved in training mode."""
    if train and p:
        raise Unsupported("dropout is in training mode; call model.eval() before saving")
    return input


@importer(
    "to", "_to_copy", "type_as", "_autocast_to_reduced_precision", "_autocast_to_full_precision"
)
def to(self: Value, *args: Any, dtype: int | None = None, **kwargs: Any) -> Value:
    """A cast to an element type, given as a number or as that of another tensor."""
    for a in args:
        if isinstance(a, Value):
            return as_dtype(self, a.dtype)
        if type(a) is int and dtype is None:
            dtype = a
            break
    return cast_to(tensor(self), dtype)


_CASTS = {
    "_cast_Long": "i64",
    "_cast_Float": "f32",
    "_cast_Int": "i32",
    "_cast_Byte": "u8",
    "_cast_Double": "f64",
    "_cast_Half": "f16",
    "_cast_Char": "i8",
    "_cast_Short": "i16",
}


def _cast(dtype: str) -> Any:
    def function(self: Value, non_blocking: bool = False) -> Value:
        return as_dtype(self, dtype)

    return function


for _name, _dtype in _CASTS.items():
    importer(_name)(_cast(_dtype))


@importer(
    "clone",
    "detach",
    "detach_copy",
    "alias",
    "contiguous",
    "lift_fresh",
    "lift_fresh_copy",
    "cpu",
    "cuda",
    "resolve_conj",
    "resolve_neg",
    "positive",
    "requires_grad",
    "view_of",
)
def identity(self: Value, *args: Any, **kwargs: Any) -> Value:
    return tensor(self)


@importer("copy")
def copy(self: Value, src: Operand, non_blocking: bool = False) -> Value:
    """`src` cast and expanded to the type of the tensor that it overwrites."""
    made: Value = ops.expand(as_dtype(src, self.dtype), shape=self.shape)
    return made if tensor(src).shape != self.shape else as_dtype(src, self.dtype)


@importer("result_type")
def result(tensor1: Operand, tensor2: Operand) -> int:
    from intaglio.frontends.torch.tensors import CODE_OF

    return CODE_OF[result_type(tensor1, tensor2)]
