"""Convolution and pooling with pads, auto_pad and ceil_mode, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.frontends.onnx_oracle import agree

from intaglio.errors import BadInput
from intaglio.frontends.onnx import load_onnx
from intaglio.interpret import interpret

R = np.random.default_rng(3)


def f(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def same(op: str, arrays: list[Any], outputs: int = 1, version: int = 17, **attrs: Any) -> None:
    agree(op, arrays, outputs, domain="", version=version, **attrs)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_auto_pad(auto_pad: str, stride: int) -> None:
    how = {"strides": [stride] * 2, "auto_pad": auto_pad}
    x, w, b = f(2, 4, 9, 8), f(6, 2, 3, 2), f(6)
    same("Conv", [x, w, b], group=2, **how)
    same("MaxPool", [x], kernel_shape=[3, 2], **how)
    same("AveragePool", [x], kernel_shape=[3, 2], **how)
    same("LpPool", [x], kernel_shape=[3, 2], p=1, **how)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_conv(rank: int) -> None:
    x, w = f(1, 4, *(9, 8, 7)[:rank]), f(4, 4, *(3, 1, 2)[:rank])
    pads = [*(1, 0, 2)[:rank], *(0, 1, 1)[:rank]]
    same("Conv", [x, w], pads=pads, dilations=[2, 1, 1][:rank], strides=[1, 2, 2][:rank])
    same("Conv", [x, f(8, 1, *w.shape[2:]), f(8)], group=4)


@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]])
@pytest.mark.parametrize("extents", [(7, 6), (8, 9), (5, 11)])
def test_pool(ceil_mode: int, pads: list[int], extents: tuple[int, int]) -> None:
    how = {"pads": pads, "ceil_mode": ceil_mode, "kernel_shape": [3, 2], "strides": [3, 2]}
    x = f(2, 3, *extents)
    same("MaxPool", [x], version=12, **how)
    same("MaxPool", [x], 2, version=12, **how, types=(1, 7))
    same("MaxPool", [x], version=12, **{**how, "strides": [1, 2]}, dilations=[2, 1])
    same("AveragePool", [x], version=19, **how)
    same("AveragePool", [x], version=19, **{**how, "strides": [1, 2]}, dilations=[2, 1])
    if not ceil_mode:  # onnxruntime counts the padding of ceil_mode here
        same("AveragePool", [x], version=19, **how, count_include_pad=1)


def test_pool_of_bytes_and_global_pools() -> None:
    x = R.integers(-128, 128, (1, 2, 6, 6)).astype(np.int8)
    same("MaxPool", [x], version=12, kernel_shape=[2, 2], pads=[1, 1, 1, 1])
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        same(op, [f(2, 3, 4, 5)])
    same(
        "MaxPool",
        [f(1, 1, 4, 5)],
        2,
        version=12,
        kernel_shape=[2, 2],
        storage_order=1,
        types=(1, 7),
    )


def test_unpool() -> None:
    x, at = f(1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]])
    how = {"kernel_shape": [2, 2], "strides": [2, 2]}
    same("MaxUnpool", [x, at], version=11, **how)


@pytest.mark.parametrize("auto_pad", ["NOTSET", "VALID"])
@pytest.mark.parametrize("groups", [1, 2])
def test_conv_transpose(auto_pad: str, groups: int) -> None:
    x, w, b = f(1, 4, 5, 6), f(4, 3, 3, 2), f(3 * groups)
    how: dict[str, Any] = {"auto_pad": auto_pad, "group": groups}
    same("ConvTranspose", [x, w, b], strides=[2, 3], **how)
    same("ConvTranspose", [x, w], strides=[2, 3], output_padding=[1, 2], dilations=[2, 1], **how)
    if auto_pad == "NOTSET":
        same("ConvTranspose", [x, w], strides=[2, 2], pads=[1, 0, 1, 1], **how)


@pytest.mark.parametrize("upper", [True, False])
def test_conv_transpose_output_shape(upper: bool) -> None:
    """The standard defines the side of an odd padding."""
    node = helper.make_node(
        "ConvTranspose",
        ["x", "w"],
        ["y"],
        output_shape=[10],
        strides=[2],
        auto_pad="SAME_UPPER" if upper else "SAME_LOWER",
    )
    x, w = f(1, 1, 5), f(1, 1, 3)
    y = interpret(load_onnx(_model(node, {"x": x, "w": w})), {"x": x, "w": w})["y"]
    full = np.zeros(11, np.float32)
    for i in range(5):
        full[2 * i : 2 * i + 3] += x[0, 0, i] * w[0, 0]
    np.testing.assert_allclose(y[0, 0], full[:10] if upper else full[1:], rtol=1e-5)


def test_integers() -> None:
    x = R.integers(0, 256, (1, 4, 7, 8)).astype(np.uint8)
    w = R.integers(-128, 128, (6, 4, 3, 2)).astype(np.int8)
    zero = np.array(120, np.uint8)
    same("ConvInteger", [x, w, zero], pads=[1, 0, 1, 1], types=(6,))
    scale, w_scale = np.array(0.1, np.float32), np.linspace(0.01, 0.03, 6).astype(np.float32)
    y_scale, b = np.array(0.5, np.float32), np.arange(6, dtype=np.int32) * 50
    operands = [x, scale, zero, w, w_scale, np.zeros(6, np.int8), y_scale, zero, b]
    same("QLinearConv", operands, pads=[1, 0, 1, 1], types=(2,))


def test_deform_conv() -> None:
    x, w = f(2, 4, 7, 8), f(6, 2, 3, 2)
    offset, mask = 3 * f(2, 24, 7, 8), f(2, 12, 7, 8)
    how = {"pads": [1, 0, 1, 1], "group": 2, "offset_group": 2, "kernel_shape": [3, 2]}
    same("DeformConv", [x, w, offset, f(6), mask], version=22, **how)


def test_col2im() -> None:
    x, image, block = f(1, 12, 20), np.array([6, 6]), np.array([2, 3])
    same("Col2Im", [x[:, :, :20], image, block], version=18, constant=(1, 2))
    how = {"strides": [2, 1], "pads": [0, 1, 0, 1], "dilations": [1, 2]}
    same("Col2Im", [f(1, 12, 12), image, block], version=18, constant=(1, 2), **how)


@pytest.mark.parametrize("activation", ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip"])
def test_fused_conv(activation: str) -> None:
    how: dict[str, Any] = {"activation": activation}
    if activation in ("LeakyRelu", "Clip"):
        how["activation_params"] = [0.1, 0.4][: 1 + (activation == "Clip")]
    agree("FusedConv", [f(1, 3, 5, 5), f(4, 3, 3, 3), f(4)], **how)


def test_contrib() -> None:
    x = R.integers(-128, 128, (1, 7, 6, 3)).astype(np.int8)
    agree("NhwcMaxPool", [x], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0])
    agree("Trilu", [f(4, 5), np.array(1)], constant=(1,), upper=0)
    agree("GridSample", [f(1, 2, 4, 5), f(1, 3, 3, 2)], mode="bilinear", align_corners=1)


def _model(node: Any, inputs: dict[str, np.ndarray], opset: int = 17) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(k, 1, a.shape) for k, a in inputs.items()]
    results = [helper.make_tensor_value_info(o, 1, None) for o in node.output]
    graph = helper.make_graph([node], "one", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"pads": [1, 1]}, "pads (1, 1) must have 4 entries"),
        ({"strides": [0, 1]}, "strides (0, 1) must be above 0"),
        ({"auto_pad": "ALL"}, "auto_pad 'ALL' is none of"),
        ({"kernel_shape": [2, 2]}, "kernel_shape is (2, 2)"),
        ({"group": 2}, "in 2 groups do not fit"),
    ],
)
def test_refusals(attrs: dict[str, Any], words: str) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="C", **attrs)
    with pytest.raises(BadInput) as e:
        load_onnx(_model(node, {"x": f(1, 3, 5, 5), "w": f(4, 3, 3, 3)}))
    assert words in str(e.value)
    assert "'C' (Conv)" in str(e.value)
