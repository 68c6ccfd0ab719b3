"""Unary, binary, comparing and selecting kernels against their numpy bodies."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.check import check

from intaglio import native
from intaglio.errors import RunError

FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
SHAPES = [(), (0,), (1,), (3, 5), (4, 0, 2), (2, 3, 37), (5000,)]

UNARY: dict[str, dict[str, Any]] = {
    "abs": {},
    "neg": {},
    "sqrt": {},
    "exp": {},
    "log": {},
    "sin": {},
    "cos": {},
    "tan": {},
    "asin": {},
    "acos": {},
    "atan": {},
    "sinh": {},
    "cosh": {},
    "tanh": {},
    "asinh": {},
    "acosh": {},
    "atanh": {},
    "erf": {},
    "sigmoid": {},
    "relu": {},
    "softplus": {},
    "softsign": {},
    "hardswish": {},
    "mish": {},
    "floor": {},
    "ceil": {},
    "round": {},
    "sign": {},
    "reciprocal": {},
    "gelu": {"approximate": "tanh"},
    "swish": {"alpha": 1.5},
    "leaky_relu": {"alpha": 0.1},
    "elu": {"alpha": 1.3},
    "celu": {"alpha": 0.7},
    "selu": {"alpha": 1.6, "gamma": 1.1},
    "hard_sigmoid": {"alpha": 0.25, "beta": 0.4},
    "thresholded_relu": {"alpha": 0.8},
    "shrink": {"bias": 0.2, "lambd": 0.6},
    "clip": {"lo": -1.0, "hi": 2.0},
    "is_nan": {},
    "is_inf": {"negative": True, "positive": False},
}
DOMAIN = {  # ranges that are well-conditioned enough to compare in any precision
    "sqrt": (0, 9),
    "log": (0.01, 9),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "atanh": (-0.9, 0.9),
    "acosh": (1, 9),
    "tan": (-1.2, 1.2),
    "reciprocal": (0.1, 5),
}


def floats(shape: tuple[int, ...], dtype: Any, low: float = -6, high: float = 6) -> np.ndarray:
    return np.random.default_rng(7).uniform(low, high, shape).astype(dtype)


def integers(shape: tuple[int, ...], dtype: Any, seed: int = 7) -> np.ndarray:
    info = ml_dtypes.iinfo(dtype)
    rng = np.random.default_rng(seed)
    wide = rng.integers(
        int(info.min), int(info.max), shape, np.int64 if info.min else np.uint64, True
    )
    small = rng.integers(max(int(info.min), -7), min(int(info.max), 7), shape, np.int64, True)
    return np.where(rng.random(shape) < 0.5, wide.astype(dtype), small.astype(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", UNARY)
def test_unary_on_floats(op: str, dtype: Any) -> None:
    for shape in SHAPES:
        check(op, floats(shape, dtype, *DOMAIN.get(op, (-6, 6))), **UNARY[op])


SPECIAL = np.array(
    [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 88.8, -88.8, -104, 1e-40, 3e38, 1e6, -1e6, 0.5],
    np.float32,
)


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unary_on_special_values(op: str, dtype: Any) -> None:
    x = SPECIAL.astype(dtype)
    if op in (
        "gelu",
        "mish",
        "swish",
        "hardswish",
    ):  # the numpy formula overflows in an intermediate result
        x = x[~(np.abs(x) > 1e30)]
    if op == "shrink":
        x = x[~np.isnan(x)]
    check(op, x, **UNARY[op])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["abs", "neg", "sign", "relu", "bitwise_not", "shrink", "clip"])
def test_unary_on_integers(op: str, dtype: Any) -> None:
    attrs = {"shrink": {"bias": 2.0, "lambd": 3.0}, "clip": {"lo": -2.0, "hi": 90.0}}.get(op, {})
    for shape in SHAPES:
        check(op, integers(shape, dtype), **attrs)


def test_clip_bounds() -> None:
    x = np.arange(-8, 8, dtype=np.int8)
    for lo, hi in [(-math.inf, 3.0), (2.0, math.inf), (200.0, 300.0), (3.0, -3.0), (-0.5, 0.5)]:
        check("clip", x, lo=lo, hi=hi)
        check("clip", x.astype(np.float32), lo=lo, hi=hi)
        check("clip", x.astype(np.int64), lo=lo, hi=hi)


def test_logical_not() -> None:
    for shape in SHAPES:
        check("logical_not", floats(shape, np.float32) > 0)


ERROR = {  # largest error in units in the last place that vmath.h promises, over all magnitudes
    "exp": 1.5,
    "log": 1.5,
    "tanh": 3,
    "sigmoid": 3,
    "erf": 3,
    "softplus": 3,
    "mish": 5,
    "swish": 3,
    "sin": 4,
    "cos": 4,
    "elu": 2,
    "gelu": 8,
}


@pytest.mark.parametrize("op", ERROR)
def test_error_bounds_of_vector_math(op: str) -> None:
    rng = np.random.default_rng(1)
    normal = [rng.normal(0, s, 20000) for s in (0.01, 1, 4, 20, 60)]
    bits = rng.integers(0, 2**32, 50000, np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([*normal, bits[np.abs(bits) < 8192]]).astype(np.float32)
    d = x.astype(np.float64)
    with np.errstate(all="ignore"):
        exact: dict[str, Any] = {
            "exp": lambda: np.exp(d),
            "log": lambda: np.log(d),
            "tanh": lambda: np.tanh(d),
            "sigmoid": lambda: 1 / (1 + np.exp(-d)),
            "erf": lambda: np.array([math.erf(v) for v in d]),
            "softplus": lambda: np.logaddexp(d, 0),
            "mish": lambda: d * np.tanh(np.logaddexp(d, 0)),
            "swish": lambda: d / (1 + np.exp(-d)),
            "sin": lambda: np.sin(d),
            "cos": lambda: np.cos(d),
            "elu": lambda: np.where(d < 0, np.expm1(d), d),
            "gelu": lambda: 0.5 * d * np.array([math.erfc(-v * math.sqrt(0.5)) for v in d]),
        }
        want = exact[op]()
        normal_result = (np.abs(want) > 1e-35) & (np.abs(want) < 3.4e38)
        given: dict[str, dict[str, Any]] = {"elu": {"alpha": 1.0}, "swish": {"alpha": 1.0}}
        attrs = {**given, "gelu": {"approximate": "none"}}.get(op, {})
        for kernel in native.kernels():
            if kernel.op.name != op or kernel.needs & ~native.machine():
                continue
            got = native.run_kernel(kernel, [x], attrs)[0]
            off = np.abs(got - want)[normal_result] / np.spacing(
                np.abs(want[normal_result]).astype(np.float32)
            )
            assert off.max() <= ERROR[op], f"{op} {kernel.isa}: {off.max()} ulp"
            assert np.isnan(got[np.isnan(want)]).all(), f"{op} {kernel.isa}: NaN lost"


# ---- two and three operands ----------------------------------------------------------------------
PAIRS = [  # every case of broadcasting that has its own code path
    ((), ()),
    ((1,), (7,)),
    ((0,), (0,)),
    ((3, 0), (1, 0)),
    ((5000,), (5000,)),
    ((4, 33), ()),
    ((), (4, 33)),
    ((4, 33), (33,)),
    ((33,), (4, 33)),
    ((4, 33), (4, 1)),
    ((4, 1), (4, 33)),
    ((4, 1), (1, 33)),
    ((50, 3), (3,)),
    ((50, 3), (50, 1)),
    ((700, 1, 5), (1, 4, 1)),
    ((2, 3, 4, 5), (3, 1, 5)),
    ((2, 1, 4, 1), (3, 1, 37)),
    ((2, 1, 2, 1, 2, 1, 2, 1), (1, 3, 1, 3, 1, 3, 1, 3)),
    ((1, 64, 20, 20), (1, 64, 1, 1)),
]
ARITHMETIC = ["add", "sub", "mul", "div", "pow", "mod", "fmod", "minimum", "maximum"]
COMPARISON = ["equal", "less", "less_equal", "greater", "greater_equal"]
BITWISE = ["bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"]


def second(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.random.default_rng(8).uniform(0.5, 3, shape).astype(dtype)


@pytest.mark.parametrize("op", ARITHMETIC + COMPARISON)
@pytest.mark.parametrize("dtype", FLOATS)
def test_binary_on_floats(op: str, dtype: Any) -> None:
    for a, b in PAIRS:
        x = floats(a, dtype, 0.1, 4) if op == "pow" else floats(a, dtype)
        check(op, np.round(x) if op in COMPARISON else x, second(b, dtype))


@pytest.mark.parametrize("op", [*ARITHMETIC, *COMPARISON, *BITWISE])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_binary_on_integers(op: str, dtype: Any) -> None:
    for a, b in PAIRS:
        y = integers(b, dtype, 9)
        if op == "pow":
            y = y % dtype(9)
        with np.errstate(all="ignore"):
            check(op, integers(a, dtype), y)


@pytest.mark.parametrize("op", [*ARITHMETIC, *COMPARISON, *BITWISE])
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_binary_on_integer_edges(op: str, dtype: Any) -> None:
    info = np.iinfo(dtype)
    edges = np.array([info.min, info.min + 1, -8, -2, -1, 0, 1, 2, 7, 64, info.max], dtype)
    with np.errstate(all="ignore"):
        check(op, edges[:, None], edges[None, :])


@pytest.mark.parametrize("op", [*ARITHMETIC, *COMPARISON])
def test_binary_on_special_values(op: str) -> None:
    x = SPECIAL[np.float32(1e-40) != SPECIAL]
    check(op, x[:, None], x[None, :])
    check(op, x.astype(np.float64)[:, None], x.astype(np.float64)[None, :])


@pytest.mark.parametrize("exponent", [1, 2, 3, -1, 0.5, 0, 1.7])
def test_pow_of_one_exponent(exponent: float) -> None:
    check("pow", floats((3, 37), np.float32, 0.1, 5), np.float32(exponent))


@pytest.mark.parametrize("op", ["logical_and", "logical_or", "logical_xor", "equal"])
def test_binary_on_bools(op: str) -> None:
    for a, b in PAIRS:
        check(op, floats(a, np.float32) > 0, second(b, np.float32) > 1.5)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
def test_prelu(dtype: Any) -> None:
    x = floats((2, 5, 37), dtype)
    for slope in [(), (5, 1), (37,), (2, 5, 37)]:
        check("prelu", x, second(slope, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8, np.bool_])
def test_where(dtype: Any) -> None:
    for a, b in PAIRS:
        x, y = floats(a, dtype), second(b, dtype)
        full = np.broadcast_shapes(a, b)
        for shape in (full, full[-1:], ()):
            check("where", x, y, np.random.default_rng(3).random(shape) < 0.5)


def test_refusals() -> None:
    def run(op: str, *arrays: np.ndarray) -> None:
        kernel = native.find_kernel(op, "f32", 0)
        assert kernel
        native.run_kernel(kernel, arrays, {})

    x = np.zeros((2, 3), np.float32)
    for words, op, arrays in [
        ("broadcast", "add", [x, np.zeros((2, 4), np.float32)]),
        ("different element types", "add", [x, x.astype(np.float64)]),
        ("not bools", "add", [x > 0, x > 0]),
        ("integers only", "bitwise_and", [x, x]),
        ("bools only", "logical_and", [x, x]),
        ("floats only", "exp", [x.astype(np.int32)]),
        ("must be bool", "where", [x, x, x]),
        ("shape of the data", "prelu", [x[:1], x]),
        ("2 to 2 inputs", "mul", [x]),
    ]:
        with pytest.raises(RunError, match=words):
            run(op, *arrays)
