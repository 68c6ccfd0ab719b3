"""ONNX reductions; axes are an attribute in old opsets and an operand in new ones."""

from __future__ import annotations

from collections.abc import Callable

from intaglio import ops
from intaglio.frontends.onnx.importer import OnnxNode, importer
from intaglio.ir import Value
from intaglio.ops.registry import REGISTRY, normalize_axis

_OPS = {
    "ReduceSum": "reduce_sum",
    "ReduceMean": "reduce_mean",
    "ReduceMax": "reduce_max",
    "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod",
    "ReduceL1": "reduce_l1",
    "ReduceL2": "reduce_l2",
    "ReduceLogSum": "reduce_log_sum",
    "ReduceLogSumExp": "reduce_log_sum_exp",
    "ReduceSumSquare": "reduce_sum_square",
}
# reductions over no axes: the function that applies to each element
_ALONE: dict[str, Callable[..., Value]] = {
    "ReduceL1": ops.abs,
    "ReduceL2": ops.abs,
    "ReduceLogSum": ops.log,
    "ReduceSumSquare": lambda x: ops.mul(x, x),
}


@importer(*_OPS)
def reduce(n: OnnxNode) -> Value:
    x = n.required(0)
    given = n.const(1).ravel().tolist() if n.input(1) is not None else n.attr("axes", ())
    keepdims = bool(n.attr("keepdims", 1))
    axes = tuple(sorted({normalize_axis(a, x.type.rank) for a in given}))
    if not axes and not n.attr("noop_with_empty_axes", 0):
        axes = tuple(range(x.type.rank))
    if not axes:
        alone = _ALONE.get(n.op_type)
        return alone(x) if alone else x
    return REGISTRY[_OPS[n.op_type]](x, axes=axes, keepdims=keepdims)
