"""Importers of RESHAPE, TRANSPOSE, CONCATENATION, SPLIT, STRIDED_SLICE, PAD and others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intaglio import ops
from intaglio.frontends.tflite.node import TfliteNode, importer
from intaglio.frontends.tflite.run_time_slices import slice_at_run_time, written_list
from intaglio.ir import Array, Value, constant
from intaglio.ops.registry import normalize_axis


@importer("RESHAPE", stored=True)
def reshape(n: TfliteNode) -> Value:
    """The shape is an operand, an option, or the declared shape of the result."""
    x, v = n.required(0), n.input(1)
    if v is not None and v.data is not None:
        shape = n.ints(1)
    elif n.op.options is not None and n.op.options.NewShapeLength():
        shape = tuple(int(n.op.options.NewShape(i)) for i in range(n.op.options.NewShapeLength()))
    else:
        shape = n.out().shape
    y: Value = ops.reshape(x, shape=_resolved_shape(n, shape, x.type.size))
    return y


def _resolved_shape(n: TfliteNode, shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The shape with -1 resolved; a shape for batch 1 is adapted to a larger batch."""
    if shape.count(-1) == 1:
        rest = int(np.prod([d for d in shape if d >= 0], dtype=np.int64))
        return tuple(size // max(rest, 1) if d < 0 else d for d in shape)
    return shape


@importer("SQUEEZE", stored=True)
def squeeze(n: TfliteNode) -> Value:
    x, o = n.required(0), n.op.options
    axes = [int(o.SqueezeDims(i)) for i in range(o.SqueezeDimsLength())] if o else []
    gone = {normalize_axis(a, x.type.rank) for a in axes} or {
        i for i, d in enumerate(x.shape) if d == 1
    }
    if any(x.shape[i] != 1 for i in gone):
        n.unsupported(
            f"axes {sorted(gone)} of {x.type} cannot be squeezed; their extents must be 1"
        )
    y: Value = ops.reshape(x, shape=tuple(d for i, d in enumerate(x.shape) if i not in gone))
    return y


@importer("EXPAND_DIMS", stored=True)
def expand_dims(n: TfliteNode) -> Value:
    x = n.required(0)
    axis = normalize_axis(n.ints(1)[0], x.type.rank + 1)
    y: Value = ops.reshape(x, shape=(*x.shape[:axis], 1, *x.shape[axis:]))
    return y


@importer("TRANSPOSE", stored=True)
def transpose(n: TfliteNode) -> Value:
    y: Value = ops.transpose(n.required(0), perm=n.ints(1))
    return y


@importer("CONCATENATION")
def concatenation(n: TfliteNode) -> Value:
    parts, axis = n.operands(), n.option("Axis", 0)
    y: Value = n.activated(written_list(parts, axis) or ops.concat(*parts, axis=axis))
    return y


@importer("PACK", stored=True)
def pack(n: TfliteNode) -> Value:
    parts = n.operands()
    axis = normalize_axis(n.option("Axis", 0), parts[0].type.rank + 1)
    each = [ops.reshape(v, shape=(*v.shape[:axis], 1, *v.shape[axis:])) for v in parts]
    y: Value = ops.concat(*each, axis=axis)
    return y


@importer("UNPACK", stored=True)
def unpack(n: TfliteNode) -> list[Value]:
    x = n.required(0)
    axis = normalize_axis(n.option("Axis", 0), x.type.rank)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return [
        ops.reshape(ops.part(x, i, i + 1, axis=axis), shape=shape) for i in range(x.shape[axis])
    ]


@importer("SPLIT", stored=True)
def split(n: TfliteNode) -> list[Value]:
    x, count = n.required(1), len(n.op.outputs)
    axis = normalize_axis(n.ints(0)[0], x.type.rank)
    size = x.shape[axis] // max(count, 1)
    return [ops.part(x, i * size, (i + 1) * size, axis=axis) for i in range(count)]


@importer("SPLIT_V", stored=True)
def split_v(n: TfliteNode) -> list[Value]:
    x, sizes = n.required(0), list(n.ints(1))
    axis = normalize_axis(n.ints(2)[0], x.type.rank)
    if -1 in sizes:
        sizes[sizes.index(-1)] = x.shape[axis] - sum(s for s in sizes if s >= 0)
    ends = np.cumsum(sizes).tolist()
    return [ops.part(x, e - s, e, axis=axis) for s, e in zip(sizes, ends, strict=True)]


@importer("SLICE", stored=True)
def slice_(n: TfliteNode) -> Value:
    x = n.required(0)
    if n.required(1).data is None or n.required(2).data is None:
        return slice_at_run_time(x, n.required(1), n.required(2))
    start, size = n.ints(1), n.ints(2)
    stop = tuple(d if s < 0 else b + s for b, s, d in zip(start, size, x.shape, strict=True))
    y: Value = ops.slice_(x, start=start, stop=stop, step=(1,) * x.type.rank)
    return y


@importer("STRIDED_SLICE", stored=True)
def strided_slice(n: TfliteNode) -> Value:
    """Masks: open begins and ends, new axes, an ellipsis, and axes of which one index is taken."""
    x = n.required(0)
    begin: Sequence[int]
    end: Sequence[int]
    step: Sequence[int]
    begin, end, step = n.ints(1), n.ints(2), n.ints(3)
    masks = {m: n.option(f"{m}Mask", 0) for m in ("Begin", "End", "ShrinkAxis")}
    new, rest = n.option("NewAxisMask", 0), n.option("EllipsisMask", 0)
    if new or rest:
        x, (begin, end, step), masks = _explicit_slice(n, x, (begin, end, step), masks, new, rest)
    starts, stops, steps, shape = [], [], [], []
    for i, d in enumerate(x.shape):
        b, e, s = (v[i] if i < len(v) else None for v in (begin, end, step))
        s = 1 if s is None else s
        single = bool(masks["ShrinkAxis"] >> i & 1)
        if b is None or (masks["Begin"] >> i & 1 and not single):
            b = 0 if s > 0 else d - 1
        if single:
            b, s = (b + d if b < 0 else b), 1
            e = b + 1
        elif e is None or masks["End"] >> i & 1:
            e = d if s > 0 else -d - 1
        starts.append(b)
        stops.append(e)
        steps.append(s)
        if not single:
            shape.append(len(range(*slice(b, e, s).indices(d))))
    y: Value = ops.slice_(x, start=tuple(starts), stop=tuple(stops), step=tuple(steps))
    return y if len(shape) == x.type.rank else ops.reshape(y, shape=tuple(shape))


def _explicit_slice(
    n: TfliteNode,
    x: Value,
    bounds: Sequence[Sequence[int]],
    masks: dict[str, int],
    new: int,
    rest: int,
) -> tuple[Value, list[list[int]], dict[str, int]]:
    """The slice with its new axes inserted and its ellipsis expanded."""
    count = len(bounds[0])
    wide = x.type.rank + bin(new & ((1 << count) - 1)).count("1")
    shape: list[int] = []
    kept: list[tuple[int, int, int]] = []
    result = dict.fromkeys(masks, 0)
    left = list(x.shape)
    for i in range(count):
        if rest >> i & 1:
            later = sum(not new >> k & 1 for k in range(i + 1, count))
            while len(left) > later:
                result["Begin"] |= 1 << len(shape)
                result["End"] |= 1 << len(shape)
                kept.append((0, 0, 1))
                shape.append(left.pop(0))
            continue
        at = len(shape)
        if new >> i & 1:
            kept.append((0, 1, 1))
            shape.append(1)
            continue
        if not left:
            n.unsupported(f"it slices more axes than {x.type} has")
        for m in masks:
            result[m] |= (masks[m] >> i & 1) << at
        kept.append((bounds[0][i], bounds[1][i], bounds[2][i]))
        shape.append(left.pop(0))
    if len(shape) + len(left) > max(wide, x.type.rank):
        n.unsupported(f"its masks do not fit {x.type}")
    y = ops.reshape(x, shape=(*shape, *left))
    return y, [[k[j] for k in kept] for j in range(3)], result


@importer("PAD", "PADV2")
def pad(n: TfliteNode) -> Value:
    x, around = n.required(0), np.array(n.ints(1)).reshape(-1, 2)
    value = float(n.const(2).item()) if n.input(2) is not None else 0.0
    before, after = (tuple(around[:, i].tolist()) for i in range(2))
    y: Value = ops.pad(x, before=before, after=after, value=value)
    return y


@importer("MIRROR_PAD", stored=True)
def mirror_pad(n: TfliteNode) -> Value:
    x, around = n.required(0), np.array(n.ints(1)).reshape(-1, 2)
    if n.option("Mode", 0) != 0:
        return _symmetric(n, x, around)
    before, after = (tuple(around[:, i].tolist()) for i in range(2))
    y: Value = ops.pad(x, before=before, after=after, mode="reflect")
    return y


def _symmetric(n: TfliteNode, x: Value, around: Array) -> Value:
    """SYMMETRIC padding, which repeats the border, as a gather."""
    for axis, (before, after) in enumerate(around.tolist()):
        d = x.shape[axis]
        if not 0 <= min(before, after) <= max(before, after) <= d:
            n.unsupported(
                f"{before} and {after} around {d} exceed the extent; pads must not be larger"
            )
        order = np.concatenate(
            [np.arange(d)[:before][::-1], np.arange(d), np.arange(d)[d - after :][::-1]]
        )
        x = ops.gather(x, constant(order), axis=axis) if before or after else x
    return x


@importer("SHAPE", stored=True)
def shape(n: TfliteNode) -> Value:
    return constant(np.array(n.required(0).shape), dtype=n.out().dtype)


@importer("TILE", stored=True)
def tile(n: TfliteNode) -> Value:
    y: Value = ops.tile(n.required(0), repeats=n.ints(1))
    return y


@importer("BROADCAST_TO", stored=True)
def broadcast_to(n: TfliteNode) -> Value:
    y: Value = ops.expand(n.required(0), shape=n.ints(1))
    return y


@importer("FILL", stored=True)
def fill(n: TfliteNode) -> Value:
    y: Value = ops.expand(n.required(1), shape=n.ints(0))
    return y
