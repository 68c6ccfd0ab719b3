"""Hoist activations and constants over reshapes, transposes, poolings and concats, to their
matmul.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.ops.activation import UNARY_ACTIVATIONS
from intaglio.ops.registry import REGISTRY
from intaglio.passes.canonical.data_movement import BINARY
from intaglio.passes.permuted_ops import axis_groups, inverse
from intaglio.rewrite import ANY, P, no, rule

x, y, c = P["x y c!"]
MOVES = ("reshape", "transpose")
MAXIMA = ("max_pool", "reduce_max")
MEANS = ("avg_pool", "reduce_mean")
MONOTONIC = ("relu", "clip")  # monotonic, and exact
MAX_DEPTH = 4  # ops between an activation and its matmul


def _alone(v: Value | None) -> Node | None:
    """The node that makes `v`, if it has one output and one reader."""
    node = v.producer if v is not None and len(v.uses) == 1 else None
    return node if node is not None and len(node.outputs) == 1 else None


def leads_to_product(v: Value | None, over: tuple[str, ...], deep: int = MAX_DEPTH) -> bool:
    """Is `v` a matmul or convolution result, with only ops of `over` in between?"""
    node = _alone(v)
    if node is None or not deep or not dtypes.is_float(node.outputs[0].dtype):
        return False
    if node.op in over:
        return leads_to_product(node.inputs[0], over, deep - 1)
    return node.op in ("conv", "conv_transpose", "matmul", "gemm")


@rule(P.op(UNARY_ACTIVATIONS, P.op((*MOVES, *MAXIMA), x) @ "move"))
def hoist_activation(x: Value, move: Node, node: Node) -> Any:
    """Hoist an activation over a reshape, transpose or maximum, to the matmul or convolution before
    it.
    """
    if move.op in MAXIMA and (node.op not in MONOTONIC or move.attrs.get("with_indices")):
        return None
    over = (*MOVES, *MAXIMA) if node.op in MONOTONIC else MOVES
    if x.type.dynamic or not leads_to_product(x, over):
        return None
    return REGISTRY[move.op](REGISTRY[node.op](x, **node.attrs), **move.attrs)


@rule(P.op(("mul", "add"), P.op((*MOVES, *MAXIMA, *MEANS), x) @ "move", c))
def hoist_constant(x: Value, c: Value, move: Node, node: Node) -> Any:
    """Hoist a constant factor or addend over a reshape, transpose or pooling, to the matmul or
    convolution before it.
    """
    out = move.outputs[0]
    if x.type.dynamic or out.type != node.outputs[0].type or c.data is None:
        return None
    if not leads_to_product(x, (*MOVES, *MAXIMA, *MEANS)) or move.attrs.get("with_indices"):
        return None
    if move.op in MAXIMA and node.op == "mul" and not np.all(c.data > 0):
        return no("a factor is not positive, so the maximum would change")
    if move.op == "avg_pool" and node.op == "add" and any(move.attrs["pad"]):
        return no("the padding would be shifted too")
    moved = _before(move, x, c)
    if moved is None:
        return no(f"{c.type} varies along axes that {move.op} changes")
    return REGISTRY[move.op](REGISTRY[node.op](x, constant(moved)), **move.attrs)


def _before(move: Node, x: Value, c: Value) -> Array | None:
    """`c` in the axes of the operand of `move`; None if it varies along axes that `move`
    changes.
    """
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


@rule(P.op(UNARY_ACTIVATIONS, ANY @ "joined"))
def hoist_activation_over_concat(joined: Node, node: Node) -> Any:
    """Apply an activation to every operand of a concat, if a matmul or convolution makes each."""
    if joined.op != "concat" or not all(leads_to_product(v, MOVES) for v in joined.inputs):
        return None
    parts = [REGISTRY[node.op](v, **node.attrs) for v in joined.inputs]
    return ops.concat(*parts, **joined.attrs)


@rule(P.op(("mul", "add"), ANY @ "joined", c))
def hoist_constant_over_concat(joined: Node, c: Value, node: Node) -> Any:
    """Apply a constant factor or addend to every operand of a concat, if a matmul or convolution
    makes each.
    """
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


# ---- reshapes ------------------------------------------------------------------------------------
ROWS = ("softmax", "log_softmax", "layer_norm", "rms_norm")


@rule(P.reshape(x))
def cancel_reshapes(x: Value, node: Node) -> Any:
    """Merge two reshapes with only row-wise ops in between: these work in either shape."""
    out = node.outputs[0]
    chain: list[tuple[Node, int]] = []  # upwards, each with the index of its operand in the chain
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
    result: Value = source if source.shape == shape else ops.reshape(source, shape=shape)
    for inner, k in reversed(chain):
        result = _rebuilt(inner, k, result)
    return result


def _row_work(node: Node | None) -> tuple[Node, int] | None:
    """A node that computes each row of one operand independently, and that operand's index."""
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
    """Does the node treat all elements alike, in whatever row they are?"""
    node, computed = found
    rest = (v for k, v in enumerate(node.inputs) if k != computed)
    return REGISTRY[node.op].elementwise and all(v is None or v.type.size == 1 for v in rest)


def _rebuilt(node: Node, k: int, v: Value) -> Value:
    """The same row-wise op on `v`, which has other leading axes."""
    ins = list(node.inputs)
    ins[k] = v
    attrs = {**node.attrs, "axis": -1} if node.op in ROWS else node.attrs
    if REGISTRY[node.op].elementwise:
        ins = [
            u if u is None or u.data is None else constant(u.data.reshape(u.shape[-1:]))
            for u in ins
        ]
    result: Value = REGISTRY[node.op](*ins, origin=node.origin, **attrs)
    return result


@rule(P.op(BINARY, P.reshape(x), P.reshape(y)))
def merge_reshapes(x: Value, y: Value, node: Node) -> Any:
    """Reshape once behind a binary op instead of reshaping both of its operands."""
    out = node.outputs[0].type
    if x.shape != y.shape or out.dynamic or x.type.dynamic or x.type.size != out.size:
        return None
    return ops.reshape(REGISTRY[node.op](*_in_order(node, x, y), **node.attrs), shape=out.shape)


def _in_order(node: Node, x: Value, y: Value) -> tuple[Value, Value]:
    """The operands in the node's order: a commutative pattern may have swapped them."""
    first = node.inputs[0].producer if node.inputs[0] is not None else None
    return (x, y) if first is not None and first.inputs[0] is x else (y, x)


# ---- sink constants below reductions -------------------------------------------------------------
BEHIND = {
    "reduce_sum": ("mul", "shift_left"),
    "reduce_mean": ("mul", "add"),
    "reduce_max": ("mul", "add"),
    "reduce_min": ("mul", "add"),
}


def _behind_reduction(x: Value, c: Value, inner: Node, node: Node) -> Any:
    """sum(x * c) is sum(x) * c, if c is uniform along the reduced axes"""
    if inner.op not in BEHIND[node.op] or inner.inputs[0] is not x or c.data is None:
        return None
    if x.type != inner.outputs[0].type or x.type.dynamic or leads_to_product(x, MOVES):
        return None
    axes = node.attrs["axes"]
    full = c.data.reshape((1,) * (x.type.rank - c.type.rank) + c.shape)
    if any(full.shape[a] != 1 for a in axes):
        return no(f"{c.type} varies along the axes {axes}")
    if node.op in ("reduce_max", "reduce_min") and inner.op == "mul" and not np.all(full > 0):
        return no("a factor is not positive, so the maximum would change")
    kept = full if node.attrs["keepdims"] else full.squeeze(axes)
    return REGISTRY[inner.op](REGISTRY[node.op](x, **node.attrs), constant(kept))


@rule(P.op(("reduce_max", "reduce_min"), P.op(("mul", "add"), x, c) @ "inner"))
def sink_constant_below_extremum(x: Value, c: Value, inner: Node, node: Node) -> Any:
    """Write max(x * c) as max(x) * c for c > 0, and max(x + c) as max(x) + c. Rounding is
    monotonic, so this is exact.
    """
    return _behind_reduction(x, c, inner, node)


@rule(P.op(("reduce_sum", "reduce_mean"), P.op(("mul", "add", "shift_left"), x, c) @ "inner"))
def sink_constant_below_sum(x: Value, c: Value, inner: Node, node: Node) -> Any:
    """Write sum(x * c) as sum(x) * c, and sum(x << c) as sum(x) << c: fewer elements are scaled."""
    return _behind_reduction(x, c, inner, node)


HOIST_ACTIVATIONS = [
    hoist_activation,
    hoist_activation_over_concat,
    merge_reshapes,
    sink_constant_below_extremum,
]
HOIST_CONSTANTS = [
    hoist_constant,
    hoist_constant_over_concat,
    cancel_reshapes,
    sink_constant_below_sum,
]
