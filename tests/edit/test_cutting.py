"""Cuts at tensors and additional outputs, beside onnx's own extractor."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.utils import Extractor
from tests.edit.models import classifier, close, image, ops, run, tensors
from tests.frontends.onnx_text import model

import intaglio
from intaglio.errors import BadInput

X = {"image": image()}


def test_a_cut_takes_the_part_between_tensors():
    before = classifier()
    made = intaglio.edit(before).cut(inputs=["r1"], outputs=["f", "c2"])
    assert ops(made) == ["Conv", "Add", "GlobalAveragePool", "Flatten"]
    assert [i.name for i in made.to_onnx().graph.input] == ["r1"]
    assert [o.name for o in made.to_onnx().graph.output] == ["f", "c2"]
    assert [t.name for t in made.to_onnx().graph.initializer] == ["w2"]
    r1, f, c2 = tensors(before, X, "r1", "f", "c2")
    found = run(made, {"r1": r1})
    close(found["f"], f)
    close(found["c2"], c2)
    peer = Extractor(onnx.shape_inference.infer_shapes(before)).extract_model(["r1"], ["f", "c2"])
    close(run(peer, {"r1": r1})["f"], found["f"])
    assert [o.difference for o in made.check().outputs] == [0, 0]


def test_outputs_alone_keep_the_inputs_that_they_need():
    before = model("""(float[2] a, float[2] b) => (float[2] y, float[2] z) {
        y = Neg(a)
        z = Add(y, b)
    }""")
    made = intaglio.edit(before).cut(outputs=["y"])
    assert [i.name for i in made.to_onnx().graph.input] == ["a"]
    assert ops(made) == ["Neg"]
    assert made.check().ok


def test_a_cut_at_one_of_several_results():
    before = model("""(float[4] x) => (float[2] y) {
        a, b = Split<num_outputs = 2>(x)
        y = Add(a, b)
    }""")
    made = intaglio.edit(before).cut(inputs=["a", "x"])
    x, a = np.float32([1, 2, 3, 4]), np.float32([10, 20])
    close(run(made, {"x": x, "a": a})["y"], a + x[2:])
    assert made.check().ok


def test_a_constant_becomes_an_input():
    made = intaglio.edit(classifier()).cut(inputs=["image", "b3"])
    assert [i.name for i in made.to_onnx().graph.input] == ["image", "b3"]
    assert "b3" not in [t.name for t in made.to_onnx().graph.initializer]
    assert made.check().outputs[0].difference == 0


def test_a_cut_at_an_inserted_node_stands_for_the_tensor_before_it():
    made = intaglio.edit(classifier()).insert_after("c1", "Relu").cut(inputs=["c1_Relu"])
    (found,) = made.check().outputs
    assert (found.intended, found.difference) == (False, 0)
    made = intaglio.edit(classifier()).insert_before("add", "Relu", tensor="r1")
    (found,) = made.cut(inputs=["r1_Relu", "r1"]).check().outputs
    assert found.intended, "the original has no such tensor"


def test_inner_tensors_become_outputs():
    before = classifier()
    made = intaglio.edit(before).add_output("c1", "logits")
    found = run(made, X)
    assert list(found) == ["scores", "c1", "logits"]
    for name, want in zip(("c1", "logits"), tensors(before, X, "c1", "logits"), strict=True):
        close(found[name], want)
    assert made.check().ok


def test_open_dimensions_stay_open():
    made = intaglio.edit(classifier("batch")).cut(inputs=["c1"], outputs=["logits"])
    (given,) = made.to_onnx().graph.input
    assert given.type.tensor_type.shape.dim[0].dim_param == "batch"
    assert len(made.check().sizes) == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cut inputs c2", r"still need input 'image' \(node 'conv1' reads it\); add 'image'"),
        ("cut inputs c9", "no tensor 'c9'"),
        ("cut inputs conv1", "'conv1' is a node, not a tensor; its results are 'c1'"),
        ("cut inputs c1, c1", "inputs: 'c1' is given twice"),
        ("cut outputs c1, c1", "outputs: 'c1' is given twice"),
        ("cut inputs scores", "'scores' is an output, which cannot be an input too"),
        ("cut outputs image", "'image' is an input; only results of nodes can be outputs"),
        ("cut outputs w1", "'w1' is a constant"),
        ("cut outputs c1,", "a name is empty"),
        ("cut outputs", "has no target; write cut outputs TENSOR, ..."),
        ("add output scores", "is an output already"),
        ("add output w1", "'w1' is a constant"),
    ],
)
def test_errors(line, words):
    with pytest.raises(BadInput, match=words):
        intaglio.edit(classifier()).apply(line)


def test_python_arguments():
    with pytest.raises(BadInput, match="cut needs tensors"):
        intaglio.edit(classifier()).cut()
    with pytest.raises(BadInput, match="it is a list of names"):
        intaglio.edit(classifier()).cut(inputs="c1")
    with pytest.raises(BadInput, match="at least one tensor"):
        intaglio.edit(classifier()).cut(outputs=[])


def test_shapes_that_onnx_does_not_know_come_from_the_importer():
    """A Range of computed limits: onnx infers its rank only."""
    before = model("""(float[2] x) => (float[2] y) <float[3] one = {1, 2, 3}> {
        s = Size(one)
        z = Constant<value_int = 0>()
        o = Constant<value_int = 1>()
        m = Mul(s, s)
        r = Range(z, m, o)
        f = Cast<to = 1>(r)
        t = ReduceSum(f)
        y = Add(x, t)
    }""")
    made = intaglio.edit(before).cut(inputs=["f", "x"])
    assert made.check().ok
