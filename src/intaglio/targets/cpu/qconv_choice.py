"""Which kernel computes a convolution of bytes on the CPU, and by which way."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.ir import Array, Node, Value, constant
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.cpu.depthwise_packing import repeat_channels, weave_of, why_not_woven
from intaglio.targets.cpu.packing import PANEL
from intaglio.targets.cpu.qconv import qconv
from intaglio.targets.cpu.qconv_packing import best_run, packed, unpacked
from intaglio.targets.cpu.qdepthwise import qdepthwise
from intaglio.targets.cpu.qwinograd import (
    LEAST,
    MOST,
    PAIRS,
    halved,
    largest_sum,
    qwinograd,
    tiled_weights,
    worth_tiles,
)


def convolution(
    x: Value,
    w: Array,
    bias: Value,
    scale: Value | None,
    residual: Value | None = None,
    table: Value | None = None,
    w_zero: Value | None = None,
    *,
    groups: int,
    **attrs: Any,
) -> Value:
    """A channel-last image times weights [m, c, window..], packed for the plain kernels."""
    (channels, deep), kernel = w.shape[:2], w.shape[2:]
    made: Value
    single = groups == x.shape[-1] > 1 and not (channels > groups and x.type.dynamic)
    bytes_only = scale is not None and residual is None and table is None and w_zero is None
    plain = bytes_only and attrs["dtype"] in ("i8", "u8")
    if plain and single and not why_not_woven(kernel, attrs["stride"], attrs["dilation"]):
        weave = weave_of(kernel, attrs["stride"], attrs["dilation"])
        woven = constant(weave.packed(np.moveaxis(w[:, 0], 0, -1)))
        image = repeat_channels(x, channels // groups)
        made = qdepthwise(image, woven, bias, scale, kernel=kernel, **attrs)
    else:
        run = best_run(deep, kernel, attrs["dilation"], groups)
        grouped = w.reshape(groups, channels // groups, deep, *kernel)
        made = qconv(
            x,
            constant(packed(grouped, run)),
            bias,
            scale,
            residual,
            table,
            w_zero,
            channels=channels,
            kernel=kernel,
            groups=groups,
            run=run,
            **attrs,
        )
    return made


# ---- tiles ---------------------------------------------------------------------------------------
WAYS = "plain", "tiles of 4x4"
FOURS = 1.0  # what the plain way costs where four bytes are multiplied at once


def _in_tiles(node: Node, pick: Any, plain: float) -> Value | No | None:
    """`plain` is what that way costs, compared with FOURS."""
    x, w, bias, scale, residual, table, w_zero = node.inputs
    a = dict(node.attrs)
    channels, kernel, groups, run = (a.pop(k) for k in ("channels", "kernel", "groups", "run"))
    stride, dilation = a.pop("stride"), a.pop("dilation")
    if kernel != (3, 3) or x is None or w is None or w.data is None:
        return None
    if x.type.dynamic or scale is None or w_zero is not None:
        return no("tiles need an image of fixed size, and symmetric weights")
    if bias is None or bias.data is None or scale.data is None:
        return no("tiles need a bias and scales that are known")
    if groups != 1 or stride + dilation != (1, 1, 1, 1) or not node.outputs[0].type.size:
        return no("tiles are of 3x3 windows in steps of one, of all channels together")
    taps = unpacked(w.data, x.shape[-1], channels, kernel, run)
    if largest_sum(taps, bias.data) >= MOST or np.any(np.abs(scale.data) < LEAST):
        return no("sums may be too large, or scales too small")
    image = (*node.outputs[0].shape[:3], x.shape[-1])
    half = plain == FOURS and halved(taps, x.dtype)
    if pick(WAYS, WAYS[worth_tiles(image, channels, plain, half)]) == WAYS[0]:
        return no("the plain way is as fast")
    made: Value = qwinograd(
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
    return made


def _tiles(plain: float) -> Rule:
    @rule(P.any("cpu.qconv"))
    def qconv_in_tiles(node: Node, pick: Any) -> Value | No | None:
        """A 3x3 convolution of bytes in steps of one -> cpu.qwinograd, where that is faster."""
        return _in_tiles(node, pick, plain)

    return qconv_in_tiles


# ---- images that need not be put together for them -----------------------------------------------
def _reads(v: Value | None, op: str) -> Node | None:
    """The node of that kind that makes a value."""
    return v.producer if v is not None and v.producer is not None and v.producer.op == op else None


def _squares(x: Value) -> Value | None:
    """The image [n, h / 2, w / 2, 4 * c] of which x [n, h, w, c] is made by moving pixels."""
    n, high, wide, deep = x.shape
    joined = _reads(x, "reshape")
    moved = _reads(joined.inputs[0], "transpose") if joined else None
    apart = _reads(moved.inputs[0], "reshape") if moved else None
    if moved is None or apart is None or moved.attrs["perm"] != (0, 1, 3, 2, 4, 5):
        return None
    whole, square = apart.inputs[0], (n, high // 2, wide // 2, 2, 2, deep)
    if whole is None or apart.outputs[0].shape != square:
        return None
    return whole if whole.shape == (*square[:3], 4 * deep) else None


@rule(P.any("cpu.qwinograd"))
def tiles_of_parts(node: Node) -> Value | No | None:
    """Tiles read two images without a concat, and pixels where a conv_transpose leaves them."""
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
            return no("tiles read two images, and the first must have whole sixteens of channels")
        if len(x.uses) > 1:
            return no("others read the two images together")
    squares = [_squares(v) for v in parts]
    if len(parts) == 1 and squares[0] is None:
        return None
    read = [v if s is None else s for v, s in zip(parts, squares, strict=True)]
    sides = [1 if s is None else 2 for s in squares]
    attrs = {**node.attrs, "square": (*sides, 1)[:2]}
    made: Value = qwinograd(read[0], *ends, *read[1:], origin=node.origin, **attrs)
    return made


TILES_INT8 = (_tiles(FOURS), tiles_of_parts)
PAIRS_INT8 = (_tiles(PAIRS), tiles_of_parts)  # where products of bytes are those of 16-bit pairs
