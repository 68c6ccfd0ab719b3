from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.ops.body import close, run

from intaglio.errors import BadInput
from intaglio.ir import Type, Value
from intaglio.ops import quantize_linear
from intaglio.ops.registry import REGISTRY

R = np.random.default_rng(4)


def test_rounds_half_to_even_and_clamps() -> None:
    x = np.float32([0.5, 1.5, 2.5, -3.5, 1e30, -1e30, np.nan])
    got = run("quantize_linear", x, np.float32(1), np.int8(0), dtype="i8")
    assert got.tolist() == [0, 2, 2, -4, 127, -128, -128]
    got = run("quantize_linear", x[:4], np.float32(0.5), np.uint8(10))
    assert got.tolist() == [11, 13, 15, 3]


@pytest.mark.parametrize("dtype", ["i2", "u2", "i4", "u4", "i8", "u8", "i16", "u16"])
def test_round_trip_of_integers(dtype: str) -> None:
    x = R.standard_normal((3, 4)).astype(np.float32)
    scale = np.float32([0.5, 0.25, 1])
    q = run("quantize_linear", x, scale, axis=0, dtype=dtype)
    back = run("dequantize_linear", q, scale, axis=0)
    limits = ml_dtypes.iinfo(q.dtype)
    inside = (x / scale[:, None] > limits.min) & (x / scale[:, None] < limits.max)
    assert (np.abs(back - x) <= scale[:, None] / 2 + 1e-6)[inside].all()


def test_blocks_may_end_short() -> None:
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    scale = np.float32([[1, 2, 4], [1, 2, 4]])
    q = run("quantize_linear", x, scale, axis=1, block_size=2, dtype="u8")
    assert q.tolist() == [[0, 1, 1, 2, 1], [5, 6, 4, 4, 2]]
    back = run("dequantize_linear", q, scale, np.ones((2, 3), np.uint8), axis=1, block_size=2)
    assert back.tolist() == [[-1, 0, 0, 2, 0], [4, 5, 6, 6, 4]]


def test_to_float8() -> None:
    x = np.float32([1e9, -3, 0.1])
    got = run("quantize_linear", x, np.float32(2), dtype="f8e4m3fn")
    close(got, [448, -1.5, 0.05078125])


def test_small_float_results() -> None:
    q = np.int8([-3, 5])
    got = run("dequantize_linear", q, np.float32(0.1), np.int8(1), dtype="f16")
    assert got.dtype == np.float16
    close(got, [-0.4, 0.4], 1e-3)


@pytest.mark.parametrize("x", [[0.0, 2.0, -3.0, -2.5], [1.0, 2.1, 1.3], [-1.0, -0.5], [0.0, 0.0]])
def test_dynamic(x: list[float]) -> None:
    y, scale, zero = run("dynamic_quantize_linear", np.float32(x))
    close((y.astype(np.float32) - zero.astype(np.float32)) * scale, x, 0.02)
    assert zero.dtype == np.uint8
    assert scale > 0


def test_dequantize_is_kept() -> None:
    assert not REGISTRY["dequantize_linear"].foldable


def test_refusals() -> None:
    x = Value(Type("f32", (2, 3)))
    with pytest.raises(BadInput, match="f32 is needed"):
        quantize_linear(x, Value(Type("f16", ())))
    with pytest.raises(BadInput, match="same shape"):
        quantize_linear(x, Value(Type("f32", (3,))), Value(Type("u8", ())))
    with pytest.raises(BadInput, match="is needed for"):
        quantize_linear(x, Value(Type("f32", (2,))), axis=1)
    with pytest.raises(BadInput, match="the result is"):
        quantize_linear(x, Value(Type("f32", ())), Value(Type("i8", ())), dtype="u8")
