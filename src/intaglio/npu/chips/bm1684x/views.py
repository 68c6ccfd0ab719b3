"""Reshapes and transposes between layers as one permutation of a feature map in DDR."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from intaglio import ops
from intaglio.ir import Array, Value, constant
from intaglio.npu.lowering.builder import LAYOUT_CHANGES, is_npu
from intaglio.npu.ops.relayout import constant_map, permute
from intaglio.ops.windows import Ints

Step = tuple[str, tuple[int, ...]]  # "reshape" and a shape, or "transpose" and the order of axes
Axis = tuple[int, int]  # size, and stride in the source


def root_of(v: Value) -> tuple[Value, list[Step]]:
    """The value that `v` is made of by reshapes and transposes alone, and these."""
    steps: list[Step] = []
    while v.producer is not None and v.producer.op in LAYOUT_CHANGES:
        node = v.producer
        key = "shape" if node.op == "reshape" else "perm"
        given = v.shape if node.op == "reshape" else tuple(node.attrs[key])
        steps.append((node.op, given))
        source = node.inputs[0]
        assert source is not None
        v = source
    return v, steps[::-1]


def on_tpu(v: Value) -> bool:
    """Whether a value is a layer's result, reshaped or transposed."""
    producer = root_of(v)[0].producer
    return producer is not None and is_npu(producer)


def as_map(v: Value, shape: Ints, perm: Ints, out: Ints) -> Value:
    """`v` in `shape`, its axes in the order `perm`, as the feature map `out`."""
    root, steps = root_of(v)
    steps += [("reshape", tuple(shape)), ("transpose", tuple(perm))]
    if root.data is not None:
        data = v.data if v.data is not None else _applied(root.data, steps[:-2])
        moved = data.reshape(shape).transpose(perm).reshape(out)
        return constant_map(constant(moved.copy()))  # type: ignore[no-any-return]
    if root.producer is None or not is_npu(root.producer):
        root = as_feature_map(root)
    axes: list[Axis] = [(root.type.size, 1)]
    found = _reshaped(axes, root.shape)
    assert found is not None
    axes, groups = found
    for kind, given in steps:
        if kind == "transpose":
            axes, groups = _transposed(axes, groups, given)
            continue
        found = _reshaped(axes, given)
        if found is None:  # the axes do not divide each other: store what is there first
            size = root.type.size
            first = _permuted(root, axes, (1, 1, size, 1))
            axes, root = [(size, 1)], first
            found = _reshaped(axes, given)
            assert found is not None
        axes, groups = found
    return _permuted(root, axes, tuple(out))


def as_feature_map(v: Value) -> Value:
    """A value as a feature map of rank 4, which may become an input of the file."""
    shape = rank4(v.shape)
    if v.shape == shape:
        return v
    made = (u.outputs[0] for u in v.uses if u.op == "reshape" and u.outputs[0].shape == shape)
    found = next(made, None)
    return ops.reshape(v, shape=shape) if found is None else found


def rank4(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """A feature map with the elements of a tensor of any rank, in the same order."""
    n, c, h, w = (*(1,) * (4 - len(shape)), math.prod(shape[:-3]), *shape[-3:])[-4:]
    return n, c, h, w


def _applied(data: Array, steps: Sequence[Step]) -> Array:
    for kind, given in steps:
        data = data.reshape(given) if kind == "reshape" else data.transpose(given)
    return data


def _reshaped(axes: Sequence[Axis], shape: Ints) -> tuple[list[Axis], list[int]] | None:
    """The axes cut so that each extent of `shape` is some of them, and how many; None: no way."""
    left = list(axes)
    result: list[Axis] = []
    groups = []
    for extent in shape:
        count = 0
        while extent > 1:
            size, stride = left.pop(0)
            if size == 1:
                continue
            count += 1
            if extent % size == 0:
                result.append((size, stride))
                extent //= size
            elif size % extent == 0:
                inner = size // extent
                result.append((extent, stride * inner))
                left.insert(0, (inner, stride))
                extent = 1
            else:
                return None
        groups.append(count)
    return result, groups


def _transposed(
    axes: Sequence[Axis], groups: Sequence[int], perm: Ints
) -> tuple[list[Axis], list[int]]:
    parts, first = [], 0
    for count in groups:
        parts.append(list(axes[first : first + count]))
        first += count
    return [a for p in perm for a in parts[p]], [groups[p] for p in perm]


def _permuted(x: Value, axes: Sequence[Axis], out: tuple[int, ...]) -> Value:
    """Elements of x in the order of these axes."""
    merged: list[Axis] = []
    for size, stride in axes:
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = merged[-1][0] * size, stride
        else:
            merged.append((size, stride))
    if len(merged) <= 1 and x.shape == out:
        return x
    order = sorted(range(len(merged)), key=lambda k: -merged[k][1])
    shape = tuple(merged[k][0] for k in order) or (1,)
    perm = tuple(order.index(k) for k in range(len(merged))) or (0,)
    attrs: dict[str, Any] = {"shape": shape, "perm": perm, "out": out}
    known = (u.outputs[0] for u in x.uses if u.op == "npu.permute" and u.attrs == attrs)
    return next(known, None) or permute(x, **attrs)
