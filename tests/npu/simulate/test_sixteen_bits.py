"""16-bit programs, f16 and i16 with weights of both widths: equal bits in numpy and C."""

from __future__ import annotations

import numpy as np
import pytest
from tests.npu.instruction_builder import Builder
from tests.npu.simulate.test_simulator import LAYOUTS, conv

from intaglio.npu.ops import f16_arithmetic

WINDOWS = [
    ((1, 1), (1, 1), (1, 1), (0, 0)),
    ((3, 3), (2, 2), (1, 1), (1, 1)),
    ((5, 3), (1, 2), (1, 1), (2, 1)),
    ((3, 3), (1, 1), (3, 2), (3, 2)),
    ((3, 3), (1, 1), (1, 1), (-1, -2)),
    ((3, 3), (1, 1), (1, 1), (8, 9)),
]


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("op", ["conv", "depthwise"])
@pytest.mark.parametrize("y", ["f16", "f32", "i8", "i16"])
def test_products_of_f16(op, y):
    conv(Builder(1), op, x="f16", y=y, pad=(1, 1))
    conv(Builder(1), op, x="f16", y=y, pad=(1, 1), least=-0.5, most=0.75)


@pytest.mark.parametrize("op", ["conv", "depthwise"])
@pytest.mark.parametrize("x", ["i8", "u8", "i16"])
def test_integers_with_f16_results(op, x):
    conv(Builder(2), op, x=x, y="f16", pad=(1, 1), least=-0.5, most=0.75)


@pytest.mark.parametrize("op", ["conv", "depthwise"])
@pytest.mark.parametrize("y", ["i8", "i16", "f32"])
def test_weights_of_16_bits(op, y):
    conv(Builder(3), op, x="i16", y=y, pad=(1, 1), weights="i16")


@pytest.mark.parametrize("op", ["conv", "depthwise"])
@pytest.mark.parametrize("x", ["f16", "i16"])
@pytest.mark.parametrize("c2", LAYOUTS)
def test_layouts_of_16_bits(op, x, c2):
    first = 3 % c2
    conv(Builder(4), op, x=x, y=x, c2=c2, first=first, pad=(1, 1))
    conv(Builder(5), op, x=x, y=x, c2=c2, ins=37, outs=65, size=(3, 4), kernel=(1, 1), atoms=(5, 3))


@pytest.mark.parametrize("op", ["conv", "depthwise"])
@pytest.mark.parametrize("x", ["f16", "i16"])
@pytest.mark.parametrize(("kernel", "stride", "dilation", "pad"), WINDOWS)
def test_windows_of_16_bits(op, x, kernel, stride, dilation, pad):
    conv(Builder(6), op, x=x, y=x, kernel=kernel, stride=stride, dilation=dilation, pad=pad)


@pytest.mark.parametrize("op", ["conv", "depthwise"])
@pytest.mark.parametrize("x", ["i8", "i16", "f16"])
@pytest.mark.parametrize("pad", [(1, 1), (60, 60)])
def test_one_scale_for_all_channels(op, x, pad):
    conv(Builder(17), op, x=x, y=x, one_scale=1, pad=pad, size=(4, 4), ins=40)


def test_windows_with_more_padding_than_pixels():
    conv(Builder(6), x="f16", y="f16", size=(3, 3), pad=(200, 200), ins=40, outs=3)


@pytest.mark.parametrize("r", ["f16", "i8", "i16"])
@pytest.mark.parametrize("c2", [16, 8])
@pytest.mark.parametrize("x", ["f16", "i8"])
def test_residuals_of_f16(r, c2, x):
    b = Builder(7)
    residual = b.operand(r, (24, 7, 9), c2=c2)
    conv(b, x=x, y="f16", c2=c2, residual=residual, r_zero=0, r_factor=0.4)


@pytest.mark.parametrize("op", ["conv", "depthwise"])
def test_piecewise_tables(op):
    b = Builder(8)
    table, missed = f16_arithmetic.piecewise_table(silu)
    assert missed < 2
    at = b.constant(table)
    conv(b, op, x="f16", y="f16", table=at, entries=len(table), pad=(1, 1))


def test_a_piecewise_table_covers_every_f16():
    b = Builder(9)
    table, _ = f16_arithmetic.piecewise_table(silu)
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    src, dst = b.feature("f16", (64, 32, 32)), b.feature("f16", (64, 32, 32))
    b.load(src, every)
    b.emit("lut", src=src, dst=dst, table=b.constant(table), entries=len(table))
    b.store(dst)
    made = b.check()[0].reshape(-1).astype(np.float64)
    finite = np.isfinite(every)
    x = every[finite].astype(np.float64)
    unit = np.maximum(np.abs(silu(x)), 0.125) / 2048
    assert (np.abs(made[finite] - silu(x)) <= 2 * unit).all()
    assert np.isnan(made[np.isnan(every)]).all()
    assert made[every == np.inf] == np.inf
    assert made[every == -np.inf] == 0


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("y", ["f16", "i8"])
@pytest.mark.parametrize("c2", [16, 8, 1])
def test_pools_of_f16(kind, y, c2):
    if kind == 0 and y != "f16":
        pytest.skip("the largest of f16 is one of them")
    b = Builder(11)
    src = b.operand("f16", (21, 9, 8), c2=c2)
    for kernel, stride, pad, shape in (
        ((3, 3), (2, 2), (1, 1), (5, 4)),
        ((9, 8), (1, 1), (0, 0), (1, 1)),
        ((2, 3), (1, 2), (0, 5), (8, 8)),
    ):
        for count_pad in (0, 1):
            dst = b.feature(y, (21, *shape), c2=c2)
            b.emit(
                "pool",
                src=src,
                dst=dst,
                kernel=kernel,
                stride=stride,
                dilation=(1, 1),
                pad=pad,
                kind=kind,
                count_pad=count_pad,
                x_scale=1.0,
                y_scale=0.05,
                low=-128,
                high=127,
                least=-3.0,
            )
            b.store(dst)
    b.check()


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("y", ["f16", "f32", "i8"])
@pytest.mark.parametrize("c2", [16, 8, 5, 64])
def test_eltwise_of_f16(kind, y, c2):
    b = Builder(12)
    a = b.operand("f16", (21, 4, 6), c2=c2)
    for shape in ((21, 4, 6), (21, 1, 1), (1, 4, 6), (1, 1, 1), (21, 4, 1)):
        other = b.operand("f16", shape, c2=c2)
        dst = b.feature(y, (21, 4, 6), c2=c2)
        b.emit(
            "eltwise",
            src=a,
            other=other,
            dst=dst,
            kind=kind,
            a_factor=0.7,
            b_factor=-1.0,
            low=-128,
            high=127,
            most=2.5,
        )
        b.store(dst)
    b.check()


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("types", [("f16", "f16"), ("i16", "i8"), ("u8", "i16")])
@pytest.mark.parametrize("c2", [16, 8, 7])
def test_matmul_of_16_bits(turned, types, c2):
    b, (k, m, n) = Builder(16), (37, 11, 21)
    a = b.operand(types[0], (k, m, 1), c2=c2)
    other = b.operand(types[1], (k, n, 1) if turned else (n, k, 1), c2=c2)
    zeros = {} if types[0] == "f16" else {"a_zero": 2, "b_zero": 3}
    for y in ("f16", "i8", "f32"):
        dst = b.feature(y, (n, m, 1), c2=c2)
        factor = 0.1 if types[0] == "f16" else 1e-5
        b.emit(
            "matmul",
            src=a,
            other=other,
            dst=dst,
            turned=turned,
            y_zero=1,
            low=-128,
            high=127,
            factor=factor,
            **zeros,
        )
        b.store(dst)
    b.check()
