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


@pytest.mark.parametrize(("chip", "name"), [("rk3588", "m.rkjob"), ("cv181x", "m.cvimodel")])
def test_outputs_have_the_scale_of_the_last_layer(chip, name, model, tmp_path):
    words = ["compile", model, "--target", chip, "-o", tmp_path / name]
    done = CliRunner().invoke(cli, [str(w) for w in words])
    assert done.exit_code == 0, done.output
    assert "real = 0.125 * (byte - -3)" in done.output
