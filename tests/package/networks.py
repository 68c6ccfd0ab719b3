"""Small networks with enough work to be shared by threads, for sanitizers and valgrind."""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np
import pytest
from tests.package.samples import SAMPLES

import intaglio


def stream(isa: str = "scalar") -> bytes:
    """All packages for an instruction set as csrc/test/fuzz_driver.c reads them."""
    files = [make().package().bytes for make in SAMPLES.values()] + list(packages(isa))
    return b"".join(struct.pack("<Q", len(d)) + d for d in files)


@functools.cache
def packages(isa: str = "scalar") -> tuple[bytes, ...]:
    """A network of convolutions, pools, resizes and products, in floats and in int8."""
    graph = intaglio.load(network())
    rng = np.random.default_rng(0)
    samples = [{"x": rng.normal(size=(1, 8, 24, 24)).astype(np.float32)} for _ in range(2)]
    quantized = intaglio.quantize(graph, data=samples, accuracy=None)
    made = [intaglio.compile(g, isa=isa) for g in (graph, quantized)]
    return tuple(package.bytes for package in made)


@functools.cache
def packages_with_ranges(isa: str = "scalar") -> tuple[bytes, ...]:
    """The network for pictures of many sizes, and for many pictures."""
    shapes = ((1, 8, "8..24", "8..24"), ("1..3", 8, 16, "8..24"))
    return tuple(intaglio.compile(network(), isa=isa, shapes={"x": s}).bytes for s in shapes)


def network() -> Any:
    onnx = pytest.importorskip("onnx")
    helper, rng = onnx.helper, np.random.default_rng(1)
    weights = {
        "w3": (16, 8, 3, 3),  # Winograd
        "ws": (24, 16, 3, 3),  # strided: direct
        "wd": (24, 1, 5, 5),  # depthwise
        "w1": (32, 24, 1, 1),
        "wt": (32, 8, 2, 2),  # transposed
        "wm": (8, 64),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w3"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "ws"], ["c"], strides=[2, 2], pads=[1] * 4),
        helper.make_node("Conv", ["c", "wd"], ["d"], group=24, pads=[2] * 4),
        helper.make_node("HardSwish", ["d"], ["e"]),
        helper.make_node("Conv", ["e", "w1"], ["f"]),
        helper.make_node("MaxPool", ["f"], ["g"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("ConvTranspose", ["g", "wt"], ["h"], strides=[2, 2]),
        helper.make_node("Resize", ["h", "", "scales"], ["i"], mode="linear"),
        helper.make_node("Transpose", ["i"], ["j"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["j", "wm"], ["k"]),
        helper.make_node("Softmax", ["k"], ["y"], axis=-1),
    ]
    arrays = {n: (rng.normal(size=s) / np.prod(s[1:]) ** 0.5) for n, s in weights.items()}
    arrays["scales"] = np.array([1, 1, 1.5, 1.5])
    stored = [onnx.numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 8, 24, 24])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "network", [x], [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
