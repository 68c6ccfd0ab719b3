"""cpu.qwinograd: 3x3 int8 convolution with stride 1 by Winograd's algorithm, in exact integers.

A tile of 4 x 4 output pixels takes 36 products where direct convolution takes 144. Input bytes at
the points 0, 1, -1, 2, -2 and infinity are integers below 2^15; so are the weights there, times 24
(at infinity times 12). These need 16-bit products, which are half as fast as 8-bit ones. The sums
come out times 576 = 64 · 9, modulo 2^32. Multiplying by the inverse of 9 leaves 64 times the sums
with their bias. The result equals direct convolution bit for bit, if no sum can reach 2^25 and no
scale is so small that a 64th of it loses bits.
"""

from __future__ import annotations

import ctypes
import functools
import math

import numpy as np

from intaglio import heap, native
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.registry import op
from intaglio.targets.cpu.int8_arithmetic import (
    check_operands,
    check_result,
    image_result,
    requantize,
    signed_sums,
    wrapped,
)
from intaglio.targets.cpu.packing import PANEL, Ints

TILE, SIZE = 4, 6
POINTS = SIZE * SIZE
INPUT = np.array(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ]
)
WEIGHTS = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 12]])
OUTPUT = np.array(
    [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 2]]
)
INVERSE = pow(9, -1, 1 << 32)
MAX_SUM = 1 << 25  # exclusive bound of every sum
MIN_SCALE = 2.0**-100

# Cycles of a core that starts one vector product per cycle, fitted to measured layers.
DIRECT = 1.06, 1.2  # per vector product of direct convolution; with one panel only
REQUANTIZE = 2.5  # per pixel and panel
HALVED = 0.82  # per vector product, if additions replace half of them
STORES = 3.5  # per tile, panel and point: start and store sums
TRANSFORM_IN, TRANSFORM_OUT = 180.0, 150.0  # per tile: of 32 input channels, of an output panel
WEIGHT_BYTES_PER_CYCLE = 6.0  # in a network, weights come from memory
MAX_RATIO = 0.96  # to direct cycles, for weights 8 times as large
PAIRS = 2.2  # relative cost of direct convolution on CPUs that multiply int8 as 16-bit pairs


@functools.cache
def _library() -> ctypes.CDLL:
    lib = native.compiler_library()
    pointer, u64 = ctypes.c_void_p, ctypes.c_uint64
    lib.itg_bytes_at_points.argtypes = [pointer, pointer, *[u64] * 5, pointer]
    lib.itg_bytes_at_points.restype = None
    return lib


def _by_row(w: Array) -> Array:
    """Weights [m, c, 3, 3] as [m, 9 * c], in their memory order."""
    last = np.moveaxis(w, 1, -1) if w.strides[1] == w.itemsize else w
    return last.reshape(w.shape[0], math.prod(w.shape[1:]))


def tiled_weights(w: Array, head: bool = False) -> Array:
    """Weights [m, c, 3, 3] at every point, packed like `at_points`, by the C library."""
    m, c = w.shape[:2]
    result = heap.package_array(
        (POINTS, -(-m // PANEL), headed(c) if head else -(-c // 2), 2 * PANEL), np.int16
    )
    rows, g = np.ascontiguousarray(_by_row(w), np.int8), WEIGHTS.astype(np.int32)
    strides = (1, c) if w.strides[1] == w.itemsize else (9, 1)
    ins = rows.ctypes.data, g.ctypes.data, m, c, *strides, head
    _library().itg_bytes_at_points(*ins, result.ctypes.data)
    return result


def at_points(w: Array, head: bool = False) -> Array:
    """Weights [m, c, 3, 3] at every point as [points, panels, pairs of c, 16 columns of pairs].

    With a `head`, pairs of the first and of the second half of the channels alternate. Before each
    panel stand 16 i32: the negated sums of first half times second half, from which columns start
    if half of the products is left out.
    """
    m, c = w.shape[:2]
    panels, pairs = -(-m // PANEL), -(-c // 4) * 2 if head else -(-c // 2)
    full = np.zeros((POINTS, pairs * 2, panels * PANEL), np.int16)
    points = WEIGHTS @ w.astype(np.int64) @ WEIGHTS.T  # m, c, 6, 6
    full[:, :c, :m] = points.reshape(m, c, POINTS).transpose(2, 1, 0)
    split = full.reshape(POINTS, pairs, 2, panels, PANEL).transpose(0, 3, 1, 4, 2)
    if not head:
        return np.ascontiguousarray(split).reshape(POINTS, panels, pairs, 2 * PANEL)
    first, second = split[:, :, : pairs // 2], split[:, :, pairs // 2 :]
    start = wrapped(-(first.astype(np.int64) * second).sum((2, 4))).astype("<i4").view("<i2")
    turns = np.stack([first, second], axis=3).reshape(POINTS, panels, pairs, 2 * PANEL)
    return np.concatenate([start[:, :, None], turns], axis=2)


def _matrices(w: Array, deep: int, channels: int) -> Array:
    """The inverse of `tiled_weights`, as [points, c, m]."""
    panels, pairs = w.shape[1], w.shape[2]
    if pairs == headed(deep):
        pairs -= 1
        w = w[:, :, 1:].reshape(POINTS, panels, pairs // 2, 2, 2 * PANEL).swapaxes(2, 3)
    split = w.reshape(POINTS, panels, pairs, PANEL, 2).transpose(0, 2, 4, 1, 3)
    return split.reshape(POINTS, pairs * 2, panels * PANEL)[:, :deep, :channels]


def headed(deep: int) -> int:
    """Vectors of a panel for `deep` channels, with a head."""
    return -(-deep // 4) * 2 + 1


def sums_fit(w: Array, dtype: str) -> bool:
    """Does every sum of a weight [m, c, 3, 3] and a byte, both at a point, fit into 16 bits?"""
    low, high = (-128, 127) if dtype == "i8" else (0, 255)
    both = np.einsum("ia,jb->ijab", INPUT, INPUT).reshape(SIZE, SIZE, -1)
    up, down = np.maximum(both, 0).sum(-1), np.minimum(both, 0).sum(-1)
    x = np.maximum(up * high + down * low, -(up * low + down * high))
    rows = np.abs(WEIGHTS).sum(-1)
    for i, j in np.argwhere(x + 128 * np.outer(rows, rows) >= 1 << 15):  # most points need no check
        taps = np.outer(WEIGHTS[i], WEIGHTS[j]).astype(np.float32)
        if x[i, j] + np.abs(np.tensordot(w.astype(np.float32), taps)).max(initial=0) >= 1 << 15:
            return False
    return True


def halved(w: Array, dtype: str) -> bool:
    """Should additions replace half of the products with weights [m, c, 3, 3]?

    The correction takes some time per row. A single panel does not win it back, nor do 16 channels,
    for which there is a faster kernel.
    """
    return w.shape[0] > PANEL and w.shape[1] > PANEL and sums_fit(w, dtype)


def largest_sum(w: Array, bias: Array) -> int:
    """The largest absolute sum of weights [m, ..] times numbers from 0 to 255, plus the bias."""
    (above, below), start = signed_sums(_by_row(w)), bias.astype(np.int64)
    return int(np.max([start + 255 * above, -start - 255 * below])) if w.size else 0


def cycles(image: tuple[int, ...], channels: int, tiled: bool, half: bool = False) -> float:
    """Estimated cycles of a convolution that makes pixels [n, h, w] of `channels` from `deep` ones.

    Partial tiles and panels cost as much as full ones.
    """
    n, high, wide, deep = image
    panels = -(-channels // PANEL)
    if tiled:
        rows = n * -(-high // TILE) * -(-wide // TILE)
        products = POINTS * panels * (-(-deep // 2) * (HALVED if half else 1) + STORES)
        work = rows * (products + -(-deep // 16) / 2 * TRANSFORM_IN + panels * TRANSFORM_OUT)
        weights = POINTS * deep * panels * PANEL * 2
    else:
        work = n * high * wide * panels * (DIRECT[panels == 1] * 9 * -(-deep // 4) + REQUANTIZE)
        weights = 9 * deep * panels * PANEL
    # Loading weights and multiplying overlap: the slower one dominates.
    return math.hypot(work, weights / WEIGHT_BYTES_PER_CYCLE)


def worth_tiles(
    image: tuple[int, ...], channels: int, direct: float = 1.0, half: bool = False
) -> bool:
    """Is Winograd faster, if direct convolution costs `direct` times the estimate?"""
    tiles = cycles(image, channels, True, half)
    return tiles <= MAX_RATIO * direct * cycles(image, channels, False)


def in_lines(x: Type, square: int) -> Type:
    """The type of an image [n, h, w, c] whose pixels are stored in squares of this side."""
    if x.rank != 4 or square not in (1, 2) or x.shape[-1] % square**2:
        raise BadInput(f"{x} is not an image [n, h, w, c] with square 1 or 2")
    n, high, wide, deep = x.shape
    return Type(x.dtype, (n, high * square, wide * square, deep // square**2))


def _qwinograd_type(
    x: Value,
    w: Value,
    bias: Value,
    scale: Value,
    residual: Value | None,
    table: Value | None,
    more: Value | None,
    *,
    channels: int,
    pad: Ints,
    x_zero: int,
    y_zero: int,
    lo: int,
    hi: int,
    dtype: str,
    r_zero: int,
    r_scale: float,
    square: Ints,
) -> Type:
    if dtype not in ("u8", "i8", "f32"):
        raise BadInput(f"the result must be u8, i8 or f32, not {dtype}")
    check_operands(x, bias, scale, table, channels, x_zero, y_zero, lo, hi, dtype)
    image = in_lines(x.type, square[0])
    if more is not None:
        second, first = in_lines(more.type, square[1]), image.shape[-1]
        if (second.dtype, second.shape[:3]) != (image.dtype, image.shape[:3]) or first % PANEL:
            raise BadInput(
                f"{second} cannot follow {image}: type and size must be equal, "
                f"and the first must have a multiple of 16 channels"
            )
        image = Type(image.dtype, (*image.shape[:3], first + second.shape[-1]))
    deep = image.shape[-1]
    pairs = -(-deep // 2), headed(deep)
    want = [Type("i16", (POINTS, -(-channels // PANEL), n, 2 * PANEL)) for n in pairs]
    if w.type not in want:
        raise BadInput(f"weights {w.type} are not packed for {image} -> {channels} channels")
    result = image_result(
        Value(image),
        (channels, deep, 3, 3),
        dtype,
        stride=(1, 1),
        pad=pad,
        dilation=(1, 1),
        groups=1,
    )
    check_result(result, scale, residual, table, r_zero, y_zero, lo, hi)
    return result


def _qwinograd_macs(node: Node) -> int:
    """The multiply-accumulates of direct convolution, which measure the layer's size."""
    images, sides = (node.inputs[0], *node.inputs[6:7]), node.attrs["square"]
    whole = [in_lines(v.type, k) for v, k in zip(images, sides, strict=False) if v is not None]
    deep = sum(t.shape[-1] for t in whole)
    return node.outputs[0].type.size * 9 * deep


def _unfolded(x: Array, square: int) -> Array:
    """The image that `in_lines` describes."""
    n, high, wide, deep = x.shape
    split = x.reshape(n, high, wide, square, square, deep // square**2)
    lines: Array = split.transpose(0, 1, 3, 2, 4, 5)
    return lines.reshape(n, high * square, wide * square, deep // square**2)


@op(_qwinograd_type, name="cpu.qwinograd", macs=_qwinograd_macs)
def qwinograd(
    x: Array,
    w: Array,
    bias: Array,
    scale: Array,
    residual: Array | None = None,
    table: Array | None = None,
    more: Array | None = None,
    *,
    channels: int,
    pad: Ints,
    x_zero: int,
    y_zero: int = 0,
    lo: int = 0,
    hi: int = 0,
    dtype: str,
    r_zero: int = 0,
    r_scale: float = 0.0,
    square: Ints = (1, 1),
) -> Array:
    """3x3 convolution of an int8 image [n, h, w, c] by Winograd; `w` is made by tiled_weights.

    The channels of a second image may follow those of the first. If `square` is 2, an image's
    pixels are stored in squares of 2 x 2 and its shape is [n, h / 2, w / 2, 4 * c]. Requantisation
    is that of cpu.qconv.
    """
    x = _unfolded(x, square[0])
    if more is not None:
        x = np.concatenate([x, _unfolded(more, square[1])], axis=-1)
    n, c = x.shape[0], x.shape[-1]
    shift = 128 if x.dtype == np.int8 else 0
    out = [x.shape[i + 1] + pad[i] + pad[i + 2] - 2 for i in range(2)]
    down, across = (-(-extent // TILE) for extent in out)
    padded = np.full((n, down * TILE + 2, across * TILE + 2, c), float(x_zero + shift))
    inside = padded[:, pad[0] : pad[0] + x.shape[1], pad[1] : pad[1] + x.shape[2]]
    inside[:] = x[:, : inside.shape[1], : inside.shape[2]].astype(np.float64) + shift
    seen = np.lib.stride_tricks.sliding_window_view(padded, (SIZE, SIZE), (1, 2))
    seen = seen[:, ::TILE, ::TILE]  # n, down, across, c, 6, 6
    points = (INPUT @ seen @ INPUT.T).reshape(n * down * across, c, POINTS)
    # Exact in doubles: all numbers stay far below 2^53.
    result = np.moveaxis(points, -1, 0) @ _matrices(w, c, channels).astype(np.float64)
    result = np.moveaxis(result, 0, -1).reshape(n, down, across, channels, SIZE, SIZE)
    tiles = (OUTPUT @ result @ OUTPUT.T).transpose(0, 1, 4, 2, 5, 3)
    whole = tiles.reshape(n, down * TILE, across * TILE, channels)[:, : out[0], : out[1]]
    left = wrapped(whole.astype(np.int64) + 576 * bias.astype(np.int64)).astype(np.int64)
    sums = wrapped(left * INVERSE) >> 6
    return requantize(sums, scale, residual, table, y_zero, lo, hi, dtype, r_zero, r_scale)
