"""Written ONNX models: names, metadata, constants, files, loops and run-time extents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.export.test_onnx_export import feeds, written
from tests.export.test_onnx_roundtrip import again, equal, onnxruntime_runs
from tests.frontends.onnx_text import model
from tests.passes.cases.build import conv, f32, graph_of, num

import intaglio
from intaglio import dtypes, ops
from intaglio.errors import BadInput
from intaglio.frontends.onnx import load_onnx
from intaglio.interpret import interpret
from intaglio.ir import Graph, Type, Value, constant


# ---- names and constants -------------------------------------------------------------------------
def test_names_and_metadata():
    source = model("(float[2,3] x) => (float[2,3] z) { inside = Relu(x)  z = Exp(inside) }")
    source.doc_string, source.domain, source.model_version = "what it is for", "org.example", 7
    source.producer_name, source.producer_version = "torch", "2.1"
    source.metadata_props.add(key="licence", value="MIT")
    graph = load_onnx(source)
    made = intaglio.to_onnx(graph)
    assert made.producer_name == "intaglio"
    assert [n.output[0] for n in made.graph.node] == ["inside", "z"]
    assert made.graph.name == source.graph.name
    assert again(graph).metadata == {**graph.metadata, "opset": "ai.onnx 17"}


@pytest.mark.parametrize(
    "text",
    [
        "(float[2] x) => (float[2] x2, float[2] x3) { x2 = Identity(x)  x3 = Identity(x) }",
        "(float[2] x) => (float[2] a, float[2] b) { a = Relu(x)  b = Identity(a) }",
        "(float[2] x) => (float[2] c) <float[2] k = {1, 2}> { c = Identity(k) }",
        "(float[2] x) => (float[2] y) <float[2] c = {1, 2}> { c_1 = Add(x, c)  y = Mul(c_1, c) }",
    ],
    ids=["input", "twice", "constant", "clash"],
)
def test_outputs_keep_their_names_whatever_they_are(text: str):
    source = model(text)
    graph = load_onnx(source)
    arrays = feeds(graph)
    want = onnxruntime_runs(source, arrays)
    made = intaglio.to_onnx(graph)
    onnx.checker.check_model(made, full_check=True)
    equal(onnxruntime_runs(made, arrays), want, 0, 0)
    equal(interpret(again(graph), arrays), want, 0, 0)


def test_equal_constants_are_stored_once():
    def build(x: Value) -> Value:
        return ops.add(ops.mul(x, constant(np.float32([1, 2]))), constant(np.float32([1, 2])))

    made = written(build, f32(5, 3, 2))
    assert len(made.graph.initializer) == 1


@pytest.mark.parametrize("dtype", dtypes.TABLE)
def test_every_element_type_is_stored(dtype: str):
    """An odd number of elements, so that packed types end within a byte."""
    array = np.array([1, 0, 1, 1, 0] if dtype != "f8e8m0fnu" else [1, 2, 4, 1, 8])
    array = array.astype(dtypes.numpy_of(dtype))
    if dtypes.TABLE[dtype].kind == "i":
        array[0] = -1
    back = load_onnx(intaglio.to_onnx(Graph([], [constant(array, "c")], ["y"])))
    data = back.outputs[0].data
    assert data is not None
    assert data.dtype == array.dtype
    assert data.tolist() == array.tolist()


# ---- files ---------------------------------------------------------------------------------------
def test_save(tmp_path: Path):
    graph = graph_of(lambda x: ops.relu(conv(x)), [f32(1, 3, 8, 8)])
    intaglio.save_onnx(graph, tmp_path / "m.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    equal(
        interpret(intaglio.load(tmp_path / "m.onnx"), feeds(graph)),
        interpret(graph, feeds(graph)),
        0,
        0,
    )


def test_large_weights_lie_in_a_file_of_their_own(tmp_path: Path):
    def build(x: Value) -> Value:
        packed = constant(
            np.arange(-8, 8).reshape(4, 4).astype(dtypes.numpy_of("i4")).repeat(64, 0)
        )
        real = ops.dequantize_linear(packed, constant(np.float32(0.5)))
        return ops.matmul(ops.matmul(x, num(32, 256)), real)

    graph = graph_of(build, [f32(2, 32)])
    want = interpret(graph, feeds(graph))
    intaglio.save_onnx(graph, tmp_path / "m.onnx", external=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert (tmp_path / "m.onnx").stat().st_size < 2000
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    equal(interpret(intaglio.load(tmp_path / "m.onnx"), feeds(graph)), want, 0, 0)
    equal(onnxruntime_runs(str(tmp_path / "m.onnx"), feeds(graph)), want, 1e-5, 1e-2)


def test_a_failed_save_leaves_nothing(tmp_path: Path):
    graph = graph_of(ops.relu, [f32(2)])
    with pytest.raises(BadInput, match="cannot write"):
        intaglio.save_onnx(graph, tmp_path / "none" / "m.onnx")
    assert not list(tmp_path.iterdir())


# ---- control flow and run-time extents -----------------------------------------------------------
LOOP = """
(float[3] x, int64 n) => (float[3] y, float[5, 3] all) {
    yes = Constant<value = bool {1}>()
    y, all = Loop(n, yes, x) <body = body (int64 i, bool go, float[3] carried)
        => (bool again, float[3] next, float[3] seen) {
            more = Identity(go) again = Identity(more) next = Add(carried, x) seen = Identity(next)
    }>
}
"""


def test_loops_capture_and_keep_their_bound():
    graph = load_onnx(model(LOOP))
    arrays = {"x": np.float32([1, 2, 3]), "n": np.array(4)}
    want = interpret(graph, arrays)
    back = again(graph)
    assert [v.type for v in back.outputs] == [v.type for v in graph.outputs]
    equal(interpret(back, arrays), want, 0, 0)
    equal(onnxruntime_runs(intaglio.to_onnx(graph), arrays), want, 0, 0)


def test_run_time_extents_come_back():
    text = """(float[2,6] x) => (float[a] y) {
        at = NonZero(x)  t = Transpose<perm = [1, 0]>(at)  y = GatherND(x, t)
    }"""
    graph = load_onnx(model(text))
    arrays = {"x": np.float32([[0, 1, 2, 0, 0, 3], [0] * 6])}
    assert again(graph).outputs[0].type == graph.outputs[0].type == Type("f32", (12,), dynamic=(0,))
    want = interpret(graph, arrays)
    equal(onnxruntime_runs(intaglio.to_onnx(graph), arrays), want, 0, 0)
