"""cpu.winograd: 3x3 convolution with stride 1 by Winograd's algorithm.

An output tile of t x t pixels depends on (t + 2) x (t + 2) input pixels. Both are seen as
polynomials and evaluated at t + 1 points and infinity along each axis; there, convolution is a
product. A tile takes (t + 2)^2 products where direct convolution takes 9 t^2: 2.25, 4 and 5.06
times fewer for t = 2, 4 and 6.
"""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np

from intaglio import heap, native, ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value, constant
from intaglio.ops.registry import op
from intaglio.targets.cpu.channels_last import channels_last_type, neutral_image
from intaglio.targets.cpu.epilogue import Floats, check_epilogue, finish
from intaglio.targets.cpu.packing import PANEL, Ints, unpack

# Points by tile size. Numbers near 1 have small powers and lose the fewest digits: with 3/4 and 3/2
# the error of tile 4 is a quarter of that with the usual 1 and 2. The kernel has them built in.
POINTS = {2: (0, 1, -1), 4: (0, 0.75, -0.75, 1.5, -1.5), 6: (0, 1, -1, 2, -2, 0.5, -0.5)}


@cache
def matrices(tile: int) -> tuple[Array, Array, Array]:
    """A, G and B of `A [(G w Gt) * (Bt x B)] At`: the output, weight and input transforms."""
    points = np.array(POINTS[tile], np.float64)
    size = tile + 2
    a, g, b = np.zeros((tile, size)), np.zeros((size, 3)), np.zeros((size, size))
    for j, p in enumerate(points):
        others = np.delete(points, j)
        a[:, j] = p ** np.arange(tile)
        g[j] = p ** np.arange(3) / np.prod(p - others)
        b[j, :-1] = np.poly(others)[::-1]  # the polynomial with zeros at all other points
    a[-1, -1] = g[-1, -1] = 1
    b[-1] = np.poly(points)[::-1]
    return a, g, b


@cache
def _library() -> ctypes.CDLL:
    lib = native.compiler_library()
    pointer, u64 = ctypes.c_void_p, ctypes.c_uint64
    lib.itg_weights_at_points.argtypes = [pointer, pointer, u64, u64, ctypes.c_uint32, pointer]
    lib.itg_weights_at_points.restype = ctypes.c_int
    return lib


def winograd_weights(w: Value, tile: int) -> Value:
    """The constant weights [m, c, 3, 3] at every point, packed like `at_points`, by the C
    library.
    """
    assert w.data is not None
    m, c = w.shape[:2]
    taps, g = np.ascontiguousarray(w.data, np.float32), matrices(tile)[1]
    result = heap.package_array(((tile + 2) ** 2, -(-m // PANEL), c, PANEL), np.float32)
    known = _library().itg_weights_at_points(
        taps.ctypes.data, g.ctypes.data, m, c, tile + 2, result.ctypes.data
    )
    assert known, tile
    return constant(result)


def at_points(w: Array, tile: int) -> Array:
    """Weights [m, c, 3, 3] as [points, panels, c, PANEL], computed in doubles and rounded once.

    Every sum is (a + b) + c, so that the same weights give the same bytes on every machine.
    """
    m, c = w.shape[:2]
    panels, (_, g, _) = -(-m // PANEL), matrices(tile)
    full = np.zeros((panels * PANEL, c, 3, 3))
    full[:m] = w
    taps = full.reshape(panels, PANEL, c, 3, 3).transpose(3, 4, 0, 2, 1)

    def three(a: Array, b: Array, c: Array) -> Array:
        return np.stack([p[0] * a + p[1] * b + p[2] * c for p in g])

    across = three(*three(*taps).swapaxes(0, 1))  # points across, points down, panels, ..
    return across.swapaxes(0, 1).astype(np.float32).reshape(len(g) ** 2, panels, c, PANEL)


def _winograd_type(
    x: Value,
    w: Value,
    bias: Value | None,
    residual: Value | None,
    slope: Value | None,
    *,
    tile: int,
    channels: int,
    pad: Ints,
    act: str,
    act_args: Floats,
    add_last: bool,
) -> Type:
    if tile not in POINTS:
        raise BadInput(f"cpu.winograd has tiles of 2, 4 and 6 pixels, not {tile}")
    if x.type.rank != 4 or x.dtype != "f32" or w.dtype != "f32" or w.type.rank != 4:
        raise BadInput(f"cpu.winograd takes f32 images and packed weights, not {x.type}, {w.type}")
    if w.shape[:3] != ((tile + 2) ** 2, -(-channels // w.shape[3]), x.shape[-1]):
        raise BadInput(
            f"weights {w.type} are not packed for {x.shape[-1]} -> {channels} channels "
            f"in tiles of {tile}"
        )
    neutral = Value(Type("f32", (channels, x.shape[-1], 3, 3)))
    result = ops.conv.infer(
        neutral_image(x), neutral, None, stride=(1, 1), pad=pad, dilation=(1, 1), groups=1
    )
    return check_epilogue(channels_last_type(result), bias, residual, slope, act)


def _winograd_macs(node: Node) -> int:
    """The multiply-accumulates of direct convolution, which measure the layer's size."""
    return node.outputs[0].type.size * 9 * node.inputs[0].shape[-1]  # type: ignore[union-attr]


@op(_winograd_type, name="cpu.winograd", macs=_winograd_macs)
def winograd(
    x: Array,
    w: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    slope: Array | None = None,
    *,
    tile: int,
    channels: int,
    pad: Ints,
    act: str = "none",
    act_args: Floats = (),
    add_last: bool = False,
) -> Array:
    """3x3 convolution of an image [n, h, w, c] by Winograd; `w` is made by winograd_weights."""
    a, _, b = matrices(tile)
    n, c = x.shape[0], x.shape[-1]
    out = [x.shape[i + 1] + pad[i] + pad[i + 2] - 2 for i in range(2)]
    down, across = (-(-extent // tile) for extent in out)
    padded = np.zeros((n, down * tile + 2, across * tile + 2, c))
    inside = padded[:, pad[0] : pad[0] + x.shape[1], pad[1] : pad[1] + x.shape[2]]
    inside[:] = x[:, : inside.shape[1], : inside.shape[2]]
    seen = np.lib.stride_tricks.sliding_window_view(padded, (tile + 2, tile + 2), (1, 2))
    seen = seen[:, ::tile, ::tile]  # n, down, across, c, tile + 2, tile + 2
    points = (b @ seen @ b.T).reshape(n * down * across, c, (tile + 2) ** 2)
    result = np.moveaxis(points, -1, 0) @ unpack(w, c, channels).astype(np.float64)
    result = np.moveaxis(result, 0, -1).reshape(n, down, across, channels, tile + 2, tile + 2)
    tiles = (a @ result @ a.T).transpose(0, 1, 4, 2, 5, 3)
    y = tiles.reshape(n, down * tile, across * tile, channels)[:, : out[0], : out[1]]
    y = np.ascontiguousarray(y, np.float32)
    return finish(y, bias, residual, slope, act, act_args, add_last)
