"""Which 3x3 convolutions the CPU computes in tiles, after Winograd, and how large the tiles are."""

from __future__ import annotations

import math
from typing import Any

from intaglio.ir import Node, Value
from intaglio.ops import cast, channels_first, channels_last
from intaglio.rewrite import No, P, no, rule
from intaglio.targets.cpu.winograd import POINTS, winograd, winograd_weights

x, w, c = P["x w! c?"]
FLOATS = ("f32", "f16", "bf16")  # small ones compute in f32 between casts, as in all products
LANES = 16  # channels per vector and per panel of the packed weights

# Cycles of a core that multiplies and adds one vector in each, fitted to measured layers; ratios
# are much alike on every instruction set.
REACH = 7.0  # per vector of channels, tile and point: the way to the points, or back to the pixels
SPREAD = 0.2  # per row and input channel: to give one number to all lanes, whatever the panels
WEIGHTS = 6.0  # bytes per cycle: in a network, these have left the caches since they were last used
WORTH = 0.85  # of the plain way's cycles: the weights at all points are 2 to 7 times as large,
LARGE, WORTH_LARGE = 8 << 20, 0.6  # and from so many bytes on, memory must buy more time
CAST = 0.5  # per element between an f32 convolution and those of bf16 around it


def cycles(image: tuple[int, ...], channels: int, tile: int) -> float:
    """What a 3x3 convolution costs that makes pixels [n, c, h, w] of `channels`; tile 0 is plain.

    Tiles at the edge cost as much as all others, and a panel as much as a full one.
    """
    n, deep, high, wide = image
    vectors, panels = -(-deep // LANES), -(-channels // LANES)
    product = deep * (panels + SPREAD)
    if tile:
        rows, points = n * -(-high // tile) * -(-wide // tile), (tile + 2) ** 2
        product += REACH * (vectors + panels)
    else:
        rows, points = n * high * wide, 9
    # Weights are fetched while others are multiplied: the slower of both counts, almost alone.
    return points * math.hypot(rows * product, deep * panels * LANES * 4 / WEIGHTS)


def choose(image: tuple[int, ...], channels: int, precision: str = "f32") -> int:
    """The side of the tile that costs least; 0 where the plain way does, or almost does.

    Tiles are always f32; the plain way is twice as fast in bf16, but tiles need casts beside it.
    """
    n, deep, high, wide = image
    plain, casts = cycles(image, channels, 0), 0.0
    if precision == "bf16" and deep % 2 == 0:
        plain, casts = plain / 2, CAST * n * high * wide * (deep + channels)

    def part(tile: int) -> float:
        return (cycles(image, channels, tile) + casts) / plain

    def large(tile: int) -> bool:
        return (tile + 2) ** 2 * image[1] * channels * 4 > LARGE

    worth = [t for t in POINTS if part(t) < (WORTH_LARGE if large(t) else WORTH)]
    return min(worth, key=part, default=0)


@rule(P.conv(x, w, c))
def conv_in_tiles(node: Node, x: Value, w: Value, c: Value | None, pick: Any) -> Value | No | None:
    """A 3x3 convolution -> transpose, cpu.winograd with packed weights, transpose."""
    return _in_tiles(node, x, w, c, "f32", pick)


@rule(P.conv(x, w, c))
def conv_in_tiles_or_bf16(
    node: Node, x: Value, w: Value, c: Value | None, pick: Any
) -> Value | No | None:
    """A 3x3 convolution that tiles of f32 make faster than bf16 does -> cpu.winograd, as above."""
    return _in_tiles(node, x, w, c, "bf16", pick)


WAYS = {0: "plain"} | {tile: f"tiles of {tile}x{tile}" for tile in POINTS}


def _in_tiles(
    node: Node, x: Value, w: Value, c: Value | None, precision: str, pick: Any
) -> Value | No | None:
    a, made = node.attrs, node.outputs[0]
    if w.shape[2:] != (3, 3) or a["groups"] != 1 or x.dtype not in FLOATS:
        return None
    if a["stride"] != (1, 1) or a["dilation"] != (1, 1):
        return no(f"stride {a['stride']} and dilation {a['dilation']}; tiles need 1 and 1")
    if x.type.dynamic:
        return no("the extents are known only at run time")
    if not made.type.size:
        return no("there is nothing to compute")
    n, channels, high, wide = made.shape
    guess = choose((n, x.shape[1], high, wide), channels, precision)
    way = pick((*WAYS.values(),), WAYS[guess])
    tile = next(t for t in WAYS if WAYS[t] == way)
    if not tile:
        return no(f"the plain way is as fast for {high}x{wide} pixels, {x.shape[1]} -> {channels}")
    last = channels_last(_as(x, "f32"))
    packed = winograd_weights(w, tile)
    bias = None if c is None else _as(c, "f32")
    out = winograd(last, packed, bias, tile=tile, channels=channels, pad=a["pad"])
    return _as(channels_first(out), x.dtype)


def _as(v: Value, dtype: str) -> Value:
    return v if v.dtype == dtype else cast(v, dtype=dtype)
