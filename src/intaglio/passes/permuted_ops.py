"""How each op computes on transposed tensors: one table for all ops.

A permutation p means that axis i of the tensor in memory is axis p[i] of the logical tensor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from intaglio.ir import Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.ops.shape import axis_groups as axis_groups

Perm = tuple[int, ...]


def identity(rank: int) -> Perm:
    return tuple(range(rank))


@functools.cache
def inverse(p: Perm) -> Perm:
    out = [0] * len(p)
    for i, a in enumerate(p):
        out[a] = i
    return tuple(out)


@functools.cache
def compose(first: Perm, then: Perm) -> Perm:
    """transpose(transpose(x, first), then) as one permutation."""
    return tuple(first[i] for i in then)


def order(p: Perm, shape: Sequence[int]) -> Perm:
    """The permuted axes without those of size one, which move for free."""
    return tuple(a for a in p if shape[a] != 1)


def is_free(p: Perm, shape: Sequence[int]) -> bool:
    """Does transposing a tensor of this shape leave all elements in place?"""
    kept = order(p, shape)
    return all(a < b for a, b in pairwise(kept))


@dataclass(frozen=True, slots=True)
class Permuted:
    """A node on transposed tensors, with the permutation of each operand; None: not permuted."""

    inputs: list[Perm | None]
    attrs: dict[str, Any]
    outputs: list[Perm]


def permute(node: Node, p: Perm) -> Permuted | None:
    """The node with its (first) operand transposed by p; None if it cannot compute so."""
    if REGISTRY[node.op].elementwise:
        return _elementwise(node, p)
    result = _TABLE.get(node.op)
    x = node.inputs[0] if node.inputs else None
    if result is None or x is None or x.type.rank != len(p):
        return None
    if any(v.type.dynamic for v in (*node.inputs, *node.outputs) if v is not None):
        return None
    return result(node, x, p)


def rank_of(node: Node) -> int:
    """The rank of the permutations that a node accepts."""
    if REGISTRY[node.op].elementwise:
        return node.outputs[0].type.rank
    x = node.inputs[0] if node.inputs else None
    return x.type.rank if x is not None else 0


def _elementwise(node: Node, p: Perm) -> Permuted | None:
    rank = node.outputs[0].type.rank
    inputs: list[Perm | None] = []
    for v in node.inputs:
        if v is None:
            inputs.append(None)
            continue
        lifted = (1,) * (rank - v.type.rank) + v.shape
        if v.type.dynamic or (v.data is None and v.type.rank < rank and not is_free(p, lifted)):
            return None
        inputs.append(p)
    return Permuted(inputs, node.attrs, [p] * len(node.outputs))


def _axis(node: Node, x: Value, p: Perm) -> Permuted:
    """An op along one axis that keeps all axes; its other operands do not change."""
    at = p.index(node.attrs["axis"] % x.type.rank)
    others: list[Perm | None] = [None] * (len(node.inputs) - 1)
    return Permuted([p, *others], {**node.attrs, "axis": at}, [p] * len(node.outputs))


def _concat(node: Node, x: Value, p: Perm) -> Permuted:
    at = p.index(node.attrs["axis"] % x.type.rank)
    return Permuted([p] * len(node.inputs), {**node.attrs, "axis": at}, [p])


def _scaled(node: Node, x: Value, p: Perm) -> Permuted | None:
    """Quantisation with one scale, or with one scale per index of an axis."""
    scale = node.inputs[1]
    if node.attrs["block_size"] or scale is None:
        return None
    if scale.type.rank == 0 or x.type.rank == 0:
        return Permuted([p, None, None][: len(node.inputs)], node.attrs, [p])
    return _axis(node, x, p)


def _first(node: Node, x: Value, p: Perm) -> Permuted:
    """Only the first operand is permuted."""
    return Permuted([p, *[None] * (len(node.inputs) - 1)], node.attrs, [p])


def _pair(node: Node, x: Value, p: Perm) -> Permuted | None:
    """Two quantised tensors that broadcast, each with a scale and a zero point."""
    a, b = (node.inputs[i].type for i in (0, 3))  # type: ignore[union-attr]
    if a.rank != b.rank:
        return None
    return Permuted([p, None, None, p, None, None, None, None], node.attrs, [p])


def _mean(node: Node, x: Value, p: Perm) -> Permuted | None:
    """A mean of a quantised tensor over consecutive axes."""
    result = _reduce(node, x, p)
    axes = result.attrs["axes"]
    if axes != tuple(range(axes[0], axes[0] + len(axes))):
        return None
    return Permuted([p, None, None, None, None], result.attrs, result.outputs)


def _plane(node: Node, x: Value, p: Perm) -> Permuted | None:
    """An op on two consecutive axes."""
    at = p.index(node.attrs["axis"] % x.type.rank)
    if at + 1 >= len(p) or p[at + 1] != p[at] + 1:
        return None
    return Permuted([p, *[None] * (len(node.inputs) - 1)], {"axis": at}, [p])


def _gather(node: Node, x: Value, p: Perm) -> Permuted | None:
    indices = node.inputs[1]
    return _axis(node, x, p) if indices is not None and indices.type.rank == 1 else None


def _per_axis(*names: str) -> Callable[[Node, Value, Perm], Permuted]:
    """An op whose attributes `names` have one entry per axis."""

    def permuted(node: Node, x: Value, p: Perm) -> Permuted:
        attrs = {k: tuple(v[a] for a in p) if k in names else v for k, v in node.attrs.items()}
        return Permuted([p], attrs, [p])

    return permuted


def _expand(node: Node, x: Value, p: Perm) -> Permuted | None:
    out = node.outputs[0]
    if out.type.rank != x.type.rank:
        return None
    return Permuted([p], {"shape": tuple(out.shape[a] for a in p)}, [p])


def _without(p: Perm, axes: Sequence[int]) -> Perm:
    """p on the tensor without `axes`."""
    kept = [a for a in p if a not in axes]
    return tuple(sorted(kept).index(a) for a in kept)


def _reduce(node: Node, x: Value, p: Perm) -> Permuted:
    axes = node.attrs["axes"]
    moved = {**node.attrs, "axes": tuple(sorted(p.index(a) for a in axes))}
    return Permuted([p], moved, [p if node.attrs["keepdims"] else _without(p, axes)])


def _arg(node: Node, x: Value, p: Perm) -> Permuted:
    axis = node.attrs["axis"] % x.type.rank
    moved = {**node.attrs, "axis": p.index(axis)}
    return Permuted([p], moved, [p if node.attrs["keepdims"] else _without(p, [axis])])


def _norm(node: Node, x: Value, p: Perm) -> Permuted | None:
    """The normalised axes are the last ones and stay in place."""
    axis = node.attrs["axis"] % x.type.rank
    if p[axis:] != identity(x.type.rank)[axis:]:
        return None
    return Permuted([p, None, None][: len(node.inputs)], node.attrs, [p])


def before_reshape(node: Node, p: Perm) -> Perm:
    """The operand order for which a reshape's result has the order p, if there is one."""
    x, out = node.inputs[0], node.outputs[0]
    assert x is not None
    last, starts = -1, []
    for ins, outs in axis_groups(x.shape, out.shape):
        last = min((p.index(a) for a in outs), default=last)
        starts.append((last, ins))
    return tuple(a for _, ins in sorted(starts, key=lambda s: s[0]) for a in ins)


def _reshape(node: Node, x: Value, p: Perm) -> Permuted | None:
    """A reshape that merges or splits axes which stay adjacent."""
    out = node.outputs[0]
    if x.type.size == 0:
        return None
    groups = axis_groups(x.shape, out.shape)
    place = {a: i for i, a in enumerate(order(p, x.shape))}
    starts: list[tuple[int, tuple[int, ...]]] = []
    last = -1
    for ins, outs in groups:
        at = [place[a] for a in ins if a in place]
        if at != list(range(at[0], at[0] + len(at))) if at else False:
            return None
        last = at[-1] if at else last
        starts.append((last, outs))
    moved = tuple(a for _, outs in sorted(starts, key=lambda s: s[0]) for a in outs)
    return Permuted([p], {"shape": tuple(out.shape[a] for a in moved)}, [moved])


_TABLE: dict[str, Callable[[Node, Value, Perm], Permuted | None]] = {
    **dict.fromkeys(
        ("softmax", "log_softmax", "cumsum", "cumprod", "topk", "interpolate", "qlinear_softmax"),
        _axis,
    ),
    **dict.fromkeys(("quantize_linear", "dequantize_linear"), _scaled),
    **dict.fromkeys(
        ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"), _reduce
    ),
    **dict.fromkeys(("argmax", "argmin"), _arg),
    **dict.fromkeys(("layer_norm", "rms_norm"), _norm),
    "concat": _concat,
    "lookup": _first,
    "lookup_wide": _first,
    "qlinear_add": _pair,
    "qlinear_mul": _pair,
    "qlinear_mean": _mean,
    "qlinear_resize": _plane,
    "gather": _gather,
    "slice": _per_axis("start", "stop", "step"),
    "pad": _per_axis("before", "after"),
    "tile": _per_axis("repeats"),
    "expand": _expand,
    "reshape": _reshape,
}
