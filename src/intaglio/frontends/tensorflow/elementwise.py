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
    made: Value = _BINARY[n.op](n.value(0), n.value(1))
    return made


@importer("Relu6")
def relu6(n: TfNode) -> Value:
    made: Value = ops.clip(n.value(0), lo=0.0, hi=6.0)
    return made


@importer("ClipByValue")
def clip_by_value(n: TfNode) -> Value:
    made: Value = ops.minimum(ops.maximum(n.value(0), n.value(1)), n.value(2))
    return made


@importer("LeakyRelu")
def leaky_relu(n: TfNode) -> Value:
    made: Value = ops.leaky_relu(n.value(0), alpha=n.attr("alpha", 0.2))
    return made


@importer("Square")
def square(n: TfNode) -> Value:
    made: Value = ops.mul(n.value(0), n.value(0))
    return made


@importer("SquaredDifference")
def squared_difference(n: TfNode) -> Value:
    d = ops.sub(n.value(0), n.value(1))
    made: Value = ops.mul(d, d)
    return made


@importer("Rsqrt")
def rsqrt(n: TfNode) -> Value:
    made: Value = ops.reciprocal(ops.sqrt(n.value(0)))
    return made


@importer("Expm1")
def expm1(n: TfNode) -> Value:
    x = n.value(0)
    made: Value = ops.sub(ops.exp(x), _like(x, 1))
    return made


@importer("Log1p")
def log1p(n: TfNode) -> Value:
    x = n.value(0)
    made: Value = ops.log(ops.add(x, _like(x, 1)))
    return made


@importer("Erfc")
def erfc(n: TfNode) -> Value:
    x = n.value(0)
    made: Value = ops.sub(_like(x, 1), ops.erf(x))
    return made


@importer("Rint")
def rint(n: TfNode) -> Value:
    made: Value = ops.round(n.value(0))
    return made


@importer("Xlogy", "Xdivy")
def x_times(n: TfNode) -> Value:
    """x * f(y), and 0 where x is 0 even if f(y) is not finite."""
    x, y = n.value(0), n.value(1)
    none = ops.equal(x, _like(x, 0))
    other = ops.log(y) if n.op == "Xlogy" else ops.reciprocal(y)
    made: Value = ops.where(_like(x, 0), ops.mul(x, other), none)
    return made


@importer("Inv")
def inverse(n: TfNode) -> Value:
    made: Value = ops.reciprocal(n.value(0))
    return made


@importer("DivNoNan")
def div_no_nan(n: TfNode) -> Value:
    a, b = n.value(0), n.value(1)
    none = ops.equal(b, _like(b, 0))
    made: Value = ops.where(_like(a, 0), ops.div(a, ops.where(_like(b, 1), b, none)), none)
    return made


@importer("MulNoNan")
def mul_no_nan(n: TfNode) -> Value:
    a, b = n.value(0), n.value(1)
    made: Value = ops.where(_like(a, 0), ops.mul(a, b), ops.equal(b, _like(b, 0)))
    return made


@importer("FloorDiv")
def floor_div(n: TfNode) -> Value:
    a, b = n.value(0), n.value(1)
    if dtypes.is_float(a.dtype):
        made: Value = ops.floor(ops.div(a, b))
    else:
        made = ops.div(ops.sub(a, ops.mod(a, b)), b)
    return made


@importer("Add", "AddN", "AccumulateNV2")
def add_n(n: TfNode) -> Value:
    made = n.value(0)
    for x in n.values()[1:]:
        made = ops.add(made, x)
    return made


@importer("NotEqual")
def not_equal(n: TfNode) -> Value:
    made: Value = ops.logical_not(ops.equal(n.value(0), n.value(1)))
    return made


@importer("ApproximateEqual")
def approximate_equal(n: TfNode) -> Value:
    a, b = n.value(0), n.value(1)
    far = _like(a, n.attr("tolerance", 1e-5))
    made: Value = ops.less(ops.abs(ops.sub(a, b)), far)
    return made


@importer("IsInf")
def is_inf(n: TfNode) -> Value:
    made: Value = ops.is_inf(n.value(0))
    return made


@importer("IsFinite")
def is_finite(n: TfNode) -> Value:
    x = n.value(0)
    made: Value = ops.logical_not(ops.logical_or(ops.is_inf(x), ops.is_nan(x)))
    return made


@importer("Select")
def select(n: TfNode) -> Value:
    """Select; a condition of rank 1 chooses rows."""
    flag, a, b = n.value(0), n.value(1), n.value(2)
    if flag.type.rank == 1 and a.type.rank > 1:
        flag = ops.reshape(flag, shape=(flag.shape[0], *[1] * (a.type.rank - 1)))
    made: Value = ops.where(a, b, flag)
    return made


@importer("SelectV2")
def select_v2(n: TfNode) -> Value:
    made: Value = ops.where(n.value(1), n.value(2), n.value(0))
    return made


@importer("Cast")
def cast(n: TfNode) -> Value:
    x, dtype = n.value(0), n.dtype("DstT")
    made: Value = x if x.dtype == dtype else ops.cast(x, dtype=dtype)
    return made


@importer("Bitcast")
def bitcast(n: TfNode) -> Value:
    made: Value = ops.bitcast(n.value(0), dtype=n.dtype("type"))
    return made


@importer("Softmax", "LogSoftmax")
def softmax(n: TfNode) -> Value:
    op = ops.softmax if n.op == "Softmax" else ops.log_softmax
    made: Value = op(n.value(0), axis=-1)
    return made


@importer("L2Loss")
def l2_loss(n: TfNode) -> Value:
    x = n.value(0)
    total = ops.reduce_sum(ops.mul(x, x), axes=tuple(range(x.type.rank)), keepdims=False)
    made: Value = ops.mul(total, _like(x, 0.5))
    return made
