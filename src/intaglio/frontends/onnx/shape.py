"""ONNX Reshape, Slice, Split, Pad, Expand, Shape, Range and other ops on shapes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio import dtypes, symint
from intaglio.errors import BadInput
from intaglio.frontends.onnx.dynamic_shapes import (
    constant_if_fixed,
    estimates,
    most_steps_between,
    output_bound,
    reshaped,
    resolved,
    steps_between,
)
from intaglio.frontends.onnx.importer import OnnxNode, importer, scalar
from intaglio.frontends.onnx.tensors import element_type
from intaglio.frontends.symbolic_values import Ratio, ceil_ratio
from intaglio.frontends.value_bounds import MAX_BOUND, bounds
from intaglio.ir import Array, Value, constant
from intaglio.ops.cast import cast
from intaglio.ops.compare import equal, where
from intaglio.ops.dynamic_shape import expand_to, range_, reshape_to, shape_of, slice_to
from intaglio.ops.reduce import reduce_prod
from intaglio.ops.registry import normalize_axis
from intaglio.ops.shape import concat, expand, pad, slice_, tile, transpose
from intaglio.symint import SymInt, bound, broadcast, is_symbolic, maximum, minimum, slice_length

END = 1 << 62  # larger than any extent


def ints(array: Array) -> tuple[int, ...]:
    return tuple(np.asarray(array).reshape(-1).tolist())


def i64(v: Value) -> Value:
    return v if v.dtype == "i64" else cast(v, dtype="i64")


def attribute_or_operand(n: OnnxNode, name: str, i: int) -> tuple[int, ...] | None:
    """A list that is attribute `name` in old opsets and constant operand `i` in new ones."""
    if name in n.attrs:
        return tuple(n.attr(name))
    array = n.const(i)
    return None if array is None else ints(array)


def axes_of(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    out = tuple(normalize_axis(a, rank) for a in axes)
    if len(set(out)) != len(out):
        raise BadInput(f"axes {tuple(axes)} contain an axis twice")
    return out


@importer("Identity")
def identity(n: OnnxNode) -> Value:
    return n.required(0)


# ---- reshape -------------------------------------------------------------------------------------
@importer("Reshape")
def import_reshape(n: OnnxNode) -> Value:
    x, allowzero = n.required(0), bool(n.attr("allowzero", 0))
    if "shape" not in n.attrs and not n.is_const(1):
        return _reshape_at_run_time(n, x, allowzero)
    shape = attribute_or_operand(n, "shape", 1) or ()
    return reshaped(x, lambda extents: resolved(shape, extents, allowzero))


def _reshape_at_run_time(n: OnnxNode, x: Value, allowzero: bool) -> Value:
    shape = i64(n.required(1))
    bound, dynamic = output_bound(n, 1, lambda s: resolved(ints(s), x.shape, allowzero))
    if not allowzero:  # 0 keeps the extent of x
        count = shape.shape[0]
        own = concat(shape_of(x), np.zeros(count, np.int64), axis=0)
        own = slice_(own, start=(0,), stop=(count,), step=(1,))
        shape = where(own, shape, equal(shape, np.zeros(1, np.int64)))
    return reshape_to(x, shape, bound=bound, dynamic=dynamic)


@importer("Flatten")
def flatten(n: OnnxNode) -> Value:
    x = n.required(0)
    axis = n.attr("axis", 1)
    axis = x.type.rank if axis == x.type.rank else normalize_axis(axis, x.type.rank)
    return reshaped(x, lambda s: (math.prod(s[:axis]), math.prod(s[axis:])))


@importer("Squeeze")
def squeeze(n: OnnxNode) -> Value:
    x = n.required(0)
    axes = attribute_or_operand(n, "axes", 1)
    if axes is None:
        axes = tuple(i for i, d in enumerate(x.shape) if d == 1 and i not in x.type.dynamic)
    gone = axes_of(axes, x.type.rank)
    for a in gone:
        if x.shape[a] != 1:
            raise BadInput(f"axis {a} of {x.type} cannot be squeezed; its extent is not 1")
    return reshaped(x, lambda s: [d for i, d in enumerate(s) if i not in gone])


@importer("Unsqueeze")
def unsqueeze(n: OnnxNode) -> Value:
    x = n.required(0)
    axes = attribute_or_operand(n, "axes", 1)
    if axes is None:
        raise BadInput("axes are missing; Unsqueeze needs them")
    rank = x.type.rank + len(axes)
    new = axes_of(axes, rank)

    def shape(s: tuple[int, ...]) -> list[int]:
        rest = iter(s)
        return [1 if i in new else next(rest) for i in range(rank)]

    return reshaped(x, shape)


@importer("Transpose")
def import_transpose(n: OnnxNode) -> Value:
    x = n.required(0)
    perm = tuple(n.attr("perm", range(x.type.rank)[::-1]))
    return x if perm == tuple(range(x.type.rank)) else transpose(x, perm=perm)


# ---- expand, concat, slice, pad ------------------------------------------------------------------
@importer("Expand")
def import_expand(n: OnnxNode) -> Value:
    x = n.required(0)
    if not n.is_const(1):
        most, dynamic = output_bound(
            n, 1, lambda s: broadcast(symint.plain(x.shape), ints(s)), grows=True
        )
        return expand_to(x, i64(n.required(1)), bound=most, dynamic=dynamic)
    shape = ints(n.const(1))
    if x.type.dynamic:
        return expand(x, shape=shape)
    try:
        full = broadcast(x.shape, shape)
    except ValueError:
        raise BadInput(f"{x.type} cannot be expanded to {shape}") from None
    return x if full == x.shape else expand(x, shape=full)


@importer("Tile")
def import_tile(n: OnnxNode) -> Value:
    x, repeats = n.required(0), ints(n.const(1))
    return x if all(r == 1 for r in repeats) else tile(x, repeats=repeats)


@importer("Concat")
def import_concat(n: OnnxNode) -> Value:
    xs = [v for v in n.inputs if v is not None]
    return xs[0] if len(xs) == 1 else concat(*xs, axis=n.attr("axis", 1))


@importer("Slice")
def import_slice(n: OnnxNode) -> Value:
    x = n.required(0)
    if "starts" in n.attrs:
        starts, stops = n.attr("starts"), n.attr("ends")
        return sliced(x, starts, stops, n.attr("axes", range(len(starts))))
    count = n.required(1).type.size
    axes = axes_of(attribute_or_operand(n, "axes", 3) or range(count), x.type.rank)
    if not (n.is_const(1) and n.is_const(2) and (n.input(4) is None or n.is_const(4))):
        steps = n.input(4) or constant(np.ones(count, np.int64))
        return _slice_at_run_time(n, x, steps, axes)
    return constant_if_fixed(
        sliced(x, ints(n.const(1)), ints(n.const(2)), axes, attribute_or_operand(n, "steps", 4))
    )


def sliced(
    x: Value,
    starts: Sequence[int],
    stops: Sequence[int],
    axes: Sequence[int],
    steps: Sequence[int] | None = None,
) -> Value:
    """x[start:stop:step] along `axes`; x itself if that is all of it."""
    start, stop, step = ([v] * x.type.rank for v in (0, END, 1))
    for k, axis in enumerate(axes_of(axes, x.type.rank)):
        start[axis] = minimum(maximum(starts[k], -END), END)
        stop[axis] = minimum(maximum(stops[k], -END), END)
        step[axis] = 1 if steps is None else steps[k]
    if all(
        t == 1 and slice_length(d, s, e, t) == d
        for d, s, e, t in zip(x.shape, start, stop, step, strict=True)
    ):
        return x
    result: Value = slice_(x, start=tuple(start), stop=tuple(stop), step=tuple(step))
    return result


def _slice_at_run_time(n: OnnxNode, x: Value, steps: Value, axes: tuple[int, ...]) -> Value:
    declared = n.declared(0)
    starts, stops = n.required(1), n.required(2)
    bound = list(x.shape if declared is None else declared.shape)
    lengths = steps_between(starts, stops)
    if lengths is None and len(axes) == 1:
        one = most_steps_between(starts, stops)
        lengths = None if one is None else (one,)
    for axis, most in zip(axes, lengths or (), strict=False):
        bound[axis] = min(bound[axis], most)  # x[i : i + k] has at most k elements
    return slice_to(x, i64(starts), i64(stops), i64(steps), axes=axes, bound=tuple(bound))


@importer("Split")
def split(n: OnnxNode) -> list[Value]:
    x = n.required(0)
    axis = normalize_axis(n.attr("axis", 0), x.type.rank)
    parts = attribute_or_operand(n, "split", 1)
    extent = x.shape[axis]
    if parts is None:
        count = n.attr("num_outputs", n.n_outputs)
        if not 0 < count <= max(n.n_outputs, 1):
            raise BadInput(f"num_outputs is {count}, but the node has {n.n_outputs} outputs")
        size = -(-extent // count)
        parts = tuple(maximum(minimum(size, extent - i * size), 0) for i in range(count))
    return split_into(x, parts, axis)


def split_into(x: Value, parts: Sequence[int], axis: int) -> list[Value]:
    """Consecutive slices of these extents, which must cover the axis."""
    if sum(parts) != x.shape[axis] or any(p < 0 for p in parts):
        raise BadInput(f"axis {axis} of {x.type} cannot be split into {tuple(parts)}")
    ends = list(itertools.accumulate(parts))
    return [sliced(x, [e - p], [e], [axis]) for e, p in zip(ends, parts, strict=True)]


@importer("Pad")
def import_pad(n: OnnxNode) -> Value:
    x = n.required(0)
    rank, mode = x.type.rank, n.attr("mode", "constant")
    pads = attribute_or_operand(n, "pads", 1)
    if pads is None:
        raise BadInput("pads are missing; Pad needs them")
    axes = axes_of(attribute_or_operand(n, "axes", 3) or range(rank), rank)
    if len(pads) != 2 * len(axes):
        raise BadInput(f"pads {pads} do not have two entries per axis of {axes}")
    before, after = [0] * rank, [0] * rank
    for k, axis in enumerate(axes):
        before[axis], after[axis] = pads[k], pads[len(axes) + k]
    if min(pads, default=0) < 0:  # negative pads crop
        start, stop = ([max(-p, 0) for p in side] for side in (before, after))
        ends = [-s if s else END for s in stop]
        x = slice_(x, start=tuple(start), stop=tuple(ends), step=(1,) * rank)
        before, after = [max(p, 0) for p in before], [max(p, 0) for p in after]
    if not any(before) and not any(after):
        return x
    edges: dict[str, Any] = {"before": tuple(before), "after": tuple(after)}
    if mode != "constant":
        return pad(x, **edges, mode=mode)
    value = n.input(2)
    if value is None or n.is_const(2):
        return pad(x, **edges, value=float(scalar(n.const(2, np.array(n.attr("value", 0.0))))))
    inside = pad(constant(np.ones(x.shape, np.bool_)), **edges)
    return where(pad(x, **edges), reshaped(value, lambda s: ()), inside)


@importer("CenterCropPad")
def center_crop_pad(n: OnnxNode) -> Value:
    x, shape = n.required(0), ints(n.const(1))
    axes = axes_of(n.attr("axes", range(x.type.rank)), x.type.rank)
    before, after = [0] * x.type.rank, [0] * x.type.rank
    start, stop = [0] * x.type.rank, list(x.shape)
    for axis, want in zip(axes, shape, strict=True):
        missing = want - x.shape[axis]
        if missing > 0:
            before[axis], after[axis] = missing // 2, missing - missing // 2
        else:
            start[axis] = -missing // 2
            stop[axis] = start[axis] + want
    x = sliced(x, start, stop, range(x.type.rank))
    if not any(before) and not any(after):
        return x
    return pad(x, before=tuple(before), after=tuple(after))


# ---- shapes and constants as tensors -------------------------------------------------------------
@importer("Shape")
def import_shape(n: OnnxNode) -> Value:
    x = n.required(0)
    start, end, _ = slice(n.attr("start", 0), n.attr("end"), 1).indices(x.type.rank)
    if any(start <= i < end for i in x.type.dynamic):
        return sliced(shape_of(x), [start], [end], [0])
    if is_symbolic(x.shape[start:end]):
        folder = n.scope.model.fold
        whole = folder.symbolic.set(shape_of(x), x.shape)
        return sliced(whole, [start], [end], [0])
    return constant(np.array(x.shape[start:end], np.int64))


@importer("Size")
def size(n: OnnxNode) -> Value:
    x = n.required(0)
    if x.type.dynamic:
        return reduce_prod(shape_of(x), axes=(0,), keepdims=False)
    return constant(np.array(x.type.size, np.int64))


@importer("Constant")
def import_constant(n: OnnxNode) -> Value:
    for name, value in n.attrs.items():
        match name:
            case "value" | "sparse_value":
                return constant(value)
            case "value_float" | "value_floats":
                return constant(np.array(value, np.float32))
            case "value_int" | "value_ints":
                return constant(np.array(value, np.int64))
    n.unsupported(
        f"a constant of {', '.join(n.attrs) or 'no attribute'} is not a tensor of numbers"
    )


@importer("ConstantOfShape")
def constant_of_shape(n: OnnxNode) -> Value:
    value = np.asarray(n.attr("value", np.zeros(1, np.float32))).reshape(-1)[:1]
    if n.is_const(0):  # a large one stays an expand node
        return expand(constant(value[0]), shape=ints(n.const(0)))
    bound, dynamic = output_bound(n, 0, ints, grows=True)
    return expand_to(constant(value), i64(n.required(0)), bound=bound, dynamic=dynamic)


@importer("EyeLike")
def eye_like(n: OnnxNode) -> Value:
    x = n.required(0)
    if x.type.rank != 2 or x.type.dynamic:
        raise BadInput(f"EyeLike needs a matrix of fixed shape, the tensor is {x.type}")
    dtype = element_type(n.attr("dtype"), "EyeLike") if "dtype" in n.attrs else x.dtype
    rows, columns = x.shape
    eye = np.eye(rows, columns, k=n.attr("k", 0))
    return constant(eye.astype(dtypes.numpy_of(dtype)))


@importer("Range")
def import_range(n: OnnxNode) -> Value:
    scalars = [reshaped(n.required(i), lambda s: ()) for i in range(3)]
    unknown = [i for i in range(3) if not n.is_const(i)]
    if not unknown:
        first, last, step = (scalar(n.const(i)) for i in range(3))
        if step == 0:
            raise BadInput("delta is 0")
        if any(isinstance(x, SymInt | Ratio) for x in (first, last, step)):
            return _symbolic_range(n, first, last, step, scalars[0].dtype)
        return range_(*scalars, bound=(max(math.ceil((last - first) / step), 0),))
    found = _longest_range(n)
    if found is not None:
        return range_(*scalars, bound=(found,))
    declared = n.declared(0)
    if declared is None:
        n.const(unknown[0])
        raise AssertionError("const() raises if the operand is not constant")
    return range_(*scalars, bound=declared.shape)


def _symbolic_range(n: OnnxNode, first: Any, last: Any, step: Any, dtype: str) -> Value:
    """The first elements of a constant range: as many as the open dimensions give."""
    if any(isinstance(x, SymInt | Ratio) for x in (first, step)):
        n.unsupported("a range that starts at an open dimension needs fixed sizes")
    count = maximum(ceil_ratio(last - first, step), 0)
    every = first + np.arange(bound(count)) * step
    return sliced(constant(every.astype(dtypes.numpy_of(dtype))), [0], [count], [0])


def _longest_range(n: OnnxNode) -> int | None:
    """The most numbers that a range may have, if its operands tell it."""
    start, limit = n.required(0), n.required(1)
    if not n.is_const(2) or not (step := scalar(n.const(2))):
        return None
    steps = most_steps_between(start, limit) if step > 0 else None
    if steps is not None:
        return math.ceil(steps / step)
    ends = [
        (float(scalar(a.data)),) * 2 if a.data is not None else _ends(a) for a in (start, limit)
    ]
    span = ends[1][1] - ends[0][0] if step > 0 else ends[1][0] - ends[0][1]
    return max(math.ceil(span / step), 0) if span / step <= MAX_BOUND else None


def _ends(v: Value) -> tuple[float, float]:
    """The smallest and the largest value of a scalar, by extents or by intervals."""
    found = estimates(v)
    if found is None:
        return bounds(v)
    return min(float(scalar(a)) for a in found), max(float(scalar(a)) for a in found)
