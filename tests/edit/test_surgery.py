"""Edits of nodes: insert, replace, remove, attributes, constants; onnxruntime is the oracle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.edit.models import classifier, close, image, ops, run, tensors
from tests.frontends.onnx_text import model

import intaglio
from intaglio.errors import BadInput

X = {"image": image()}


def test_insert_after_a_tensor_changes_all_its_readers():
    before = classifier()
    made = intaglio.edit(before).insert_after("r1", "Mul(2)")
    s, c2 = tensors(made.add_output("s", "c2").to_onnx(), X, "s", "c2")
    (r1,) = tensors(before, X, "r1")
    close(s, c2 + 2 * r1)
    assert made.edits[0].line == "insert after r1: Mul(2)"
    assert made.edits[0].effect == "node 'r1_Mul' added"


def test_insert_after_an_input_and_after_an_output():
    before = classifier()
    made = intaglio.edit(before).insert_after("image", "Div(_, 2)").insert_after("scores", "Neg")
    (want,) = run(before, {"image": X["image"] / 2}).values()
    close(run(made, X)["scores"], -want)


def test_insert_before_a_node_changes_only_that_reader():
    before = classifier()
    made = intaglio.edit(before).insert_before("add", "Neg", tensor="r1")
    s, c2, r1 = tensors(made.add_output("s").to_onnx(), X, "s", "c2", "r1")
    close(s, c2 - r1)
    first = intaglio.edit(before).insert_before("add", "Mul", 3.0)
    s, c2, r1 = tensors(first.to_onnx(), X, "s", "c2", "r1")
    close(s, 3 * c2 + r1)


def test_insertion_of_the_same_kind_twice_gets_new_names():
    made = intaglio.edit(classifier()).insert_after("c1", "Neg").insert_after("c1", "Neg")
    assert [n.name for n in made.to_onnx().graph.node][:3] == ["conv1", "c1_Neg_1", "c1_Neg"]
    close(run(made, X)["scores"], run(classifier(), X)["scores"])


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("Clip(min=0, max=1)", lambda x: np.clip(x, 0, 1)),
        ("Clip(_, 0, 1)", lambda x: np.clip(x, 0, 1)),
        ("Clip(max=1)", lambda x: np.minimum(x, 1)),
        ("Clip(, 1)", lambda x: np.minimum(x, 1)),
        ("Sub(1, _)", lambda x: 1 - x),
        ("Sub(1)", lambda x: x - 1),
        ("Add(_, _)", lambda x: x + x),
        ("Where(condition=yes, Y=7.5)", lambda x: np.where([[1, 0, 0]], x, np.float32(7.5))),
        ("Pow(Y=2)", lambda x: x**2),
        ("Add(bias)", lambda x: x + np.float32([1, 2, 3])),
        ("Reshape(shape=[3, -1])", lambda x: x.reshape(3, -1)),
        ("Transpose(perm=[1, 0])", lambda x: x.T),
        ("ReduceMax([1], keepdims=0)", lambda x: x.max(1)),
        ("Cast(to=7)", lambda x: x.astype(np.int64)),
        ("Concat(_, bias2, axis=0)", lambda x: np.concatenate([x, np.float32([[1, 2, 3]])])),
        ("LeakyRelu(alpha=0.5)", lambda x: np.where(x < 0, x / 2, x).astype(np.float32)),
        ("Pad(pads=[0, 1, 0, 0], mode=edge)", lambda x: np.pad(x, ((0, 0), (1, 0)), "edge")),
    ],
)
def test_nodes_are_written_with_operands_and_attributes(node, expected):
    before = model("""(float[2,3] x) => (float[2,3] y, bool[1,3] u, float[3] v, float[1,3] w)
        <bool[1,3] yes = {1, 0, 0}, float[3] bias = {1, 2, 3}, float[1,3] bias2 = {1, 2, 3}> {
            y = Identity(x)
            u = Identity(yes)
            v = Identity(bias)
            w = Identity(bias2)
        }""")
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    made = intaglio.edit(before).insert_after("y", node)
    close(run(made, {"x": x})["y"], expected(x))
    assert made.check().ok


def test_clip_has_attributes_in_old_opsets():
    before = model("(float[2] x) => (float[2] y) { y = Relu(x) }", opset=9)
    made = intaglio.edit(before).insert_after("y", "Clip(min=0, max=6)")
    assert [a.name for a in made.to_onnx().graph.node[-1].attribute] == ["min", "max"]
    close(run(made, {"x": np.float32([-1, 9])})["y"], np.float32([0, 6]))


def test_operands_from_python_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    scale = np.float64([1, 2, 3, 4]).reshape(1, 4, 1, 1)
    np.save(tmp_path / "scale.npy", scale)
    monkeypatch.chdir(tmp_path)
    by_file = intaglio.edit(classifier()).insert_after("c1", "Mul(scale.npy)")
    by_array = intaglio.edit(classifier()).insert_after("c1", "Mul", "_", scale)
    assert by_array.edits[0].line == "insert after c1: Mul(_, float64[1, 4, 1, 1])"
    c1, r1 = tensors(by_array.to_onnx(), X, "c1", "r1")
    close(r1, np.maximum(c1 * scale.astype(np.float32), 0))
    close(run(by_file, X)["scores"], run(by_array, X)["scores"])


def test_replace_keeps_operands_results_and_name():
    made = intaglio.edit(classifier()).replace("relu1", "LeakyRelu(alpha=0.1)")
    node = made.to_onnx().graph.node[1]
    assert (node.name, list(node.input), list(node.output)) == ("relu1", ["c1"], ["r1"])
    made = intaglio.edit(classifier()).replace("add", "Sub(_1, _0)")
    s, c2, r1 = tensors(made.to_onnx(), X, "s", "c2", "r1")
    close(s, r1 - c2)
    made = intaglio.edit(classifier()).replace("add", "Relu")
    assert list(made.to_onnx().graph.node[3].input) == ["c2"]
    made = intaglio.edit(classifier()).replace("relu1", "Clip(min=0, max=1)")
    c1, r1 = tensors(made.to_onnx(), X, "c1", "r1")
    close(r1, np.clip(c1, 0, 1))


def test_replace_by_operator_and_pattern():
    made = intaglio.edit(classifier()).replace("every Conv", "Conv", pads=[1, 1, 1, 1], group=1)
    assert made.edits[0].effect == "2 nodes replaced"
    assert made.check().outputs[0].difference == 0
    made = intaglio.edit(classifier()).replace("?elu*", "Neg")
    assert ops(made)[:2] == ["Conv", "Neg"]


def test_remove_lets_readers_read_the_operand():
    before = classifier()
    made = intaglio.edit(before).remove("relu1")
    c1, s, c2 = tensors(made.to_onnx(), X, "c1", "s", "c2")
    close(s, c2 + c1)
    other = intaglio.edit(before).remove("add", keep="r1")
    assert ops(other)[:2] == ["Conv", "Relu"]
    assert "conv2" not in {n.name for n in other.to_onnx().graph.node}, "nothing reads it"
    assert "w2" not in {t.name for t in other.to_onnx().graph.initializer}


def test_remove_skips_constant_operands():
    before = model("""(float[2] x) => (float[2] y) <float one = {1}> {
        t = Constant<value_float = 2.0>()
        a = Add(one, x)
        b = Mul(t, a)
        y = Neg(b)
    }""")
    made = intaglio.edit(before).remove("Add_1").remove("Mul_2")
    assert ops(made) == ["Neg"]
    close(run(made, {"x": np.float32([1, 2])})["y"], np.float32([-1, -2]))


def test_remove_of_an_output_makes_the_operand_the_output():
    before = classifier()
    made = intaglio.edit(before).remove("softmax")
    (logits,) = tensors(before, X, "logits")
    assert "logits" not in {o for n in made.to_onnx().graph.node for o in n.output}
    close(run(made, X)["scores"], logits)
    (found,) = made.check().outputs
    assert (found.tensor, found.intended, found.difference) == ("logits", False, 0)


def test_remove_of_a_node_between_input_and_output_leaves_an_identity():
    before = model("(float[2] x) => (float[2] y, float[2] z) { y = Relu(x)  z = Neg(y) }")
    made = intaglio.edit(before).remove("y")
    assert ops(made) == ["Identity", "Neg"]
    x = np.float32([-1, 2])
    found = run(made, {"x": x})
    close(found["y"], x)
    close(found["z"], -x)
    assert [o.intended for o in made.check().outputs] == [False, True]


def test_removed_dropouts_and_identities_change_nothing():
    made = intaglio.edit(classifier()).remove("every Dropout")
    assert "Dropout" not in ops(made)
    (found,) = made.check().outputs
    assert not found.intended
    assert found.difference == 0


def test_nodes_without_names_are_called_by_operator_and_place():
    before = model("(float[2] x) => (float[2] z) { y = Relu(x)  z = Neg(y) }")
    assert ops(intaglio.edit(before).remove("Relu_0")) == ["Neg"]
    assert ops(intaglio.edit(before).remove("Relu_0").remove("Neg_1")) == ["Identity"]
    before.graph.node[0].name = before.graph.node[1].name = "twin"
    assert ops(intaglio.edit(before).remove("twin_1")) == ["Relu"]


def test_attributes_change_appear_and_vanish():
    made = intaglio.edit(classifier()).set_attribute("softmax", "axis", 0)
    close(run(made, X)["scores"], np.ones((1, 5), np.float32))
    made.set_attribute("softmax", "axis", None)
    assert not made.to_onnx().graph.node[-1].attribute
    close(run(made, X)["scores"], run(classifier(), X)["scores"])
    made = intaglio.edit(classifier()).set_attribute("every Conv", "auto_pad", "NOTSET")
    assert made.edits[0].line == "set attribute every Conv.auto_pad: NOTSET"
    assert made.check().outputs[0].difference == 0


def test_constants_get_other_values():
    zero = intaglio.edit(classifier()).set_constant("w3", 0)
    (logits,) = tensors(zero.to_onnx(), X, "logits")
    b3 = onnx.numpy_helper.to_array(classifier().graph.initializer[3])
    close(logits, b3[None])
    listed = intaglio.edit(classifier()).set_constant("b3", [1, 2, 3, 4, 5])
    assert listed.edits[0].line == "set constant b3: [1, 2, 3, 4, 5]"
    array = intaglio.edit(classifier()).set_constant("b3", np.arange(1, 6))
    close(run(listed, X)["scores"], run(array, X)["scores"])


def test_inputs_and_results_become_constants():
    before = model("(float[2] x, float[2] k) => (float[2] y) { s = Neg(k)  y = Add(x, s) }")
    made = intaglio.edit(before).set_constant("k", 3)
    x = np.float32([1, 2])
    close(run(made, {"x": x})["y"], x - 3)
    assert [i.name for i in made.to_onnx().graph.input] == ["x"]
    (found,) = made.check().outputs
    assert (found.intended, found.difference) == (False, 0), "the original runs with k = 3"
    made = intaglio.edit(before).set_constant("s", [10, 20])
    assert ops(made) == ["Add"]
    close(run(made, {"x": x, "k": x})["y"], x + np.float32([10, 20]))
    made = intaglio.edit(before).set_constant("y", [10, 20])
    close(run(made, {"x": x, "k": x})["y"], np.float32([10, 20]))


def test_operators_of_onnxruntime_and_functions_of_the_model():
    made = intaglio.edit(classifier()).replace("relu1", "com.microsoft.Gelu")
    assert ("com.microsoft", 1) in [(o.domain, o.version) for o in made.to_onnx().opset_import]
    found = run_unchecked(made)
    assert found.shape == (1, 5)
    assert made.check().ran
    before = model(
        "(float[2] x) => (float[2] y) { y = Relu(x) }",
        functions='<domain: "own", opset_import: ["": 18]> Twice (a) => (b) { b = Add(a, a) }',
        more=', "own": 1',
    )
    made = intaglio.edit(before).insert_after("y", "own.Twice")
    close(run(made, {"x": np.float32([1, 2])})["y"], np.float32([2, 4]))
    assert made.check().ran
    with pytest.raises(BadInput, match="Twice has no attribute or operand 'b'; it has a"):
        intaglio.edit(before).insert_after("y", "own.Twice(b=1)")


def run_unchecked(made) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(
        made.to_onnx().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, X)[0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("insert after c9: Relu", r"no tensor 'c9'; did you mean 'c2' or 'c1'\?"),
        ("insert after conv1: Relu", "'conv1' is a node, not a tensor; its results are 'c1'"),
        ("insert after c1: Rlu", "no operator is called 'Rlu'; did you mean 'Relu'?"),
        ("insert after c1: Gelu", "operator 'Gelu' needs opset 20, the model has 18"),
        ("insert after c1: own.Foo", "the model imports no domain 'own'; known are com.microsoft"),
        ("insert after c1: com.microsft.Gelu", "did you mean 'com.microsoft'"),
        ("insert after c1: Clip(mn=0)", "no attribute or operand 'mn'; did you mean 'min'"),
        ("insert after c1: Relu(1, 2)", "Relu takes 1 operands, 3 are given"),
        ("insert after c1: Clip(_, 1, min=0)", "operand 'min' is given twice"),
        ("insert after c1: Add(_, c8)", "no tensor 'c8'; did you mean"),
        ("insert after c1: Add(_1, 2)", "'_1': the node has 1 operands"),
        ("insert after c1: Add(_, s)", "node 'c1_Add' would read its own result"),
        ("insert after c1: Transpose(perm=[0, 1])", r"node 'conv2' \(Conv\): Input tensor must"),
        ("insert after c1: Transpose(perm=1)", "is 1; give a list of whole numbers"),
        ("insert after c1: Softmax(axis=1.5)", "is 1.5; give a whole number"),
        ("insert after c1: Softmax(axis=x)", "is 'x'; give a whole number"),
        ("insert after c1: Resize(mode=3)", "is 3; give a text"),
        ("insert after c1: Add(none.npy)", "none.npy: no such file"),
        ("insert before conv1, c2: Relu", "'c2' is no operand of node 'conv1'; it reads image, w1"),
        ("insert before conv9: Relu", r"no node 'conv9'; did you mean 'conv2' or 'conv1'\?"),
        ("insert before image: Relu", "'image' is an input, not a node"),
        ("insert before w1: Relu", "'w1' is a constant, not a node"),
        ("insert before a, b, c: Relu", "give a node, or a node and one of its operands"),
        ("replace every Rel: Neg", "no node of operator 'Rel'; did you mean 'Relu'"),
        ("replace zzz*: Neg", r"no node matches the pattern 'zzz\*'"),
        ("remove conv1", r"node 'add' \(Add\): Incompatible dimensions"),
        ("remove add: image", "'image' is no operand of node 'add'; it reads c2, r1"),
        ("set attribute conv1.pad: [1]", "did you mean 'pads'"),
        ("set attribute conv1.pads: [1, x]", "give a list of whole numbers"),
        ("set attribute conv1: 1", "'conv1' names no attribute; write NODE.ATTRIBUTE"),
        ("set constant w3: [1, 2]", "Gemm"),
        ("set constant w3: [[1], [1, 2]]", "is no array of numbers"),
        ("set constant w3: abc", "constant 'w3' is 'abc'; give a number, a list or a .npy file"),
    ],
)
def test_errors_change_nothing(line, words):
    made = intaglio.edit(classifier())
    before = made.to_onnx().SerializeToString(deterministic=True)
    with pytest.raises(BadInput, match=words) as refused:
        made.apply(line)
    assert str(refused.value).startswith("line 1: ")
    assert "\n" not in str(refused.value)
    assert made.to_onnx().SerializeToString(deterministic=True) == before
    assert not made.edits


def test_nodes_with_several_results_and_without_operands():
    before = model("""(float[4] x) => (float[2] y) {
        a, b = Split<num_outputs = 2>(x)
        c = Constant<value_float = 2.0>()
        d = Add(a, b)
        y = Mul(d, c)
    }""")
    with pytest.raises(BadInput, match=r"has 2 results that are read \(a, b\)"):
        intaglio.edit(before).remove("a")
    with pytest.raises(BadInput, match="Relu has 1 result, but 'b' of node 'Split_0' is read"):
        intaglio.edit(before).replace("a", "Relu")
    with pytest.raises(BadInput, match="has no operand that could take its place"):
        intaglio.edit(before).remove("c")
    with pytest.raises(BadInput, match="has no operands; nothing lies before it"):
        intaglio.edit(before).insert_before("c", "Relu")
    made = intaglio.edit(before).remove("d").remove("Split_0")
    close(run(made.set_shape("x", (2,)), {"x": np.float32([1, 2])})["y"], np.float32([2, 4]))
