"""onnx.mapping, which newer versions of the package onnx no longer have."""

from __future__ import annotations

from onnx import TensorProto, helper

_KINDS = [
    number
    for number in TensorProto.DataType.values()
    if number not in (TensorProto.UNDEFINED, TensorProto.STRING)
]


def _known(number: int) -> bool:
    try:
        helper.tensor_dtype_to_np_dtype(number)
    except (KeyError, ValueError):
        return False
    return True


TENSOR_TYPE_TO_NP_TYPE = {k: helper.tensor_dtype_to_np_dtype(k) for k in _KINDS if _known(k)}
NP_TYPE_TO_TENSOR_TYPE = {v: k for k, v in reversed(TENSOR_TYPE_TO_NP_TYPE.items())}
