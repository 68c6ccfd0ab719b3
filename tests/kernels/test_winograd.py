"""Winograd convolution: every kernel against numpy, and both against direct convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.check import check

from intaglio import native, ops
from intaglio.errors import BadInput, RunError
from intaglio.interpret import interpret
from intaglio.ir import Graph, constant
from intaglio.targets.cpu import winograd as cpu_winograd
from intaglio.targets.cpu.packing import unpack

rng = np.random.default_rng(11)
TILES = tuple(cpu_winograd.POINTS)
TOLERANCE = {2: 2e-5, 4: 1e-4, 6: 4e-4}  # of numbers around 1, which are sums of larger ones


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def taps(deep: int, channels: int, chance: np.random.Generator | None = None) -> np.ndarray:
    shape = channels, deep, 3, 3
    w = chance.normal(size=shape) if chance else floats(*shape)
    return (w / np.sqrt(9 * deep)).astype(np.float32)


def packed(w: np.ndarray, tile: int) -> np.ndarray:
    made = cpu_winograd.winograd_weights(constant(w), tile)
    return interpret(Graph([], [made], ["w"]), {})["w"]


def direct(x: np.ndarray, w: np.ndarray, pad: tuple[int, ...]) -> np.ndarray:
    """Direct convolution in double."""
    first, window = np.moveaxis(x, -1, 1).astype(np.float64), {"stride": (1, 1), "dilation": (1, 1)}
    return np.moveaxis(ops.conv.body(first, w.astype(np.float64), pad=pad, **window), 1, -1)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("shape", [(16, 8), (1, 1), (33, 5), (40, 19), (0, 4), (4, 0)])
def test_weights_equal_those_of_numpy(tile, shape):
    w = np.random.default_rng(3).standard_normal((*shape, 3, 3)).astype(np.float32)
    made = packed(w, tile)
    assert made.tobytes() == cpu_winograd.at_points(w, tile).tobytes()
    g = cpu_winograd.matrices(tile)[1]
    exact = np.einsum("pi,mcij,qj->pqcm", g, w.astype(np.float64), g).reshape(
        len(g) ** 2, *shape[::-1]
    )
    np.testing.assert_allclose(unpack(made, shape[1], shape[0]), exact, 1e-6, 1e-7)


SHAPES = [  # image, output channels, pad
    ((1, 12, 12, 16), 16, (1, 1, 1, 1)),
    ((1, 7, 7, 40), 70, (1, 1, 1, 1)),
    ((2, 13, 10, 5), 20, (1, 1, 1, 1)),
    ((1, 9, 17, 3), 1, (0, 0, 0, 0)),
    ((3, 3, 3, 1), 24, (0, 0, 0, 0)),
    ((1, 1, 1, 7), 33, (1, 1, 1, 1)),
    ((1, 4, 5, 17), 15, (2, 0, 1, 3)),
    ((1, 2, 3, 6), 8, (9, 8, 7, 10)),
    ((1, 1, 30, 2), 3, (1, 1, 1, 1)),
    ((1, 33, 2, 16), 65, (1, 1, 1, 1)),
    ((2, 20, 21, 64), 130, (1, 1, 1, 1)),
    ((1, 26, 26, 32), 16, (1, 0, 1, 0)),
    ((0, 8, 8, 4), 8, (1, 1, 1, 1)),
]


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize(("image", "channels", "pad"), SHAPES)
def test_winograd(image: tuple[int, ...], channels: int, pad: tuple[int, ...], tile: int) -> None:
    x, w = floats(*image), taps(image[-1], channels)
    ins = x, packed(w, tile)
    attrs: dict[str, Any] = {"tile": tile, "channels": channels, "pad": pad}
    attrs["tolerance"] = TOLERANCE[tile]
    (y,) = check("cpu.winograd", *ins, **attrs)
    np.testing.assert_allclose(y, direct(x, w, pad), rtol=1e-5, atol=1e-5)
    bias, residual = floats(channels), floats(*y.shape)
    check("cpu.winograd", *ins, bias, residual, **attrs)
    check("cpu.winograd", *ins, bias, None, **attrs, act="clip", act_args=(0.0, 6.0))
    check("cpu.winograd", *ins, None, residual, **attrs, act="relu", add_last=True)
    check("cpu.winograd", *ins, bias, residual, **attrs, act="swish", act_args=(1.0,))
    check("cpu.winograd", *ins, bias, residual, **attrs, act="gelu", add_last=True)
    check("cpu.winograd", *ins, bias, residual, -bias, **attrs, act="prelu")


@pytest.mark.parametrize("tile", TILES)
def test_bounds_keep_nan(tile: int) -> None:
    x = floats(1, 14, 14, 16)
    x[0, 3, 3, 5] = np.nan
    attrs: dict[str, Any] = {"tile": tile, "channels": 16, "pad": (1, 1, 1, 1)}
    kernel = native.find_kernel("cpu.winograd", "f32", native.machine())
    assert kernel is not None
    filled = {"act": "clip", "act_args": (0.0, 6.0), "add_last": False}
    (y,) = native.run_kernel(kernel, [x, packed(taps(16, 16), tile)], {**attrs, **filled})
    assert np.isnan(y[0, 2:5, 2:5]).all()
    assert not np.isnan(y[0, 8:, 8:]).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("row", [5, 7])
@pytest.mark.parametrize("tile", TILES)
def test_a_nan_reaches_only_tiles_that_read_it(tile: int, row: int, bad: float) -> None:
    """What docs/kernels.md says: all other tiles keep their bits."""
    x, w, pad = floats(1, 26, 26, 16), packed(taps(16, 16), tile), (1, 1, 1, 1)
    ruined = x.copy()
    ruined[0, row, row, 5] = bad
    reads = [tile * i - 1 <= row < tile * i + tile + 1 for i in range(-(-26 // tile))]
    band = np.repeat(reads, tile)[:26]
    attrs = {"tile": tile, "channels": 16, "pad": pad, "add_last": False}
    for kernel in native.kernels():
        if kernel.op.name != "cpu.winograd" or kernel.needs & ~native.machine():
            continue
        before, after = (
            native.run_kernel(kernel, [a, w], {**attrs, "act": "none", "act_args": ()})[0][0]
            for a in (x, ruined)
        )
        assert not np.isfinite(after[row - 1 : row + 2, row - 1 : row + 2]).any()
        changed = (after.view(np.int32) != before.view(np.int32)).any(-1)
        assert not changed[~np.outer(band, band)].any()
        assert changed.sum() <= (2 * tile) ** 2  # of four neighbouring tiles


@pytest.mark.parametrize(("tile", "bound"), [(2, 1e-6), (4, 4e-6), (6, 2e-5)])
@pytest.mark.parametrize("isa", ["scalar", "avx2", "avx512"])
@pytest.mark.parametrize(("side", "deep", "channels"), [(28, 16, 64), (28, 64, 64), (14, 256, 128)])
def test_error_relative_to_the_range(
    tile: int, bound: float, isa: str, side: int, deep: int, channels: int
) -> None:
    """The bounds that docs/kernels.md states, for inputs after a relu."""
    chance = np.random.default_rng(tile)  # the same numbers whichever tests run before
    x = np.maximum(chance.normal(size=(1, side, side, deep)), 0).astype(np.float32)
    w = taps(deep, channels, chance)
    want = direct(x, w, (1, 1, 1, 1))
    attrs = {
        "tile": tile,
        "channels": channels,
        "pad": (1, 1, 1, 1),
        "act": "none",
        "act_args": (),
        "add_last": False,
    }
    for kernel in native.kernels():
        if (kernel.op.name, kernel.isa) == ("cpu.winograd", isa):
            if kernel.needs & ~native.machine():
                pytest.skip(f"this machine has no {isa}")
            (y,) = native.run_kernel(kernel, [x, packed(w, tile)], attrs)
            wrong = np.abs(y - want) / np.abs(want).max()
            assert wrong.max() < bound
            assert np.sqrt(np.mean(wrong**2)) < bound / 8


GOOD = {
    "tile": 4,
    "channels": 8,
    "pad": (1, 1, 1, 1),
    "act": "none",
    "act_args": (),
    "add_last": False,
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tile": 3}, "2, 4 or 6"),
        ({"tile": 1 << 62}, "2, 4 or 6"),
        ({"tile": 6}, "not packed"),
        ({"channels": 17}, "not packed"),
        ({"channels": -1}, "negative"),
        ({"pad": (-1, 0, 0, 0)}, "negative"),
        ({"pad": (1 << 40, 0, 0, 0)}, "absurdly"),
        ({"add_last": 2}, "add_last"),
    ],
)
def test_refusals(change: dict[str, Any], words: str) -> None:
    kernel = native.find_kernel("cpu.winograd", "f32", native.machine())
    assert kernel is not None
    ins = [floats(1, 5, 5, 4), packed(taps(4, 8), 4)]
    native.run_kernel(kernel, ins, GOOD)
    with pytest.raises(RunError, match=words):
        native.run_kernel(kernel, ins, {**GOOD, **change})


def test_refusals_of_inputs() -> None:
    kernel = native.find_kernel("cpu.winograd", "f32", native.machine())
    assert kernel is not None
    w = packed(taps(4, 8), 4)
    bad = {
        "two spatial axes": [floats(1, 5, 4), w],
        "not packed": [floats(1, 5, 5, 3), w],
        "no channels": [floats(1, 5, 5, 0), w[:, :, :0]],
        "does not fit": [floats(1, 0, 5, 4), w],
        "takes f32": [floats(1, 5, 5, 4), w.astype(np.float64)],
        "one element per output channel": [floats(1, 5, 5, 4), w, floats(7)],
        "like the output": [floats(1, 5, 5, 4), w, None, floats(1, 5, 5, 7)],
    }
    for words, ins in bad.items():
        with pytest.raises(RunError, match=words):
            native.run_kernel(kernel, ins, GOOD)


def test_refusals_of_the_op() -> None:
    x, w = constant(floats(1, 5, 5, 4)), constant(packed(taps(4, 8), 4))
    for words, change in {"tiles of 2, 4 and 6": {"tile": 5}, "packed": {"channels": 40}}.items():
        with pytest.raises(BadInput, match=words):
            cpu_winograd.winograd(x, w, **{**GOOD, **change})
