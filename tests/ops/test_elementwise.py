from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from tests.ops.body import close, run

from intaglio.errors import BadInput
from intaglio.ir import Type, Value
from intaglio.ops import add, bitcast, clip, logical_and, prelu, sqrt, where
from intaglio.ops.registry import REGISTRY


def i32(*x: int) -> np.ndarray:
    return np.array(x, np.int32)


def test_integer_division_truncates() -> None:
    assert run("div", i32(7, -7, 7, -7, 6), i32(2, 2, -2, -2, 3)).tolist() == [3, -3, -3, 3, 2]
    assert run("div", i32(5, -(2**31)), i32(0, -1)).tolist() == [0, -(2**31)]
    assert run("div", np.array([200], np.uint8), np.array([3], np.uint8)).tolist() == [66]


def test_remainders_take_a_sign() -> None:
    a, b = i32(7, -7, 7, -7), i32(3, 3, -3, -3)
    assert run("mod", a, b).tolist() == [1, 2, -2, -1]
    assert run("fmod", a, b).tolist() == [1, -1, 1, -1]
    assert run("mod", np.float16(-5.5), np.float16(2)) == np.float16(0.5)


def test_integer_power() -> None:
    assert run("pow", i32(2, -1, -1, 1, 3, 0), i32(10, -3, -2, -5, -1, -1)).tolist() == [
        1024,
        -1,
        1,
        1,
        0,
        0,
    ]


def test_shifts() -> None:
    assert run("shift_left", i32(1, -1, 1, 1), i32(3, 31, 32, -1)).tolist() == [8, -(2**31), 0, 0]
    assert run("shift_right", i32(-8, 8, -8, 8, -8), i32(1, 1, 32, 32, -1)).tolist() == [
        -4,
        4,
        -1,
        0,
        -1,
    ]
    assert run("shift_right", np.array([255], np.uint8), np.array([8], np.uint8)).tolist() == [0]


def test_clip() -> None:
    x = np.array([-5, 0, 5], np.int8)
    assert run("clip", x, lo=-1.5, hi=3.7).tolist() == [-1, 0, 3]
    assert run("clip", x, lo=-math.inf, hi=1000.0).tolist() == [-5, 0, 5]
    assert run("clip", x, lo=4.0, hi=2.0).tolist() == [2, 2, 2]  # hi wins
    assert np.isnan(run("clip", np.float32(np.nan), lo=0.0, hi=1.0))


def test_shrink_of_integers_is_whole() -> None:
    assert run("shrink", i32(-3, -1, 0, 1, 3), lambd=1.5, bias=1.5).tolist() == [-2, 0, 0, 0, 2]


def test_small_floats_round_once() -> None:
    """Rounding after every step would end one unit lower."""
    x = np.linspace(-4, 4, 1001).astype(ml_dtypes.bfloat16)
    wide = x.astype(np.float64)
    exact = (wide / (1 + np.exp(-wide))).astype(np.float32).astype(ml_dtypes.bfloat16)
    assert np.array_equal(run("swish", x), exact)


@pytest.mark.parametrize(
    ("name", "attrs", "at", "value"),
    [
        ("gelu", {}, 1.0, 0.8413447),
        ("gelu", {"approximate": "tanh"}, 1.0, 0.8411920),
        ("mish", {}, 1.0, 0.8650984),
        ("hardswish", {}, 1.0, 0.6666667),
        ("selu", {}, -1.0, -1.1113307),
        ("celu", {"alpha": 2.0}, -1.0, -0.7869387),
        ("elu", {"alpha": 2.0}, -1.0, -1.2642411),
        ("softplus", {}, 100.0, 100.0),
        ("erf", {}, 0.5, 0.5204999),
        ("hard_sigmoid", {}, 1.0, 0.7),
        ("thresholded_relu", {}, 1.0, 0.0),
        ("leaky_relu", {"alpha": 0.1}, -2.0, -0.2),
    ],
)
def test_activation(name: str, attrs: dict[str, object], at: float, value: float) -> None:
    for dtype, tolerance in ((np.float32, 1e-6), (np.float16, 1e-3)):
        got = run(name, np.array([at], dtype), **attrs)
        close(got, [value], tolerance)


def test_is_inf() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 1], np.float16)
    assert run("is_inf", x).tolist() == [True, True, False, False]
    assert run("is_inf", x, negative=False).tolist() == [True, False, False, False]
    assert run("is_nan", x).tolist() == [False, False, True, False]


# ---- casts -------------------------------------------------------------------------------------
def test_cast_float_to_integer() -> None:
    x = np.array([1.9, -1.9, np.nan, np.inf, -np.inf, 3e9], np.float32)
    top, low = 2**31 - 1, -(2**31)
    assert run("cast", x, dtype="i32").tolist() == [1, -1, 0, top, low, top]
    assert run("cast", x, dtype="u64").tolist() == [1, 0, 0, 2**64 - 1, 0, 3_000_000_000]
    assert run("cast", x, dtype="i64")[3:5].tolist() == [2**63 - 1, -(2**63)]
    assert run("cast", np.float32([-1, 300]), dtype="u8").tolist() == [255, 44]  # low bits
    assert run("cast", np.float32([-9, 9]), dtype="i4").astype(int).tolist() == [7, -7]


def test_cast_integer_keeps_low_bits() -> None:
    assert run("cast", np.int16([200, -1]), dtype="i8").tolist() == [-56, -1]
    assert run("cast", np.int32([-1, 17]), dtype="u4").astype(int).tolist() == [15, 1]
    assert run("cast", np.float32([0.0, 0.1, np.nan]), dtype="bool").tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("dtype", "top"),
    [("f8e4m3fn", 448), ("f8e4m3fnuz", 240), ("f8e5m2", 57344), ("f8e5m2fnuz", 57344)],
)
def test_cast_to_float8(dtype: str, top: float) -> None:
    x = np.array([1e6, -1e6, np.inf, np.nan, 1.0], np.float32)
    saturated = run("cast", x, dtype=dtype).astype(np.float64)
    assert saturated[:3].tolist() == [top, -top, top]
    assert np.isnan(saturated[3])
    assert saturated[4] == 1
    assert not np.isfinite(run("cast", x, dtype=dtype, saturate=False).astype(np.float64)[:3]).any()


def test_cast_to_powers_of_two() -> None:
    x = np.float32([0.0, 0.9, 1.0, 1.1, 3e38, np.inf])
    up = run("cast", x, dtype="f8e8m0fnu").astype(np.float64)
    assert up.tolist() == [2.0**-127, 1, 1, 2, 2.0**127, 2.0**127]
    assert np.isnan(run("cast", x, dtype="f8e8m0fnu", saturate=False).astype(np.float64))[0]


# ---- refusals ----------------------------------------------------------------------------------
def value(dtype: str, *shape: int) -> Value:
    return Value(Type(dtype, shape))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sqrt(value("i32", 2)), "floats are needed"),
        (lambda: add(value("bool", 2), value("bool", 2)), "numbers are needed"),
        (lambda: add(value("f32", 2), value("f64", 2)), "insert a cast"),
        (lambda: add(value("f32", 2), value("f32", 3)), "cannot be broadcast"),
        (lambda: logical_and(value("i32"), value("i32")), "bool is needed"),
        (lambda: where(value("f32", 2), value("f32", 2), value("i32", 2)), "bool is needed"),
        (lambda: prelu(value("f32", 2), value("f32", 3, 2)), "does not broadcast"),
        (lambda: bitcast(value("f32", 2), dtype="i64"), "same number of bytes"),
        (lambda: clip(value("f32", 2), low=0.0), "unexpected keyword"),
    ],
)
def test_refusals(make: object, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        make()  # type: ignore[operator]


def test_every_op_is_marked_elementwise() -> None:
    assert REGISTRY["gelu"].elementwise
    assert REGISTRY["where"].elementwise
    assert not REGISTRY["softmax"].elementwise
