"""Redundant ops of exporters, as small ONNX models, and the ops that must stay at level 1."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from tests.check import compare

import intaglio
from intaglio import dtypes, ops, passes
from intaglio.interpret import interpret
from intaglio.ir import Graph, Type, Value
from intaglio.passes.code_motion import CODE_MOTION_FLOATS
from intaglio.rewrite import rewrite

F = "float[2,4,6,6]"
CASES = {
    # ---- folded ----
    "constants": (
        "float[4] x",
        "c = Constant<value_floats=[1.0,2.0,3.0,4.0]>() d = Exp(c) e = Add(c, d) y = Mul(x, e)",
        ["mul"],
    ),
    "flatten by shape arithmetic": (
        f"{F} x",
        "s = Shape(x) i = Constant<value_int=0>() n = Gather(s, i) "
        "ax = Constant<value_ints=[0]>() u = Unsqueeze(n, ax) m = Constant<value_ints=[-1]>() "
        "t = Concat<axis=0>(u, m) y = Reshape(x, t)",
        ["reshape"],
    ),
    "resize by shape arithmetic": (
        f"{F} x",
        "s = Shape(x) a = Constant<value_ints=[0]>() b = Constant<value_ints=[2]>() "
        "hw = Slice(s, b, e) e = Constant<value_ints=[4]>() "
        "two = Constant<value_int=2>() big = Mul(hw, two) nc = Slice(s, a, b) "
        'to = Concat<axis=0>(nc, big) y = Resize<mode="nearest">(x, , , to)',
        ["resize"],
    ),
    "expand by the shape of another": (
        "float[1,4] x, float[3,4] z",
        "s = Shape(z) e = Expand(x, s) y = Add(e, z)",
        ["add"],
    ),
    "fill by shape": (f"{F} x", "s = Shape(x) z = ConstantOfShape(s) y = Add(x, z)", []),
    "scalar operands": (
        "float[4] x",
        "c = Constant<value_float=2.0>() "
        "d = Constant<value_float=3.0>() a = Max(x, c) y = Min(a, d)",
        ["clip"],
    ),
    # ---- without effect ----
    "identity": ("float[4] x", "a = Identity(x) b = Relu(a) y = Identity(b)", ["relu"]),
    "dropout": ("float[4] x", "a = Relu(x) y = Dropout(a)", ["relu"]),
    "casts": (
        "float[4] x",
        "a = Cast<to=1>(x) b = Cast<to=11>(a) c = Cast<to=1>(b) y = Relu(c)",
        ["relu"],
    ),
    "one operand": (
        "float[4] x",
        "a = Relu(x) b = Concat<axis=0>(a) c = Max(b) y = Sum(c)",
        ["relu"],
    ),
    "split into one": ("float[4] x", "a = Split<axis=0, num_outputs=1>(x) y = Relu(a)", ["relu"]),
    "slice of all": (
        "float[4] x",
        "s = Constant<value_ints=[0]>() e = Constant<value_ints=[9]>() "
        "a = Slice(x, s, e) y = Relu(a)",
        ["relu"],
    ),
    "pad, tile, expand, transpose by nothing": (
        "float[3,4] x",
        "p = Constant<value_ints=[0,0,0,0]>() a = Pad(x, p) "
        "t = Constant<value_ints=[1,1]>() b = Tile(a, t) c = Expand(b, t) "
        "d = Transpose<perm=[0,1]>(c) y = Relu(d)",
        ["relu"],
    ),
    "pooling of one": (
        f"{F} x",
        "a = MaxPool<kernel_shape=[1,1]>(x) b = AveragePool<kernel_shape=[1,1]>(a) y = Relu(b)",
        ["relu"],
    ),
    "flatten after pooling": (f"{F} x", "a = GlobalAveragePool(x) y = Flatten(a)", ["reduce_mean"]),
    "flatten after linear": (
        "float[2,4] x, float[4,3] w",
        "a = MatMul(x, w) y = Flatten<axis=1>(a)",
        ["matmul"],
    ),
    "reshapes and binary ops": (
        "float[2,4] x, float[4] b",
        "s = Constant<value_ints=[1,4]>() c = Reshape(b, s) y = Add(x, c)",
        ["add"],
    ),
    "orphans": ("float[4] x", "a = Exp(x) b = Log(a) y = Relu(x)", ["relu"]),
    # ---- inverses ----
    "unsqueeze, squeeze": (
        "float[3,4] x",
        "a = Constant<value_ints=[1]>() b = Unsqueeze(x, a) c = Squeeze(b, a) y = Relu(c)",
        ["relu"],
    ),
    "transposes": (
        f"{F} x",
        "a = Transpose<perm=[0,2,3,1]>(x) b = Transpose<perm=[0,3,1,2]>(a) y = Relu(b)",
        ["relu"],
    ),
    "dequantize, quantize": (
        "uint8[4] x",
        "s = Constant<value_float=0.1>() k = Constant<value_int=7>() "
        "z = Cast<to=2>(k) a = DequantizeLinear(x, s, z) b = QuantizeLinear(a, s, z) "
        "y = Identity(b)",
        [],
    ),
    "concat, split": (
        "float[2,3] x, float[2,3] z",
        "a = Concat<axis=1>(x, z) b, c = Split<axis=1, num_outputs=2>(a) y = Sub(c, b)",
        ["sub"],
    ),
    "split, concat": (
        "float[2,6] x",
        "b, c = Split<axis=1, num_outputs=2>(x) a = Concat<axis=1>(b, c) y = Relu(a)",
        ["relu"],
    ),
    "pad, slice": (
        "float[2,3] x",
        "p = Constant<value_ints=[0,1,0,1]>() a = Pad(x, p) "
        "s = Constant<value_ints=[1]>() e = Constant<value_ints=[-1]>() b = Slice(a, s, e, s) "
        "y = Relu(b)",
        ["relu"],
    ),
    "negations": (
        "float[4] x, float[4] z",
        "a = Neg(z) b = Neg(a) c = Neg(b) y = Add(x, c)",
        ["sub"],
    ),
    # ---- chains ----
    "reshapes": (
        "float[2,6] x",
        "a = Constant<value_ints=[3,4]>() b = Reshape(x, a) "
        "c = Constant<value_ints=[12]>() d = Reshape(b, c) e = Constant<value_ints=[4,3]>() "
        "y = Reshape(d, e)",
        ["reshape"],
    ),
    "slices": (
        "float[9,4] x",
        "a = Constant<value_ints=[1]>() b = Constant<value_ints=[8]>() "
        "c = Slice(x, a, b) d = Slice(c, a, b) y = Relu(d)",
        ["slice", "relu"],
    ),
    "mean over one axis after the other": (
        f"{F} x",
        "a = ReduceMax<keepdims=1>(x, p) p = Constant<value_ints=[3]>() "
        "q = Constant<value_ints=[2]>() b = ReduceMax<keepdims=1>(a, q) y = Flatten(b)",
        ["reduce_max"],
    ),
    "equal sub-graphs": (
        "float[4] x",
        "a = Exp(x) b = Sin(a) c = Exp(x) d = Sin(c) y = Mul(b, d)",
        ["exp", "sin", "mul"],
    ),
}


def model(inputs: str, body: str) -> onnx.ModelProto:
    """The statements of `body` in an order that defines before it uses."""
    text = f'<ir_version: 9, opset_import: ["" : 18]> g ({inputs}) => (y) {{ {body} }}'
    made = onnx.parser.parse_model(text)
    nodes, known = list(made.graph.node), {i.name for i in made.graph.input} | {""}
    del made.graph.node[:]
    while nodes:
        ready = next(n for n in nodes if known.issuperset(n.input))
        nodes.remove(ready)
        known.update(ready.output)
        made.graph.node.append(ready)
    return made


@pytest.mark.parametrize("what", CASES)
def test_ops_left_at_level_1(what, tmp_path):
    inputs, body, want = CASES[what]
    path = tmp_path / "model.onnx"
    path.write_bytes(model(inputs, body).SerializeToString())
    graph = intaglio.load(path)
    small = intaglio.optimize(graph, level=1)
    assert [n.op for n in small.nodes()] == want
    rng = np.random.default_rng(0)
    feeds = {
        v.name: (rng.uniform(-2, 2, v.shape) * (40 if v.dtype == "u8" else 1))
        .clip(0 if v.dtype == "u8" else None)
        .astype(dtypes.numpy_of(v.dtype))
        for v in graph.inputs
    }
    for name, array in interpret(graph, feeds).items():
        compare(interpret(small, feeds)[name], array, what, tolerance=0.0)


def test_a_cast_before_an_output_keeps_the_declared_type(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(model("float[4] x", "a = Relu(x) y = Cast<to=10>(a)").SerializeToString())
    assert intaglio.optimize(intaglio.load(path)).outputs[0].dtype == "f16"


def test_dequantize_of_quantize_stays_because_it_rounds(tmp_path):
    path = tmp_path / "model.onnx"
    body = "s = Constant<value_float=0.1>() a = QuantizeLinear(x, s) y = DequantizeLinear(a, s)"
    path.write_bytes(model("float[4] x", body).SerializeToString())
    graph = intaglio.load(path)
    passes.run(graph, passes.neutral())
    assert [n.op for n in graph.nodes()] == ["quantize_linear", "dequantize_linear"]


def test_a_slice_of_both_halves_of_an_axis_stays_below_the_reshape():
    x = Value(Type("f32", (2, 2)), "x")
    mean = ops.reduce_mean(ops.exp(ops.reshape(x, shape=(1, 4))), axes=(0,), keepdims=False)
    y = ops.slice_(ops.reshape(mean, shape=(2, 2)), start=(1, 0), stop=(2, 2), step=(1, 2))
    graph = Graph([x], [y], ["y"])
    feeds = {"x": np.arange(4, dtype=np.float32).reshape(2, 2)}
    want = interpret(graph, feeds)["y"]
    rewrite(graph, CODE_MOTION_FLOATS)
    compare(interpret(graph, feeds)["y"], want, "a slice of both halves")
