"""Changes of inputs and outputs: layouts, element types, formulas, shapes, names."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from tests.edit.models import classifier, close, image, ops, run
from tests.edit.test_formula import formulas, numbered
from tests.frontends.onnx_text import model

import intaglio
from intaglio.edit.formula import Formula
from intaglio.errors import BadInput


def declared(made, name: str) -> tuple[int, list]:
    graph = made.to_onnx().graph
    t = next(i for i in (*graph.input, *graph.output) if i.name == name).type.tensor_type
    return t.elem_type, [d.dim_value or d.dim_param for d in t.shape.dim]


# ---- layouts and types ----
def test_an_input_takes_bytes_in_nhwc():
    before = classifier()
    made = intaglio.edit(before).change_input("image", "uint8", "NHWC")
    assert declared(made, "image") == (onnx.TensorProto.UINT8, [1, 8, 8, 3])
    assert ops(made)[:3] == ["Transpose", "Cast", "Conv"], "bytes are moved, then converted"
    x = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 3), np.uint8)
    want = run(before, {"image": x.transpose(0, 3, 1, 2).astype(np.float32)})
    close(run(made, {"image": x})["scores"], want["scores"])
    assert made.check().outputs[0].difference == 0


def test_the_other_order_works_too():
    made = intaglio.edit(classifier()).change_input("image", "NHWC uint8")
    assert ops(made)[:2] == ["Cast", "Transpose"]
    assert made.check().ok


def test_outputs_change_while_other_readers_keep_the_tensor():
    before = model("""(float[1,2,3,4] x) => (float[1,2,3,4] y, float[1,2,3,4] z) {
        y = Relu(x)
        z = Neg(y)
    }""")
    made = intaglio.edit(before).change_output("y", "NHWC float16")
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 4)).astype(np.float32)
    found, want = run(made, {"x": x}), run(before, {"x": x})
    np.testing.assert_array_equal(found["y"], want["y"].transpose(0, 2, 3, 1).astype(np.float16))
    close(found["z"], want["z"])
    assert all(o.difference == 0 and not o.intended for o in made.check().outputs)


def test_layouts_of_any_rank():
    before = model("(float[3,4,5] x) => (float[3,4,5] y) { y = Relu(x) }")
    made = intaglio.edit(before).change_input("x", "CHW->HWC").change_output("y", "CHW -> HWC")
    assert declared(made, "x")[1] == [4, 5, 3] == declared(made, "y")[1]
    assert made.check().ok


# ---- formulas ----
@settings(max_examples=40, deadline=None)
@given(formulas(), formulas())
def test_random_formulas_as_onnxruntime_runs_them(one, two):
    """x and y rearranged, z as a witness that the inner tensors stayed."""
    (f, first), (g, second) = one, two
    a, b = (f"float{list(shape) or ''}" for shape in (first, second))
    before = model(f"({a} x, {b} w) => ({a} y, {b} v) {{ y = Neg(x)  v = Exp(w) }}")
    x = numbered(*first).astype(np.float32)
    w = np.asarray(numbered(*second) % 5, np.float32)
    made = intaglio.edit(before).change_input("x", f).change_output("y", f).change_output("v", g)
    forward = Formula.parse(f).apply
    found = run(made, {"x": forward(x), "w": w})
    np.testing.assert_array_equal(found["y"], -forward(x))
    close(found["v"], Formula.parse(g).apply(np.exp(w)))
    check = made.check()
    assert all(o.difference == 0 and not o.intended for o in check.outputs)


@pytest.mark.parametrize("opset", [7, 13, 21])
@pytest.mark.parametrize(
    ("formula", "old", "new"),
    [
        ("a,b,c,d->a,c,d,b", (2, 3, 4, 6), (2, 4, 6, 3)),
        ("a,b,c,d->ab,c,d", (2, 3, 4, 6), (6, 4, 6)),
        ("a,b,c,d->ab,cd", (2, 3, 4, 6), (6, 24)),
        ("a,b,cd,e[c=2]->ca,e,bd", (2, 3, 4, 6), (4, 6, 6)),
        ("a,b,c,d->c,1,ad,b", (2, 3, 4, 6), (4, 1, 12, 3)),
    ],
)
def test_formulas_with_open_dimensions(formula, old, new, opset):
    """Two open dimensions, of which none may be fixed by the edit."""
    before = model("(float[N,3,M,6] x) => (float[N,3,M,6] y) { y = Neg(x) }", opset=opset)
    made = intaglio.edit(before).change_input("x", formula).change_output("y", formula)
    for n, m in ((2, 4), (5, 8)):
        x = np.random.default_rng(n).normal(size=(n, 3, m, 6)).astype(np.float32)
        rearranged = Formula.parse(formula).apply(x)
        found = run(made, {"x": rearranged})["y"]
        np.testing.assert_array_equal(found, -rearranged)
        assert (n, m) != (2, 4) or (x.shape, found.shape) == (old, new)
    check = made.check()
    assert check.ok
    assert len(check.sizes) == 2


def test_open_dimensions_keep_their_symbols():
    made = intaglio.edit(classifier("batch")).change_input("image", "a,b,c,d->a,c,d,b")
    assert declared(made, "image")[1] == ["batch", 8, 8, 3]
    assert declared(made, "scores")[1] == ["batch", 5]
    made = intaglio.edit(classifier("batch")).change_input("image", "a,b,c,d->ac,b,d")
    assert declared(made, "image")[1] == ["8*batch", 3, 8]
    assert str(made.check()).startswith("runs at image 8x3x8 and at image 32x3x8; equal to")


def test_given_extents_fix_open_dimensions():
    made = intaglio.edit(classifier("batch")).change_input("image", "a,b,c,d[a=2]->ab,c,d")
    assert declared(made, "image")[1] == [6, 8, 8]
    assert declared(made, "scores")[1] in ([2, 5], ["batch", 5])
    assert made.check().ok


def test_merged_open_dimensions_cannot_be_split_again():
    before = model("(float[N,M] x) => (float[N,M] y) { y = Relu(x) }")
    with pytest.raises(BadInput, match=r"merges a and b, which are open dimensions of NxM"):
        intaglio.edit(before).change_input("x", "a,b->ab")
    made = intaglio.edit(before).change_output("y", "a,b->ab")
    assert declared(made, "y")[1] == ["N*M"]
    assert made.check().ok


# ---- pairs that cancel ----
def test_transposes_of_the_model_cancel():
    before = model("""(float[1,4,4,3] x) => (float[1,2,2,3] y) {
        t = Transpose<perm = [0, 3, 1, 2]>(x)
        p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(t)
        y = Transpose<perm = [0, 2, 3, 1]>(p)
    }""")
    made = intaglio.edit(before).change_input("x", "NHWC->NCHW").change_output("y", "NHWC->NCHW")
    assert ops(made) == ["MaxPool"]
    assert made.edits[0].effect.endswith("; 1 pair of nodes cancelled")
    check = made.check()
    assert str(check) == "runs; equal to the original: y (was p)"
    x = np.random.default_rng(0).normal(size=(1, 3, 4, 4)).astype(np.float32)
    want = run(before, {"x": x.transpose(0, 2, 3, 1)})["y"]
    np.testing.assert_array_equal(run(made, {"x": x})["y"], want.transpose(0, 3, 1, 2))


def test_reshapes_of_the_model_cancel():
    before = model("""(float[1,24] x) => (float[6,4] y)
        <int64[3] s = {2, 3, 4}, int64[2] e = {6, 4}> {
        r = Reshape(x, s)
        t = Transpose<perm = [0, 2, 1]>(r)
        u = Neg(t)
        v = Transpose<perm = [0, 2, 1]>(u)
        y = Reshape(v, e)
    }""")
    made = intaglio.edit(before)
    made.change_input("x", "1,abc[a=2,b=3]->a,c,b").change_output("y", "ab,c[a=2]->a,c,b")
    assert ops(made) == ["Neg"]
    assert not made.to_onnx().graph.initializer
    assert made.check().ok


def test_pairs_that_others_read_do_not_cancel():
    before = model("""(float[2,3] x) => (float[3,2] y, float[2,3] z) {
        y = Transpose<perm = [1, 0]>(x)
        z = Neg(x)
    }""")
    made = intaglio.edit(before).change_input("x", "a,b->b,a")
    assert ops(made) == ["Transpose", "Transpose", "Neg"]
    assert made.check().ok


# ---- shapes and names ----
def test_shapes_are_fixed_changed_and_opened():
    made = intaglio.edit(classifier("batch")).set_shape("image", (2, 3, 16, 16))
    assert declared(made, "scores")[1] == [2, 5]
    assert run(made, {"image": np.zeros((2, 3, 16, 16), np.float32)})["scores"].shape == (2, 5)
    assert made.check().outputs[0].difference == 0
    made = intaglio.edit(classifier()).set_shape("image", ("batch", 3, "", ""))
    assert declared(made, "image")[1] == ["batch", 3, "", ""]
    assert declared(made, "scores")[1] == ["batch", 5]
    assert run(made, {"image": image(4)})["scores"].shape == (4, 5)
    assert made.check().ok


def test_a_reshape_that_fixes_the_batch_is_found_by_running():
    before = model("(float[1,4] x) => (float[2,2] y) <int64[2] s = {2, 2}> { y = Reshape(x, s) }")
    check = intaglio.edit(before).set_shape("x", ("batch", 4)).check()
    assert "runs at x 1x4; not at batch 4: onnx: node 'Reshape_0' (Reshape): cannot" in str(check)


def test_a_shape_that_does_not_fit_is_found_by_running():
    made = intaglio.edit(classifier()).set_shape("image", (1, 4, 8, 8))
    with pytest.raises(BadInput, match=r"the edited model does not run: .*'conv1' \(Conv\)"):
        made.check()


def test_dimensions_are_fixed_and_renamed():
    made = intaglio.edit(classifier("batch")).set_dim("batch", "N")
    assert declared(made, "image")[1] == ["N", 3, 8, 8]
    assert declared(made, "scores")[1] == ["N", 5]
    made.set_dim("N", 4)
    assert declared(made, "scores")[1] == [4, 5]
    assert made.check().ok


def test_value_info_follows_the_shapes():
    before = onnx.shape_inference.infer_shapes(classifier())
    made = intaglio.edit(before).set_shape("image", (2, 3, 16, 16)).to_onnx()
    infos = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in made.graph.value_info
    }
    assert infos["c1"] == [2, 4, 16, 16]
    assert infos.keys() == {v.name for v in before.graph.value_info}
    onnx.checker.check_model(made, full_check=True)


def test_everything_can_be_renamed():
    before = classifier()
    made = intaglio.edit(before).rename("image", "x").rename("scores", "y").rename("w1", "weights")
    made.rename("c1", "first").rename("conv1", "stem").rename("logits", "a b")
    proto = made.to_onnx()
    assert proto.graph.node[0].name == "stem"
    assert list(proto.graph.node[0].input) == ["x", "weights"]
    close(run(made, {"x": image()})["y"], run(before, {"image": image()})["scores"])
    assert made.check().outputs[0].difference == 0
    assert made.edits[-1].line == 'rename logits: "a b"'


def test_patterns_rename_many():
    made = intaglio.edit(classifier()).rename("conv*", "net/conv*").rename("w*", "*_weights")
    names = [n.name for n in made.to_onnx().graph.node]
    assert names[0] == "net/conv1"
    assert {t.name for t in made.to_onnx().graph.initializer} >= {"1_weights", "2_weights"}
    assert made.check().ok


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "change input image: NCHW",
            "1x3x8x8 looks like NCHW already; to transpose it nevertheless",
        ),
        ("change input image: HWC", "only NCHW and NHWC are known without the layout before"),
        ("change input image: NCHW->NHW", "both sides need the same letters"),
        ("change input image: CHW->HWC", "layout HWC has 3 axes, 'image' has 4: 1x3x8x8"),
        (
            "change input image: uint9",
            "'uint9' is no layout, element type or formula; did you mean",
        ),
        ("change input image: zzzzz", "known are float32, float16"),
        ("change input image: a,b->b,a", "has 2 axes on its left side, the tensor has 4"),
        ("change input c1: uint8", "no input 'c1', it is an inner tensor; its inputs are image"),
        ("change input imag: uint8", "did you mean 'image'"),
        ("change output image: uint8", "no output 'image'"),
        ("set shape image: 1x3x8", "has 4 axes, 1x3x8x8; 3 are given"),
        ("set shape image: 1xax8x8", "is no shape"),
        ("set dim batch: 3", "no open dimension 'batch'; all are fixed or nameless"),
        ("rename c1: c2", "'c2' exists already"),
        ("rename c9: x", "no tensor or node 'c9'; did you mean"),
        ("rename zz*: x", "no tensor or node matches the pattern"),
        ("rename c*: x", "names would become 1; write"),
        ("rename c*r*: x", "a pattern has one"),
    ],
)
def test_errors(line, words):
    with pytest.raises(BadInput, match=words) as refused:
        intaglio.edit(classifier()).apply(line)
    assert "\n" not in str(refused.value)


def test_an_input_that_is_an_output_is_refused():
    before = model("(float[2] x) => (float[2] x) { y = Relu(x) }")
    with pytest.raises(BadInput, match="is an input and an output"):
        intaglio.edit(before).change_input("x", "float16")
    with pytest.raises(BadInput, match="no node computes"):
        intaglio.edit(before).change_output("x", "float16")


def test_python_arguments():
    made = intaglio.edit(classifier("batch"))
    for wrong in ("1x3x8x8", (1, 3, 0, 8), (1, 3, 8.0, 8), None, (True, 3, 8, 8)):
        with pytest.raises(BadInput, match=r"the shape is .*; give a tuple of extents"):
            made.set_shape("image", wrong)
    for wrong in (0, -1, 1.5, "", True):
        with pytest.raises(BadInput, match="give a number from 1 on, or a symbol"):
            made.set_dim("batch", wrong)
    with pytest.raises(BadInput, match="no change of 'image' is given"):
        made.change_input("image")
    for call in (lambda: made.rename(3, "a"), lambda: made.remove(None), lambda: made.cut([3])):
        with pytest.raises(BadInput, match=r"no name; give a string|list of names"):
            call()
    assert not made.edits


def test_names_of_the_package_are_found_lazily():
    from intaglio.edit import Check, Editor, Formula

    assert isinstance(intaglio.edit(classifier()), Editor)
    assert Formula.parse("a->a").right == ("a",)
    assert Check(True).ok
    assert callable(intaglio.edit), "importing the package does not hide the function"
