"""Functions that chips compute without a table: two slopes, or no exponential."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.predict.arithmetic import arithmetic_functions
from intaglio.npu.predict.leaky import is_leaky

CODES = np.arange(-128, 128)


def table(function, scale: float, zero: int) -> np.ndarray:
    """The function of dequantised bytes, quantised to its range."""
    y = function((CODES - zero) * scale)
    step = max(float(np.ptp(y)) / 255, 1e-6)
    zero_y = np.rint(-128 - y.min() / step)
    return np.clip(np.rint(y / step) + zero_y, -128, 127).astype(np.int8)


def leaky(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, 0.1 * x)


@pytest.mark.parametrize("zero", [-90, -20, 37])
@pytest.mark.parametrize("scale", [0.01, 0.1, 0.6])
def test_leaky_relu_is_known_by_its_two_slopes(scale: float, zero: int):
    assert is_leaky(table(leaky, scale, zero))


@pytest.mark.parametrize("scale", [0.02, 0.05, 0.2])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x / (1 + np.exp(-x)),
        lambda x: 1 / (1 + np.exp(-x)),
        lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
        np.tanh,
    ],
)
def test_curves_are_not_leaky(function, scale: float):
    assert not is_leaky(table(function, scale, -20))


def test_chains_with_exponentials_are_told_from_arithmetic():
    x = Value(Type("f32", (1, 4, 8, 8)), "x")
    w = constant(np.ones((4, 4, 1, 1), np.float32))
    point = {"stride": (1, 1), "pad": (0,) * 4, "dilation": (1, 1), "groups": 1}

    def conv(v: Value, name: str) -> Value:
        y = ops.conv(v, w, None, **point)
        y.producer.origin = name
        return y

    def named(y: Value, name: str) -> Value:
        y.producer.origin = name
        return y

    a = named(ops.hardswish(conv(x, "first")), "swish")
    a = named(ops.mul(a, constant(np.float32(1.1))), "factor")
    b = conv(a, "second")
    b = named(ops.mul(b, ops.sigmoid(b)), "silu")
    found = arithmetic_functions(Graph([x], [conv(b, "last")], ["y"]))
    assert {"first", "swish", "factor", "last"} <= found
    assert not {"second", "silu"} & found
