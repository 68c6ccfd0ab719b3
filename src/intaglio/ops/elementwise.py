"""Operations that treat every element alike: arithmetic, comparison, logic, activations."""

from __future__ import annotations

import numpy as np

from intaglio.ir import Array
from intaglio.ops.registry import broadcast, compare, op, same


@op(broadcast, commutes=True, elementwise=True, onnx="Add", tflite="ADD", torch="add")
def add(a: Array, b: Array) -> Array:
    return a + b


@op(broadcast, commutes=True, elementwise=True, onnx="Mul", tflite="MUL", torch="mul")
def mul(a: Array, b: Array) -> Array:
    return a * b


@op(compare, elementwise=True, onnx="Less", tflite="LESS", torch="lt")
def less(a: Array, b: Array) -> Array:
    return a < b


@op(same, elementwise=True, onnx="Relu", tflite="RELU", torch="relu")
def relu(x: Array) -> Array:
    return np.maximum(x, x.dtype.type(0))


@op(same, elementwise=True, onnx="HardSwish", tflite="HARD_SWISH", torch="hardswish")
def hardswish(x: Array) -> Array:
    return x * np.clip(x + 3, 0, 6) / 6
