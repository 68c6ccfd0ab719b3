"""Ports of chips' files have the scales of models that take and return integers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from intaglio.cli import cli


@pytest.fixture
def model(tmp_path):
    """A quantised convolution from bytes to bytes, and a reshape."""
    held = {
        "xs": np.float32(0.25),
        "xz": np.int8(5),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
        "ys": np.float32(0.125),
        "yz": np.int8(-3),
        "w": np.random.default_rng(3).integers(-127, 128, (16, 16, 1, 1)).astype(np.int8),
        "to": np.array([1, 16, 64]),
    }
    nodes = [
        helper.make_node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"]),
        helper.make_node("Reshape", ["y", "to"], ["z"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.INT8, [1, 16, 8, 8])
    z = helper.make_tensor_value_info("z", TensorProto.INT8, [1, 16, 64])
    values = [numpy_helper.from_array(a, n) for n, a in held.items()]
    graph = helper.make_graph(nodes, "g", [x], [z], values)
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


CHIPS = [
    ("rk3588", "m.rkjob", 0),
    ("cv181x", "m.cvimodel", 0),
    ("bm1684x", "m.bmodel", 0),
    ("k210", "m.kmodel", 128),  # its bytes are unsigned
]


def compiled(model, chip: str, path) -> str:
    """What `compile` prints."""
    words = ["compile", model, "--target", chip, "-o", path]
    done = CliRunner().invoke(cli, [str(w) for w in words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(("chip", "name", "more"), CHIPS)
def test_ports_have_the_scales_of_the_model(chip, name, more, model, tmp_path):
    said = compiled(model, chip, tmp_path / name)
    assert f"real = 0.25 * (byte - {5 + more})" in said
    assert f"real = 0.125 * (byte - {-3 + more})" in said
    assert [line.split()[1] for line in said.splitlines() if "real =" in line] == ["x", "z"]


@pytest.mark.parametrize(("chip", "name", "more"), CHIPS)
def test_an_output_before_a_softmax_has_the_scale_of_its_layer(chip, name, more, tmp_path):
    """The CPU computes the softmax of integers by a table, which has no scale."""
    weights = np.random.default_rng(4).integers(-127, 128, (10, 16, 1, 1)).astype(np.int8)
    held = {"s": np.float32(0.25), "z": np.int8(5), "ws": np.float32(0.01), "wz": np.int8(0)}
    held |= {"ps": np.float32(1 / 256), "pz": np.int8(-128), "w": weights, "to": np.array([1, 10])}
    nodes = [
        helper.make_node("QLinearConv", ["x", "s", "z", "w", "ws", "wz", "s", "z"], ["y"]),
        helper.make_node("Reshape", ["y", "to"], ["flat"]),
        helper.make_node("DequantizeLinear", ["flat", "s", "z"], ["real"]),
        helper.make_node("Softmax", ["real"], ["p"], axis=1),
        helper.make_node("QuantizeLinear", ["p", "ps", "pz"], ["out"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.INT8, [1, 16, 1, 1])
    out = helper.make_tensor_value_info("out", TensorProto.INT8, [1, 10])
    graph = helper.make_graph(
        nodes, "g", [x], [out], [numpy_helper.from_array(np.asarray(a), n) for n, a in held.items()]
    )
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    said = compiled(tmp_path / "m.onnx", chip, tmp_path / name)
    assert "not in the file: qlinear_softmax" in said
    assert said.count(f"real = 0.25 * (byte - {5 + more})") == 2
