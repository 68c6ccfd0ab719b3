"""The ops of Rockchip's NPU that round in their own way, with their meaning in numpy.

`numbers` of a convolution is i64 [2, C]: bias and multiplier of each output channel. Tables map the
integer `first` to their first entry, and `first` + 2^step_bits to the next one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import ops as neutral
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.npu.chips.rockchip.arithmetic import Bounds, Pair, looked_up
from intaglio.npu.chips.rockchip.geometry import Added
from intaglio.npu.chips.rockchip.scaling import half_even, scaled_sums, to_bytes
from intaglio.npu.ops.feature_maps import check_feature_map
from intaglio.ops.registry import op
from intaglio.ops.windows import Ints, check_windows, window_counts


def _conv_type(
    x: Value,
    w: Value,
    numbers: Value,
    residual: Value | None,
    table: Value | None,
    *,
    groups: int,
    **rest: Any,
) -> Type:
    check_feature_map(x, ("i8",))
    depth = x.shape[1] // groups
    if groups not in (1, x.shape[1]) or w.type.rank != 4 or w.dtype != "i16" or w.shape[1] != depth:
        raise BadInput(f"weights {w.type} in {groups} groups do not fit {x.type}")
    if numbers.type != Type("i64", (2, w.shape[0])):
        raise BadInput(f"numbers are {numbers.type}; i64 [2, C] is needed")
    apart = rest.get("apart", (1, 1))
    sizes = tuple((n - 1) * step + 1 for n, step in zip(x.shape[2:], apart, strict=True))
    window = [rest[k] for k in ("stride", "pad", "dilation")]
    if min(rest["pad"]) >= 0 and max(apart) == 1:
        check_windows(x, w.shape[2:], *window)
    made = Type("i8", (x.shape[0], w.shape[0], *window_counts(sizes, w.shape[2:], *window)))
    if residual is not None and residual.type != made:
        raise BadInput(f"the second map is {residual.type}, the result {made}")
    return made


def _macs(node: Node) -> int:
    w = node.inputs[1]
    assert w is not None
    return node.outputs[0].type.size * math.prod(w.shape[1:])


@op(_conv_type, name="rockchip.conv", macs=_macs)
def conv(
    x: Array,
    w: Array,
    numbers: Array,
    residual: Array | None = None,
    table: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int = 1,
    padding: int = 0,
    scale: int,
    shift: int,
    zero: int = 0,
    relu: bool = False,
    limit: int = 0,
    added_zero: int = 0,
    added_scale: int = 0,
    added_shift: int = 0,
    first: int = 0,
    step_bits: int = 0,
    apart: Ints = (1, 1),
) -> Array:
    """A convolution of bytes; `padding` is the value of the pixels around the map.

    `apart`: rows and columns from pixel to pixel; between them lies the same value. Padding below
    and at the right may be negative: rows or columns that are left out.
    """
    if max(apart) > 1:
        x = _apart(x, apart, padding)
    top, left, bottom, right = pad
    edges = ((0, 0), (0, 0), (top, max(bottom, 0)), (left, max(right, 0)))
    wide = np.pad(x, edges, constant_values=padding)
    wide = wide[:, :, : wide.shape[2] + min(bottom, 0), : wide.shape[3] + min(right, 0)]
    window: dict[str, Any] = {"stride": stride, "pad": (0, 0, 0, 0), "dilation": dilation}
    sums = neutral.conv_integer.body(wide, w, **window, groups=groups).astype(np.int64)
    bias, multipliers = numbers
    one = (sums + bias.reshape(-1, 1, 1))[0]
    if table is not None:
        found = half_even(scaled_sums(one, multipliers) * scale, shift)
        return looked_up(table, first, step_bits, found)[None]
    added = None
    if residual is not None:
        added = half_even((residual[0].astype(np.int64) - added_zero) * added_scale, added_shift)
    after = residual is not None
    how = {"relu": relu, "limit": limit, "added": added, "relu_after": after and relu}
    return to_bytes(one, multipliers, scale, shift, zero, **how)[None]  # type: ignore[arg-type]


def _apart(x: Array, apart: Ints, padding: int) -> Array:
    *outer, height, width = x.shape
    down, across = apart
    made = np.full((*outer, (height - 1) * down + 1, (width - 1) * across + 1), padding, x.dtype)
    made[:, :, ::down, ::across] = x
    return made


def _pair_type(a: Value, b: Value, **numbers: Any) -> Type:
    for v in (a, b):
        check_feature_map(v, ("i8",))
    if b.shape != a.shape and b.shape != (*a.shape[:2], 1, 1):
        raise BadInput(f"{b.type} does not broadcast to {a.type}")
    return a.type


@op(_pair_type, name="rockchip.pair")
def pair(
    a: Array,
    b: Array,
    *,
    multiplies: bool,
    a_zero: int,
    b_zero: int,
    b_scale: int,
    b_shift: int,
    scale: int,
    shift: int,
    zero: int,
    relu: bool = False,
    limit: int = 0,
    a_scale: int = 1,
    a_shift: int = 0,
) -> Array:
    """The sum or product of two maps; `b` may have one pixel."""
    second, bounds = Added(b_zero, b_scale, b_shift), Bounds(relu, limit)
    numbers = Pair(multiplies, a_zero, second, scale, shift, zero, bounds, a_scale, a_shift)
    return numbers.apply(a, b)
