"""Recognise softmax, log-softmax, hardmax, and L1 and L2 norms."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Node, Value
from intaglio.rewrite import P, Rule, no, rule

x, y, e, c = P["x y e c!"]


def _axis(reduce: Node) -> int | None:
    """The axis of a reduction over one axis that keeps it; else None."""
    axes = reduce.attrs["axes"]
    return axes[0] if len(axes) == 1 and reduce.attrs["keepdims"] else None


def _made_by(v: Value | None, op: str) -> Node | None:
    return v.producer if v is not None and v.producer is not None and v.producer.op == op else None


def _unshifted(v: Value, axes: tuple[int, ...]) -> Value:
    """x, if v is x minus its maximum over these axes (softmax subtracts that itself); else v."""
    sub = _made_by(v, "sub")
    top = _made_by(sub.inputs[1], "reduce_max") if sub is not None else None
    if sub is None or top is None or top.inputs[0] is not sub.inputs[0]:
        return v
    same = top.attrs["axes"] == axes and top.attrs["keepdims"]
    return top.inputs[0] if same and top.inputs[0] is not None else v


# ---- softmax -------------------------------------------------------------------------------------
def _softmax(e: Value, total: Node, node: Node) -> Any:
    """exp(x) / sum(exp(x)), with or without subtracting the maximum"""
    exp, axis = _made_by(e, "exp"), _axis(total)
    if exp is None or axis is None or len(e.uses) != 2 or exp.inputs[0] is None:
        return None
    return ops.softmax(_unshifted(exp.inputs[0], (axis,)), axis=axis)


TOTAL = P.reduce_sum(e) @ "total"
SOFTMAX = [Rule(P.div(e, TOTAL), _softmax), Rule(P.mul(e, P.reciprocal(TOTAL)), _softmax)]


@rule(P.log(P.softmax(x) @ "soft"))
def log_of_softmax(x: Value, soft: Node) -> Any:
    """log(softmax(x))"""
    return ops.log_softmax(x, axis=soft.attrs["axis"])


@rule(P.sub(x, P.log(P.reduce_sum(P.exp(x)) @ "total")))
def log_softmax(x: Value, total: Node) -> Any:
    """x - log(sum(exp(x))), with or without subtracting the maximum"""
    axis = _axis(total)
    return None if axis is None else ops.log_softmax(_unshifted(x, (axis,)), axis=axis)


@rule(P.sub(x, P.reduce_log_sum_exp(x) @ "total"))
def log_softmax_of_log_sum_exp(x: Value, total: Node) -> Any:
    """x - log_sum_exp(x)"""
    axis = _axis(total)
    return None if axis is None else ops.log_softmax(x, axis=axis)


@rule(P.add(P.log(P.reduce_sum(P.exp(P.sub(x, y))) @ "total"), y))
def log_sum_exp(x: Value, y: Value, total: Node) -> Any:
    """log(sum(exp(x - max(x)))) + max(x)"""
    top, axes = _made_by(y, "reduce_max"), total.attrs["axes"]
    if top is None or top.inputs[0] is not x or not total.attrs["keepdims"]:
        return None
    if top.attrs["axes"] != axes or not top.attrs["keepdims"]:
        return None
    return ops.reduce_log_sum_exp(x, axes=axes, keepdims=True)


# ---- hardmax -------------------------------------------------------------------------------------
def _hardmax_of_one_hot(x: Value, top: Node, c: Value, hot: Node, node: Node) -> Any:
    """one_hot(argmax(x)) with the values 0 and 1, cast or not"""
    axis, rank = top.attrs["axis"] % x.type.rank, x.type.rank
    if top.attrs["keepdims"] or hot.attrs["axis"] % rank != axis or x.type.dynamic:
        return None
    plain = c.data is not None and np.array_equal(c.data.astype(np.float64), [0, 1])
    if hot.attrs["depth"] != x.shape[axis] or not plain or top.attrs["select_last_index"]:
        return None
    return _hardmax(x, axis, node)


def _hardmax(x: Value, axis: int, node: Node) -> Any:
    if not dtypes.is_float(x.dtype):
        return no(f"hardmax needs floats, this is {x.dtype}")
    result, dtype = ops.hardmax(x, axis=axis), node.outputs[0].dtype
    return result if dtype == x.dtype else ops.cast(result, dtype=dtype)


ONE_HOT = P.one_hot(P.argmax(x) @ "top", c) @ "hot"
HARDMAX = [Rule(p, _hardmax_of_one_hot) for p in (P.cast(ONE_HOT), ONE_HOT)]


@rule(P.cast(P.equal(P.one_of(P.reshape(P.argmax(x) @ "top"), P.argmax(x) @ "top"), c)))
def hardmax_of_equal(x: Value, top: Node, c: Value, node: Node) -> Any:
    """equal(argmax(x), indices), cast to numbers"""
    rank, axis = x.type.rank, top.attrs["axis"] % x.type.rank
    want = tuple(n if a == axis else 1 for a, n in enumerate(x.shape))
    lifted = (1,) * (rank - c.type.rank) + c.shape
    if x.type.dynamic or c.type.rank > rank or lifted != want or top.attrs["select_last_index"]:
        return None
    counts = c.data is not None and np.array_equal(c.data.ravel(), np.arange(x.shape[axis]))
    return _hardmax(x, axis, node) if counts else None


# ---- norms as sums -------------------------------------------------------------------------------
def _rebuilt(op: Any, x: Value, total: Node) -> Any:
    return op(x, **total.attrs) if dtypes.is_float(x.dtype) else None


SQUARE = P.one_of(P.mul(x, x), P.pow(x, 2.0))


@rule(P.sqrt(P.reduce_sum(SQUARE) @ "total"))
def l2_of_sum(x: Value, total: Node) -> Any:
    """sqrt(sum(x^2))"""
    return _rebuilt(ops.reduce_l2, x, total)


@rule(P.reduce_sum(P.abs(x)) @ "total")
def l1_of_sum(x: Value, total: Node) -> Any:
    """sum(|x|)"""
    return _rebuilt(ops.reduce_l1, x, total)


SOFTMAXES = [
    *SOFTMAX,
    log_of_softmax,
    log_softmax,
    log_softmax_of_log_sum_exp,
    log_sum_exp,
    *HARDMAX,
    hardmax_of_equal,
    l2_of_sum,
    l1_of_sum,
]
