"""Transposed convolutions and interpolating resizes of floats, as ops that have commands.

A transposed convolution becomes a convolution that makes all phases of the result as channels, and
depth_to_space. A resize becomes one product with a constant matrix for each axis that it changes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.npu.lowering.builder import Refused
from intaglio.ops.resize import resize_tables
from intaglio.targets.replace.upsample import (
    conv_transpose_as_conv,
    from_phases,
    interpolation_matrix,
    per_phase,
    phases_of,
    why_no_phases,
)

MOST_ENTRIES = 1 << 22  # of a matrix of a resize: larger ones cost more than they are worth


def _transposed(node: Node) -> Value | None:
    x, w, b = (*node.inputs, None)[:3]
    assert x is not None
    assert w is not None
    if w.data is None or (b is not None and b.data is None):
        raise Refused("its weights are no constant")
    if x.type.rank == 4 and set(node.attrs["stride"]) == {1}:
        made: Value = conv_transpose_as_conv.build(node=node, x=x, w=w, b=b)
        return made
    if why := why_no_phases(node, x, w):
        raise Refused(why)
    s, groups = node.attrs["stride"][0], node.attrs["groups"]
    phases = np.ascontiguousarray(phases_of(w.data, groups, s))
    bias = None if b is None else constant(per_phase(_wide(b), groups, s).astype(b.data.dtype))
    return from_phases(node, x, constant(phases), bias)


def _wide(v: Value) -> Array:
    assert v.data is not None
    return v.data.reshape(-1)


def _resized(node: Node) -> Value | None:
    """Products with the matrices of the axes; None if the chip repeats pixels instead."""
    a, x, out = node.attrs, node.inputs[0], node.outputs[0]
    assert x is not None
    if a["mode"] == "nearest":
        return None
    axes = [k % x.type.rank for k in a["axes"]]
    tables = resize_tables([x.shape[k] for k in axes], **a)
    for axis, table in zip(axes, tables, strict=True):
        if table.outside.any():
            raise Refused("it reads beyond the edges of its input")
        if x.shape[axis] * out.shape[axis] > MOST_ENTRIES:
            raise Refused(f"axis {axis} grows from {x.shape[axis]} to {out.shape[axis]}")
    y, last = x, x.type.rank - 1
    for axis, table in zip(axes, tables, strict=True):
        matrix = interpolation_matrix(table.index, table.weight, x.shape[axis])
        if matrix.shape[0] == matrix.shape[1] and (matrix == np.eye(len(matrix))).all():
            continue
        turned = [k for k in range(last + 1) if k != axis] + [axis]
        columns = constant(np.ascontiguousarray(matrix.T.astype(dtypes.numpy_of(x.dtype))))
        y = ops.matmul(_turned(y, turned), columns)
        y = _turned(y, [turned.index(k) for k in range(last + 1)])
    return y


def _turned(v: Value, perm: list[int]) -> Value:
    if perm == sorted(perm):
        return v
    made: Value = ops.transpose(v, perm=tuple(perm))
    return made


EXPANSIONS: dict[str, Callable[[Node], Value | None]] = {
    "conv_transpose": _transposed,
    "resize": _resized,
}
