"""onnxruntime's DynamicQuantizeLSTM, imported as dynamic_lstm where possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import intaglio

RNG = np.random.default_rng(4)
STEPS, BATCH, INPUTS, HIDDEN = 9, 2, 12, 20


def model(
    dtype: Any, per_channel: bool, direction: str = "forward", zero: int | None = None, **attrs: Any
) -> bytes:
    d = 2 if direction == "bidirectional" else 1
    middle = (128 if dtype == np.uint8 else 0) if zero is None else zero
    shape = (d, 4 * HIDDEN) if per_channel else (d,)
    held: dict[str, Any] = {"b": (RNG.standard_normal((d, 8 * HIDDEN)) * 0.2).astype(np.float32)}
    for name, k in (("w", INPUTS), ("r", HIDDEN)):
        stored = RNG.integers(-90, 91, (d, k, 4 * HIDDEN)) + middle
        held[name] = stored.astype(dtype)
        held[f"{name}s"] = RNG.uniform(0.002, 0.004, shape).astype(np.float32)
        held[f"{name}z"] = np.full(shape, middle, dtype)
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"],
        ["y", "h", "c"],
        domain="com.microsoft",
        hidden_size=HIDDEN,
        direction=direction,
        **attrs,
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, BATCH, INPUTS])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "yhc"],
        [numpy_helper.from_array(a, n) for n, a in held.items()],
    )
    made = helper.make_model(
        graph,
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
    )
    return made.SerializeToString()


@pytest.mark.parametrize(
    ("dtype", "per_channel", "direction", "how", "op"),
    [
        (np.int8, False, "forward", {}, "dynamic_lstm"),
        (np.int8, True, "bidirectional", {}, "dynamic_lstm"),
        (np.uint8, False, "reverse", {}, "dynamic_lstm"),
        (np.uint8, False, "forward", {"zero": 100}, "dynamic_lstm"),
        (np.uint8, False, "forward", {"zero": 90, "clip": 2.0}, "lstm"),
    ],
)
def test_beside_onnxruntime(dtype, per_channel, direction, how, op):
    data = model(dtype, per_channel, direction, **how)
    graph = intaglio.load(data)
    assert op in {n.op for n in graph.nodes()}
    x = RNG.standard_normal((STEPS, BATCH, INPUTS)).astype(np.float32)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    with intaglio.open(intaglio.compile(graph)) as ours:
        got = ours.run({"x": x})
    for name, want in zip("yhc", session.run(None, {"x": x}), strict=True):
        assert np.abs(got[name] - want).max() < 0.03, name
    assert onnx.load_from_string(data).graph.node[0].op_type == "DynamicQuantizeLSTM"
