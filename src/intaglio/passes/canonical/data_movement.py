"""Simplify reshapes, transposes, expands, slices, pads, concats and gathers. All exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import ops, symint
from intaglio.ir import Node, Value, constant
from intaglio.ops.registry import REGISTRY
from intaglio.ops.slice_ranges import EXTENT, cut, is_empty, one_axis, ranges, whole_axis
from intaglio.passes.permuted_ops import axis_groups
from intaglio.rewrite import ANY, P, no, rule

MAX_CONCAT_OPERANDS = 1024  # of a flattened concat
x, y, c, i, j = P["x y c! i! j!"]
BINARY = tuple(
    name
    for name, o in REGISTRY.items()
    if o.elementwise and len(o.signature.parameters) - len(o.attr_names) == 2
)


# ---- reshapes, transposes, copies ----------------------------------------------------------------
@rule(P.reshape(P.reshape(x).shared()))
def reshape_of_reshape(x: Value, node: Node) -> Any:
    """Keep only the last of two reshapes."""
    return ops.reshape(x, shape=node.attrs["shape"])


@rule(P.transpose(P.transpose(x).shared() @ "inner"))
def transpose_of_transpose(x: Value, inner: Node, node: Node) -> Any:
    """Merge two transposes into one."""
    return ops.transpose(x, perm=tuple(inner.attrs["perm"][p] for p in node.attrs["perm"]))


@rule(P.expand(P.expand(x).shared()))
def expand_of_expand(x: Value, node: Node) -> Any:
    """Keep only the last of two expands."""
    out = node.outputs[0].type
    return None if out.dynamic else ops.expand(x, shape=out.shape)


@rule(P.tile(x))
def tile_as_expand(x: Value, node: Node) -> Any:
    """Write a tile that repeats only axes of size one as an expand."""
    out = node.outputs[0].type
    many = [d for d, r in zip(x.shape, node.attrs["repeats"], strict=True) if r > 1]
    if x.type.dynamic or not many or any(d != 1 for d in many):
        return None
    return ops.expand(x, shape=out.shape)


@rule(P.op(BINARY, x, y))
def redundant_expand(node: Node) -> Any:
    """Remove an expand of an operand that the op broadcasts itself."""
    a, b = node.inputs
    out = node.outputs[0].type
    assert a is not None
    assert b is not None
    if out.dynamic:
        return None
    small, other = _before_expand(a, out.size), _before_expand(b, out.size)
    if small is not a and symint.broadcast(small.shape, b.shape) == out.shape:
        return REGISTRY[node.op](small, b, **node.attrs)
    if other is not b and symint.broadcast(a.shape, other.shape) == out.shape:
        return REGISTRY[node.op](a, other, **node.attrs)
    return None


def _before_expand(v: Value, size: int) -> Value:
    """The operand of an expand, or of a reshape that adds leading unit axes; else `v` itself."""
    result = v.producer
    inner = result.inputs[0] if result and result.op in ("expand", "reshape") else None
    if result is None or inner is None:
        return v
    if result.op == "expand":
        return inner
    lifted = (1,) * (v.type.rank - inner.type.rank) + inner.shape
    small = v.type.size != size and len(v.uses) == 1  # a large tensor may be a matmul result
    return inner if small and lifted == v.shape else v


# ---- reductions ----------------------------------------------------------------------------------
REDUCE = tuple(name for name in REGISTRY if name.startswith("reduce_"))


@rule(P.reshape(P.op((*REDUCE, "argmax", "argmin"), x) @ "inner"))
def reshape_into_reduction(x: Value, inner: Node, node: Node) -> Any:
    """Replace a reshape behind a reduction by toggling its `keepdims`."""
    if x.type.dynamic:
        return None
    other = {**inner.attrs, "keepdims": not inner.attrs["keepdims"]}
    result = REGISTRY[inner.op](x, **other)
    return result if result.shape == node.outputs[0].shape else None


@rule(P.op(("reduce_max", "reduce_min"), P.expand(x).shared()))
def extremum_of_expand(x: Value, node: Node) -> Any:
    """Take the maximum before the expand: it does not depend on repeated elements."""
    inner = node.inputs[0]
    assert inner is not None
    lifted = (1,) * (inner.type.rank - x.type.rank) + x.shape
    if inner.type.dynamic or 0 in inner.shape:
        return None
    axes = node.attrs["axes"]
    small = tuple(lifted[a] if a in axes else d for a, d in enumerate(inner.shape))
    if small == inner.shape:
        return None
    return REGISTRY[node.op](ops.expand(x, shape=small), **node.attrs)


@rule(P.op(("reduce_max", "reduce_min"), P.op(("reduce_max", "reduce_min"), x) @ "inner"))
def extremum_of_extremum(x: Value, inner: Node, node: Node) -> Any:
    """Merge a maximum over some axes with a maximum over other axes."""
    if inner.op != node.op:
        return None
    return joined_reductions(x, inner, node)


def joined_reductions(x: Value, inner: Node, node: Node) -> Value | None:
    """One reduction for two of the same op, if both use the same `keepdims`."""
    first, then = inner.attrs["axes"], node.attrs["axes"]
    if inner.attrs["keepdims"] != node.attrs["keepdims"] or x.type.dynamic:
        return None
    left = [a for a in range(x.type.rank) if inner.attrs["keepdims"] or a not in first]
    both = tuple(sorted({*first, *(left[a] for a in then)}))
    result: Value = REGISTRY[node.op](x, axes=both, keepdims=node.attrs["keepdims"])
    return result


# ---- slices --------------------------------------------------------------------------------------
@rule(P.slice(P.slice(x).shared() @ "inner"))
def slice_of_slice(x: Value, inner: Node, node: Node) -> Any:
    """Merge two slices into one."""
    first, then = ranges(inner), ranges(node)
    if first is None or then is None:
        return None
    both = [
        a[b.start : b.stop if b.stop >= 0 else None : b.step]
        for a, b in zip(first, then, strict=True)
    ]
    return None if any(map(is_empty, both)) else cut(x, both)


@rule(P.reshape(P.slice(P.reshape(x).shared() @ "outer") @ "inner"))
def slice_of_reshape(x: Value, outer: Node, inner: Node, node: Node) -> Any:
    """Replace reshape(slice(reshape(x))) by a strided slice of x."""
    parts, taken, out = outer.outputs[0], ranges(inner), node.outputs[0]
    if taken is None or x.type.dynamic or not x.type.size or not out.type.size:
        return None
    found = []
    for ins, outs in axis_groups(x.shape, parts.shape):
        long = [a for a in ins if x.shape[a] != 1]
        if len(long) > 1:
            return None
        kept = np.arange(math.prod(parts.shape[a] for a in outs))
        kept = kept.reshape([parts.shape[a] for a in outs])[np.ix_(*(taken[a] for a in outs))]
        steps = np.unique(np.diff(kept.ravel()))
        if len(steps) > 1:
            return None
        step = int(steps[0]) if len(steps) else 1
        first, last = int(kept.flat[0]), int(kept.flat[-1])
        found += [(a, range(first, last + (1 if step > 0 else -1), step)) for a in long]
    along = dict(found)
    result = cut(x, [along.get(a, whole_axis(d)) for a, d in enumerate(x.shape)])
    return result if result.shape == out.shape else None


@rule(P.slice((ANY @ "inner").shared()))
def slice_of_concat(inner: Node, node: Node) -> Any:
    """Slice the operands of a concat instead, and drop the operands that the slice skips."""
    joined = inner.outputs[0]
    if inner.op != "concat" or joined.type.dynamic:
        return None
    axis, taken = inner.attrs["axis"] % joined.type.rank, ranges(node)
    if taken is None or taken[axis].step != 1 or is_empty(taken[axis]):
        return None
    first, last = taken[axis].start, taken[axis].stop
    parts: list[Value] = []
    edge = 0
    for v in inner.inputs:
        assert v is not None
        start, stop = max(first - edge, 0), min(last - edge, v.shape[axis])
        if start < stop:
            part = [range(start, stop) if a == axis else r for a, r in enumerate(taken)]
            if len(joined.uses) > 1 and (start, stop) != (0, v.shape[axis]) and parts:
                return None
            parts.append(cut(v, part))
        edge += v.shape[axis]
    if len(parts) > 1 and (len(joined.uses) > 1 or len(parts) == len(inner.inputs)):
        return None  # the parts would need another concat
    return parts[0] if len(parts) == 1 else ops.concat(*parts, axis=axis)


@rule(P.slice(P.pad(x) @ "inner"))
def slice_of_pad(x: Value, inner: Node, node: Node) -> Any:
    """Do not pad elements that a slice cuts off."""
    taken, a = ranges(node), inner.attrs
    if taken is None or x.type.dynamic or any(r.step != 1 or not r for r in taken):
        return None
    kept, before, after = [], [], []
    for axis, r in enumerate(taken):
        b, d = a["before"][axis], x.shape[axis]
        before.append(max(b - r.start, 0))
        after.append(max(r.stop - (b + d), 0))
        kept.append(range(max(r.start - b, 0), min(r.stop - b, d)))
    if any(not r for r in kept):
        return no("the slice takes only padding")
    if (tuple(before), tuple(after)) == (a["before"], a["after"]):
        return None
    if a["mode"] != "constant" and any((*before, *after)):
        return no(f"padding of mode '{a['mode']}' depends on the whole tensor")
    return ops.pad(cut(x, kept), **{**a, "before": tuple(before), "after": tuple(after)})


@rule(P.pad(P.pad(x) @ "inner"))
def pad_of_pad(x: Value, inner: Node, node: Node) -> Any:
    """Merge two constant pads with the same value."""
    a, b = inner.attrs, node.attrs
    if (a["mode"], a["value"]) != (b["mode"], b["value"]) or a["mode"] != "constant":
        return None
    sides = {k: tuple(map(sum, zip(a[k], b[k], strict=True))) for k in ("before", "after")}
    return ops.pad(x, **{**b, **sides})


# ---- concatenations ------------------------------------------------------------------------------
@rule(ANY)
def simplify_concat(node: Node) -> Any:
    """Drop empty operands of a concat, flatten nested concats, join adjacent slices and
    constants.
    """
    if node.op != "concat":
        return None
    axis = node.attrs["axis"] % node.outputs[0].type.rank
    flat: list[Value] = []
    for v in node.inputs:
        assert v is not None
        inner = v.producer
        if (
            inner
            and inner.op == "concat"
            and inner.attrs["axis"] % v.type.rank == axis
            and len(v.uses) == 1
            and len(flat) + len(inner.inputs) <= MAX_CONCAT_OPERANDS
        ):
            flat += [w for w in inner.inputs if w is not None]
        elif v.type.size:
            flat.append(v)
    joined: list[Value] = []
    for v in flat:
        both = _neighbours(joined[-1], v, axis) if joined else None
        if both is None:
            joined.append(v)
        else:
            joined[-1] = both
    if len(joined) == 1:
        return joined[0]
    if not joined or len(joined) == len(node.inputs):
        return None
    return ops.concat(*joined, axis=axis)


def _neighbours(a: Value, b: Value, axis: int) -> Value | None:
    """Two constants, or two adjacent slices of one tensor along `axis`, as one value."""
    if a.data is not None and b.data is not None:
        return constant(np.concatenate([a.data, b.data], axis))
    first, second = a.producer, b.producer
    if first is None or second is None or first.op != "slice" or second.op != "slice":
        return None
    if first.inputs[0] is not second.inputs[0]:
        return None
    left, right = one_axis(first), one_axis(second)
    if left is None or right is None or left[0] != axis or right[0] != axis:
        return None
    l, r = left[1], right[1]  # noqa: E741
    if l.step != 1 or r.step != 1 or l.stop != r.start:
        return None
    source = first.inputs[0]
    assert source is not None
    whole = [whole_axis(d) for d in source.shape]
    return cut(source, [range(l.start, r.stop) if k == axis else w for k, w in enumerate(whole)])


# ---- gathers -------------------------------------------------------------------------------------
@rule(P.gather(x, i))
def gather_as_slice(x: Value, i: Value, node: Node) -> Any:
    """Write a gather with evenly increasing constant indices as a slice, which is often free."""
    axis = node.attrs["axis"] % x.type.rank
    if x.type.dynamic or i.type.rank > 1 or i.type.size == 0:
        return None
    at = i.data.ravel().astype(np.int64)  # type: ignore[union-attr]
    extent = x.shape[axis]
    at = np.where(at < 0, at + extent, at)
    steps = np.unique(np.diff(at))
    if at[0] < 0 or at[-1] >= extent or len(steps) > 1 or np.any(steps < 1):
        return None
    step = int(steps[0]) if len(steps) else 1
    cut = ops.slice_(
        x,
        start=tuple(int(at[0]) if k == axis else 0 for k in range(x.type.rank)),
        stop=tuple(int(at[-1]) + 1 if k == axis else EXTENT for k in range(x.type.rank)),
        step=tuple(step if k == axis else 1 for k in range(x.type.rank)),
    )
    return ops.reshape(cut, shape=node.outputs[0].shape) if i.type.rank == 0 else cut


@rule(P.gather(P.gather(x, i) @ "inner", j))
def gather_of_gather(x: Value, i: Value, j: Value, inner: Node, node: Node) -> Any:
    """Merge two gathers into one."""
    axis = inner.attrs["axis"] % x.type.rank
    if i.type.rank != 1 or node.attrs["axis"] % inner.outputs[0].type.rank != axis:
        return None
    return ops.gather(x, constant(i.data[j.data]), axis=axis)  # type: ignore[index]


@rule(P.slice(P.shape_of(x).shared()))
def slice_of_shape(x: Value, node: Node) -> Any:
    """Fold a slice of a tensor's shape if the sizes it takes are static."""
    taken = ranges(node)
    if taken is None or any(a in x.type.dynamic for a in taken[0]):
        return None
    return constant(np.array([x.shape[a] for a in taken[0]], np.int64))


DATA_MOVEMENT = [
    reshape_of_reshape,
    transpose_of_transpose,
    expand_of_expand,
    tile_as_expand,
    redundant_expand,
    reshape_into_reduction,
    extremum_of_expand,
    extremum_of_extremum,
    slice_of_slice,
    slice_of_reshape,
    slice_of_concat,
    slice_of_pad,
    pad_of_pad,
    simplify_concat,
    gather_as_slice,
    gather_of_gather,
    slice_of_shape,
]
