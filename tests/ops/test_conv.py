from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.ops.body import FLOATS, close, run

from intaglio.errors import BadInput
from intaglio.ir import Type, Value
from intaglio.ops.registry import REGISTRY

R = np.random.default_rng(2)


def f(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    return R.standard_normal(shape).astype(dtype)


def plain(x: np.ndarray, w: np.ndarray, stride: Any, pad: Any, dilation: Any, groups: int) -> Any:
    """Convolution by its definition, one output element at a time."""
    n = len(stride)
    x = np.pad(x, [(0, 0), (0, 0), *((pad[i], pad[n + i]) for i in range(n))])
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, w.shape[2:], strict=True)]
    out = [(e - s) // t + 1 for e, s, t in zip(x.shape[2:], spans, stride, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    for m, *at in itertools.product(range(w.shape[0]), *map(range, out)):
        c = m // (w.shape[0] // groups) * w.shape[1]
        seen = tuple(
            slice(i * s, i * s + span, d)
            for i, s, span, d in zip(at, stride, spans, dilation, strict=True)
        )
        part = x[(slice(None), slice(c, c + w.shape[1]), *seen)]
        y[(slice(None), m, *at)] = (part * w[m]).sum(tuple(range(1, n + 2)))
    return y


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_conv(rank: int, groups: int) -> None:
    x, w = f(2, 4, *(6, 5, 4)[:rank]), f(8, 4 // groups, *(3, 2, 1)[:rank])
    how = {
        "stride": (2, 1, 3)[:rank],
        "pad": (1, 0, 2)[:rank] + (2, 1, 0)[:rank],
        "dilation": (1, 2, 1)[:rank],
        "groups": groups,
    }
    close(run("conv", x, w, **how), plain(x, w, **how), 1e-12)
    b = f(8)
    close(run("conv", x, w, b, **how), plain(x, w, **how) + b.reshape(-1, *[1] * rank), 1e-12)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_conv_transpose_is_the_adjoint(rank: int, groups: int) -> None:
    """<conv(x, w), y> = <x, conv_transpose(y, w)>"""
    x, w = f(2, 4, *(7, 6, 5)[:rank]), f(6, 4 // groups, *(3, 2, 1)[:rank])
    how: dict[str, Any] = {
        "stride": (2, 1, 2)[:rank],
        "pad": (1, 0, 1)[:rank] * 2,
        "dilation": (1, 2, 1)[:rank],
        "groups": groups,
    }
    forward = run("conv", x, w, **how)
    y = f(*forward.shape)
    back = run("conv_transpose", y, w, output_pad=(0,) * rank, **how)
    missing = tuple(a - b for a, b in zip(x.shape[2:], back.shape[2:], strict=True))
    back = run("conv_transpose", y, w, output_pad=missing, **how)
    close((forward * y).sum(), (x * back).sum(), 1e-10)


@pytest.mark.parametrize("dtype", FLOATS)
def test_small_floats_round_once(dtype: Any) -> None:
    x, w = f(1, 8, 5, 5, dtype=dtype), f(4, 8, 3, 3, dtype=dtype)
    how = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    want = plain(x.astype(np.float64), w.astype(np.float64), **how)
    got = run("conv", x, w, **how)
    assert got.dtype == x.dtype
    close(got, want, FLOATS[dtype])


def test_empty_batch() -> None:
    how = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1)}
    assert run("conv", f(0, 2, 5, 5), f(3, 2, 3, 3), **how).shape == (0, 3, 3, 3)


def test_integers_are_exact() -> None:
    x = R.integers(0, 256, (1, 64, 4, 4)).astype(np.uint8)
    w = R.integers(-128, 128, (5, 64, 3, 3)).astype(np.int8)
    how = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    zero, w_zero = np.uint8(131), np.arange(5).astype(np.int8)
    wide_w = w.astype(int) - w_zero.reshape(-1, 1, 1, 1)
    acc = plain(x.astype(int) - 131, wide_w, **how)
    assert np.array_equal(run("conv_integer", x, w, zero, w_zero, **how), acc)
    scales = [np.float32(v) for v in (0.02, 0.004, 0.3)]
    b = R.integers(-999, 999, 5).astype(np.int32)
    y = run(
        "qlinear_conv", x, scales[0], zero, w, scales[1], w_zero, scales[2], np.int8(3), b, **how
    )
    scale = scales[0] * scales[1] / scales[2]
    real = (acc + b.reshape(-1, 1, 1)).astype(np.float32) * scale
    assert np.array_equal(y, np.clip(np.rint(real) + 3, -128, 127).astype(np.int8))


def test_deform_conv_without_offsets_is_conv() -> None:
    x, w, b = f(2, 4, 6, 5), f(6, 2, 3, 2), f(6)
    how: dict[str, Any] = {"stride": (2, 1), "pad": (1, 0, 1, 1), "dilation": (1, 2), "groups": 2}
    want = run("conv", x, w, b, **how)
    offset = np.zeros((2, 2 * 2 * 6, *want.shape[2:]))
    close(run("deform_conv", x, w, offset, b, offset_groups=2, **how), want)
    mask = np.full((2, 2 * 6, *want.shape[2:]), 0.5)
    bias = b.reshape(-1, 1, 1)
    close(run("deform_conv", x, w, offset, b, mask, offset_groups=2, **how), (want + bias) / 2)
    moved = offset.copy()
    moved.reshape(2, 2, 6, 2, *want.shape[2:])[:, :, :, 1] = 1  # every tap one pixel to the right
    shifted = np.pad(x, [(0, 0), (0, 0), (0, 0), (0, 1)])[..., 1:]
    inner = run("conv", shifted, w, b, **how)[..., 1:-1]
    close(run("deform_conv", x, w, moved, b, offset_groups=2, **how)[..., 1:-1], inner)


def test_col2im_counts_overlaps() -> None:
    how = {
        "image": (4, 5),
        "block": (2, 3),
        "stride": (1, 1),
        "pad": (0, 1, 0, 1),
        "dilation": (1, 1),
    }
    y = run("col2im", np.ones((1, 6, 15)), **how)
    assert y[0, 0].tolist() == np.outer([1, 2, 2, 1], [2, 3, 3, 3, 2]).tolist()


def test_macs() -> None:
    x, w = Value(Type("f32", (1, 8, 10, 10))), Value(Type("f32", (16, 4, 3, 3)))
    how = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 2}
    assert REGISTRY["conv"].macs(REGISTRY["conv"].node(x, w, **how)) == 1600 * 36


@pytest.mark.parametrize(
    ("w", "attrs", "words"),
    [
        ((4, 3, 3), {}, "ranks must be equal"),
        ((4, 2, 3, 3), {}, "do not fit the channels"),
        ((4, 3, 9, 9), {}, "does not fit into"),
        ((4, 3, 3, 3), {"stride": (1,)}, "stride (1,) must have 2 entries"),
        ((4, 3, 3, 3), {"pad": (0, -1, 0, 0)}, "is too small"),
    ],
)
def test_refusals(w: tuple[int, ...], attrs: dict[str, Any], words: str) -> None:
    how = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), **attrs}
    with pytest.raises(BadInput) as e:
        run("conv", f(1, 3, 5, 5), f(*w), **how)
    assert words in str(e.value)
