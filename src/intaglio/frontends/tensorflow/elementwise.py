"""Importers of elementwise ops whose form differs from ours."""

from __future__ import annotations

from typing import Any

from intaglio import dtypes, ops
from intaglio.frontends.tensorflow.node import TfNode, importer
from intaglio.ir import Value, constant


def _like(x: Value, number: float) -> Value:
    return constant(number, dtype=x.dtype)


_BINARY: dict[str, Any] = {
    "AddV2": ops.add,
    "RealDiv": ops.div,
    "Div": ops.div,
    "TruncateDiv": ops.div,
    "TruncateMod": ops.fmod,
    "Mod": ops.fmod,
}


@importer(*_BINARY)
def binary(n: TfNode) -> Value:
    result: Value = _BINARY[n.op](n.value(0), n.value(1))
    return result


@importer("Relu6")
def relu6(n: TfNode) -> Value:
    result: Value = ops.clip(n.value(0), lo=0.0, hi=6.0)
    return result


@importer("ClipByValue")
def clip_by_value(n: TfNode) -> Value:
    result: Value = ops.minimum(ops.maximum(n.value(0), n.value(1)), n.value(2))
    return result


@importer("LeakyRelu")
def leaky_relu(n: TfNode) -> Value:
    result: Value = ops.leaky_relu(n.value(0), alpha=n.attr("alpha", 0.2))
    return result


@importer("Square")
def square(n: TfNode) -> Value:
    result: Value = ops.mul(n.value(0), n.value(0))
    return result


@importer("SquaredDifference")
def squared_difference(n: TfNode) -> Value:
    d = ops.sub(n.value(0), n.value(1))
    result: Value = ops.mul(d, d)
    return result


@importer("Rsqrt")
def rsqrt(n: TfNode) -> Value:
    result: Value = ops.reciprocal(ops.sqrt(n.value(0)))
    return result


@importer("Expm1")
def expm1(n: TfNode) -> Value:
    x = n.value(0)
    result: Value = ops.sub(ops.exp(x), _like(x, 1))
    return result


@importer("Log1p")
def log1p(n: TfNode) -> Value:
    x = n.value(0)
    result: Value = ops.log(ops.add(x, _like(x, 1)))
    return result


@importer("Erfc")
def erfc(n: TfNode) -> Value:
    x = n.value(0)
    result: Value = ops.sub(_like(x, 1), ops.erf(x))
    return result


@importer("Rint")
def rint(n: TfNode) -> Value:
    result: Value = ops.round(n.value(0))
    return result


@importer("Xlogy", "Xdivy")
def x_times(n: TfNode) -> Value:
    """x * f(y), and 0 where x is 0 even if f(y) is not finite."""
    x, y = n.value(0), n.value(1)
    none = ops.equal(x, _like(x, 0))
    other = ops.log(y) if n.op == "Xlogy" else ops.reciprocal(y)
    result: Value = ops.where(_like(x, 0), ops.mul(x, other), none)
    return result


@importer("Inv")
def inverse(n: TfNode) -> Value:
    result: Value = ops.reciprocal(n.value(0))
    return result


@importer("DivNoNan")
def div_no_nan(n: TfNode) -> Value:
    a, b = n.value(0), n.value(1)
    none = ops.equal(b, _like(b, 0))
    result: Value = ops.where(_like(a, 0), ops.div(a, ops.where(_like(b, 1), b, none)), none)
    return result


@importer("MulNoNan")
def mul_no_nan(n: TfNode) -> Value:
    a, b = n.value(0), n.value(1)
    result: Value = ops.where(_like(a, 0), ops.mul(a, b), ops.equal(b, _like(b, 0)))
    return result


@importer("FloorDiv")
def floor_div(n: TfNode) -> Value:
    a, b = n.value(0), n.value(1)
    if dtypes.is_float(a.dtype):
        result: Value = ops.floor(ops.div(a, b))
    else:
        result = ops.div(ops.sub(a, ops.mod(a, b)), b)
    return result


@importer("Add", "AddN", "AccumulateNV2")
def add_n(n: TfNode) -> Value:
    result = n.value(0)
    for x in n.values()[1:]:
        result = ops.add(result, x)
    return result


@importer("NotEqual")
def not_equal(n: TfNode) -> Value:
    result: Value = ops.logical_not(ops.equal(n.value(0), n.value(1)))
    return result


@importer("ApproximateEqual")
def approximate_equal(n: TfNode) -> Value:
    a, b = n.value(0), n.value(1)
    far = _like(a, n.attr("tolerance", 1e-5))
    result: Value = ops.less(ops.abs(ops.sub(a, b)), far)
    return result


@importer("IsInf")
def is_inf(n: TfNode) -> Value:
    result: Value = ops.is_inf(n.value(0))
    return result


@importer("IsFinite")
def is_finite(n: TfNode) -> Value:
    x = n.value(0)
    result: Value = ops.logical_not(ops.logical_or(ops.is_inf(x), ops.is_nan(x)))
    return result


@importer("Select")
def select(n: TfNode) -> Value:
    """Select; a condition of rank 1 chooses rows."""
    flag, a, b = n.value(0), n.value(1), n.value(2)
    if flag.type.rank == 1 and a.type.rank > 1:
        flag = ops.reshape(flag, shape=(flag.shape[0], *[1] * (a.type.rank - 1)))
    result: Value = ops.where(a, b, flag)
    return result


@importer("SelectV2")
def select_v2(n: TfNode) -> Value:
    result: Value = ops.where(n.value(1), n.value(2), n.value(0))
    return result


@importer("Cast")
def cast(n: TfNode) -> Value:
    x, dtype = n.value(0), n.dtype("DstT")
    result: Value = x if x.dtype == dtype else ops.cast(x, dtype=dtype)
    return result


@importer("Bitcast")
def bitcast(n: TfNode) -> Value:
    result: Value = ops.bitcast(n.value(0), dtype=n.dtype("type"))
    return result


@importer("Softmax", "LogSoftmax")
def softmax(n: TfNode) -> Value:
    op = ops.softmax if n.op == "Softmax" else ops.log_softmax
    result: Value = op(n.value(0), axis=-1)
    return result


@importer("L2Loss")
def l2_loss(n: TfNode) -> Value:
    x = n.value(0)
    total = ops.reduce_sum(ops.mul(x, x), axes=tuple(range(x.type.rank)), keepdims=False)
    result: Value = ops.mul(total, _like(x, 0.5))
    return result
