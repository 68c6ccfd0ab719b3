"""The KPU's arithmetic in numpy, beside plain loops, and the curves that we fit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intaglio.errors import BadInput
from intaglio.npu.chips.k210 import native_layer
from intaglio.npu.chips.k210.arithmetic import Terms, activate, normalize, pool, sums
from intaglio.npu.chips.k210.fields import Curve, Norm
from intaglio.npu.chips.k210.requantize import Function, requantize


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("kernel", [1, 3])
def test_sums_are_those_of_loops(kernel, depthwise):
    rng = np.random.default_rng(kernel)
    x = rng.integers(0, 256, (3, 5, 4))
    w = rng.integers(0, 256, (3, 1 if depthwise else 3, kernel, kernel))
    terms = Terms(-4390912, 15, -77, 2, 12345)
    found = sums(x.astype(np.uint8), w.astype(np.uint8), 9, terms, depthwise)
    padded = np.pad(x, ((0, 0), (kernel // 2,) * 2, (kernel // 2,) * 2), constant_values=9)
    for o in range(3):
        for i in range(5):
            for j in range(4):
                window = padded[:, i : i + kernel, j : j + kernel]
                window = window[o : o + 1] if depthwise else window
                want = int((window * w[o]).sum()) + (terms.arg_x * int(window.sum()) >> 15)
                want += (terms.arg_w * int(w[o].sum()) >> 2) + terms.arg_add * len(window)
                assert found[o, i, j] == want


def test_zero_points_are_undone_by_the_terms():
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (4, 3, 3)), rng.integers(0, 256, (2, 4, 3, 3))
    terms = Terms.of_zero_points(7, 128, 9)
    found = sums(x.astype(np.uint8), w.astype(np.uint8), 7, terms, False)
    assert found[1, 1, 1] == ((x - 7) * (w[1] - 128)).sum()


def test_halves_go_to_even():
    curve = Curve(*(np.array([v] * 16) for v in (-(2**35), 0, 0, 3)))
    curve.start[1:], curve.mul[1:], curve.shift[1:] = 0, 1, 1
    assert activate(np.array([-5, 0, 1, 2, 3, 4, 5]), curve).tolist() == [3, 3, 3, 4, 5, 5, 5]


def test_pools():
    y = np.arange(32, dtype=np.uint8).reshape(1, 4, 8)
    assert pool(y, 1).tolist() == [[[9, 11, 13, 15], [25, 27, 29, 31]]]
    assert pool(y, 2).tolist() == [[[4, 6, 8, 10], [20, 22, 24, 26]]]  # truncated
    assert pool(y, 5).tolist() == [[[0, 2, 4, 6], [16, 18, 20, 22]]]
    assert pool(y, 6).tolist() == [[[1, 3, 5, 7], [17, 19, 21, 23]]]
    assert pool(y, 4).tolist() == [[[13, 17]]]
    assert pool(y, 9)[0, 3].tolist() == [25, 26, 27, 28, 29, 30, 31, 31]
    assert pool(y, 8)[0, 3].tolist() == [24, 25, 26, 27, 28, 29, 30, 31]


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1))
def test_requantisation_is_as_good_as_floats(seed):
    rng = np.random.default_rng(seed)
    scale, bias = 10 ** rng.uniform(-5, -1, 16), rng.integers(-50000, 50000, 16)
    low, zero = int(rng.integers(0, 30)), int(rng.integers(0, 256))
    norm, curve = requantize(scale, bias, np.full(16, 3e5), Function(zero, low, 240))
    acc = rng.integers(-300000, 300000, (16, 50))
    found = activate(normalize(acc, norm), curve)
    real = np.clip((acc + bias[:, None]) * scale[:, None] + zero, low, 240)
    assert np.abs(found - real).max() < 0.501


@pytest.mark.parametrize(
    ("f", "most"),
    [
        (lambda r: np.where(r > 0, r, 0.1 * r), 1),
        (lambda r: 1 / (1 + np.exp(-r)), 1),
        (lambda r: r / (1 + np.exp(-r)), 2),
        (np.tanh, 1),
        (lambda r: r * np.clip(r + 3, 0, 6) / 6, 2),
    ],
    ids=["leaky", "sigmoid", "silu", "tanh", "hard-swish"],
)
def test_functions_become_curves(f, most):
    grid = (np.arange(256) - 120) * 0.06
    unit = (f(grid).max() - f(grid).min()) / 255
    zero = int(np.rint(-f(grid).min() / unit))
    table = np.clip(np.rint(f(grid) / unit) + zero, 0, 255)
    function = Function(120, table=table)
    norm, curve = requantize(np.full(1, 1e-3), np.zeros(1), np.full(1, 3e5), function)
    acc = np.arange(-150000, 150000, 37).reshape(1, -1)
    real = np.clip(acc * 1e-3 * 0.06, grid[0], grid[-1])
    want = np.clip(np.rint(f(real) / unit) + zero, 0, 255)
    assert np.abs(activate(normalize(acc, norm), curve) - want).max() <= most


def test_scales_that_do_not_fit_are_refused():
    with pytest.raises(BadInput, match="sums of 36 bits do not hold them"):
        requantize(np.full(1, 1e6), np.zeros(1), np.full(1, 3e5), Function(0))
    with pytest.raises(BadInput, match="a scale is 0, infinite"):
        requantize(np.zeros(1), np.zeros(1), np.full(1, 3e5), Function(0))


ISAS = {"scalar": 0, "avx2": 1, "avx512": 3, "avx512vnni": 7, "best": 0xFFFFFFFF}


def hardest(rng, outputs: int) -> tuple[Norm, Curve]:
    """Negative multipliers and slopes, and numbers beyond the chip's 36 bits."""
    most = 1 << int(rng.integers(3, 23))
    norm = Norm(
        rng.integers(-most, most, outputs),
        rng.integers(0, 16, outputs),
        rng.integers(-(1 << 28), 1 << 28, outputs),
    )
    start = np.sort(rng.integers(-(1 << 30), 1 << 30, 16))
    start[0] = -(1 << 35)
    slopes = rng.integers(-30000 if rng.random() < 0.3 else 0, 30000, 16)
    return norm, Curve(start, slopes, rng.integers(0, 43, 16), rng.integers(0, 255, 16))


def with_ties(rng, outputs: int) -> tuple[Norm, Curve]:
    """Small numbers and shifts, so that most results lie halfway between two bytes."""
    norm = Norm(
        rng.integers(-3, 4, outputs), rng.integers(0, 6, outputs), rng.integers(-900, 900, outputs)
    )
    start = rng.integers(-3000, 3000, 16)  # in any order: the last one below a number holds
    start[0] = -(1 << 35)
    shift = rng.integers(0, 8, 16)
    slopes = (1 << shift >> 1) * rng.integers(0, 2, 16)
    slopes[0] = 0
    return norm, Curve(start, slopes, shift, rng.integers(0, 128, 16))


@pytest.mark.skipif(not native_layer.available(), reason="the C library is not built")
@pytest.mark.parametrize("isa", ISAS.values(), ids=ISAS)
@pytest.mark.parametrize("seed", range(60))
def test_c_gives_the_bits_of_numpy(seed, isa):
    """All terms and pools, odd sizes, ties, extremes of all numbers."""
    rng = np.random.default_rng(seed)
    depthwise, kernel = bool(rng.integers(2)), int(rng.choice([1, 3]))
    channels = int(rng.integers(1, 40))
    outputs = channels if depthwise else int(rng.integers(1, 20))
    lowest = 255 if seed % 7 == 0 else 0  # all products are as large as possible
    x = rng.integers(lowest, 256, (channels, *rng.integers(4, 40, 2))).astype(np.uint8)
    shape = outputs, 1 if depthwise else channels, kernel, kernel
    w = rng.integers(lowest, 256, shape).astype(np.uint8)
    last = hardest(rng, outputs) if seed % 2 else with_ties(rng, outputs)
    terms = Terms(*(int(n) for n in (rng.integers(-(1 << 23), 1 << 23), seed % 16, -77, 2, 12345)))
    if seed % 3 == 0:
        terms = Terms.of_zero_points(seed, 128, kernel * kernel)
    mode = int(rng.integers(10))
    found = native_layer.run(x, w, *last, 9, terms, depthwise, mode, isa)
    norm, curve = last
    want = activate(normalize(sums(x, w, 9, terms, depthwise), norm), curve)
    assert np.array_equal(found, pool(want, mode))
