"""Activation functions."""

from __future__ import annotations

import math

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.ops.elementwise import erf, floats, numbers
from intaglio.ops.precision import widen
from intaglio.ops.registry import op

INF = math.inf


@op(
    floats,
    elementwise=True,
    onnx="Sigmoid",
    tflite="LOGISTIC",
    torch="sigmoid",
    tf="Sigmoid",
    caffe="Sigmoid",
    ort_fused="Sigmoid",
    torch_quantized="sigmoid",
)
@widen
def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


@op(
    numbers, elementwise=True, onnx="Relu", tflite="RELU", torch="relu", tf="Relu", ort_fused="Relu"
)
def relu(x: Array) -> Array:
    return np.maximum(x, x.dtype.type(0))


@op(floats, elementwise=True, onnx="Softplus", torch="softplus", tf="Softplus", caffe="BNLL")
@widen
def softplus(x: Array) -> Array:
    return np.logaddexp(x, x.dtype.type(0))


@op(floats, elementwise=True, onnx="Softsign", torch="softsign", tf="Softsign")
@widen
def softsign(x: Array) -> Array:
    return x / (1 + np.abs(x))


@op(
    floats,
    elementwise=True,
    onnx="HardSwish",
    tflite="HARD_SWISH",
    torch="hardswish",
    caffe="HSwish",
    ort_fused="HardSwish",
    torch_quantized="hardswish",
)
@widen
def hardswish(x: Array) -> Array:
    return x * np.clip(x + 3, 0, 6) / 6


@op(floats, elementwise=True, onnx="Mish", torch="mish")
@widen
def mish(x: Array) -> Array:
    return x * np.tanh(np.logaddexp(x, x.dtype.type(0)))


@op(floats, elementwise=True, onnx="Gelu", tflite="GELU", torch="gelu")
@widen
def gelu(x: Array, *, approximate: str = "none") -> Array:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + erf.body(x * math.sqrt(0.5)))


@op(floats, elementwise=True, onnx="Swish", torch="silu")
@widen
def swish(x: Array, *, alpha: float = 1.0) -> Array:
    return x / (1 + np.exp(-alpha * x))


@op(
    floats,
    elementwise=True,
    onnx="LeakyRelu",
    tflite="LEAKY_RELU",
    torch="leaky_relu",
    ort_fused="LeakyRelu",
)
@widen
def leaky_relu(x: Array, *, alpha: float = 0.01) -> Array:
    return np.where(x < 0, alpha * x, x)


@op(floats, elementwise=True, onnx="Elu", tflite="ELU", torch="elu", tf="Elu")
@widen
def elu(x: Array, *, alpha: float = 1.0) -> Array:
    return np.where(x < 0, alpha * np.expm1(x), x)


@op(floats, elementwise=True, onnx="Selu", torch="selu", tf="Selu")
@widen
def selu(
    x: Array, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323
) -> Array:
    return gamma * np.where(x < 0, alpha * np.expm1(x), x)


@op(floats, elementwise=True, onnx="Celu", torch="celu")
@widen
def celu(x: Array, *, alpha: float = 1.0) -> Array:
    return np.where(x < 0, alpha * np.expm1(x / alpha), x)


@op(floats, elementwise=True, onnx="HardSigmoid", ort_fused="HardSigmoid")
@widen
def hard_sigmoid(x: Array, *, alpha: float = 0.2, beta: float = 0.5) -> Array:
    return np.clip(alpha * x + beta, 0, 1)


@op(floats, elementwise=True, onnx="ThresholdedRelu")
@widen
def thresholded_relu(x: Array, *, alpha: float = 1.0) -> Array:
    return np.where(x > alpha, x, x.dtype.type(0))


@op(numbers, elementwise=True, onnx="Shrink")
@widen
def shrink(x: Array, *, bias: float = 0.0, lambd: float = 0.5) -> Array:
    if x.dtype.kind in "iu":  # integer tensors: bias and lambd are truncated
        wide, bias, lambd = x.astype(np.int64), int(bias), int(lambd)
    else:
        wide = x
    moved = np.where(wide < -lambd, wide + bias, np.where(wide > lambd, wide - bias, 0))
    return moved.astype(x.dtype)


@op(numbers, elementwise=True, ort_fused="Clip")
@widen
def clip(x: Array, *, lo: float = -INF, hi: float = INF) -> Array:
    """Bounds of integer tensors are rounded inwards; where lo > hi the result is hi."""
    if x.dtype.kind in "iu":
        low, high = dtypes.limits(dtypes.name_of(x.dtype))
        lo = low if lo <= low else high if lo >= high else math.ceil(lo)
        hi = high if hi >= high else low if hi <= low else math.floor(hi)
    return np.minimum(np.maximum(x, x.dtype.type(lo)), x.dtype.type(hi))


def _like_data(x: Value, slope: Value) -> Type:
    found = numbers(x, slope)
    if found.shape != x.shape:
        raise BadInput(f"slope {slope.shape} does not broadcast to the data's shape {x.shape}")
    return found


@op(_like_data, elementwise=True, onnx="PRelu", tflite="PRELU", torch="prelu")
@widen
def prelu(x: Array, slope: Array) -> Array:
    return np.where(x < 0, slope * x, x)


# Functions of one operand that networks apply to the result of a matmul or convolution.
UNARY_ACTIVATIONS = (
    "relu",
    "clip",
    "leaky_relu",
    "sigmoid",
    "tanh",
    "swish",
    "hardswish",
    "hard_sigmoid",
    "gelu",
    "elu",
    "mish",
    "softplus",
)
