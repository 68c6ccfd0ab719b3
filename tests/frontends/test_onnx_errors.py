"""Invalid ONNX files and models: each gives a one-line error."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from tests.frontends.onnx_text import model

import intaglio
from intaglio.errors import BadFile, BadInput, IntaglioError, Unsupported
from intaglio.frontends import sniff
from intaglio.frontends.onnx import load_onnx

GOOD = model(
    """(float[1,3] x, float[3] k) => (float[1,3] y, float[1,3] z) <float[3] w = {1,2,3}> {
    a = Add(x, w)
    b = f.Leaky <slope = 0.5> (a)
    c = Mul(b, k)
    y = Relu(c)
    z = If(q) <then_branch = t () => (float[1,3] p) { p = Add(a, w) },
               else_branch = e () => (float[1,3] r) { r = Add(b, x) }>
    q = Less(s, s) s = Constant <value = float {1.0}> () }""",
    functions='<domain: "f", opset_import: ["": 18]> Leaky <slope> (a) => (b) '
    "{ b = LeakyRelu <alpha: float = @slope> (a) }",
    more=', "f": 1',
)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read .*no such file"),
        (b"", "is empty"),
        (b"\x08", "truncated"),
        (b"no model at all, just words\n", "not an ONNX model"),
        (bytes(range(256)) * 4, "not an ONNX model"),
        (GOOD.SerializeToString()[:-40], "truncated|no graph|damaged"),
        (GOOD.SerializeToString()[:20], "truncated|no graph|damaged"),
        (b"\x08\x08", "no graph"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git lfs pull"),
        (b"ITG1" + b"\0" * 60, "compiled package"),
        (b"PK\x03\x04" + b"\0" * 60, "damaged or truncated archive"),
    ],
)
def test_files_that_are_no_model(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadFile, match=words) as e:
        intaglio.load(path)
    assert "\n" not in str(e.value)
    assert "model.onnx" in str(e.value)


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="is a folder"):
        intaglio.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.bin", b"\x89HDF\r\n\x1a\n", "Keras HDF5"),
        ("a.bin", b"# a comment\n\n[net]\nbatch=1\n[convolutional]\n", "Darknet"),
        ("a.weights", b"\0\0\0\0\2\0\0\0", "Darknet"),
        ("a.bin", b'name: "n"\nlayer {\n  name: "conv"\n}\n', "Caffe"),
        ("a.caffemodel", b"\x0a\x03net", "Caffe"),
        ("a.pb", b"\x0a\x03net", "TensorFlow"),
        ("a.bin", b"\x0a\x12\x0a\x01x\x12\x0bPlaceholder*", "TensorFlow"),
        ("a.bin", b"\x08\x01\x12\xf1\x10\x0a\x03", "TensorFlow SavedModel"),
        ("a.bin", b"\x08\x08\x12\x07pytorch", "ONNX"),
        ("a.bin", b"\x80\x02\x8a\x0al\xfc\x9c", "PyTorch"),
    ],
)
def test_other_formats_are_named(tmp_path: Path, name: str, content: bytes, kind: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert sniff(path) == kind
    with pytest.raises(IntaglioError) as e:  # no prefix is a whole model
        intaglio.load(path)
    assert "\n" not in str(e.value)


def test_formats_that_are_not_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(Unsupported, match="is a Keras HDF5 model; ONNX, TFLite"):
        intaglio.load(tmp_path / "a.h5")


def test_models_in_memory() -> None:
    for m in (GOOD, GOOD.SerializeToString()):
        assert intaglio.load(m, outputs=["y"]).output_names == ["y"]
    with pytest.raises(BadInput, match="the model is 3; give the path of a model file"):
        intaglio.load(3)


def _good() -> onnx.ModelProto:
    m = onnx.ModelProto()
    m.CopyFrom(GOOD)
    return m


def _cycle(m: onnx.ModelProto) -> None:
    m.graph.node[0].input[1] = "y"


def _self_cycle(m: onnx.ModelProto) -> None:
    m.graph.node[0].input[1] = "a"


def _missing_tensor(m: onnx.ModelProto) -> None:
    m.graph.node[0].input[1] = "gone"


def _made_twice(m: onnx.ModelProto) -> None:
    m.graph.node[2].output[0] = "b"


def _input_twice(m: onnx.ModelProto) -> None:
    m.graph.input.append(m.graph.input[0])


def _output_twice(m: onnx.ModelProto) -> None:
    m.graph.output.append(m.graph.output[0])


def _stored_twice(m: onnx.ModelProto) -> None:
    m.graph.initializer.append(m.graph.initializer[0])


def _made_and_stored(m: onnx.ModelProto) -> None:
    m.graph.node[2].output[0] = "w"


def _no_output(m: onnx.ModelProto) -> None:
    del m.graph.output[:]


def _unknown_output(m: onnx.ModelProto) -> None:
    m.graph.output[0].name = "gone"


def _huge_input(m: onnx.ModelProto) -> None:
    m.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 10**15


def _huge_product(m: onnx.ModelProto) -> None:
    m.graph.node[0].op_type = "Add"
    m.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 10**6
    shape = m.graph.input[1].type.tensor_type.shape
    shape.dim[0].dim_value = 1
    for d in (10**6, 1, 1):
        shape.dim.add().dim_value = d


def _no_type(m: onnx.ModelProto) -> None:
    m.graph.input[0].ClearField("type")


def _string_input(m: onnx.ModelProto) -> None:
    m.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.STRING


def _sequence_input(m: onnx.ModelProto) -> None:
    m.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = 1


def _wrong_shapes(m: onnx.ModelProto) -> None:
    m.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones(4, np.float32), "w"))


def _wrong_types(m: onnx.ModelProto) -> None:
    m.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones(3, np.int64), "w"))


def _too_few_operands(m: onnx.ModelProto) -> None:
    del m.graph.node[0].input[1:]


def _strange_attribute(m: onnx.ModelProto) -> None:
    m.graph.node[0].attribute.add(name="odd", type=2, i=3)


def _wrong_kind(m: onnx.ModelProto) -> None:
    m.graph.node[3].op_type = "ReduceSum"
    m.graph.node[3].attribute.add(name="keepdims", type=1, f=3)


def _no_attribute(m: onnx.ModelProto) -> None:
    m.graph.node[3].op_type = "Concat"


def _wrong_operand(m: onnx.ModelProto) -> None:
    m.graph.node[3].op_type = "BitwiseNot"


def _unprintable_name(m: onnx.ModelProto) -> None:
    m.graph.node[0].input[1] = "a\nb\x1b[31m"


def _no_body(m: onnx.ModelProto) -> None:
    del m.graph.node[4].attribute[:]


def _unknown_domain(m: onnx.ModelProto) -> None:
    m.graph.node[0].domain = "else.where"


@pytest.mark.parametrize(
    ("break_it", "error", "words"),
    [
        (_cycle, BadInput, "has a cycle: .*Add 'Add_0'.* -> .*a model must be acyclic"),
        (_self_cycle, BadInput, "has a cycle: Add 'Add_0' -> Add 'Add_0'"),
        (_missing_tensor, BadInput, "Add 'Add_0' reads 'gone', which no node"),
        (_made_twice, BadInput, "'b' is computed twice, by Leaky 'Leaky_1' and Mul 'Mul_2'"),
        (_input_twice, BadInput, "two inputs are called 'x'"),
        (_output_twice, BadInput, "two outputs are called 'y'"),
        (_stored_twice, BadInput, "two initialisers are called 'w'"),
        (_made_and_stored, BadInput, "makes 'w', which is an input or initialiser"),
        (_no_output, BadFile, "no outputs"),
        (_unknown_output, BadInput, "reads 'gone'"),
        (_huge_input, BadInput, "input 'x' has shape 1000000000000000x3.*TiB"),
        (_huge_product, BadInput, "tensor 'c' has shape .*TiB"),
        (_no_type, BadFile, "input 'x' has no type"),
        (_string_input, Unsupported, "input 'x' has strings"),
        (_sequence_input, Unsupported, "input 'x' has type sequence: a sequence has no"),
        (_wrong_shapes, BadInput, r"'Add_0' \(Add\): shapes .* cannot be broadcast"),
        (_wrong_types, BadInput, r"'Add_0' \(Add\): operands have element types f32 and i64"),
        (_too_few_operands, BadInput, r"'Add_0' \(Add\): operand 1 \(B\) is missing"),
        (_strange_attribute, Unsupported, r"'Add_0' \(Add\): attribute 'odd' does not exist"),
        (_wrong_kind, BadInput, "attribute 'keepdims' has type FLOAT; INT is needed"),
        (_no_attribute, BadInput, "attribute 'axis' is missing; Concat needs it"),
        (_wrong_operand, BadInput, r"operand 0 is f32\[1x3\]; BitwiseNot takes i8, i16, i32, i64"),
        (_unprintable_name, BadInput, r"reads 'a b\\x1b\[31m', which no node"),
        (_no_body, IntaglioError, r"'If_4' \(If\): attribute '(then|else)_branch' is missing"),
        (_unknown_domain, Unsupported, "else.where.Add .* domain 'else.where' is unknown"),
    ],
)
def test_models_that_make_no_sense(break_it, error: type, words: str) -> None:
    m = _good()
    break_it(m)
    with pytest.raises(error, match=words) as e:
        load_onnx(m)
    assert "\n" not in str(e.value)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_mutated_files_raise_nothing_but_our_errors(data: st.DataObject) -> None:
    content = bytearray(GOOD.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["set", "cut", "drop", "repeat"])):
            case "set":
                content[at] = data.draw(st.integers(0, 255))
            case "cut":
                del content[max(at, 1) :]
            case "drop":
                del content[at : at + data.draw(st.integers(1, 8))]
            case "repeat":
                content[at:at] = content[at : at + data.draw(st.integers(1, 8))]
        if not content:
            break
    _try(bytes(content))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_our_errors(content: bytes) -> None:
    _try(content)
    _try(b"\x08\x08\x3a" + content)


@pytest.mark.filterwarnings("ignore")
def test_every_truncation_raises_nothing_but_our_errors() -> None:
    content = GOOD.SerializeToString()
    load_onnx(content)
    for size in range(len(content)):
        _try(content[:size])


def _try(content: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            g = load_onnx(content)
        except IntaglioError as e:
            words = str(e)
        else:
            words = str(g)
            assert words.startswith("inputs")
            return
    assert words
    assert "\n" not in words
