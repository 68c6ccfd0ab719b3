"""Importers of Reshape, Transpose, Concat, Split, Pad, Tile, Fill, Range and others."""

from __future__ import annotations

import math

import numpy as np

from intaglio import dtypes, ops, symint
from intaglio.errors import BadInput
from intaglio.frontends.tensorflow.dynamic_shapes import (
    estimate,
    padded_concat,
    padded_rows,
    upper_bounds,
)
from intaglio.frontends.tensorflow.node import EdgeValue, TensorList, TfNode, importer
from intaglio.ir import Value, constant
from intaglio.ops.registry import normalize_axis

MAX_PARTS = 1 << 14  # of Split and Unpack


def extents(n: TfNode, x: Value, dtype: str) -> Value:
    """The shape of a tensor as a tensor."""
    if x.type.dynamic:
        result: Value = ops.cast(ops.shape_of(x), dtype=dtype)
        return result
    return constant(list(x.shape), dtype=dtype)


@importer("Shape")
def shape(n: TfNode) -> Value:
    return extents(n, n.value(0), n.dtype("out_type", "i32"))


@importer("ShapeN")
def shape_n(n: TfNode) -> list[Value]:
    return [extents(n, v, n.dtype("out_type", "i32")) for v in n.values()]


@importer("Size")
def size(n: TfNode) -> Value:
    x, dtype = n.value(0), n.dtype("out_type", "i32")
    if x.type.dynamic:
        result: Value = ops.reduce_prod(extents(n, x, dtype), axes=(0,), keepdims=False)
        return result
    return constant(x.type.size, dtype=dtype)


@importer("Rank")
def rank(n: TfNode) -> Value:
    return constant(n.value(0).type.rank, dtype="i32")


@importer("Reshape")
def reshape(n: TfNode) -> Value:
    x = n.value(0)
    if not n.is_const(1) and x.type.dynamic:
        return _reshaped_by_extent(n, x)
    result: Value = ops.reshape(x, shape=n.ints(1))
    return result


def _reshaped_by_extent(n: TfNode, x: Value) -> Value:
    """Reshape to a shape with one run-time extent, which becomes -1."""
    parts = entries(n.value(1))
    if parts is None:
        n.const(1)  # raises with the remedy
    known = [None if p.data is None else int(p.data.reshape(-1)[0]) for p in parts or []]
    if known.count(None) != 1 or -1 in known:
        n.unsupported(
            "its shape has several extents that are known only at run time; at most one is "
            "supported"
        )
    result: Value = ops.reshape(x, shape=tuple(-1 if k is None else k for k in known))
    return result


def entries(v: Value) -> list[Value] | None:
    """The scalars that a vector was packed from."""
    if v.data is not None:
        return [constant(d) for d in v.data.reshape(-1)]
    node = v.producer
    if node is None:
        return None
    if node.op == "cast" and node.inputs[0] is not None:
        return entries(node.inputs[0])
    if node.op in ("concat", "reshape") and v.type.rank <= 1:
        found: list[Value] = []
        for x in node.inputs:
            if x is None:
                return None
            part = [x] if x.type.size == 1 and x.data is None else entries(x)
            if part is None:
                return None
            found += part
        return found
    return [v] if v.type.size == 1 else None


@importer("Squeeze")
def squeeze(n: TfNode) -> Value:
    x = n.value(0)
    axes = n.attr("squeeze_dims", []) or n.attr("axis", [])
    gone = {normalize_axis(a, x.type.rank) for a in axes} or {
        i for i, d in enumerate(x.shape) if d == 1
    }
    if any(x.shape[i] != 1 for i in gone):
        n.unsupported(
            f"axes {sorted(gone)} of {x.type} cannot be squeezed; their extents must be 1"
        )
    return reshaped(x, tuple(i for i in range(x.type.rank) if i not in gone))


def reshaped(x: Value, axes: tuple[int, ...]) -> Value:
    """x reshaped to these of its axes, -1 for a new axis; a run-time extent stays."""
    free = [a for a in axes if a in x.type.dynamic]
    if len(free) > 1:
        raise BadInput(
            f"{x.type} has {len(free)} extents that are known only at run time; at most one is "
            "supported"
        )
    shape = tuple(1 if a < 0 else -1 if a in free else x.shape[a] for a in axes)
    result: Value = ops.reshape(x, shape=shape)
    return result


@importer("ExpandDims")
def expand_dims(n: TfNode) -> Value:
    x = n.value(0)
    axis = normalize_axis(n.whole(1), x.type.rank + 1)
    return reshaped(x, (*range(axis), -1, *range(axis, x.type.rank)))


@importer("Transpose")
def transpose(n: TfNode) -> Value:
    x = n.value(0)
    result: Value = ops.transpose(x, perm=tuple(normalize_axis(a, x.type.rank) for a in n.ints(1)))
    return result


@importer("ConcatV2")
def concat_v2(n: TfNode) -> Value:
    parts, axis = n.values()[:-1], n.whole(-1)
    if len(parts) == 2 and axis == 0 and (whole := padded_concat(*parts)) is not None:
        return whole
    result: Value = ops.concat(*parts, axis=axis)
    return result


@importer("Concat")
def concat(n: TfNode) -> Value:
    result: Value = ops.concat(*n.values()[1:], axis=n.whole(0))
    return result


@importer("Pack")
def pack(n: TfNode) -> Value:
    parts = n.values()
    if not parts:
        raise BadInput("Pack has no operands")
    rank = parts[0].type.rank
    axis = normalize_axis(n.attr("axis", 0), rank + 1)
    each = [reshaped(v, (*range(axis), -1, *range(axis, v.type.rank))) for v in parts]
    result: Value = ops.concat(*each, axis=axis)
    return result


@importer("Unpack")
def unpack(n: TfNode) -> list[Value]:
    x = n.value(0)
    axis = normalize_axis(n.attr("axis", 0), x.type.rank)
    if x.shape[axis] > MAX_PARTS:
        n.unsupported(f"axis {axis} of {x.type} would be split into more than {MAX_PARTS} parts")
    left = (*range(axis), *range(axis + 1, x.type.rank))
    return [reshaped(ops.part(x, i, i + 1, axis=axis), left) for i in range(x.shape[axis])]


@importer("Split")
def split(n: TfNode) -> list[Value]:
    x, count = n.value(1), n.attr("num_split", 1)
    axis = normalize_axis(n.whole(0), x.type.rank)
    if not 0 < count <= min(max(x.shape[axis], 1), MAX_PARTS) or x.shape[axis] % count:
        raise BadInput(f"axis {axis} of {x.type} cannot be split into {count}")
    each = x.shape[axis] // count
    return [ops.part(x, i * each, (i + 1) * each, axis=axis) for i in range(count)]


@importer("SplitV")
def split_v(n: TfNode) -> list[Value]:
    x, sizes = n.value(0), list(n.ints(1))
    axis = normalize_axis(n.whole(2), x.type.rank)
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = x.shape[axis] - sum(s for s in sizes if s >= 0)
    if min(sizes, default=0) < 0 or sum(sizes) != x.shape[axis]:
        raise BadInput(f"axis {axis} of {x.type} cannot be split into {sizes}")
    ends = np.cumsum(sizes).tolist()
    return [ops.part(x, e - s, e, axis=axis) for s, e in zip(sizes, ends, strict=True)]


@importer("Pad", "PadV2")
def pad(n: TfNode) -> Value:
    x = n.value(0)
    value = n.number(2) if len(n.inputs) > 2 else 0.0
    if not n.is_const(1) and x.type.dynamic == (0,):
        return _padded_to_fixed(n, x, value)
    around = n.ints(1)
    result: Value = ops.pad(x, before=around[::2], after=around[1::2], value=value)
    return result


def _padded_to_fixed(n: TfNode, x: Value, value: float) -> Value:
    """Pad a run-time number of rows to a fixed one."""
    totals = set()
    for less in (0, 1, x.shape[0] // 2, x.shape[0]):
        around = estimate(n.value(1), less)
        if around is None or around.size != 2 * x.type.rank or np.any(around.reshape(-1)[2:]):
            n.const(1)  # raises with the remedy
        else:
            before, after = around.reshape(-1)[:2].tolist()
            totals.add((before, x.shape[0] - less + after))
    if len(totals) != 1 or next(iter(totals))[0]:
        n.const(1)
    return padded_rows(x, next(iter(totals))[1], value)


@importer("MirrorPad")
def mirror_pad(n: TfNode) -> Value:
    x, around = n.value(0), n.ints(1)
    before, after = around[::2], around[1::2]
    if n.attr("mode", "REFLECT") == "REFLECT":
        result: Value = ops.pad(x, before=before, after=after, mode="reflect")
        return result
    if len(before) != x.type.rank or len(after) != x.type.rank:
        raise BadInput(f"pads {around} do not fit {x.type}")
    result = x
    for axis, (b, a, d) in enumerate(zip(before, after, x.shape, strict=True)):
        if not 0 <= b <= d or not 0 <= a <= d:
            raise BadInput(f"pads {around} are larger than {x.type}")
        if a + b:  # SYMMETRIC repeats the edge
            order = [*range(b - 1, -1, -1), *range(d), *range(d - 1, d - 1 - a, -1)]
            result = ops.gather(result, constant(np.array(order, np.int64)), axis=axis)
    return result


@importer("Tile")
def tile(n: TfNode) -> Value:
    result: Value = ops.tile(n.value(0), repeats=n.ints(1))
    return result


@importer("BroadcastTo")
def broadcast_to(n: TfNode) -> Value:
    x, shape = n.value(0), n.ints(1)
    result: Value = ops.expand(x, shape=shape)
    if result.shape != shape:
        raise BadInput(f"{x.type} cannot be broadcast to {shape}")
    return result


@importer("Fill")
def fill(n: TfNode) -> Value:
    if not n.is_const(0) and (most := upper_bounds(n.value(0))) is not None:
        return _fill_of_dynamic(n, tuple(max(int(d), 0) for d in most.reshape(-1)))
    shape = n.ints(0)
    if min(shape, default=0) < 0:
        raise BadInput(f"its shape is {shape}; extents must not be negative")
    result: Value = ops.expand(ops.reshape(n.value(1), shape=()), shape=shape)
    return result


def _fill_of_dynamic(n: TfNode, most: tuple[int, ...]) -> Value:
    shape = n.value(0)
    near = [estimate(shape, less) for less in (0, 1)]
    varies = tuple(
        i for i in range(len(most)) if len({int(a[i]) for a in near if a is not None}) > 1
    )
    result: Value = ops.expand_to(
        ops.reshape(n.value(1), shape=()), ops.cast(shape, dtype="i64"), bound=most, dynamic=varies
    )
    return result


@importer("ZerosLike", "OnesLike")
def zeros_or_ones_like(n: TfNode) -> EdgeValue:
    x = n.operand(0)
    if isinstance(x, TensorList):
        return TensorList(None, x.count, x.dtype, x.element)
    v = n.value(0)
    one = constant(0 if n.op == "ZerosLike" else 1, dtype=v.dtype)
    if v.type.dynamic:
        like: Value = ops.expand_to(one, ops.shape_of(v), bound=v.shape, dynamic=v.type.dynamic)
        return like
    result: Value = ops.expand(one, shape=v.shape)
    return result


@importer("Empty")
def empty(n: TfNode) -> Value:
    result: Value = ops.expand(constant(0, dtype=n.dtype("dtype")), shape=n.ints(0))
    return result


@importer("BroadcastArgs")
def broadcast_args(n: TfNode) -> Value:
    a, b = n.ints(0), n.ints(1)
    return constant(list(symint.broadcast(a, b)), dtype=n.value(0).dtype)


@importer("Range")
def range_(n: TfNode) -> Value:
    start = n.value(0)
    if not all(n.is_const(i) for i in range(3)):
        return _range_to_extent(n)
    first, last, step = (n.number(i) for i in range(3))
    if not step or not abs((last - first) / step) < 1 << 24:
        raise BadInput(f"the range from {first} to {last} by {step} is invalid")
    if dtypes.is_float(start.dtype):
        count = max(math.ceil((last - first) / step), 0)
        return constant(first + np.arange(count) * step, dtype=start.dtype)
    return constant(np.arange(n.whole(0), n.whole(1), n.whole(2)), dtype=start.dtype)


def _range_to_extent(n: TfNode) -> Value:
    """A range up to a run-time extent."""
    ends = [upper_bounds(n.value(i)) for i in range(3)]
    if any(e is None for e in ends):
        n.unsupported("its length is known only at run time, and depends on more than extents")
    first, last, step = (float(e.reshape(-1)[0]) for e in ends if e is not None)
    if not step or not abs((last - first) / step) < 1 << 24:
        raise BadInput(f"the range from {first} to {last} by {step} is invalid")
    most = max(math.ceil((last - first) / step), 0)
    scalars = [ops.reshape(n.value(i), shape=()) for i in range(3)]
    result: Value = ops.range_(*scalars, bound=(most,))
    return result


@importer("LinSpace")
def lin_space(n: TfNode) -> Value:
    count = n.whole(2)
    if not 0 < count < 1 << 24:
        raise BadInput(f"num is {count}; it must be above 0")
    return constant(np.linspace(n.number(0), n.number(1), count), dtype=n.value(0).dtype)
