"""The check by running: what is compared, what is refused, and how it is told."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from tests.edit.models import classifier, image
from tests.frontends.onnx_text import model

import intaglio
from intaglio.edit import check as module
from intaglio.edit.editor import Editor
from intaglio.errors import BadInput

TWO = """(float[2] x, float[2] w) => (float[2] y, float[2] z) {
    a = Neg(x)
    y = Exp(a)
    z = Add(w, w)
}"""


def told(made: Editor) -> str:
    return str(made.check())


def test_outputs_that_no_edit_reaches_must_be_equal():
    made = intaglio.edit(model(TWO)).insert_after("a", "Abs").rename("z", "sum")
    y, z = made.check().outputs
    assert (y.name, y.tensor, y.intended) == ("y", "y", True)
    assert (z.name, z.tensor, z.intended, z.difference) == ("sum", "z", False, 0)
    assert told(made).startswith(
        "runs; equal to the original: sum (was z); changed by edits: y (by"
    )


def test_many_equal_outputs_are_counted():
    before = model("""(float[2] x) => (float[2] a, float[2] b, float[2] c, float[2] d) {
        a = Neg(x)  b = Abs(x)  c = Exp(x)  d = Relu(x)
    }""")
    made = intaglio.edit(before).change_input("x", "float64")
    assert told(made) == "runs; equal to the original: all 4 outputs"


def test_a_wrong_edit_is_refused(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """An editor with a mistake: the permutation is not the formula's."""
    made = intaglio.edit(classifier()).change_input("image", "NHWC")
    wrong = onnx.helper.make_node("Transpose", ["image"], ["image_Transpose"], perm=[0, 3, 2, 1])
    made.state.nodes.replace("image_Transpose", wrong)
    check = made.check()
    assert not check.ok
    with pytest.raises(
        BadInput, match=r"output 'scores' differs by .* although no edit changes it"
    ):
        made.save(tmp_path / "wrong.onnx")
    assert not list(tmp_path.iterdir())
    made.save(tmp_path / "wrong.onnx", check=False)
    assert (tmp_path / "wrong.onnx").exists()


def test_declared_types_are_compared_with_the_results():
    made = intaglio.edit(model(TWO)).remove("a")
    made.state.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 3
    with pytest.raises(BadInput, match=r"'y' is declared f32\[3\], but running .* gives f32\[2\]"):
        made.check()


def test_native_and_interpreted():
    made = intaglio.edit(classifier()).change_input("image", "uint8 NHWC").remove("softmax")
    for engine in ("interpreter", "native"):
        assert made.check(engine=engine).outputs[0].difference <= module.LIMIT
    with pytest.raises(BadInput, match="engine is 'gpu'; it is one of interpreter, native"):
        made.check(engine="gpu")


def test_own_data_and_other_seeds():
    made = intaglio.edit(classifier("batch")).change_input("image", "NHWC")
    check = made.check(data={"image": image(3).transpose(0, 2, 3, 1)})
    assert check.sizes == ["image 3x8x8x3"]
    assert check.ok
    assert made.check(seed=5).ok
    two = intaglio.edit(model(TWO)).rename("x", "given")
    with pytest.raises(BadInput, match=r"^the data has no array for input 'w'; add it"):
        two.check(data={"given": np.zeros(2, np.float32)})


def test_a_model_that_cannot_run_before_either_is_told():
    """An index that random numbers and zeros do not fit."""
    before = model("""(int64[2] i) => (float[2] y) <float[3] t = {1, 2, 3}, int64 far = {7}> {
        k = Add(i, far)
        y = Gather(t, k)
    }""")
    check = intaglio.edit(before).rename("y", "z").check()
    assert not check.ran
    assert "cannot run on random inputs" in check.reason
    assert told(intaglio.edit(before).rename("y", "z")).startswith("not run: the model cannot run")


def test_one_that_only_the_edit_broke_is_refused():
    before = model("""(int64[2] i) => (float[2] y) <float[3] t = {1, 2, 3}, int64 far = {0}> {
        k = Mul(i, far)
        y = Gather(t, k)
    }""")
    made = intaglio.edit(before).set_constant("far", 1).insert_after("k", "Add(7)")
    with pytest.raises(BadInput, match="the edited model does not run: the model cannot run on"):
        made.check()


def test_a_broken_model_names_the_edit_that_broke_it():
    made = intaglio.edit(classifier()).apply("remove relu1\nset shape image: 1x4x8x8\nremove add")
    with pytest.raises(BadInput, match=r"^line 2: the edited model does not run: .*conv1"):
        made.check()
    made = intaglio.edit(classifier()).remove("relu1").set_shape("image", (1, 4, 8, 8))
    with pytest.raises(BadInput, match=r"^set shape image: 1x4x8x8: the edited model does not"):
        made.check()


def test_the_result_as_data():
    found = intaglio.edit(model(TWO)).remove("a").check().to_dict()
    assert found["ran"] is True
    assert [o["name"] for o in found["outputs"]] == ["y", "z"]
    assert found["words"].startswith("runs; ")
