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
    made: Value = ops.leaky_relu(self, alpha=float(negative_slope))
    return made


@importer("rrelu")
def rrelu(self: Value, lower: float = 0.125, upper: float = 1 / 3, training: bool = False) -> Value:
    return leaky_relu(self, (lower + upper) / 2)


@importer("elu")
def elu(self: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    if scale != 1 or input_scale != 1:
        x = ops.mul(self, number(input_scale, self.dtype))
        made: Value = ops.mul(ops.elu(x, alpha=float(alpha)), number(scale, self.dtype))
        return made
    made = ops.elu(self, alpha=float(alpha))
    return made


@importer("celu")
def celu(self: Value, alpha: float = 1.0) -> Value:
    made: Value = ops.celu(self, alpha=float(alpha))
    return made


@importer("gelu")
def gelu(self: Value, approximate: str = "none") -> Value:
    made: Value = ops.gelu(self, approximate=approximate)
    return made


@importer("silu")
def silu(self: Value) -> Value:
    made: Value = ops.swish(self)
    return made


@importer("hardsigmoid")
def hardsigmoid(self: Value) -> Value:
    made: Value = ops.hard_sigmoid(self, alpha=1 / 6, beta=0.5)
    return made


@importer("softplus")
def softplus(self: Value, beta: float = 1, threshold: float = 20) -> Value:
    if beta == 1:
        made: Value = ops.softplus(self)
        return made
    b = number(beta, self.dtype)
    made = ops.div(ops.softplus(ops.mul(self, b)), b)
    return made


@importer("log_sigmoid")
def log_sigmoid(self: Value) -> Value:
    made: Value = ops.neg(ops.softplus(ops.neg(self)))
    return made


@importer("threshold")
def threshold(self: Value, threshold: float, value: float) -> Value:
    keep = ops.greater(self, number(threshold, self.dtype))
    made: Value = ops.where(self, number(value, self.dtype), keep)
    return made


@importer("hardshrink")
def hardshrink(self: Value, lambd: float = 0.5) -> Value:
    made: Value = ops.shrink(self, bias=0.0, lambd=float(lambd))
    return made


@importer("softshrink")
def softshrink(self: Value, lambd: float = 0.5) -> Value:
    made: Value = ops.shrink(self, bias=float(lambd), lambd=float(lambd))
    return made


@importer("prelu", "_prelu_kernel")
def prelu(self: Value, weight: Value) -> Value:
    """One slope, or one per channel."""
    if weight.type.size > 1 and self.type.rank > 2 and weight.type.rank == 1:
        weight = reshaped(weight, (weight.type.size, *[1] * (self.type.rank - 2)))
    made: Value = ops.prelu(self, weight)
    return made


@importer("glu")
def glu(self: Value, dim: int = -1) -> Value:
    made: Value = ops.glu(self, axis=axis_of(dim, self))
    return made


@importer("tanhshrink")
def tanhshrink(self: Value) -> Value:
    made: Value = ops.sub(self, ops.tanh(self))
    return made
