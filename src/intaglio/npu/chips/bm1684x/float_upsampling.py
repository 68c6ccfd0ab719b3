"""Transposed convolutions and interpolating resizes, as ops of floats that have commands.

A transposed convolution becomes a convolution that makes all phases of the result as channels, and
depth_to_space. A resize becomes one product with a constant matrix for each axis that it changes;
a resize of bytes becomes one of f32.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.npu.chips.bm1684x.float_ops import FLOATS
from intaglio.npu.lowering.builder import Refused
from intaglio.ops.quantized import RESIZE_UNIT
from intaglio.ops.resize import resize_tables
from intaglio.targets.replace.upsample import (
    flipped,
    from_phases,
    interpolation_matrix,
    per_phase,
    phases_of,
    why_no_phases,
    with_flipped,
)

MOST_ENTRIES = 1 << 22  # of a matrix of a resize: larger ones cost more than they are worth


def _transposed(node: Node) -> Value | None:
    x, w, b = (*node.inputs, None)[:3]
    assert x is not None
    assert w is not None
    if w.data is None or (b is not None and b.data is None):
        raise Refused("its weights are no constant")
    if set(node.attrs["stride"]) == {1}:
        weights = np.ascontiguousarray(flipped(w.data, node.attrs["groups"]))
        return with_flipped(node, x, constant(weights), b)
    if why := why_no_phases(node, x, w):
        raise Refused(why)
    s, groups = node.attrs["stride"][0], node.attrs["groups"]
    phases = np.ascontiguousarray(phases_of(w.data, groups, s))
    bias = None
    if b is not None and b.data is not None:
        bias = constant(np.ascontiguousarray(per_phase(b.data.reshape(-1), groups, s)))
    return from_phases(node, x, constant(phases), bias)


def _resized(node: Node) -> Value | None:
    """Products with the matrices of the axes; None if the chip repeats pixels instead."""
    a, x, out = node.attrs, node.inputs[0], node.outputs[0]
    assert x is not None
    if a["mode"] == "nearest" or x.dtype not in FLOATS:
        return None
    axes = [k % x.type.rank for k in a["axes"]]
    tables = resize_tables([x.shape[k] for k in axes], **a)
    for axis, table in zip(axes, tables, strict=True):
        if table.outside.any():
            raise Refused("it reads beyond the edges of its input")
        if x.shape[axis] * out.shape[axis] > MOST_ENTRIES:
            raise Refused(f"axis {axis} grows from {x.shape[axis]} to {out.shape[axis]}")
    each = zip(axes, tables, strict=True)
    matrices = {k: interpolation_matrix(t.index, t.weight, x.shape[k]) for k, t in each}
    return _along_axes(x, matrices)


def _resized_bytes(node: Node) -> Value | None:
    """A bilinear resize of bytes, in f32."""
    x, x_scale, x_zero, y_scale, y_zero, *tables = node.inputs
    assert x is not None
    assert y_zero is not None
    if any(v is None or v.data is None for v in tables):
        raise Refused("its tables are no constants")
    data = [v.data for v in tables if v is not None and v.data is not None]
    axis = node.attrs["axis"] % x.type.rank
    matrices = {
        axis + i: interpolation_matrix(index, weight / RESIZE_UNIT, x.shape[axis + i])
        for i, (index, weight) in enumerate((data[:2], data[2:]))
    }
    real = _along_axes(ops.dequantize_linear(x, x_scale, x_zero), matrices)
    made: Value = ops.quantize_linear(real, y_scale, y_zero, dtype=y_zero.dtype)
    return made


def _along_axes(x: Value, matrices: dict[int, Array]) -> Value:
    """Products of the axes with matrices of outputs x inputs."""
    last = x.type.rank - 1
    for axis, matrix in matrices.items():
        if matrix.shape[0] == matrix.shape[1] and (matrix == np.eye(len(matrix))).all():
            continue
        turned = [k for k in range(last + 1) if k != axis] + [axis]
        columns = constant(np.ascontiguousarray(matrix.T.astype(dtypes.numpy_of(x.dtype))))
        x = _turned(ops.matmul(_turned(x, turned), columns), [*map(turned.index, range(last + 1))])
    return x


def _turned(v: Value, perm: list[int]) -> Value:
    if perm == sorted(perm):
        return v
    made: Value = ops.transpose(v, perm=tuple(perm))
    return made


EXPANSIONS: dict[str, Callable[[Node], Value | None]] = {
    "conv_transpose": _transposed,
    "resize": _resized,
    "qlinear_resize": _resized_bytes,
}
