"""Scratch memory of models with ranges of sizes: what the largest shapes need is enough for all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import intaglio
from intaglio import native

R = np.random.default_rng(5)
SIZES = {"n": 4, "h": 96, "w": 96}  # the largest
Net = tuple[list[Any], dict[str, tuple[int, list[Any]]], dict[str, np.ndarray]]
F32, I8 = TensorProto.FLOAT, TensorProto.INT8


def weights(*shape: int) -> np.ndarray:
    return (R.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def conv(
    deep: int, channels: int, kernel: int, stride: int = 1, groups: int = 1, dilation: int = 1
):
    """A convolution of floats."""
    attrs = {
        "pads": [(kernel - 1) * dilation // 2] * 4,
        "strides": [stride] * 2,
        "group": groups,
        "dilations": [dilation] * 2,
    }
    nodes = [helper.make_node("Conv", ["x", "k"], ["y"], **attrs)]
    shape = ["n", deep, "h", "w"]
    return nodes, {"x": (F32, shape)}, {"k": weights(channels, deep // groups, kernel, kernel)}


def bytes_of(net: Net) -> Net:
    """The same convolution of bytes."""
    nodes, inputs, held = net
    scales = {"s": np.float32(0.02), "z": np.int8(0), "u": np.float32(0.01), "t": np.float32(0.03)}
    rounded = np.rint(held["k"] / np.abs(held["k"]).max() * 127).astype(np.int8)
    attrs = {a.name: helper.get_attribute_value(a) for a in nodes[0].attribute}
    made = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["k", "u", "z"], ["kf"]),
        helper.make_node("Conv", ["xf", "kf"], ["a"], **attrs),
        helper.make_node("QuantizeLinear", ["a", "t", "z"], ["y"]),
    ]
    return made, {"x": (I8, inputs["x"][1])}, {"k": rounded} | scales


def separable(deep: int, channels: int, expand: int = 0, stride: int = 1) -> Net:
    middle = expand or deep
    attrs = {"group": middle, "pads": [1] * 4, "strides": [stride] * 2}
    nodes = [
        helper.make_node("Conv", ["e", "d"], ["a"], **attrs),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "p"], ["y"]),
    ]
    held = {"d": weights(middle, 1, 3, 3), "p": weights(channels, middle, 1, 1)}
    if expand:
        first = [
            helper.make_node("Conv", ["x", "f"], ["c"]),
            helper.make_node("Relu", ["c"], ["e"]),
        ]
        nodes, held = first + nodes, held | {"f": weights(middle, deep, 1, 1)}
    else:
        nodes[0].input[0] = "x"
    return nodes, {"x": (F32, ["n", deep, "h", "w"])}, held


def recurrent(op: str, gates: int, hidden: int = 48) -> Net:
    nodes = [helper.make_node(op, ["x", "k", "r"], ["y"], hidden_size=hidden)]
    held = {"k": weights(1, gates * hidden, 32), "r": weights(1, gates * hidden, hidden)}
    return nodes, {"x": (F32, ["h", "n", 32])}, held


def one(op: str, shape: list[Any], results: int = 1, more: Any = None, **attrs: Any) -> Net:
    held = {} if more is None else {"k": more}
    outputs = ["y", "y1", "y2", "y3"][:results]
    return [helper.make_node(op, ["x", *held], outputs, **attrs)], {"x": (F32, shape)}, held


def gated(shape: list[Any]) -> Net:
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["a"]),
        helper.make_node("Mul", ["x", "a"], ["b"]),
        helper.make_node("Exp", ["b"], ["c"]),
        helper.make_node("Add", ["c", "x"], ["y"]),
    ]
    return nodes, {"x": (F32, shape)}, {}


NETS: dict[str, tuple[str, Callable[[], Net]]] = {  # the kernel that is meant, and a model with it
    "conv": ("cpu.conv", lambda: conv(3, 16, 3, 2)),
    "winograd": ("cpu.winograd", lambda: conv(64, 64, 3)),
    "separable": ("cpu.separable", lambda: separable(16, 32)),
    "separable, deep": ("cpu.separable", lambda: separable(96, 24)),
    "expanded": ("cpu.separable", lambda: separable(16, 24, 96)),
    "expanded, stride 2": ("cpu.separable", lambda: separable(16, 24, 40, 2)),
    "qconv": ("cpu.qconv", lambda: bytes_of(conv(64, 64, 3, groups=8))),
    "qconv, stride 2": ("cpu.qconv", lambda: bytes_of(conv(64, 128, 3, 2))),
    "qconv, dilated": ("cpu.qconv", lambda: bytes_of(conv(32, 32, 3, dilation=2))),
    "qconv, first layer": ("cpu.qconv", lambda: bytes_of(conv(3, 32, 7, 2))),
    "qdepthwise 7x7": ("cpu.qdepthwise", lambda: bytes_of(conv(96, 96, 7, groups=96))),
    "qdepthwise 5x5": ("cpu.qdepthwise", lambda: bytes_of(conv(96, 96, 5, 2, groups=96))),
    "qdepthwise 3x3": ("cpu.qdepthwise", lambda: bytes_of(conv(24, 24, 3, groups=24))),
    "gru": ("gru", lambda: recurrent("GRU", 3)),
    "rnn": ("rnn", lambda: recurrent("RNN", 1)),
    "chain": ("cpu.chain", lambda: gated(["n", 24, "h", "w"])),
    "softmax": ("softmax", lambda: one("Softmax", ["n", 24, "h", "w"], axis=1)),
    "topk": ("topk", lambda: one("TopK", ["n", 8, "h"], 2, np.array([1]), axis=2)),
    "det": ("det", lambda: one("Det", ["n", "h", "h"])),
}
# Kernels whose need is a product of extents, or does not depend on those that vary: read, not run.
PLAIN = {
    *("cpu.attention_bf16", "cpu.qwinograd", "cpu.conv_transpose", "cpu.wgemm", "deform_conv"),
    *("cpu.qgru_steps", "cpu.qlstm_steps", "lstm", "log_softmax", "layer_norm", "rms_norm"),
    *("matmul_integer", "qlinear_conv", "qlinear_matmul", "qlinear_resize", "non_max_suppression"),
    *("conv_integer", "unique", "cpu.lstm_layer", "cpu.gru_layer", "cpu.xnor_conv"),
    "cpu.attention",  # tests/test_ranges.py
    "npu.run",  # fixed shapes
}


def refused(net: Net, op: str, folder: Path, count: int) -> dict[str, dict[str, int]]:
    """Sizes that the model refuses, by the words of the error."""
    nodes, inputs, held = net
    names = [n for node in nodes for n in node.output if n.startswith("y")]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in names],
        [numpy_helper.from_array(a, n) for n, a in held.items()],
    )
    onnx.save(helper.make_model(graph), folder / "m.onnx")
    named = {d for _, shape in inputs.values() for d in shape if isinstance(d, str)}
    package = intaglio.compile(folder / "m.onnx", dims={n: f"1..{SIZES[n]}" for n in named})
    assert op in [s.op for s in package.plan.steps]
    rng, found = np.random.default_rng(1), {}
    with intaglio.open(package, threads=1) as session:  # more threads leave more room
        for i in range(count):
            near = [1, 2, 3, -2, -1]  # from both ends
            at = {
                n: int(rng.integers(1, SIZES[n] + 1)) if i % 3 else 1 + rng.choice(near) % SIZES[n]
                for n in sorted(named)
            }
            shapes = {
                n: tuple(int(at[d]) if isinstance(d, str) else d for d in shape)
                for n, (_, shape) in inputs.items()
            }
            try:
                session.output_shapes(shapes)
            except intaglio.IntaglioError as e:
                found[str(e)] = at
    return found


@pytest.mark.parametrize("name", NETS)
def test_smaller_shapes_need_no_more_than_the_largest(name, tmp_path):
    op, make = NETS[name]
    assert refused(make(), op, tmp_path, 60) == {}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_convolutions(seed, tmp_path):
    rng = np.random.default_rng(seed)
    deep, kernel = int(rng.integers(1, 130)), int(rng.choice([1, 3, 5, 7]))
    groups = int(rng.choice([1, deep]))
    channels = groups * int(rng.integers(1, 130 // groups + 1))
    net = conv(deep, channels, kernel, int(rng.integers(1, 4)), groups, int(rng.integers(1, 3)))
    for made in (net, bytes_of(net)):
        assert refused(made, "transpose", tmp_path, 300) == {}


def test_every_kernel_with_scratch_memory_is_known():
    """A new one belongs into NETS, unless its need is plainly no larger for smaller shapes."""
    needs = {k.op.name for k in native.kernels() if k.op.scratch and k.op.plugin is None}
    assert needs == {op for op, _ in NETS.values()} | PLAIN
