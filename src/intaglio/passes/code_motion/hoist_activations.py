"""What stands behind a move of elements goes before it, to meet its product or its like."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.ops.registry import REGISTRY
from intaglio.passes.canonical.data_movement import BINARY
from intaglio.passes.permuted_ops import axis_groups, inverse
from intaglio.rewrite import ANY, P, no, rule

x, y, c = P["x y c!"]
MOVES = ("reshape", "transpose")
MAXIMA = ("max_pool", "reduce_max")
MEANS = ("avg_pool", "reduce_mean")
RISING = ("relu", "clip")  # never larger for a smaller number, and rounded nowhere
ACTIVATIONS = (
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
DEEP = 4


def _alone(v: Value | None) -> Node | None:
    """The node that makes `v` for one reader."""
    node = v.producer if v is not None and len(v.uses) == 1 else None
    return node if node is not None and len(node.outputs) == 1 else None


def leads_to_product(v: Value | None, over: tuple[str, ...], deep: int = DEEP) -> bool:
    """Is `v` a product behind nothing but moves of its elements?"""
    node = _alone(v)
    if node is None or not deep or not dtypes.is_float(node.outputs[0].dtype):
        return False
    if node.op in over:
        return leads_to_product(node.inputs[0], over, deep - 1)
    return node.op in ("conv", "conv_transpose", "matmul", "gemm")


@rule(P.op(ACTIVATIONS, P.op((*MOVES, *MAXIMA), x) @ "move"))
def activation_meets_product(x: Value, move: Node, node: Node) -> Any:
    """an activation behind a reshape, transpose or maximum, where a product waits before that"""
    if move.op in MAXIMA and (node.op not in RISING or move.attrs.get("with_indices")):
        return None
    over = (*MOVES, *MAXIMA) if node.op in RISING else MOVES
    if x.type.dynamic or not leads_to_product(x, over):
        return None
    return REGISTRY[move.op](REGISTRY[node.op](x, **node.attrs), **move.attrs)


@rule(P.op(("mul", "add"), P.op((*MOVES, *MAXIMA, *MEANS), x) @ "move", c))
def constant_meets_product(x: Value, c: Value, move: Node, node: Node) -> Any:
    """a factor or summand behind a move, a maximum or a mean, where a product can take it"""
    out = move.outputs[0]
    if x.type.dynamic or out.type != node.outputs[0].type or c.data is None:
        return None
    if not leads_to_product(x, (*MOVES, *MAXIMA, *MEANS)) or move.attrs.get("with_indices"):
        return None
    if move.op in MAXIMA and node.op == "mul" and not np.all(c.data > 0):
        return no("the largest is not the largest any more times a number below zero")
    if move.op == "avg_pool" and node.op == "add" and any(move.attrs["pad"]):
        return no("the border would be shifted too")
    moved = _before(move, x, c)
    if moved is None:
        return no(f"{c.type} varies along axes that {move.op} changes")
    return REGISTRY[move.op](REGISTRY[node.op](x, constant(moved)), **move.attrs)


def _before(move: Node, x: Value, c: Value) -> Array | None:
    """The constant `c` as it meets the operand of `move`; None if it varies along changed axes."""
    out = move.outputs[0]
    assert c.data is not None
    if c.type.size == 1:
        return c.data.reshape(())
    full = c.data.reshape((1,) * (out.type.rank - c.type.rank) + c.shape)
    if move.op == "transpose":
        return np.ascontiguousarray(full.transpose(inverse(move.attrs["perm"])))
    varies = [a for a, d in enumerate(full.shape) if d != 1]
    if move.op == "reshape":
        if len(varies) != 1 or not x.type.size:
            return None
        ins = next(i for i, o in axis_groups(x.shape, out.shape) if varies[0] in o)
        long = [a for a in ins if x.shape[a] != 1]
        if len(long) != 1 or x.shape[long[0]] != full.size:
            return None
        return full.reshape([-1 if a == long[0] else 1 for a in range(x.type.rank)])
    if move.op.startswith("reduce"):
        kept = move.attrs["keepdims"] and not set(varies) & set(move.attrs["axes"])
        return full if kept else None
    return full if max(varies) < 2 else None


@rule(P.op(ACTIVATIONS, ANY @ "joined"))
def activation_before_concat(joined: Node, node: Node) -> Any:
    """an activation of products that are joined, where each computes it itself"""
    if joined.op != "concat" or not all(leads_to_product(v, MOVES) for v in joined.inputs):
        return None
    parts = [REGISTRY[node.op](v, **node.attrs) for v in joined.inputs]
    return ops.concat(*parts, **joined.attrs)


@rule(P.op(("mul", "add"), ANY @ "joined", c))
def constant_before_concat(joined: Node, c: Value, node: Node) -> Any:
    """a factor or summand of products that are joined, where each takes its part"""
    out = joined.outputs[0]
    if joined.op != "concat" or out.type != node.outputs[0].type or c.data is None:
        return None
    if not all(leads_to_product(v, MOVES) for v in joined.inputs):
        return None
    axis = joined.attrs["axis"] % out.type.rank
    full = c.data.reshape((1,) * (out.type.rank - c.type.rank) + c.shape)
    parts, edge = [], 0
    for v in joined.inputs:
        assert v is not None
        mine = full if full.shape[axis] == 1 else full.take(range(edge, edge + v.shape[axis]), axis)
        parts.append(REGISTRY[node.op](v, constant(np.ascontiguousarray(mine))))
        edge += v.shape[axis]
    return ops.concat(*parts, axis=axis)


# ---- reshapes that meet --------------------------------------------------------------------------
ROWS = ("softmax", "log_softmax", "layer_norm", "rms_norm")


@rule(P.reshape(x))
def reshapes_cancel(x: Value, node: Node) -> Any:
    """reshape, work on rows alone, reshape: rows may lie in any shape, so one reshape does"""
    out = node.outputs[0]
    chain: list[tuple[Node, int]] = []  # from here up, with the operand that leads on
    v: Value | None = x
    while (found := _row_work(_alone(v))) is not None:
        chain.append(found)
        v = found[0].inputs[found[1]]
    top = v.producer if v is not None else None
    if not chain or top is None or top.op != "reshape" or v is None or v.type.dynamic:
        return None
    source = top.inputs[0]
    assert source is not None
    ends = (source.shape[-1:], x.shape[-1:]) == (v.shape[-1:], out.shape[-1:])
    rows = ends and source.type.rank > 0
    if source.type.dynamic or not (rows or all(map(_is_scalar_work, chain))):
        return None
    shape = (*out.shape[:-1], source.shape[-1]) if rows else out.shape
    made: Value = source if source.shape == shape else ops.reshape(source, shape=shape)
    for inner, k in reversed(chain):
        made = _again(inner, k, made)
    return made


def _row_work(node: Node | None) -> tuple[Node, int] | None:
    """A node that computes each row of one operand (that with the number given) alone."""
    if node is None or node.outputs[0].type.rank < 1:
        return None
    out = node.outputs[0]
    if node.op in ROWS:
        return (node, 0) if node.attrs["axis"] % out.type.rank == out.type.rank - 1 else None
    if node.op == "matmul":
        a, w = node.inputs
        fits = a is not None and w is not None and w.data is not None and w.type.rank == 2
        return (node, 0) if fits and a is not None and a.type.rank > 1 else None
    if not REGISTRY[node.op].elementwise:
        return None
    computed = [k for k, v in enumerate(node.inputs) if v is not None and v.data is None]
    if len(computed) != 1 or node.inputs[computed[0]].shape != out.shape:  # type: ignore[union-attr]
        return None
    rest = [v for v in node.inputs if v is not None and v.data is not None]
    return (node, computed[0]) if all(math.prod(v.shape[:-1]) == 1 for v in rest) else None


def _is_scalar_work(found: tuple[Node, int]) -> bool:
    """Does the node treat all elements alike, whatever row they are in?"""
    node, computed = found
    rest = (v for k, v in enumerate(node.inputs) if k != computed)
    return REGISTRY[node.op].elementwise and all(v is None or v.type.size == 1 for v in rest)


def _again(node: Node, k: int, v: Value) -> Value:
    """The same work on rows that lie in the shape of `v`."""
    ins = list(node.inputs)
    ins[k] = v
    attrs = {**node.attrs, "axis": -1} if node.op in ROWS else node.attrs
    if REGISTRY[node.op].elementwise:
        ins = [
            u if u is None or u.data is None else constant(u.data.reshape(u.shape[-1:]))
            for u in ins
        ]
    made: Value = REGISTRY[node.op](*ins, origin=node.origin, **attrs)
    return made


@rule(P.op(BINARY, P.reshape(x), P.reshape(y)))
def reshapes_meet(x: Value, y: Value, node: Node) -> Any:
    """two operands that are reshaped alike are reshaped once"""
    out = node.outputs[0].type
    if x.shape != y.shape or out.dynamic or x.type.dynamic or x.type.size != out.size:
        return None
    return ops.reshape(REGISTRY[node.op](*_in_order(node, x, y), **node.attrs), shape=out.shape)


def _in_order(node: Node, x: Value, y: Value) -> tuple[Value, Value]:
    """A commutative op may have been matched the other way round."""
    first = node.inputs[0].producer if node.inputs[0] is not None else None
    return (x, y) if first is not None and first.inputs[0] is x else (y, x)


# ---- behind a reduction there is less to do ------------------------------------------------------
BEHIND = {
    "reduce_sum": ("mul", "shift_left"),
    "reduce_mean": ("mul", "add"),
    "reduce_max": ("mul", "add"),
    "reduce_min": ("mul", "add"),
}


def _behind_reduction(x: Value, c: Value, inner: Node, node: Node) -> Any:
    """sum(x * c) is sum(x) * c where c is the same along what is summed"""
    if inner.op not in BEHIND[node.op] or inner.inputs[0] is not x or c.data is None:
        return None
    if x.type != inner.outputs[0].type or x.type.dynamic or leads_to_product(x, MOVES):
        return None
    axes = node.attrs["axes"]
    full = c.data.reshape((1,) * (x.type.rank - c.type.rank) + c.shape)
    if any(full.shape[a] != 1 for a in axes):
        return no(f"{c.type} varies along the axes {axes}")
    if node.op in ("reduce_max", "reduce_min") and inner.op == "mul" and not np.all(full > 0):
        return no("the largest is not the largest any more times a number below zero")
    kept = full if node.attrs["keepdims"] else full.squeeze(axes)
    return REGISTRY[inner.op](REGISTRY[node.op](x, **node.attrs), constant(kept))


@rule(P.op(("reduce_max", "reduce_min"), P.op(("mul", "add"), x, c) @ "inner"))
def extremum_before_constant(x: Value, c: Value, inner: Node, node: Node) -> Any:
    """max(x * c) is max(x) * c for c above zero, max(x + c) is max(x) + c: rounding keeps order"""
    return _behind_reduction(x, c, inner, node)


@rule(P.op(("reduce_sum", "reduce_mean"), P.op(("mul", "add", "shift_left"), x, c) @ "inner"))
def sum_before_constant(x: Value, c: Value, inner: Node, node: Node) -> Any:
    """sum(x * c) is sum(x) * c, sum(x << c) is sum(x) << c: fewer elements are scaled"""
    return _behind_reduction(x, c, inner, node)


MEET = [activation_meets_product, activation_before_concat, reshapes_meet, extremum_before_constant]
MEET_FLOATS = [constant_meets_product, constant_before_concat, reshapes_cancel, sum_before_constant]
