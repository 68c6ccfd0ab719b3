"""Kernels of arithmetic on quantised tensors: every instruction set gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from tests.check import check

from intaglio import dtypes, native
from intaglio.errors import RunError
from intaglio.ops.quantized import power_table

RNG = np.random.default_rng(6)


def codes(dtype, *shape):
    low, high = dtypes.limits(dtype)
    return RNG.integers(low, high + 1, shape).astype(dtypes.numpy_of(dtype))


# ---- tables --------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(), (1,), (31,), (64,), (65,), (7, 129), (3, 4099), (0, 5)])
@pytest.mark.parametrize("x", ["i8", "u8"])
@pytest.mark.parametrize("table", ["i8", "u8", "i16", "f32", "f64", "bf16", "bool"])
def test_lookup(shape, x, table):
    entries = (
        RNG.integers(0, 100, 256).astype(np.float32)
        if table in ("f32", "f64", "bf16")
        else (RNG.integers(0, 2, 256) if table == "bool" else codes(table, 256))
    )
    check("lookup", codes(x, *shape), entries.astype(dtypes.numpy_of(table)), tolerance=0)


def test_lookup_of_every_entry():
    (y,) = check("lookup", np.arange(256, dtype=np.uint8), np.arange(255, -1, -1, np.uint8))
    np.testing.assert_array_equal(y, np.arange(255, -1, -1))


@pytest.mark.parametrize("shape", [(1,), (3, 700), (0,)])
@pytest.mark.parametrize(("entries", "base"), [(1, 0), (300, -100), (4096, -32768), (9, 32767)])
@pytest.mark.parametrize("table", ["u8", "i8", "f32", "i16"])
def test_lookup_wide(shape, entries, base, table):
    x = RNG.integers(-32768, 32768, shape).astype(np.int16)
    x.reshape(-1)[::2] = RNG.integers(base - 5, base + entries + 5, x[..., :].size).clip(
        -32768, 32767
    )[: x.reshape(-1)[::2].size]
    values = RNG.integers(0, 100, entries).astype(dtypes.numpy_of(table))
    check("lookup_wide", x, values, base=base, tolerance=0)


# ---- sums, products, means -----------------------------------------------------------------------
def scale(x):
    return np.float32(x)


PAIRS = [
    ((1,), (1,)),
    ((300,), (300,)),
    ((2, 5, 7, 40), (2, 5, 7, 40)),
    ((2, 5, 7, 40), (2, 1, 1, 40)),
    ((1, 1, 1, 33), (2, 9, 3, 33)),
    ((2, 24, 5, 5), (2, 24, 1, 1)),
    ((3, 1, 65), (1, 4, 65)),
    ((4, 1), (1, 130)),
    ((2, 3, 5), (5,)),
    ((), (7,)),
    ((0, 3), (1, 3)),
    ((5000,), (1,)),
    ((1, 7, 7, 1200), (1, 1, 1, 1200)),
    ((2, 300, 3), (1, 1, 3)),
    ((2, 9, 9, 16), (2, 1, 1, 16)),
    ((1, 1, 1, 72), (1, 5, 5, 72)),
    ((3, 70, 48), (3, 1, 48)),
]


@pytest.mark.parametrize(("a", "b"), PAIRS)
@pytest.mark.parametrize("op", ["qlinear_add", "qlinear_mul"])
def test_add_and_mul(op, a, b):
    for kinds in (("i8", "i8", "i8"), ("u8", "i8", "u8"), ("i8", "u8", "i8"), ("u8", "u8", "i8")):
        zeros = [codes(k) for k in kinds]
        check(
            op,
            codes(kinds[0], *a),
            scale(0.031),
            zeros[0],
            codes(kinds[1], *b),
            scale(0.017),
            zeros[1],
            scale(0.05 if op == "qlinear_add" else 0.009),
            zeros[2],
        )


@pytest.mark.parametrize("op", ["qlinear_add", "qlinear_mul"])
@pytest.mark.parametrize("y", [1e-30, 1e-8, 1e30])
def test_add_and_mul_with_any_scale(op, y):
    """Results too large for an integer saturate."""
    x = codes("i8", 200)
    check(
        op, x, scale(3.0), np.int8(0), x[::-1].copy(), scale(2.0), np.int8(1), scale(y), np.int8(-5)
    )


def test_ties_go_to_even():
    x = np.arange(256, dtype=np.uint8)
    for zero in (0, 1, 77):
        (y,) = check(
            "qlinear_add",
            x,
            scale(0.5),
            np.uint8(0),
            np.uint8(0),
            scale(1.0),
            np.uint8(0),
            scale(1.0),
            np.uint8(zero),
        )
        np.testing.assert_array_equal(y, np.clip(np.rint(x / 2) + zero, 0, 255))


MEANS = [
    ((2, 7, 7, 40), (1, 2)),
    ((2, 40, 7, 7), (2, 3)),
    ((3, 5), (1,)),
    ((3, 5), (0,)),
    ((2, 600, 3), (1,)),
    ((1, 70, 70, 65), (1, 2)),
    ((4, 300), (0, 1)),
    ((70000,), (0,)),
    ((2, 3, 1, 5), (2,)),
    ((0, 4, 3), (1,)),
    ((2, 9, 37, 16), (1, 2)),
    ((1, 3, 1, 32), (1, 2)),
    ((2, 300, 130), (1,)),
    ((1, 7, 37, 64), (1, 2)),
    ((2, 513, 71), (1,)),
]


@pytest.mark.parametrize(("shape", "axes"), MEANS)
@pytest.mark.parametrize(("x", "y"), [("i8", "i8"), ("u8", "i8"), ("i8", "u8")])
def test_means(shape, axes, x, y):
    for keepdims in (True, False):
        check(
            "qlinear_mean",
            codes(x, *shape),
            scale(0.04),
            codes(x),
            scale(0.011),
            codes(y),
            axes=axes,
            keepdims=keepdims,
        )


POOLS = [
    ((2, 9, 8, 40), (2, 2), (2, 2), (0, 0, 1, 1), (1, 1)),
    ((1, 7, 7, 65), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    ((1, 8, 8, 3), (3, 2), (2, 1), (2, 0, 0, 1), (2, 3)),
    ((2, 30, 130), (5,), (3,), (0, 4), (1,)),
    ((1, 4, 5, 6, 16), (2, 2, 2), (1, 2, 1), (0, 1, 0, 1, 0, 0), (1, 1, 1)),
    ((1, 20, 20, 64), (20, 20), (1, 1), (0, 0, 0, 0), (1, 1)),
    ((1, 3, 3, 8), (2, 2), (1, 1), (3, 3, 3, 3), (1, 1)),
]


@pytest.mark.parametrize(("shape", "kernel", "stride", "pad", "dilation"), POOLS)
@pytest.mark.parametrize(("x", "y"), [("i8", "i8"), ("u8", "i8")])
def test_pools(shape, kernel, stride, pad, dilation, x, y):
    for whole in (True, False):
        check(
            "cpu.qpool",
            codes(x, *shape),
            scale(0.04),
            codes(x),
            scale(0.03),
            codes(y),
            kernel=kernel,
            stride=stride,
            pad=pad,
            dilation=dilation,
            count_include_pad=whole,
        )


SOFTMAX = [((3, 197), -1), ((2, 5, 7), 1), ((600,), 0), ((1, 1), 1), ((0, 4), 1), ((4, 300, 3), 1)]


@pytest.mark.parametrize(("shape", "axis"), SOFTMAX)
@pytest.mark.parametrize(("x", "y"), [("i8", "i8"), ("u8", "u8")])
def test_softmax(shape, axis, x, y):
    for step in (0.001, 0.05, 3.0):
        check(
            "qlinear_softmax",
            codes(x, *shape),
            power_table(step),
            scale(1 / 256),
            np.array(dtypes.limits(y)[0], dtypes.numpy_of(y)),
            axis=axis,
        )


def tables(extent, out):
    """The indices and weights of the two inputs of each output."""
    second = RNG.integers(0, 2049, out)
    return [
        RNG.integers(0, extent, (out, 2)).astype(np.int32),
        np.stack([2048 - second, second], 1).astype(np.int32),
    ]


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((2, 5, 6, 70), 1),
        ((1, 4, 5, 21), 1),
        ((1, 4, 5, 8), 1),
        ((2, 3, 5, 6), 2),
        ((5, 6), 0),
        ((1, 1, 1, 9), 1),
        ((0, 3, 4, 2), 1),
    ],
)
@pytest.mark.parametrize(("x", "y"), [("i8", "u8"), ("u8", "i8")])
def test_resize(shape, axis, x, y):
    for rows, columns in ((10, 12), (3, 1)):
        mixed = [*tables(shape[axis], rows), *tables(shape[axis + 1], columns)]
        check(
            "qlinear_resize",
            codes(x, *shape),
            scale(0.04),
            codes(x),
            scale(0.031),
            codes(y),
            *mixed,
            axis=axis,
        )


@pytest.mark.parametrize("x", ["i8", "u8"])
def test_clip_of_bytes(x):
    for lo, hi in ((-3.0, 90.0), (5.5, 7.5), (-1000.0, 1000.0), (40.0, 30.0)):
        check("clip", codes(x, 5001), lo=lo, hi=hi)


def refused(op, arrays, attrs=None):
    kernel = native.find_kernel(op, "u8", 0)
    assert kernel is not None
    with pytest.raises(RunError):
        native.run_kernel(kernel, arrays, attrs or {})


X, T = np.zeros(3, np.uint8), np.zeros(256, np.uint8)


@pytest.mark.parametrize(
    "arrays", [[X], [X.astype(np.int16), T], [X, T[1:]], [X, T.reshape(2, 128)]]
)
def test_lookup_refuses(arrays):
    refused("lookup", arrays)


@pytest.mark.parametrize(
    ("arrays", "base"),
    [
        ([X, T], 0),
        ([X.astype(np.int16), np.zeros(4097, np.uint8)], 0),
        ([X.astype(np.int16), np.zeros(0, np.uint8)], 0),
        ([X.astype(np.int16), T.reshape(2, 128)], 0),
        ([X.astype(np.int16), T], 40000),
    ],
)
def test_lookup_wide_refuses(arrays, base):
    refused("lookup_wide", arrays, {"base": base})


ONE, Z, Z8 = scale(1), np.uint8(0), np.int8(0)
PAIR = [X, ONE, Z, X, ONE, Z, ONE, Z]
IMAGE = np.zeros((1, 4, 4, 2), np.uint8)
PLANE, AT = [np.zeros((4, 4), np.uint8), ONE, Z, ONE, Z], np.zeros((5, 2), np.int32)
MEAN = {"axes": (0,), "keepdims": True}
POOL = {
    "kernel": (2, 2),
    "stride": (1, 1),
    "pad": (0,) * 4,
    "dilation": (1, 1),
    "count_include_pad": False,
}


def but(arrays, i, a):
    return [*arrays[:i], a, *arrays[i + 1 :]]


@pytest.mark.parametrize(
    ("op", "arrays", "attrs"),
    [
        ("qlinear_add", PAIR[:7], {}),
        ("qlinear_add", but(PAIR, 0, X.astype(np.int32)), {}),
        ("qlinear_add", but(PAIR, 1, Z), {}),
        ("qlinear_add", but(PAIR, 1, np.ones(2, np.float32)), {}),
        ("qlinear_mul", but(PAIR, 2, Z8), {}),
        ("qlinear_mul", but(PAIR, 3, np.zeros(2, np.uint8)), {}),
        ("qlinear_mul", but(PAIR, 7, np.int32(0)), {}),
        ("qlinear_mul", but(PAIR, 7, np.zeros(2, np.uint8)), {}),
        ("qlinear_mean", [X, ONE, Z, ONE, Z], {**MEAN, "axes": (1,)}),
        ("qlinear_mean", [X, ONE, Z, ONE, Z], {**MEAN, "axes": ()}),
        ("qlinear_mean", [IMAGE, ONE, Z, ONE, Z], {**MEAN, "axes": (0, 2)}),
        ("qlinear_mean", [IMAGE, ONE, Z, ONE, Z], {**MEAN, "axes": (2, 1)}),
        ("qlinear_mean", [IMAGE, ONE, Z8, ONE, Z], {**MEAN, "axes": (2,)}),
        ("qlinear_mean", [X[:0], ONE, Z, ONE, Z], MEAN),
        ("cpu.qpool", [X, ONE, Z, ONE, Z], POOL),
        ("cpu.qpool", [IMAGE, ONE, Z, ONE, Z], {**POOL, "stride": (0, 1)}),
        ("cpu.qpool", [IMAGE, ONE, Z, ONE, Z], {**POOL, "kernel": (9, 1)}),
        ("cpu.qpool", [IMAGE, ONE, Z, ONE, Z], {**POOL, "kernel": (2**40, 1)}),
        ("cpu.qpool", [IMAGE, ONE, Z, ONE, np.int16(0)], POOL),
        ("qlinear_resize", [*PLANE, AT, AT, AT, AT], {"axis": 1}),
        ("qlinear_resize", [*PLANE, AT, AT, AT], {"axis": 0}),
        ("qlinear_resize", [*PLANE, AT[:, :1], AT, AT, AT], {"axis": 0}),
        ("qlinear_resize", [*PLANE, AT.astype(np.int64), AT, AT, AT], {"axis": 0}),
        ("qlinear_resize", [*PLANE, AT, AT[1:], AT, AT], {"axis": 0}),
        ("qlinear_resize", [*PLANE, AT + 4, AT, AT, AT], {"axis": 0}),
        ("qlinear_resize", [*PLANE, AT, AT, AT - 1, AT], {"axis": 0}),
        ("qlinear_softmax", [X, T, ONE, Z], {"axis": 0}),
        ("qlinear_softmax", [X, T.astype(np.int32)[1:], ONE, Z], {"axis": 0}),
        ("qlinear_softmax", [X, T.astype(np.int32), ONE, Z], {"axis": 1}),
        ("qlinear_softmax", [X, T.astype(np.int32), ONE, ONE], {"axis": 0}),
    ],
)
def test_refusals(op, arrays, attrs):
    refused(op, arrays, attrs)
