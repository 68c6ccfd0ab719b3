"""ONNX functions are inlined; sub-graphs capture outer values as inputs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from tests.frontends.onnx_text import model
from tests.frontends.test_onnx_load import X, run

import intaglio
from intaglio.errors import BadInput
from intaglio.frontends.onnx import load_onnx
from intaglio.frontends.onnx.importer import OnnxNode, importer
from intaglio.ir import Value

# ---- functions and sub-graphs ------------------------------------------------------------------
NESTED = """
<domain: "f", opset_import: ["": 18, "f": 1]> Twice (a) => (b) { b = Add(a, a) }
<domain: "f", opset_import: ["": 18, "f": 1]> Leaky <slope> (a) => (b) {
    t = f.Twice(a)  b = LeakyRelu <alpha: float = @slope> (t) }
<domain: "f", opset_import: ["": 18, "f": 1]> Endless (a) => (b) { b = f.Endless(a) }
"""


def test_functions_of_the_model_are_inlined() -> None:
    text = "(float[1,3] x) => (float[1,3] y) { y = f.Leaky <slope = 0.25> (x) }"
    g = load_onnx(model(text, functions=NESTED, more=', "f": 1'))
    assert run(g, x=X) == pytest.approx(np.where(X < 0, 0.5 * X, 2 * X))
    assert [n.origin for n in g.nodes()] == ["Leaky_0/Twice_0/Add_0", "Leaky_0/LeakyRelu_1"]


def test_functions_that_call_themselves_are_refused() -> None:
    text = "(float[1,3] x) => (float[1,3] y) { y = f.Endless(x) }"
    with pytest.raises(BadInput, match=r"nest more than 64 deep.*call itself"):
        load_onnx(model(text, functions=NESTED, more=', "f": 1'))


def body_model() -> onnx.ModelProto:
    """A node with two sub-graphs that read outer tensors: a computed, a constant, a shared one."""
    text = """(float[3] x, bool c) => (float[3] y) <float[3] w = {1,2,3}> {
        a = Relu(x)
        b = Neg(x)
        y = If(c) <then_branch = t () => (float[3] p) { q = Add(a, w) p = Mul(q, x) },
                   else_branch = e () => (float[3] r) { r = Add(b, x) }> }"""
    return model(text)


def test_sub_graphs_capture_outer_values_explicitly() -> None:
    m = body_model()
    m.graph.node[-1].op_type, m.graph.node[-1].domain = "Bodies", "test.bodies"
    seen = {}

    @importer("Bodies", domain="test.bodies")
    def _bodies(n: OnnxNode) -> Value:
        seen["graphs"], seen["captures"] = n.graphs({"then_branch": (), "else_branch": ()})
        return n.inline("then_branch")[0]

    g = load_onnx(m)
    then, other = seen["graphs"]
    assert [v.name for v in seen["captures"]] == ["a", "x", "b"]
    for graph in (then, other):
        assert [v.name for v in graph.inputs] == ["a", "x", "b"]
        assert {v for n in graph.nodes() for v in n.inputs if v.data is None} <= {
            *graph.inputs,
            *(v for n in graph.nodes() for v in n.outputs),
        }
    x = np.array([-1, 1, 2], np.float32)
    feeds = {"a": np.maximum(x, 0), "x": x, "b": -x}
    assert intaglio.interpret(then, feeds)["p"].tolist() == [-1, 3, 10]
    assert intaglio.interpret(other, feeds)["r"].tolist() == [0, 0, 0]
    (inlined,) = intaglio.interpret(g, {"x": x, "c": np.array(True)}).values()
    assert inlined.tolist() == [-1, 3, 10]
