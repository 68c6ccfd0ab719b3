"""Quantising, dequantising and integer products: the same bits as the numpy bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.check import check

from intaglio import dtypes, native
from intaglio.errors import RunError

RNG = np.random.default_rng(9)
STORED = [
    "i8",
    "u8",
    "i16",
    "u16",
    "i4",
    "u4",
    "i2",
    "u2",
    "f8e4m3fn",
    "f8e4m3fnuz",
    "f8e5m2",
    "f8e5m2fnuz",
    "f4e2m1fn",
]


def reals(shape: tuple[int, ...], dtype: str = "f32", spread: float = 40) -> np.ndarray:
    return (RNG.normal(size=shape) * spread).astype(dtypes.numpy_of(dtype))


def scales(shape: tuple[int, ...]) -> np.ndarray:
    return RNG.uniform(0.01, 1.5, shape).astype(np.float32)


def zeros(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return RNG.integers(0, 2, shape).astype(np.float32).astype(dtypes.numpy_of(dtype))


def codes(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Every bit pattern of an element type."""
    if dtype == "i32":
        return RNG.integers(-(10**6), 10**6, shape).astype(np.int32)
    if dtypes.is_integer(dtype):
        low, high = dtypes.limits(dtype)
        return RNG.integers(low, high + 1, shape).astype(dtypes.numpy_of(dtype))
    bits = 16 if dtype == "f4e2m1fn" else 256
    return RNG.integers(0, bits, shape).astype(np.uint8).view(dtypes.numpy_of(dtype))


GRAINS = [  # shape, scale's shape, axis, block_size
    ((3, 7, 5), (), 1, 0),
    ((3, 7, 5), (1,), 1, 0),
    ((3, 7, 5), (7,), 1, 0),
    ((3, 7, 5), (5,), 2, 0),
    ((3, 7, 5), (3,), 0, 0),
    ((3, 7, 5), (5,), -1, 0),
    ((3, 7, 5), (3, 3, 5), 1, 3),
    ((3, 7, 5), (3, 7, 2), 2, 4),
    ((3, 7, 5), (2, 7, 5), 0, 2),
    ((2, 300), (2, 2), 1, 200),
    ((5000,), (), 0, 0),
    ((0, 4), (4,), 1, 0),
    ((3, 0), (), 1, 0),
    ((), (), 1, 0),
    ((2, 2), (2, 1), 1, 2),
    ((9, 700), (9,), 0, 0),
    ((9, 700), (700,), 1, 0),
    ((1, 5), (1,), 0, 0),
]


@pytest.mark.parametrize(("shape", "grain", "axis", "block_size"), GRAINS)
@pytest.mark.parametrize("dtype", ["i8", "u8", "i4", "f8e4m3fn"])
def test_every_granularity(
    shape: tuple[int, ...], grain: tuple[int, ...], axis: int, block_size: int, dtype: str
) -> None:
    scale, where = scales(grain), {"axis": axis, "block_size": block_size}
    for zero in (None, zeros(grain, dtype)):
        check("quantize_linear", reals(shape), scale, zero, dtype=dtype, **where)
        check("dequantize_linear", codes(shape, dtype), scale, zero, dtype="f32", **where)


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("real", ["f32", "f16", "bf16"])
def test_every_element_type(dtype: str, real: str) -> None:
    scale, zero = np.float32(0.37), zeros((), dtype)
    for saturate in (True, False):
        x = reals((1000,), real, 300 if dtypes.is_float(dtype) else 40)
        x[:6] = [0.185, -0.185, np.inf, -np.inf, 0.555, -0.0]  # ties and ends
        check("quantize_linear", x, scale, zero, dtype=dtype, saturate=saturate)
        check("quantize_linear", x, scale, None, dtype=dtype, saturate=saturate)
    if dtypes.is_integer(dtype):
        check("quantize_linear", np.full(9, np.nan, x.dtype), scale, zero, dtype=dtype)
    check("dequantize_linear", codes((1000,), dtype), scale, zero, dtype=real, tolerance=0)
    check("dequantize_linear", codes((1000,), dtype), scale, None, dtype=real, tolerance=0)


@pytest.mark.parametrize("scale", [0.1, 0.37, 3.0, 1 / 3, 1e-29, 1e29, 3e-38, 1e38])
def test_numbers_close_to_a_tie(scale: float) -> None:
    """Multiplying by 1 / scale instead of dividing gives the same bytes."""
    by, halves = np.float32(scale), np.arange(-300, 300, dtype=np.float32) + np.float32(0.5)
    with np.errstate(over="ignore"):
        x = (halves * by).astype(np.float32)
        spread = (reals((5000,)) * by).astype(np.float32)
    beside = [x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))]
    for few in beside:
        few[::61] = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-42, 0, 2.0**31, -(2.0**31), 1e6]
    for dtype in ("i8", "u8"):
        zero = np.array(7, dtypes.numpy_of(dtype))
        check("quantize_linear", np.concatenate(beside), by, zero, dtype=dtype)
        check("quantize_linear", spread, by, None, dtype=dtype)


def test_i32() -> None:
    check("quantize_linear", codes((100,), "i32"), np.float32(1234.5), None, dtype="i8")
    check("dequantize_linear", codes((7, 100), "i32"), scales((7,)), zeros((7,), "i32"), axis=0)


SHAPES = [  # of the operands of a product
    ((1, 1), (1, 1)),
    ((3, 5), (5, 7)),
    ((33, 64), (64, 33)),
    ((2, 9), (9, 130)),
    ((130, 3), (3, 2)),
    ((5,), (5, 7)),
    ((3, 5), (5,)),
    ((5,), (5,)),
    ((4, 3, 5), (5, 7)),
    ((2, 1, 3, 5), (4, 5, 7)),
    ((3, 0), (0, 4)),
    ((0, 3), (3, 4)),
    ((3, 4), (4, 0)),
    ((7, 259), (259, 31)),
    ((0, 3, 2), (0, 2, 3)),
    ((1, 33), (33, 130)),
    ((2, 8), (8, 65)),
    ((40,), (40, 300)),
    ((3, 2, 5), (5, 33)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize(
    ("kind_a", "kind_b"), [("u8", "i8"), ("i8", "i8"), ("u8", "u8"), ("i8", "u8")]
)
def test_products(a: tuple[int, ...], b: tuple[int, ...], kind_a: str, kind_b: str) -> None:
    x, y = codes(a, kind_a), codes(b, kind_b)
    zero_a, zero_b = codes((), kind_a), codes((1,), kind_b)
    check("matmul_integer", x, y)
    check("matmul_integer", x, y, zero_a, zero_b)
    scale = [np.float32(0.013), np.float32(0.02), np.float32(1.9)]
    for out in ("i8", "u8"):
        zero = codes((), out)
        check("qlinear_matmul", x, scale[0], zero_a, y, scale[1], zero_b, scale[2], zero)
    real = check("qlinear_matmul", x, scale[0], zero_a, y, scale[1], zero_b, tolerance=0)
    assert real[0].dtype == np.float32
    if len(a) == 2 and len(b) == 2 and a[0]:
        rows, columns = codes(a[:1], kind_a), codes(b[1:], kind_b)
        check("matmul_integer", x, y, rows, columns)
        each = [scales(a[:1]), scales(b[1:]), scales(a[:1]) * 50]
        check("qlinear_matmul", x, each[0], rows, y, each[1], columns, each[2], codes(a[:1], "i8"))
        check("qlinear_matmul", x, each[0], rows, y, each[1], columns, tolerance=0)


def test_products_with_a_scale_per_row_of_every_matrix() -> None:
    x, y = codes((2, 3, 4, 9), "u8"), codes((3, 9, 5), "i8")
    rows, columns, out = (2, 3, 4, 1), (3, 1, 5), (2, 3, 4, 1)
    check("matmul_integer", x, y, codes(rows, "u8"), codes(columns, "i8"))
    check(
        "qlinear_matmul",
        x,
        scales(rows),
        codes(rows, "u8"),
        y,
        scales(columns),
        codes(columns, "i8"),
        scales(out) * 90,
        codes(out, "u8"),
    )
    few = (1, 3, 1, 1)
    check("matmul_integer", x, y, codes(few, "u8"), codes((1, 1, 5), "i8"))


def test_sums_of_the_largest_products_are_exact() -> None:
    x, y = np.full((5, 4097), 255, np.uint8), np.full((4097, 40), -128, np.int8)
    check("matmul_integer", x, y, np.uint8(0), np.int8(127))


CONVOLUTIONS = [  # x, w, stride, pad, dilation, groups
    ((1, 3, 8, 8), (5, 3, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    ((2, 4, 9, 7), (6, 2, 3, 2), (2, 1), (0, 1, 2, 0), (1, 2), 2),
    ((2, 8, 20, 21), (8, 1, 3, 3), (1, 2), (1, 1, 1, 1), (1, 1), 8),
    ((1, 16, 12, 12), (130, 16, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((2, 3, 17), (4, 3, 4), (3,), (2, 5), (2,), 1),
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), (1, 2, 1), (0, 1, 0, 1, 1, 1), (2, 1, 1), 1),
    ((1, 1, 2, 2), (1, 1, 2, 2), (1, 1), (3, 3, 3, 3), (1, 1), 1),
    ((0, 2, 4, 4), (3, 2, 2, 2), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((2, 6, 14, 15), (3, 6, 1, 1), (2, 2), (1, 1, 1, 1), (1, 1), 1),
    ((1, 3, 7, 7), (6, 1, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 3),  # depthwise from here on
    ((2, 2, 33, 40), (2, 1, 5, 4), (3, 4), (2, 1, 0, 5), (2, 3), 2),
    ((1, 2, 9, 9), (2, 1, 9, 9), (1, 1), (4, 4, 4, 4), (1, 1), 2),
    ((1, 2, 3, 5), (2, 1, 1, 3), (1, 1), (3, 9, 0, 2), (1, 1), 2),
    ((2, 3, 50), (3, 1, 7), (1,), (3, 3), (1,), 3),
    ((1, 2, 3, 4, 5), (2, 1, 2, 2, 2), (1, 1, 1), (1, 1, 1, 0, 0, 0), (1, 1, 1), 2),
    ((1, 1, 16, 16), (1, 1, 7, 7), (5, 1), (0, 0, 0, 0), (1, 1), 1),
]


@pytest.mark.parametrize(("xs", "ws", "stride", "pad", "dilation", "groups"), CONVOLUTIONS)
@pytest.mark.parametrize(("kind_x", "kind_w"), [("u8", "i8"), ("i8", "i8"), ("u8", "u8")])
def test_convolutions(
    xs: tuple[int, ...],
    ws: tuple[int, ...],
    stride: tuple[int, ...],
    pad: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    kind_x: str,
    kind_w: str,
) -> None:
    where: dict[str, Any] = {"stride": stride, "pad": pad, "dilation": dilation, "groups": groups}
    x, w = codes(xs, kind_x), codes(ws, kind_w)
    x_zero, channels = codes((), kind_x), ws[:1]
    check("conv_integer", x, w, **where)
    check("conv_integer", x, w, x_zero, codes((), kind_w), **where)
    check("conv_integer", x, w, x_zero, codes(channels, kind_w), **where)
    bias = RNG.integers(-5000, 5000, channels).astype(np.int32)
    for out, b in (("i8", None), ("u8", bias)):
        y = np.float32(1.7), codes((), out)
        one = np.float32(0.02), codes((), kind_w)
        check("qlinear_conv", x, np.float32(0.03), x_zero, w, *one, *y, b, **where)
        each = scales(channels) / 20, codes(channels, kind_w)
        check("qlinear_conv", x, np.float32(0.03), x_zero, w, *each, *y, b, **where)
        (real,) = check(
            "qlinear_conv",
            x,
            np.float32(0.03),
            x_zero,
            w,
            *each,
            None,
            None,
            b,
            tolerance=0,
            **where,
        )
        check(
            "qlinear_conv",
            x,
            np.float32(0.03),
            x_zero,
            w,
            *each,
            None,
            None,
            b,
            reals(real.shape),
            tolerance=0,
            **where,
        )
        for r in ("i8", "u8"):
            check(
                "qlinear_conv",
                x,
                np.float32(0.03),
                x_zero,
                w,
                *each,
                *y,
                b,
                codes(real.shape, r),
                np.float32(2.3),
                codes((), r),
                **where,
            )


Q, W = np.zeros((2, 3), np.uint8), np.zeros((1, 2, 3, 3), np.int8)
X = np.zeros((1, 2, 4, 4), np.uint8)
ONE, Z8 = np.float32(1), np.uint8(0)
PAIR, R = [X, ONE, Z8, W, ONE, np.int8(0)], np.zeros((1, 1, 2, 2), np.float32)
CONV = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
GRAIN = {"axis": 1, "block_size": 0, "saturate": True, "dtype": "u8"}
F2, F3, F23 = np.ones(2, np.float32), np.ones(3, np.float32), np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("op", "arrays", "attrs"),
    [
        ("quantize_linear", [Q, ONE], GRAIN),
        ("quantize_linear", [ONE, ONE], {**GRAIN, "dtype": "i32"}),
        ("quantize_linear", [ONE, ONE], {**GRAIN, "dtype": "f32"}),
        ("quantize_linear", [ONE, ONE, np.int8(0)], GRAIN),
        ("quantize_linear", [F23, F2], GRAIN),
        ("quantize_linear", [F3, F2], {**GRAIN, "axis": 9}),
        ("quantize_linear", [F3, ONE], {**GRAIN, "block_size": -1}),
        ("quantize_linear", [F3, F2], {**GRAIN, "axis": 0, "block_size": 3}),
        ("dequantize_linear", [ONE, ONE], {**GRAIN, "dtype": "f32"}),
        ("dequantize_linear", [Q, Q], {**GRAIN, "dtype": "f32"}),
        ("dequantize_linear", [Q, ONE], {**GRAIN, "dtype": "i8"}),
        ("dequantize_linear", [Q, ONE, np.zeros(3, np.uint8)], {**GRAIN, "dtype": "f32"}),
        ("matmul_integer", [Q, Q], {}),
        ("matmul_integer", [Q, Q.T.astype(np.int32)], {}),
        ("matmul_integer", [Q, Q.T, np.zeros(3, np.uint8)], {}),
        ("matmul_integer", [Q, Q.T, np.int8(0)], {}),
        ("matmul_integer", [np.zeros((2, 2, 3), np.uint8), np.zeros((3, 3, 2), np.uint8)], {}),
        ("qlinear_matmul", [Q, ONE, Z8, Q.T, ONE, Z8, ONE, np.int32(0)], {}),
        ("qlinear_matmul", [Q, ONE, Z8, Q.T, ONE, Z8, F3, Z8], {}),
        ("qlinear_matmul", [Q, Z8, Z8, Q.T, ONE, Z8, ONE, Z8], {}),
        ("conv_integer", [X, W], {**CONV, "groups": 0}),
        ("conv_integer", [X, W], {**CONV, "groups": 2}),
        ("conv_integer", [X, W], {**CONV, "stride": (0, 1)}),
        ("conv_integer", [X, W], {**CONV, "dilation": (4, 1)}),
        ("conv_integer", [X, W], {**CONV, "dilation": (2**62, 1)}),
        ("conv_integer", [X, W], {**CONV, "pad": (0, -1, 0, 0)}),
        ("conv_integer", [X, W, np.zeros(2, np.uint8)], CONV),
        ("conv_integer", [X, W, Z8, np.zeros(2, np.int8)], CONV),
        ("qlinear_conv", [X, ONE, Z8, W, ONE, np.int8(0), ONE, Z8, np.zeros(2, np.int32)], CONV),
        ("qlinear_conv", [X, ONE, Z8, W, ONE, np.int8(0), ONE, Z8, np.zeros(1, np.float32)], CONV),
        ("qlinear_conv", [X, ONE, Z8, W, ONE, np.int8(0), F2, Z8], CONV),
        ("qlinear_conv", [*PAIR, ONE, None], CONV),
        ("qlinear_conv", [*PAIR, None, Z8], CONV),
        ("qlinear_conv", [*PAIR, None, None, None, R, ONE, Z8], CONV),
        ("qlinear_conv", [*PAIR, None, None, None, R[:, :, 1:]], CONV),
        ("qlinear_conv", [*PAIR, ONE, Z8, None, R], CONV),
        ("qlinear_conv", [*PAIR, ONE, Z8, None, R, ONE, Z8], CONV),
        ("qlinear_conv", [*PAIR, ONE, Z8, None, R.astype(np.uint8), ONE, np.int8(0)], CONV),
        ("qlinear_conv", [*PAIR, ONE, Z8, None, R.astype(np.uint8), F2, Z8], CONV),
        ("qlinear_conv", [*PAIR, ONE, Z8, None, R.astype(np.uint8), ONE], CONV),
        ("qlinear_conv", [*PAIR, ONE, Z8, None, None, ONE, Z8], CONV),
        ("qlinear_matmul", [Q, ONE, Z8, Q.T, ONE, Z8, ONE, None], {}),
        ("qlinear_matmul", [Q, ONE, Z8, Q.T, ONE, Z8, None, Z8], {}),
    ],
)
def test_invalid_calls_are_refused(
    op: str, arrays: list[np.ndarray], attrs: dict[str, Any]
) -> None:
    kernel = native.find_kernel(op, "u8", 0)
    assert kernel is not None
    with pytest.raises(RunError):
        native.run_kernel(kernel, arrays, attrs)
