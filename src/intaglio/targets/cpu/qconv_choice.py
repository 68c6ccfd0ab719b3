"""Which kernel and algorithm computes an int8 convolution: direct, depthwise or Winograd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio.ir import Array, Node, Value, constant
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.cpu.depthwise_packing import repeat_channels, tap_packing, why_not_packed
from intaglio.targets.cpu.packing import PANEL
from intaglio.targets.cpu.qconv import qconv
from intaglio.targets.cpu.qconv_packing import best_run, packed_differences, unpacked
from intaglio.targets.cpu.qdepthwise import qdepthwise
from intaglio.targets.cpu.qwinograd import (
    MAX_SUM,
    MIN_SCALE,
    PAIRS,
    halved,
    largest_sum,
    qwinograd,
    tiled_weights,
    worth_tiles,
)
from intaglio.targets.cpu.weight_zeros import HIGHEST
from intaglio.targets.replace.conv import groups_per_panel, merge_groups


def packed_qconv(
    x: Value,
    w: Array,
    bias: Value,
    scale: Value | None,
    residual: Value | None = None,
    table: Value | None = None,
    *,
    run: str,
    image_scale: Sequence[Value] = (),
    **attrs: Any,
) -> Value:
    """cpu.qconv with weights [groups, m, c, window..] of i8, or of i16 with at most nine bits.

    `image_scale` is empty, or zero point and scale of each image, known at run time, and the sums
    of the weights.
    """
    made = packed_differences(w, run)
    more = [None if a is None else constant(a) for a in (made.w_zero, made.second_rows)]
    result: Value = qconv(
        x, constant(made.w), bias, scale, residual, table, *more, *image_scale, run=run, **attrs
    )
    return result


def convolution(
    x: Value,
    w: Array,
    bias: Value,
    scale: Value | None,
    residual: Value | None = None,
    table: Value | None = None,
    *,
    groups: int,
    **attrs: Any,
) -> Value:
    """cpu.qconv or cpu.qdepthwise of a channels-last image and weights [m, c, window..].

    Weights are i8, or i16 with at most nine bits: differences from zero points.
    """
    (channels, deep), kernel = w.shape[:2], w.shape[2:]
    result: Value
    single = groups == x.shape[-1] > 1 and not (channels > groups and x.type.dynamic)
    bytes_only = scale is not None and residual is None and table is None
    plain = bytes_only and attrs["dtype"] in ("i8", "u8") and w.max(initial=0) <= HIGHEST
    if plain and single and not why_not_packed(kernel, attrs["stride"], attrs["dilation"]):
        taps_order = tap_packing(kernel, attrs["stride"], attrs["dilation"])
        packed_taps = constant(taps_order.packed(np.moveaxis(w[:, 0], 0, -1)))
        image = repeat_channels(x, channels // groups)
        result = qdepthwise(image, packed_taps, bias, scale, kernel=kernel, **attrs)
    else:
        if deep > 1 and 2 * channels <= groups * PANEL:
            count = groups_per_panel(groups, channels // groups, PANEL)
            w, groups, deep = merge_groups(w, groups, count), groups // count, deep * count
        run = best_run(deep, kernel, attrs["dilation"], groups)
        grouped = w.reshape(groups, channels // groups, deep, *kernel)
        result = packed_qconv(
            x,
            grouped,
            bias,
            scale,
            residual,
            table,
            channels=channels,
            kernel=kernel,
            groups=groups,
            run=run,
            **attrs,
        )
    return result


# ---- Winograd ------------------------------------------------------------------------------------
ALGORITHMS = "direct", "Winograd 4x4"
QUADS = 1.0  # relative cost of direct convolution with instructions that multiply four bytes


def _as_winograd(node: Node, pick: Any, direct: float) -> Value | No | None:
    """cpu.qwinograd if it is faster; `direct` is the relative cost of direct convolution."""
    x, w, bias, scale, residual, table, w_zero, second_rows, zero = node.inputs[:9]
    a = dict(node.attrs)
    channels, kernel, groups, run = (a.pop(k) for k in ("channels", "kernel", "groups", "run"))
    stride, dilation = a.pop("stride"), a.pop("dilation")
    if kernel != (3, 3) or x is None or w is None or w.data is None:
        return None
    if x.type.dynamic or scale is None or w_zero is not None or second_rows is not None:
        return no("Winograd needs a static image size and symmetric weights")
    if zero is not None:
        return no("Winograd needs an image whose zero point is known when compiling")
    if bias is None or bias.data is None or scale.data is None:
        return no("Winograd needs constant bias and scales")
    if groups != 1 or stride + dilation != (1, 1, 1, 1) or not node.outputs[0].type.size:
        return no("Winograd needs a 3x3 kernel, stride 1, dilation 1 and one group")
    taps = unpacked(w.data, x.shape[-1], channels, kernel, run)
    if largest_sum(taps, bias.data) >= MAX_SUM or np.any(np.abs(scale.data) < MIN_SCALE):
        return no("sums may be too large or scales too small for exact results")
    image = (*node.outputs[0].shape[:3], x.shape[-1])
    half = direct == QUADS and halved(taps, x.dtype)
    if pick(ALGORITHMS, ALGORITHMS[worth_tiles(image, channels, direct, half)]) == ALGORITHMS[0]:
        return no("direct convolution is as fast")
    result: Value = qwinograd(
        x,
        constant(tiled_weights(taps, half)),
        bias,
        scale,
        residual,
        table,
        channels=channels,
        origin=node.origin,
        **a,
    )
    return result


def _winograd_rule(direct: float) -> Rule:
    @rule(P.any("cpu.qconv"))
    def qconv_as_winograd(node: Node, pick: Any) -> Value | No | None:
        """Compute a 3x3 int8 convolution with stride 1 by cpu.qwinograd, if that is faster."""
        return _as_winograd(node, pick, direct)

    return qconv_as_winograd


# ---- operands that Winograd reads without a copy -------------------------------------------------
def _reads(v: Value | None, op: str) -> Node | None:
    """The producer of `v`, if it is of this op."""
    return v.producer if v is not None and v.producer is not None and v.producer.op == op else None


def _before_depth_to_space(x: Value) -> Value | None:
    """The image [n, h / 2, w / 2, 4 * c] from which depth_to_space makes x [n, h, w, c];
    else None.
    """
    n, high, wide, deep = x.shape
    joined = _reads(x, "reshape")
    moved = _reads(joined.inputs[0], "transpose") if joined else None
    split = _reads(moved.inputs[0], "reshape") if moved else None
    if moved is None or split is None or moved.attrs["perm"] != (0, 1, 3, 2, 4, 5):
        return None
    whole, square = split.inputs[0], (n, high // 2, wide // 2, 2, 2, deep)
    if whole is None or split.outputs[0].shape != square:
        return None
    return whole if whole.shape == (*square[:3], 4 * deep) else None


@rule(P.any("cpu.qwinograd"))
def concat_into_qwinograd(node: Node) -> Value | No | None:
    """Let cpu.qwinograd read two images without a concat, and depth_to_space operands directly."""
    x, ends = node.inputs[0], [*node.inputs[1:6], *[None] * (6 - len(node.inputs))]
    assert x is not None
    if (
        any(v is not None for v in node.inputs[6:])
        or x.type.dynamic
        or node.attrs["square"] != (1, 1)
    ):
        return None
    joint, parts = _reads(x, "concat"), [x]
    if joint is not None and joint.attrs["axis"] % 4 == 3:
        parts = [v for v in joint.inputs if v is not None]
        if len(parts) != 2 or parts[0].shape[-1] % PANEL:
            return no("two images are supported, of which the first has a multiple of 16 channels")
        if len(x.uses) > 1:
            return no("the concat has other readers")
    squares = [_before_depth_to_space(v) for v in parts]
    if len(parts) == 1 and squares[0] is None:
        return None
    read = [v if s is None else s for v, s in zip(parts, squares, strict=True)]
    sides = [1 if s is None else 2 for s in squares]
    attrs = {**node.attrs, "square": (*sides, 1)[:2]}
    result: Value = qwinograd(read[0], *ends, *read[1:], origin=node.origin, **attrs)
    return result


WINOGRAD_INT8 = (_winograd_rule(QUADS), concat_into_qwinograd)
WINOGRAD_INT8_PAIRS = (
    _winograd_rule(PAIRS),
    concat_into_qwinograd,
)  # on CPUs that multiply int8 as 16-bit pairs
