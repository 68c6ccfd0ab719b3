"""Which 3x3 convolutions are computed by Winograd's algorithm, and with which tile size."""

from __future__ import annotations

import math
from typing import Any

from intaglio.ir import Node, Value
from intaglio.ops import cast, channels_first, channels_last
from intaglio.rewrite import No, P, no, rule
from intaglio.symint import estimate
from intaglio.targets.cpu.winograd import POINTS, winograd, winograd_weights

x, w, c = P["x w! c?"]
FLOATS = ("f32", "f16", "bf16")  # half precision computes in f32 between casts
LANES = 16  # channels per vector and per panel of the packed weights

# Cycles of a core with one vector multiply-add per cycle, fitted to measured layers. Their ratios
# are similar on every instruction set.
TRANSFORM = 7.0  # per vector of channels, tile and point: input or output transform
BROADCAST = 0.2  # per row and input channel: broadcast one number to all lanes
WEIGHT_BYTES_PER_CYCLE = 6.0  # in a network, weights come from memory
MAX_RATIO = 0.85  # to direct cycles, for weights that are 2 to 7 times as large
LARGE_WEIGHTS, MAX_RATIO_LARGE = 8 << 20, 0.6  # a stricter ratio for weights of many bytes
CAST = 0.5  # per element, between an f32 convolution and bf16 layers around it


def cycles(image: tuple[int, ...], channels: int, tile: int) -> float:
    """Estimated cycles of a 3x3 convolution that makes pixels [n, c, h, w] of `channels`.

    Tile 0 is direct convolution. Partial tiles and panels cost as much as full ones.
    """
    n, deep, high, wide = image
    vectors, panels = -(-deep // LANES), -(-channels // LANES)
    product = deep * (panels + BROADCAST)
    if tile:
        rows, points = n * -(-high // tile) * -(-wide // tile), (tile + 2) ** 2
        product += TRANSFORM * (vectors + panels)
    else:
        rows, points = n * high * wide, 9
    # Loading weights and multiplying overlap: the slower one dominates.
    return points * math.hypot(rows * product, deep * panels * LANES * 4 / WEIGHT_BYTES_PER_CYCLE)


@estimate
def choose(image: tuple[int, ...], channels: int, precision: str = "f32") -> int:
    """The tile size with the lowest estimate; 0 if direct convolution is best or almost as good.

    Winograd is always f32. Direct convolution is twice as fast in bf16, next to which Winograd
    needs casts.
    """
    n, deep, high, wide = image
    direct, casts = cycles(image, channels, 0), 0.0
    if precision == "bf16" and deep % 2 == 0:
        direct, casts = direct / 2, CAST * n * high * wide * (deep + channels)

    def part(tile: int) -> float:
        return (cycles(image, channels, tile) + casts) / direct

    def large(tile: int) -> bool:
        return (tile + 2) ** 2 * image[1] * channels * 4 > LARGE_WEIGHTS

    faster = [t for t in POINTS if part(t) < (MAX_RATIO_LARGE if large(t) else MAX_RATIO)]
    return min(faster, key=part, default=0)


@rule(P.conv(x, w, c))
def conv_as_winograd(
    node: Node, x: Value, w: Value, c: Value | None, pick: Any
) -> Value | No | None:
    """Lower a 3x3 convolution to transpose, cpu.winograd with packed weights, transpose."""
    return _as_winograd(node, x, w, c, "f32", pick)


@rule(P.conv(x, w, c))
def conv_as_winograd_or_bf16(
    node: Node, x: Value, w: Value, c: Value | None, pick: Any
) -> Value | No | None:
    """Lower a 3x3 convolution to cpu.winograd if that is faster in f32 than direct convolution in
    bf16.
    """
    return _as_winograd(node, x, w, c, "bf16", pick)


ALGORITHMS = {0: "direct"} | {tile: f"Winograd {tile}x{tile}" for tile in POINTS}


def _as_winograd(
    node: Node, x: Value, w: Value, c: Value | None, precision: str, pick: Any
) -> Value | No | None:
    a, result = node.attrs, node.outputs[0]
    if w.shape[2:] != (3, 3) or a["groups"] != 1 or x.dtype not in FLOATS:
        return None
    if a["stride"] != (1, 1) or a["dilation"] != (1, 1):
        return no(f"stride is {a['stride']} and dilation {a['dilation']}; Winograd needs 1 and 1")
    if x.type.dynamic:
        return no("the shape is known only at run time")
    if not result.type.size:
        return no("the result is empty")
    n, channels, high, wide = result.shape
    guess = choose((n, x.shape[1], high, wide), channels, precision)
    choice = pick((*ALGORITHMS.values(),), ALGORITHMS[guess])
    tile = next(t for t in ALGORITHMS if ALGORITHMS[t] == choice)
    if not tile:
        return no(
            f"direct convolution is as fast for {high}x{wide} pixels, {x.shape[1]} -> {channels}"
        )
    last = channels_last(_as(x, "f32"))
    packed = winograd_weights(w, tile)
    bias = None if c is None else _as(c, "f32")
    out = winograd(last, packed, bias, tile=tile, channels=channels, pad=a["pad"])
    return _as(channels_first(out), x.dtype)


def _as(v: Value, dtype: str) -> Value:
    return v if v.dtype == dtype else cast(v, dtype=dtype)
