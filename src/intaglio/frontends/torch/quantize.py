"""Importers of quantised operators, as dequantise, float op, quantise with the stored scales."""

from __future__ import annotations

from typing import Any

from intaglio import dtypes, ops
from intaglio.errors import Unsupported
from intaglio.frontends.torch import activation, compare, elementwise, normalize
from intaglio.frontends.torch.conv import convolved, spread
from intaglio.frontends.torch.importer import (
    as_dtype,
    axis_of,
    constant_elements,
    importer,
    integer,
    ints,
    quantized,
    real,
    tensor,
)
from intaglio.frontends.torch.linear import linear, matmul
from intaglio.frontends.torch.packed_params import (
    ConvParams,
    LinearParams,
    conv_params,
    linear_params,
)
from intaglio.frontends.torch.tensors import Quantized, dtype_of, number
from intaglio.ir import Value
from intaglio.ops.registry import named

Q = Any  # a Quantized


def floats(x: Any) -> Value:
    """A tensor as floats, dequantised if necessary."""
    return real(x) if isinstance(x, Quantized) else tensor(x)


def _float(x: Any) -> float:
    if isinstance(x, Value):
        return float(constant_elements(x, "a scale").reshape(-1)[0])
    return float(x)


def requantized(x: Value, scale: Any, zero_point: Any, like: Any) -> Quantized:
    """`y` quantised with the operator's output scale, in the element type of its input."""
    dtype = like.stored.dtype if isinstance(like, Quantized) else "u8"
    return quantized(x, _float(scale), integer(zero_point), dtype)


@importer("quantize_per_tensor", raw=True)
def quantize_per_tensor(self: Value, scale: Any, zero_point: Any, dtype: int) -> Quantized:
    return quantized(floats(self), _float(scale), integer(zero_point), dtype_of(dtype))


@importer("quantize_per_channel", raw=True)
def quantize_per_channel(
    self: Value, scales: Value, zero_points: Value, axis: int, dtype: int
) -> Quantized:
    s, z = constant_elements(scales, "a scale"), constant_elements(zero_points, "a zero point")
    return quantized(
        self,
        tuple(s.tolist()),
        tuple(int(v) for v in z.tolist()),
        dtype_of(dtype),
        axis_of(axis, self),
    )


@importer("quantize_per_tensor_dynamic", raw=True)
def quantize_per_tensor_dynamic(self: Value, dtype: int, reduce_range: bool) -> Value:
    return dynamic(self, 127 if reduce_range else 255)


@importer("dequantize", raw=True)
def dequantize(self: Any) -> Any:
    if isinstance(self, list | tuple):
        return [floats(x) for x in self]
    return floats(self)


@importer("int_repr", raw=True)
def int_repr(self: Q) -> Value:
    result: Value = self.stored
    return result


@importer("q_scale", raw=True)
def q_scale(self: Q) -> float:
    return float(self.scale[0])


@importer("q_zero_point", raw=True)
def q_zero_point(self: Q) -> int:
    return int(self.zero[0])


# ---- products ------------------------------------------------------------------------------------
def _product(x: Value, p: ConvParams) -> Value:
    weight = floats(p.weight)
    if p.transposed:
        return spread(
            x, weight, p.bias, p.stride, p.padding, p.output_padding, p.groups, p.dilation
        )
    return convolved(x, weight, p.bias, p.stride, p.padding, p.dilation, p.groups)


def _conv(relu: bool) -> Any:
    def function(
        qx: Q,
        packed_weight: Any,
        *rest: Any,
        output_scale: Any = None,
        output_zero_point: Any = None,
    ) -> Quantized:
        """Old files have stride, padding, dilation and groups before the output scale."""
        p = conv_params(packed_weight)
        scale = rest[-2] if output_scale is None else output_scale
        zero = rest[-1] if output_zero_point is None else output_zero_point
        y = _product(floats(qx), p)
        return requantized(ops.relu(y) if relu else y, scale, zero, qx)

    return function


for _n in ("1d", "2d", "3d"):
    importer(f"quantized::conv{_n}", f"quantized::conv_transpose{_n}", raw=True)(_conv(relu=False))
    importer(f"quantized::conv{_n}_relu", raw=True)(_conv(relu=True))


def _prepack(n: int) -> Any:
    def function(
        weight: Any, bias: Value | None, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> ConvParams:
        a, b, c = (ints(v, n) for v in (stride, padding, dilation))
        return ConvParams(weight, bias, a, b, c, (0,) * n, int(groups), False)

    return function


def _prepack_transposed(n: int) -> Any:
    def function(
        weight: Any,
        bias: Value | None,
        stride: Any,
        padding: Any,
        output_padding: Any,
        dilation: Any,
        groups: int,
    ) -> ConvParams:
        a, b, c, d = (ints(v, n) for v in (stride, padding, dilation, output_padding))
        return ConvParams(weight, bias, a, b, c, d, int(groups), True)

    return function


for _i in (1, 2, 3):
    importer(f"quantized::conv{_i}d_prepack", raw=True)(_prepack(_i))
    importer(f"quantized::conv_transpose{_i}d_prepack", raw=True)(_prepack_transposed(_i))


@importer("quantized::linear_prepack", raw=True)
def linear_prepack(W: Any, B: Value | None = None) -> LinearParams:
    return LinearParams(W, B)


@importer("quantized::linear", raw=True)
def quantized_linear(X: Q, W_prepack: Any, Y_scale_i: Any, Y_zero_point_i: Any) -> Quantized:
    weight, bias = linear_params(W_prepack)
    return requantized(linear(floats(X), floats(weight), bias), Y_scale_i, Y_zero_point_i, X)


@importer("quantized::linear_relu", raw=True)
def quantized_linear_relu(X: Q, W_prepack: Any, Y_scale_i: Any, Y_zero_point_i: Any) -> Quantized:
    weight, bias = linear_params(W_prepack)
    y = ops.relu(linear(floats(X), floats(weight), bias))
    return requantized(y, Y_scale_i, Y_zero_point_i, X)


@importer("quantized::matmul", raw=True)
def quantized_matmul(qa: Q, qb: Q, scale: Any, zero_point: Any) -> Quantized:
    return requantized(matmul(floats(qa), floats(qb)), scale, zero_point, qa)


def dynamic(x: Value, most: int) -> Value:
    """`x` dynamically quantised to 0..most for its range at run time, extended to hold 0."""
    nothing, axes = number(0, "f32"), tuple(range(x.type.rank))
    low = ops.minimum(ops.reduce_min(x, axes=axes, keepdims=False), nothing)
    high = ops.maximum(ops.reduce_max(x, axes=axes, keepdims=False), nothing)
    scale = ops.mul(ops.sub(high, low), number(1 / most, "f32"))
    scale = ops.where(number(0.1, "f32"), scale, ops.equal(scale, nothing))
    zero = ops.clip(ops.div(ops.neg(low), scale), lo=0.0, hi=float(most))
    whole = ops.cast(ops.round(zero), dtype="u8")
    result: Value = ops.dequantize_linear(
        ops.quantize_linear(x, scale, whole, dtype="u8", axis=0), scale, whole, axis=0
    )
    return result


@importer("quantized::linear_dynamic", "quantized::linear_relu_dynamic", raw=True)
def linear_dynamic(X: Value, W_prepack: Any, reduce_range: bool = False) -> Value:
    weight, bias = linear_params(W_prepack)
    return linear(dynamic(floats(X), 127 if reduce_range else 255), floats(weight), bias)


@importer("quantized::linear_dynamic_fp16", raw=True)
def linear_dynamic_fp16(X: Value, W_prepack: Any) -> Value:
    weight, bias = linear_params(W_prepack)
    return linear(X, as_dtype(floats(weight), "f32"), bias)


# ---- arithmetic, activations, normalisation ------------------------------------------------------
def _binary(op: Any, relu: bool) -> Any:
    def function(qa: Q, qb: Q, scale: Any, zero_point: Any) -> Quantized:
        y = op(floats(qa), floats(qb))
        return requantized(ops.relu(y) if relu else y, scale, zero_point, qa)

    return function


for _name, _op in (("add", ops.add), ("mul", ops.mul)):
    importer(f"quantized::{_name}", raw=True)(_binary(_op, relu=False))
    importer(f"quantized::{_name}_relu", raw=True)(_binary(_op, relu=True))


@importer("quantized::add_scalar", "quantized::add_scalar_relu", raw=True)
def add_scalar(qa: Q, b: Any) -> Quantized:
    """Add a constant rounded to the scale; the result is clamped to the range."""
    by = _float(b)
    low, high = dtypes.limits(qa.stored.dtype)
    zero = qa.zero[0] - round(by / qa.scale[0])
    y = elementwise.add(floats(qa), round(by / qa.scale[0]) * qa.scale[0])
    return quantized(y, qa.scale[0], min(max(zero, low), high), qa.stored.dtype)


@importer("quantized::mul_scalar", "quantized::mul_scalar_relu", raw=True)
def mul_scalar(qa: Q, b: Any) -> Quantized:
    by = _float(b)
    if by <= 0:
        raise Unsupported(f"a quantised tensor is multiplied by {by}; the factor must be above 0")
    return Quantized(qa.stored, (qa.scale[0] * by,), qa.zero, qa.axis)


@importer("quantized::cat", raw=True)
def cat(qx: Any, dim: int, scale: Any, zero_point: Any) -> Quantized:
    values = [floats(x) for x in qx]
    y = ops.concat(*values, axis=axis_of(dim, values[0])) if len(values) > 1 else values[0]
    return requantized(y, scale, zero_point, qx[0])


def _unary(op: Any) -> Any:
    def function(qx: Q, output_scale: Any, output_zero_point: Any) -> Quantized:
        return requantized(op(floats(qx)), output_scale, output_zero_point, qx)

    return function


for _name, _op in named("torch_quantized").items():
    importer(f"quantized::{_name}", raw=True)(_unary(_op))
importer("quantized::hardsigmoid", raw=True)(_unary(activation.hardsigmoid))


def _fixed_range(op: Any, scale: float, zero: tuple[int, int]) -> Any:
    """A function with a fixed range, whose quantised result has a fixed scale."""

    def function(self: Any) -> Any:
        if not isinstance(self, Quantized):
            x = tensor(self)
            return op(x if dtypes.is_float(x.dtype) else as_dtype(x, "f32"))
        signed = self.stored.dtype == "i8"
        return quantized(op(real(self)), scale, zero[signed], self.stored.dtype)

    return function


importer("sigmoid", raw=True)(_fixed_range(ops.sigmoid, 1 / 256, (0, -128)))
importer("tanh", raw=True)(_fixed_range(ops.tanh, 2 / 256, (128, 0)))


@importer("quantized::leaky_relu", raw=True)
def leaky_relu(qx: Q, negative_slope: Any, inplace: bool, scale: Any, zero_point: Any) -> Quantized:
    return requantized(activation.leaky_relu(floats(qx), negative_slope), scale, zero_point, qx)


@importer("quantized::elu", raw=True)
def elu(
    self: Q,
    output_scale: Any,
    output_zero_point: Any,
    alpha: Any = 1,
    scale: Any = 1,
    input_scale: Any = 1,
) -> Quantized:
    y = activation.elu(floats(self), alpha, scale, input_scale)
    return requantized(y, output_scale, output_zero_point, self)


@importer("quantized::prelu", raw=True)
def prelu(qx: Q, weight: Any, scale: Any, zero_point: Any) -> Quantized:
    return requantized(activation.prelu(floats(qx), floats(weight)), scale, zero_point, qx)


@importer("quantized::softmax", raw=True)
def softmax(qx: Q, dim: int, scale: Any, zero_point: Any) -> Quantized:
    return requantized(normalize.softmax(floats(qx), dim), scale, zero_point, qx)


@importer("quantized::relu6", raw=True)
def relu6(qx: Q, inplace: bool = False) -> Quantized:
    return quantized(activation.relu6(real(qx)), qx.scale, qx.zero, qx.stored.dtype)


@importer("quantized::clamp", raw=True)
def clamp(qx: Q, min: Any = None, max: Any = None) -> Quantized:
    return quantized(compare.clamp(real(qx), min, max), qx.scale, qx.zero, qx.stored.dtype)


@importer("quantized::layer_norm", raw=True)
def layer_norm(
    input: Q,
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: float,
    output_scale: Any,
    output_zero_point: Any,
) -> Quantized:
    y = normalize.layer_norm(floats(input), normalized_shape, weight, bias, eps)
    return requantized(y, output_scale, output_zero_point, input)


@importer("quantized::group_norm", raw=True)
def group_norm(
    input: Q,
    num_groups: int,
    weight: Any,
    bias: Any,
    eps: float,
    output_scale: Any,
    output_zero_point: Any,
) -> Quantized:
    y = normalize.group_norm(floats(input), num_groups, weight, bias, eps)
    return requantized(y, output_scale, output_zero_point, input)


@importer("quantized::instance_norm", raw=True)
def instance_norm(
    input: Q, weight: Any, bias: Any, eps: float, output_scale: Any, output_zero_point: Any
) -> Quantized:
    y = normalize.instance_norm(floats(input), weight, bias, None, None, True, 0.0, eps)
    return requantized(y, output_scale, output_zero_point, input)


def _batch_norm(relu: bool) -> Any:
    def function(
        qx: Q,
        weight: Any,
        bias: Any,
        mean: Any,
        var: Any,
        eps: float,
        output_scale: Any,
        output_zero_point: Any,
    ) -> Quantized:
        y = normalize.batch_norm(floats(qx), weight, bias, mean, var, eps=eps)
        return requantized(ops.relu(y) if relu else y, output_scale, output_zero_point, qx)

    return function


for _n in ("", "1d", "2d", "3d"):
    importer(f"quantized::batch_norm{_n}", raw=True)(_batch_norm(relu=False))
    importer(f"quantized::batch_norm{_n}_relu", raw=True)(_batch_norm(relu=True))
