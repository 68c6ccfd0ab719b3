"""ONNX import: names, dimensions, bound values, cuts, constant folding, error messages."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.frontends.onnx_text import model

import intaglio
from intaglio.errors import BadInput, IntaglioError, Unsupported
from intaglio.frontends.onnx import load_onnx
from intaglio.frontends.onnx.importer import NeedsValue, OnnxNode, importer
from intaglio.frontends.options import ImportOptions
from intaglio.ir import Type, Value
from intaglio.ops import add, mul

X = np.array([[-1.0, 0.5, 2.0]], np.float32)
CHAIN = "(float[1,3] x) => (float[1,3] y) { a = Relu(x) b = Add(a, a) y = Mul(b, x) }"


def run(graph: intaglio.Graph, **inputs: np.ndarray) -> np.ndarray:
    (out,) = intaglio.interpret(graph, inputs).values()
    return out


# ---- names -------------------------------------------------------------------------------------
def test_names_and_origins_are_the_models_own() -> None:
    m = model(CHAIN)
    m.graph.node[1].name = "sum"
    g = load_onnx(m)
    assert [v.name for v in g.inputs] == ["x"]
    assert g.output_names == ["y"]
    assert [n.origin for n in g.nodes()] == ["Relu_0", "sum", "Mul_2"]
    assert [n.outputs[0].name for n in g.nodes()] == ["a", "b", "y"]
    assert g.name == "main"


def test_nodes_of_one_name_get_different_origins() -> None:
    m = model(CHAIN)
    for n in m.graph.node:
        n.name = "node"
    assert len({n.origin for n in load_onnx(m).nodes()}) == 3


def test_order_of_the_file_does_not_matter() -> None:
    m = model(CHAIN)
    nodes = list(m.graph.node)[::-1]
    del m.graph.node[:]
    m.graph.node.extend(nodes)
    assert run(load_onnx(m), x=X) == pytest.approx(2 * np.maximum(X, 0) * X)


def test_metadata_is_kept() -> None:
    m = model(CHAIN)
    m.producer_name, m.producer_version, m.doc_string = "maker", "3.1", "what it does"
    helper.set_model_props(m, {"licence": "MIT"})
    meta = load_onnx(m).metadata
    assert meta == {
        "producer": "maker 3.1",
        "description": "what it does",
        "opset": "ai.onnx 18",
        "licence": "MIT",
    }


# ---- dimensions --------------------------------------------------------------------------------
OPEN = "(float[N,3,H,W] x, float[N] s) => (float[N,3,H,W] y) { y = Relu(x) z = Neg(s) }"


def test_dims_bind_symbols() -> None:
    g = load_onnx(model(OPEN), ImportOptions(dims={"N": 2, "H": 4, "W": 5}))
    assert [v.shape for v in g.inputs] == [(2, 3, 4, 5), (2,)]
    assert g.outputs[0].shape == (2, 3, 4, 5)


def test_a_shape_binds_the_symbols_in_it_everywhere() -> None:
    g = load_onnx(model(OPEN), ImportOptions(shapes={"x": (2, 3, 4, 5)}))
    assert g.inputs[1].shape == (2,)


def test_dims_bind_symbols_of_inner_tensors_too() -> None:
    text = "(float[2] x) => (float[M] y) { y = test.declared.Declared(x) }"
    seen = []

    @importer("Declared", domain="test.declared")
    def _declared(n: OnnxNode) -> Value:
        seen.append(n.declared(0))
        return n.inputs[0]

    m = model(text, more=', "test.declared": 1')
    load_onnx(m)
    load_onnx(m, ImportOptions(dims={"M": 2}))
    assert seen == [None, Type("f32", (2,))]


def test_a_shape_may_change_a_fixed_dimension() -> None:
    g = load_onnx(
        model("(float[1,3] x) => (float[1,3] y) { y = Relu(x) }"),
        ImportOptions(shapes={"x": (7, 3)}),
    )
    assert g.outputs[0].shape == (7, 3)


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({}, ["'x' Nx3xHxW", "'s' N", 'dims={"N": 1, "H": 224, "W": 224}']),
        ({"dims": {"H": 8, "W": 8}}, ["a batch size is never guessed", 'dims={"N": 1}']),
        ({"dims": {"M": 8}}, ["no open dimension 'M'", "H, N, W"]),
        ({"dims": {"N": -1}}, ["dimension 'N' is -1", "whole number of at least 1"]),
        ({"shapes": {"x": (1, 3, 8)}}, ["1x3x8", "Nx3xHxW", "give 4"]),
        ({"shapes": {"x": (1, 3, 8, 8)}, "dims": {"N": 2}}, ["'N' is 2, but 1", "1"]),
        ({"shapes": {"xx": (1,)}}, ["no tensor 'xx'", "did you mean 'x'"]),
        ({"shapes": {"x": (1, 3, 8, 0.5)}}, ["whole numbers of at least 0"]),
    ],
)
def test_dimensions_left_open_or_bound_wrongly(wishes: dict, words: list[str]) -> None:
    with pytest.raises(BadInput) as e:
        load_onnx(model(OPEN), ImportOptions(**wishes))
    assert "\n" not in str(e.value)
    for word in words:
        assert word in str(e.value)


def test_a_nameless_dimension_needs_a_shape() -> None:
    m = model("(float[2] x) => (float[2] y) { y = Relu(x) }")
    m.graph.input[0].type.tensor_type.shape.dim.add()
    with pytest.raises(BadInput, match=r"'x' 2x\?.*shapes={.x.: .2, 128.}"):
        load_onnx(m)
    m.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(BadInput, match=r"no shape declared.*shapes={.x.: "):
        load_onnx(m)


def test_declared_and_inferred_shapes_differ() -> None:
    with pytest.warns(UserWarning, match=r"'y' is declared f32\[1x4\], inferred f32\[1x3\]"):
        g = load_onnx(model("(float[1,3] x) => (float[1,4] y) { y = Relu(x) }"))
    assert g.outputs[0].shape == (1, 3)


def test_declared_and_inferred_element_types_differ() -> None:
    with pytest.raises(
        BadInput, match=r"node 'Relu_0' \(Relu\): 'y' has element type f32.*declares i64"
    ):
        load_onnx(model("(float[1,3] x) => (int64[1,3] y) { y = Relu(x) }"))


# ---- values ------------------------------------------------------------------------------------
def test_values_make_inputs_constant() -> None:
    m = model("(float[1,3] x, float[3] k) => (float[1,3] y) { y = Mul(x, k) }")
    g = load_onnx(m, ImportOptions(values={"k": [1, 2, 3]}))
    assert [v.name for v in g.inputs] == ["x"]
    assert run(g, x=X) == pytest.approx(X * [1, 2, 3])


def test_values_take_the_declared_rank_and_type() -> None:
    m = model("(int64[1] k) => (int64[1] y) { y = Add(k, k) }")
    (y,) = load_onnx(m, ImportOptions(values={"k": 4})).outputs
    assert y.data.tolist() == [8]
    with pytest.raises(BadInput, match=r"does not fit"):
        load_onnx(m, ImportOptions(values={"k": [0.5]}))
    with pytest.raises(BadInput, match=r"shape 2x2.*declares 1"):
        load_onnx(m, ImportOptions(values={"k": np.ones((2, 2))}))


STORED = "(float[3] x, float[3] w) => (float[3] y) <float[3] w = {1,2,3}> { y = Mul(x, w) }"


def test_initialisers_listed_as_inputs_are_constants_unless_asked_for() -> None:
    x = np.ones(3, np.float32)
    assert run(load_onnx(model(STORED)), x=x).tolist() == [1, 2, 3]
    assert run(load_onnx(model(STORED), ImportOptions(values={"w": [4, 5, 6]})), x=x).tolist() == [
        4,
        5,
        6,
    ]
    both = load_onnx(model(STORED), ImportOptions(inputs=["x", "w"]))
    assert run(both, x=x, w=np.full(3, 7, np.float32)).tolist() == [7, 7, 7]


def test_sparse_initialisers() -> None:
    m = model("(float[2,3] x) => (float[2,3] y) { y = Add(x, s) }")
    for indices, dims in (([1, 5], [2]), ([0, 1, 1, 2], [2, 2])):
        del m.graph.sparse_initializer[:]
        m.graph.sparse_initializer.append(
            helper.make_sparse_tensor(
                numpy_helper.from_array(np.array([7, 8], np.float32), "s"),
                helper.make_tensor("", TensorProto.INT64, dims, indices),
                [2, 3],
            )
        )
        got = run(load_onnx(m), x=np.zeros((2, 3), np.float32))
        assert got.tolist() == [[0, 7, 0], [0, 0, 8]]


@pytest.mark.parametrize("name", ["?", "", "-1", "None", "unk", " ? "])
def test_dimensions_without_a_name_are_distinct(name: str) -> None:
    """PaddleOCR's detectors have the shape ?x3x?x?."""
    m = model("(float[a,3,b,c] x) => (float[a,3,b,c] y) { y = Relu(x) }")
    for info in (*m.graph.input, *m.graph.output):
        for axis in (0, 2, 3):
            info.type.tensor_type.shape.dim[axis].dim_param = name
    g = load_onnx(m, ImportOptions(shapes={"x": (1, 3, 32, 64)}))
    assert g.outputs[0].shape == (1, 3, 32, 64)
    words = r"'x' \?x3x\?x\?; give each a size, .* shapes=.*1, 3, 224, 224"
    with pytest.raises(BadInput, match=words):
        load_onnx(m)
    with pytest.raises(BadInput, match="no open dimension"):
        load_onnx(m, ImportOptions(dims={name: 1}))


# ---- cutting -----------------------------------------------------------------------------------
def test_other_outputs() -> None:
    g = load_onnx(model(CHAIN), ImportOptions(outputs=["a", "b"]))
    assert list(intaglio.interpret(g, {"x": X})) == ["a", "b"]
    assert [n.op for n in g.nodes()] == ["relu", "add"]


def test_other_inputs_take_their_inferred_shape() -> None:
    g = load_onnx(model(CHAIN), ImportOptions(inputs=["b", "x"]))
    assert [(v.name, v.shape) for v in g.inputs] == [("b", (1, 3)), ("x", (1, 3))]
    assert [n.op for n in g.nodes()] == ["mul"]


def test_what_is_cut_off_need_not_be_supported_nor_bound() -> None:
    m = model("(float[N,3] x) => (float[N,3] y) { a = NoSuchOp(x) b = Relu(a) y = NoSuchOp(b) }")
    with pytest.warns(UserWarning, match="element type of the new input 'a' is not known"):
        g = load_onnx(m, ImportOptions(inputs=["a"], outputs=["b"], shapes={"a": (5, 3)}))
    assert [v.shape for v in (*g.inputs, *g.outputs)] == [(5, 3), (5, 3)]
    with pytest.raises(BadInput, match=r"shape of the new input 'a' is not known.*shapes={.a.: "):
        load_onnx(m, ImportOptions(inputs=["a"], outputs=["b"]))


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"inputs": ["b"]}, "still needs input 'x'"),
        ({"outputs": ["nope"]}, "outputs: the model has no tensor 'nope'"),
        ({"inputs": ["nope"]}, "inputs: the model has no tensor 'nope'"),
        ({"outputs": ["a", "a"]}, "outputs: 'a' is given twice"),
        ({"values": {"nope": 1}}, "values: the model has no tensor 'nope'"),
    ],
)
def test_cuts_that_make_no_sense(wishes: dict, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        load_onnx(model(CHAIN), ImportOptions(**wishes))


# ---- folding -----------------------------------------------------------------------------------
def test_constant_expressions_are_folded() -> None:
    text = """(float[3] x) => (float[3] y) <float[3] w = {1,2,3}> {
        a = Add(w, w) b = Mul(a, a) y = Add(x, b) }"""
    g = load_onnx(model(text))
    (node,) = g.nodes()
    assert node.inputs[1].data.tolist() == [4, 16, 36]
    assert node.inputs[1].name == "b"


def test_large_results_are_left_to_the_fold_pass() -> None:
    m = model("(float[1] x) => (float[4000000] y) { a = Add(w, w) y = Add(x, a) }")
    m.graph.initializer.append(numpy_helper.from_array(np.ones(4_000_000, np.float32), "w"))
    assert [n.op for n in load_onnx(m).nodes()] == ["add", "add"]


def test_the_time_to_load_grows_with_the_number_of_nodes_only() -> None:
    count = 10_000
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(count)]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("t0", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info(f"t{count}", TensorProto.FLOAT, [1])],
    )
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    start = time.process_time()
    assert sum(1 for _ in load_onnx(m).nodes()) == count
    assert time.process_time() - start < 10  # quadratic time would take a minute


# ---- operators ---------------------------------------------------------------------------------
def test_unknown_operators_are_named_with_the_reason() -> None:
    for op, domain, words in [
        (
            "NoSuchOp",
            "",
            "node 'here': NoSuchOp .opset 18. is not supported: there is no importer for it",
        ),
        ("SequenceEmpty", "", "a sequence has no fixed place in memory"),
        ("EdgeValue", "my.domain", "my.domain.EdgeValue .* domain 'my.domain' is unknown"),
        ("Scaler", "ai.onnx.ml", "not neural networks"),
    ]:
        m = model("(float[3] x) => (float[3] y) { y = Relu(x) }", more=f', "{domain or "d"}": 1')
        m.graph.node[0].op_type, m.graph.node[0].domain = op, domain
        m.graph.node[0].name = "here"
        with pytest.raises(Unsupported, match=words) as e:
            load_onnx(m)
        assert "\n" not in str(e.value)


@pytest.mark.parametrize("opset", [-1, 0, 29, 99, (1 << 63) - 1, -(1 << 63)])
def test_opsets_that_are_not_known_are_refused(opset: int) -> None:
    m = model(CHAIN)
    m.opset_import[0].version = opset
    rule = f"imports opset {opset} of 'ai.onnx'; opsets 1 to 28 of 'ai.onnx' can be read; "
    with pytest.raises(BadInput, match=rule) as e:
        load_onnx(m)
    assert "\n" not in str(e.value)


def test_opsets_of_other_domains_and_of_functions_are_checked_too() -> None:
    m = model(CHAIN, more=', "com.microsoft": 1')
    assert load_onnx(m)
    m.opset_import[1].version = -1
    with pytest.raises(BadInput, match=r"opset -1 of 'com\.microsoft'"):
        load_onnx(m)
    functions = '<domain: "f", opset_import: ["": 18]> Twice (a) => (b) { b = Add(a, a) }'
    m = model("(float[3] x) => (float[3] y) { y = f.Twice(x) }", 18, functions, ', "f": 1')
    assert load_onnx(m)
    m.functions[0].opset_import[0].version = 99
    with pytest.raises(BadInput, match="'Twice' imports opset 99"):
        load_onnx(m)


def test_models_before_ir_version_3_mean_opset_1() -> None:
    m = model(CHAIN)
    del m.opset_import[:]
    with pytest.raises(BadInput, match=r"imports no opset"):
        load_onnx(m)
    m.ir_version = 2
    with pytest.warns(UserWarning, match="opset 1, older than the oldest known"):
        g = load_onnx(m)
    assert run(g, x=X) == pytest.approx(2 * np.maximum(X, 0) * X)


def test_the_importer_with_the_largest_since_is_used() -> None:
    @importer("Versioned", since=1, domain="test.versions")
    def _old(n: OnnxNode) -> Value:
        return add(n.inputs[0], n.inputs[0])

    @importer("Versioned", since=5, domain="test.versions")
    def _new(n: OnnxNode) -> Value:
        return mul(n.inputs[0], n.inputs[0])

    for version, op in [(1, "add"), (4, "add"), (5, "mul"), (9, "mul")]:
        text = "(float[3] x) => (float[3] y) { y = test.versions.Versioned(x) }"
        g = load_onnx(model(text, more=f', "test.versions": {version}'))
        assert [n.op for n in g.nodes()] == [op]


def test_an_operand_that_must_be_constant_names_the_input_to_bind() -> None:
    @importer("Const", domain="test.const")
    def _const(n: OnnxNode) -> Value:
        n.const(1)
        return n.inputs[0]

    text = "(float[3] x, int64[1] k) => (float[3] y) { c = Abs(k) y = test.const.Const(x, c) }"
    m = model(text, more=', "test.const": 1')
    with pytest.raises(NeedsValue, match=r"decides a shape.*values={.k.: ") as e:
        load_onnx(m)
    assert e.value.names == ("k",)
    load_onnx(m, ImportOptions(values={"k": [3]}))

    functions = """<domain: "f", opset_import: ["": 18, "test.const": 1]> Inner (a, b) => (c)
        { d = Abs(b) c = test.const.Const(a, d) }"""
    text = """(float[3] x, int64[1] k, bool c) => (float[3] y) { h = Neg(k)
        y = If(c) <then_branch = t () => (float[3] p) { q = Abs(h) p = f.Inner(x, q) },
                   else_branch = e () => (float[3] r) { r = Relu(x) }> }"""
    with pytest.raises(NeedsValue) as e:  # through a function and a branch
        load_onnx(model(text, functions=functions, more=', "test.const": 1, "f": 1'))
    assert e.value.names == ("k",)


def test_missing_onnx_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(IntaglioError, match=r"missing; pip install "):
        load_onnx(b"\x08\x01")


def test_loading_is_silent_by_default() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_onnx(model(CHAIN))
