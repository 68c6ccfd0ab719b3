"""Ops whose form changed from opset to opset, each form against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontends.onnx_oracle import agree

R = np.random.default_rng(8)


def f(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("axis", [{}, {"axis": 0}, {"axis": 2}])
def test_softmax(op: str, opset: int, axis: dict[str, int]) -> None:
    agree(op, [f(2, 3, 4)], domain="", version=opset, **axis)


def test_clip() -> None:
    low, high = np.array(-0.5, np.float32), np.array(0.7, np.float32)
    agree("Clip", [f(9)], domain="", version=7, min=-0.5, max=0.7)
    agree("Clip", [f(9)], domain="", version=7, min=-0.5)
    agree("Clip", [f(9), low], domain="", version=11)
    agree("Clip", [f(9), low, high], domain="", version=13)
    agree("Clip", [f(9), low, high], domain="", version=13, constant=(1, 2))
    top = np.array(2**62 + 1, np.int64)
    agree("Clip", [np.array([2**62 + 3, -5]), None, top], domain="", version=13, constant=(1,))


@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "LogSumExp", "SumSquare", "L2", "L1", "Prod"])
def test_reduce(op: str) -> None:
    x, axes = f(2, 3, 4), np.array([0, -1])
    agree(f"Reduce{op}", [x], domain="", version=7, axes=[0, 2], keepdims=0)
    agree(f"Reduce{op}", [x], domain="", version=11, axes=[0, -1])
    agree(f"Reduce{op}", [x], domain="", version=11)
    if op == "Sum":
        agree("ReduceSum", [x, axes], domain="", version=13, constant=(1,))
    agree(f"Reduce{op}", [x, axes], domain="", version=18, constant=(1,), keepdims=0)
    agree(f"Reduce{op}", [x], domain="", version=18, noop_with_empty_axes=1)


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_norm(opset: int) -> None:
    x, c = f(2, 3, 4, 5), [f(3), f(3), f(3), np.abs(f(3))]
    agree("BatchNormalization", [x, *c], domain="", version=opset, epsilon=1e-3)


def test_dropout() -> None:
    agree("Dropout", [f(3, 4)], domain="", version=7, ratio=0.3)
    agree("Dropout", [f(3, 4)], domain="", version=10)
    ratio, training = np.array(0.3, np.float32), np.array(False)
    operands = [f(3, 4), ratio, training]
    agree("Dropout", operands, 2, domain="", version=13, constant=(1, 2), types=(1, 9))


def test_pow() -> None:
    agree("Pow", [f(4) ** 2, f(4)], domain="", version=7)
    agree("Pow", [np.int32([1, 2, 3]), np.int64([2, 3, 4])], domain="", version=13)
    agree("Pow", [np.int32([4, 9]), np.float32([0.5, 2])], domain="", version=13)
    agree("Pow", [np.float32([4, 9]), np.int64([2, 3])], domain="", version=13)


@pytest.mark.parametrize("opset", [7, 9, 11, 13])
def test_gemm(opset: int) -> None:
    attrs: dict[str, Any] = {"transA": 1, "alpha": 0.5, "beta": 2.0}
    agree("Gemm", [f(3, 2), f(3, 4), f(4)], domain="", version=opset, **attrs)


@pytest.mark.parametrize("opset", [8, 12, 13])
def test_any_number_of_operands(opset: int) -> None:
    for op in ("Max", "Min", "Sum", "Mean"):
        agree(op, [f(2, 3), f(3), f(2, 1)], domain="", version=opset)
        agree(op, [f(2, 3)], domain="", version=opset)


@pytest.mark.parametrize("opset", [7, 9, 16])
def test_prelu(opset: int) -> None:
    agree("PRelu", [f(2, 3, 4), f(3, 1)], domain="", version=opset)


def test_quantize() -> None:
    scale, zero = np.array(0.1, np.float32), np.array(7, np.uint8)
    agree("QuantizeLinear", [f(2, 3), scale, zero], domain="", version=10, types=(2,))
    scales, zeros = np.float32([0.1, 0.2, 0.3]), np.int8([1, 2, 3])
    agree("QuantizeLinear", [f(2, 3), scales, zeros], domain="", version=13, types=(3,))
    data = R.integers(-9, 9, (3, 2)).astype(np.int8)
    agree("DequantizeLinear", [data, scales, zeros], domain="", version=13, axis=0, types=(1,))


def test_group_norm() -> None:
    x = f(2, 4, 3, 3)
    agree("GroupNormalization", [x, f(2), f(2)], domain="", version=18, num_groups=2)
    agree("GroupNormalization", [x, f(4), f(4)], domain="", version=21, num_groups=2)


def test_layer_norm_statistics() -> None:
    agree("LayerNormalization", [f(2, 3, 8), f(8), f(8)], 3, domain="", types=(1, 1, 1))
