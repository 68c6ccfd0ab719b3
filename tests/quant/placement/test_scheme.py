"""The scheme and its file: errors, rules that select layers, round trips."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from intaglio import ops
from intaglio.errors import BadFile, BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant.placement.scheme import Override, Scheme, TensorScheme
from intaglio.quant.ranges.affine import affine


def test_one_zero_point_serves_every_scale():
    assert TensorScheme("i8", (0.5, 0.25), (0,), axis=0).zero == (0, 0)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"dtype": "i9"}, "type is 'i9'"),
        ({"dtype": "f32", "scale": (1.0,)}, "float type"),
        ({"dtype": "i8"}, "scale is missing"),
        ({"dtype": "i8", "scale": (1.0, 2.0), "zero": (0, 0)}, "without an axis"),
        ({"dtype": "i8", "scale": (1.0, 2.0), "zero": (0, 0, 0)}, "2 scales and 3 zero points"),
        ({"dtype": "i8", "scale": (0.0,), "zero": (0,)}, "scale is 0.0"),
        ({"dtype": "i8", "scale": (float("nan"),), "zero": (0,)}, "scale is nan"),
        ({"dtype": "u8", "scale": (1.0,), "zero": (-1,)}, "u8 holds 0 to 255"),
        ({"dtype": "i8", "scale": (1.0,), "zero": (0,), "lo": 2.0, "hi": 1.0}, "range is"),
        ({"dtype": "i8", "scale": (1.0,), "zero": (0,), "axis": 0, "block": -1}, "block is -1"),
    ],
)
def test_invalid_fields_are_refused(wrong: dict[str, object], words: str):
    with pytest.raises(BadInput, match=words):
        TensorScheme(**{**asdict(TensorScheme("f32")), **wrong})  # type: ignore[arg-type]


def test_layers_are_named_by_tensor_pattern_or_op():
    assert Override("f32", tensor="b").matches("split", ["a", "b"])
    assert not Override("f32", tensor="a*").matches("split", ["a*b", "b"])
    assert Override("f32", pattern="/head/*").matches("conv", ["/head/cls/Conv_output_0"])
    assert not Override("f32", pattern="/head/*").matches("conv", ["/HEAD/cls"])
    assert Override("f32", op="conv").matches("conv", ["x"])
    assert not Override("f32", op="conv").matches("conv_transpose", ["conv"])


# ---- the file ------------------------------------------------------------------------------------
def full() -> Scheme:
    third = 1 / 3
    return Scheme(
        {
            "input": TensorScheme("u8", (float(np.float32(0.1)),), (7,), lo=-0.7, hi=24.8),
            "123": TensorScheme("i8", (1e-5, third, 5e-324), (0, 0, 0), axis=0, lo=-1.0, hi=third),
            "yes": TensorScheme("i4", (0.1, 0.2), (1, -2), axis=1, block=32),
            "größe: #1\n'x'": TensorScheme("i16", (2.0**-20,), (0,)),
            "0o17": TensorScheme("f32", lo=-3.0, hi=3.0),
        },
        {"conv1": "int8", "1.0": "int16", "null": "f32"},
        [
            Override("f32", pattern="/head/*"),
            Override("int16", op="conv"),
            Override("bf16", tensor="~"),
        ],
        "net",
    )


def test_the_file_loses_nothing(tmp_path: Path):
    path, again = tmp_path / "scheme.yaml", tmp_path / "again.yaml"
    full().save(path)
    read = Scheme.load(path, strict=True)
    assert (read.tensors, read.layers, read.rules) == (full().tensors, full().layers, full().rules)
    assert list(read.tensors) == list(full().tensors)
    assert (read.model, read.strict, read.source) == ("net", True, str(path))
    read.save(again)
    assert again.read_bytes() == path.read_bytes()
    assert "  input:\n    type: u8\n    range: [-0.7, 24.8]\n" in path.read_text()
    assert max(map(len, path.read_text().splitlines())) <= 100


def test_files_written_by_hand(tmp_path: Path):
    path = tmp_path / "hand.yaml"
    path.write_text("""
overrides:
  - {op: MatMul, precision: int16}
  - op: ConvTranspose
    precision: float16
  - {tensor: 17, precision: fp32}
tensors:
  x: {type: uint8, range: [0, 25.5]}
  y: {type: float32}
""")
    read = Scheme.load(path)
    assert read.rules == [
        Override("int16", op="matmul"),
        Override("f16", op="conv_transpose"),
        Override("f32", tensor="17"),
    ]
    assert read.tensors["x"] == affine(0, 25.5, "u8")
    assert read.tensors["y"] == TensorScheme("f32")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a", "the file: must hold"),
        ("", "the file: must hold 'name: value' lines, not nothing"),
        ("version: 2", "version is '2'; this intaglio reads version 1"),
        ("tensor: {}", "'tensor' is unknown; did you mean tensors?"),
        ("a: b: c", "line 1: not YAML"),
        ("layers: {c: int7}", "layers: 'c': precision is 'int7'; it is one of int8"),
        ("layers: {c: [int8]}", "layers: 'c': must be a word, not a list"),
        ("layers: {? [a] : int8}", "line 1: a name must be a word"),
        ("layers: &a {c: int8}\ntensors: *a", "line 2: a scheme has no aliases"),
        ("layers: {c: int8}\nlayers: {c: f32}", "line 2: 'layers' is there twice"),
        ("layers:\n  c: int8\n  c: f32", "line 3: 'c' is there twice; keep one of them"),
        ("tensors: {c: {type: i8, range: [0, 0]}}", "range is [0, 0] and holds nothing but 0"),
        ("overrides: {op: conv}", "overrides: must be a list"),
        ("overrides: [{op: conv}]", "entry 1: precision is missing"),
        ("overrides: [{precision: f32}]", "entry 1: names no layer"),
        ("overrides: [{op: conv, tensor: y, precision: f32}]", "names tensor and op"),
        ("overrides: [{op: AveragePool, precision: f32}]", "did you mean avg_pool"),
        ("overrides: [{op: softmaxx, precision: f32}]", "did you mean softmax"),
        ("tensors: {x: {scale: 1}}", "tensors: 'x': type is missing"),
        ("tensors: {x: {type: i8, scale: big}}", "tensors: 'x': scale: must be numbers, not 'big'"),
        ("tensors: {x: {type: i8, scale: 1, zero: 0.5}}", "zero: must be whole numbers"),
        ("tensors: {x: {type: i8, scale: -1}}", "tensors: 'x': scale is -1.0"),
        ("tensors: {x: {type: i8, range: [1]}}", "range has 1 numbers"),
        ("tensors: {x: {type: i8, range: [0, nan]}}", "range is"),
        ("tensors: {x: {type: i8, scale: [1, 2], zero: 0}}", "without an axis"),
        ("tensors: {x: {type: i8, scale: 1, axis: [0, 1]}}", "axis and block are one number"),
        ("tensors: {x: {type: i8, zeropoint: 1}}", "'zeropoint' is unknown"),
        ("[" * 100_000, "line 1: nested too deeply"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(text: str, words: str, tmp_path: Path):
    path = tmp_path / "scheme.yaml"
    path.write_text(text)
    with pytest.raises(BadFile) as caught:
        Scheme.load(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_binary_files(tmp_path: Path):
    with pytest.raises(BadFile, match="no such file; write a scheme with"):
        Scheme.load(tmp_path / "none.yaml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadFile, match="not a text file"):
        Scheme.load(tmp_path / "binary")
    with pytest.raises(BadFile, match="cannot be read"):
        Scheme.load(tmp_path)


# ---- the scheme and a graph ----------------------------------------------------------------------
@pytest.fixture
def graph() -> Graph:
    x = Value(Type("f32", (1, 3, 8, 8)), "x")
    w = constant(np.ones((4, 3, 1, 1), np.float32), "w")
    c = ops.conv(x, w, stride=(1, 1), pad=(0, 0, 0, 0), dilation=(1, 1))
    c.name = "/stem/Conv"
    r = ops.relu(c)
    r.name = "/stem/Relu"
    s = ops.softmax(r, axis=1)
    s.name = "/head/Softmax"
    return Graph([x], [s])


def wanted(scheme: Scheme, graph: Graph) -> tuple[dict[str, str], list[str]]:
    said: list[str] = []
    return scheme.wanted(graph, said.append), said


def test_later_rules_win(graph: Graph):
    rules = [
        Override("f32", pattern="/stem/*"),
        Override("int16", op="conv"),
        Override("f16", tensor="/head/Softmax"),
    ]
    found, said = wanted(Scheme(layers={"/stem/Conv": "int8"}, rules=rules), graph)
    assert found == {"/stem/Conv": "int16", "/stem/Relu": "f32", "/head/Softmax": "f16"}
    assert not said
    found, _ = wanted(Scheme(rules=rules[::-1]), graph)
    assert found == {"/stem/Conv": "f32", "/stem/Relu": "f32", "/head/Softmax": "f16"}


@pytest.mark.parametrize(
    ("scheme", "words"),
    [
        (Scheme(layers={"/stem/Conf": "int8"}), "no layer is called '/stem/Conf'; did you mean"),
        (Scheme(layers={"zzz": "int8"}), "no layer is called 'zzz'; the model has '/head/Softmax'"),
        (Scheme(rules=[Override("f32", pattern="/neck/*")]), "no layer matches '/neck/*'"),
        (Scheme(rules=[Override("f32", op="tanh")]), "no layer is a tanh; the model has conv, "),
        (Scheme({"/stem/Rellu": TensorScheme("f32")}), "did you mean '/stem/Relu'"),
        (Scheme({"x": TensorScheme("u8", (1.0,), (0,), lo=0, hi=6)}), "cover [0, 255]"),
    ],
)
def test_unknown_names_are_warnings_or_errors(scheme: Scheme, words: str, graph: Graph):
    found, said = wanted(scheme, graph)
    assert not found
    assert len(said) == 1
    assert words in said[0]
    scheme.strict = True
    with pytest.raises(BadInput) as caught:
        scheme.wanted(graph)
    assert words in str(caught.value)
    assert "strict" in str(caught.value)


def test_warnings_reach_python(graph: Graph):
    with pytest.warns(UserWarning, match="no layer is a tanh"):
        Scheme(rules=[Override("f32", op="tanh")]).wanted(graph)


@pytest.mark.parametrize(
    ("t", "words"),
    [
        (TensorScheme("i8", (1.0, 1.0), (0, 0), axis=4), "axis is 4"),
        (TensorScheme("i8", (1.0, 1.0), (0, 0), axis=0), "2 scales, its shape .* has 4 for axis 0"),
        (TensorScheme("i4", (1.0,) * 4, (0,) * 4, axis=1, block=2), "has 8 for blocks of 2"),
    ],
)
def test_scales_must_fit_the_shape(t: TensorScheme, words: str, graph: Graph):
    with pytest.raises(BadInput, match=words):
        Scheme({"w": t}).wanted(graph)


def test_scales_that_fit(graph: Graph):
    for t in (
        TensorScheme("i8", (1.0,) * 4, (0,), axis=0, lo=-127, hi=5),
        TensorScheme("i4", (1.0,) * 8, (0,), axis=1, block=2),
        TensorScheme("i8", (1.0,), (0,), lo=-127, hi=3),
        TensorScheme("i8", (1.0,), (-28,), lo=-100, hi=155),
    ):
        assert wanted(Scheme({"w": t}), graph) == ({}, [])
