"""Importers of Gather, Scatter, OneHot, Where, Reverse, Unique, Bincount and others."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput
from intaglio.frontends.segments import one_hot_rows
from intaglio.frontends.tensorflow.control import variable_value
from intaglio.frontends.tensorflow.node import TfNode, Variable, importer
from intaglio.ir import Value, constant
from intaglio.ops.registry import normalize_axis


def _indices(v: Value) -> Value:
    result: Value = v if v.dtype in ("i32", "i64") else ops.cast(v, dtype="i64")
    return result


def _gathered(n: TfNode, x: Value, indices: Value, axis: int, batch: int) -> Value:
    axis = normalize_axis(axis, x.type.rank)
    if batch < 0:
        batch += indices.type.rank
    if not batch:
        result: Value = ops.gather(x, indices, axis=axis)
        return result
    if axis < batch:
        raise BadInput(f"axis {axis} is one of the {batch} batch axes")
    between = range(batch, axis)  # axes between the batch axes and the gathered one
    first = ops.transpose(x, perm=(*range(batch), axis, *between, *range(axis + 1, x.type.rank)))
    places = ops.reshape(indices, shape=(*indices.shape, 1))
    picked = ops.gather_nd(first, places, batch_dims=batch)
    if not between:
        return picked
    inner = indices.type.rank - batch
    moved = range(batch + inner, batch + inner + len(between))
    rest = range(batch + inner + len(between), picked.type.rank)
    result = ops.transpose(
        picked, perm=(*range(batch), *moved, *range(batch, batch + inner), *rest)
    )
    return result


@importer("GatherV2")
def gather_v2(n: TfNode) -> Value:
    return _gathered(n, n.value(0), _indices(n.value(1)), n.whole(2), n.attr("batch_dims", 0))


@importer("Gather")
def gather(n: TfNode) -> Value:
    return _gathered(n, n.value(0), _indices(n.value(1)), 0, 0)


@importer("ResourceGather")
def resource_gather(n: TfNode) -> Value:
    held = n.operand(0)
    if not isinstance(held, Variable):
        raise BadInput("its operand is not a variable")
    return _gathered(n, variable_value(n, held), _indices(n.value(1)), 0, n.attr("batch_dims", 0))


@importer("GatherNd")
def gather_nd(n: TfNode) -> Value:
    result: Value = ops.gather_nd(n.value(0), _indices(n.value(1)))
    return result


@importer("ScatterNd")
def scatter_nd(n: TfNode) -> Value:
    """Updates with the same index are summed."""
    indices, updates, shape = _indices(n.value(0)), n.value(1), n.ints(2)
    zeros = ops.expand(constant(0, dtype=updates.dtype), shape=shape)
    result: Value = ops.scatter_nd(zeros, indices, updates, reduction="add")
    return result


_SCATTERS = {
    "TensorScatterUpdate": "none",
    "TensorScatterAdd": "add",
    "TensorScatterMax": "max",
    "TensorScatterMin": "min",
}


@importer(*_SCATTERS)
def tensor_scatter(n: TfNode) -> Value:
    result: Value = ops.scatter_nd(
        n.value(0), _indices(n.value(1)), n.value(2), reduction=_SCATTERS[n.op]
    )
    return result


@importer("OneHot")
def one_hot(n: TfNode) -> Value:
    """An index outside of [0, depth) gives a row of off values."""
    x, depth, on, off = n.value(0), n.whole(1), n.value(2), n.value(3)
    axis = n.attr("axis", -1)
    if not 0 <= depth < 1 << 24:
        raise BadInput(f"depth is {depth}; it must not be negative")
    return one_hot_rows(x, on, off, depth, axis)


@importer("Where")
def where(n: TfNode) -> Value:
    """Coordinates of the elements that are not 0, one row each."""
    x = n.value(0)
    result: Value = ops.transpose(ops.nonzero(x), perm=(1, 0))
    return result


@importer("ReverseV2")
def reverse(n: TfNode) -> Value:
    x = n.value(0)
    result = x
    for axis in {normalize_axis(a, x.type.rank) for a in n.ints(1)}:
        result = ops.part(result, -1, -x.shape[axis] - 1, axis=axis, step=-1)
    return result


@importer("ReverseSequence")
def reverse_sequence(n: TfNode) -> Value:
    result: Value = ops.reverse_sequence(
        n.value(0),
        _indices(n.value(1)),
        batch_axis=n.attr("batch_dim", 0),
        time_axis=n.attr("seq_dim", 1),
    )
    return result


@importer("InvertPermutation")
def invert_permutation(n: TfNode) -> Value:
    return constant(np.argsort(n.const(0)), dtype=n.value(0).dtype)


@importer("MatrixBandPart")
def matrix_band_part(n: TfNode) -> Value:
    x, below, above = n.value(0), n.whole(1), n.whole(2)
    result = x
    if below >= 0:
        result = ops.trilu(result, k=-below, upper=True)
    if above >= 0:
        result = ops.trilu(result, k=above, upper=False)
    return result


@importer("Roll")
def roll(n: TfNode) -> Value:
    x, shifts, axes = n.value(0), n.ints(1), n.ints(2)
    result = x
    for shift, axis in zip(shifts, axes, strict=True):
        axis = normalize_axis(axis, x.type.rank)
        d = x.shape[axis]
        cut = (d - shift) % d if d else 0
        if cut:
            parts = (ops.part(result, cut, d, axis=axis), ops.part(result, 0, cut, axis=axis))
            result = ops.concat(*parts, axis=axis)
    return result


@importer("Unique")
def unique(n: TfNode) -> list[Value]:
    x = n.value(0)
    values, _, inverse, _ = ops.unique(x, axis=0, sorted=False)
    return [values, ops.cast(inverse, dtype=n.dtype("out_idx", "i32"))]


@importer("Bincount", "DenseBincount")
def bincount(n: TfNode) -> Value:
    x, size, weights = n.value(0), n.whole(1), n.value(2)
    if x.type.rank != 1 or weights.type.size or not 0 < size < 1 << 24:
        n.unsupported(
            f"{x.type} with weights {weights.type} into {size} bins; only a vector is supported"
        )
    dtype = weights.dtype if dtypes.is_float(weights.dtype) else "i32"
    zeros = ops.expand(constant(0, dtype=dtype), shape=(size + 1,))
    ones = ops.expand(constant(1, dtype=dtype), shape=x.shape)
    bins = ops.minimum(ops.cast(x, dtype="i64"), constant(size))  # larger numbers are not counted
    at = ops.reshape(bins, shape=(x.shape[0], 1))
    result: Value = ops.part(ops.scatter_nd(zeros, at, ones, reduction="add"), 0, size, axis=0)
    return result
