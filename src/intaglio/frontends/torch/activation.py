"""Importers of activations whose form differs from ours."""

from __future__ import annotations

from intaglio import ops
from intaglio.frontends.torch.compare import clamp
from intaglio.frontends.torch.importer import axis_of, importer, reshaped
from intaglio.frontends.torch.tensors import number
from intaglio.ir import Value


@importer("relu6")
def relu6(self: Value) -> Value:
    return clamp(self, 0.0, 6.0)


@importer("hardtanh")
def hardtanh(self: Value, min_val: float = -1, max_val: float = 1) -> Value:
    return clamp(self, float(min_val), float(max_val))


@importer("leaky_relu")
def leaky_relu(self: Value, negative_slope: float = 0.01) -> Value:
    result: Value = ops.leaky_relu(self, alpha=float(negative_slope))
    return result


@importer("rrelu")
def rrelu(self: Value, lower: float = 0.125, upper: float = 1 / 3, training: bool = False) -> Value:
    return leaky_relu(self, (lower + upper) / 2)


@importer("elu")
def elu(self: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    if scale != 1 or input_scale != 1:
        x = ops.mul(self, number(input_scale, self.dtype))
        result: Value = ops.mul(ops.elu(x, alpha=float(alpha)), number(scale, self.dtype))
        return result
    result = ops.elu(self, alpha=float(alpha))
    return result


@importer("celu")
def celu(self: Value, alpha: float = 1.0) -> Value:
    result: Value = ops.celu(self, alpha=float(alpha))
    return result


@importer("gelu")
def gelu(self: Value, approximate: str = "none") -> Value:
    result: Value = ops.gelu(self, approximate=approximate)
    return result


@importer("silu")
def silu(self: Value) -> Value:
    result: Value = ops.swish(self)
    return result


@importer("hardsigmoid")
def hardsigmoid(self: Value) -> Value:
    result: Value = ops.hard_sigmoid(self, alpha=1 / 6, beta=0.5)
    return result


@importer("softplus")
def softplus(self: Value, beta: float = 1, threshold: float = 20) -> Value:
    if beta == 1:
        result: Value = ops.softplus(self)
        return result
    b = number(beta, self.dtype)
    result = ops.div(ops.softplus(ops.mul(self, b)), b)
    return result


@importer("log_sigmoid")
def log_sigmoid(self: Value) -> Value:
    result: Value = ops.neg(ops.softplus(ops.neg(self)))
    return result


@importer("threshold")
def threshold(self: Value, threshold: float, value: float) -> Value:
    keep = ops.greater(self, number(threshold, self.dtype))
    result: Value = ops.where(self, number(value, self.dtype), keep)
    return result


@importer("hardshrink")
def hardshrink(self: Value, lambd: float = 0.5) -> Value:
    result: Value = ops.shrink(self, bias=0.0, lambd=float(lambd))
    return result


@importer("softshrink")
def softshrink(self: Value, lambd: float = 0.5) -> Value:
    result: Value = ops.shrink(self, bias=float(lambd), lambd=float(lambd))
    return result


@importer("prelu", "_prelu_kernel")
def prelu(self: Value, weight: Value) -> Value:
    """One slope, or one per channel."""
    if weight.type.size > 1 and self.type.rank > 2 and weight.type.rank == 1:
        weight = reshaped(weight, (weight.type.size, *[1] * (self.type.rank - 2)))
    result: Value = ops.prelu(self, weight)
    return result


@importer("glu")
def glu(self: Value, dim: int = -1) -> Value:
    result: Value = ops.glu(self, axis=axis_of(dim, self))
    return result


@importer("tanhshrink")
def tanhshrink(self: Value) -> Value:
    result: Value = ops.sub(self, ops.tanh(self))
    return result
