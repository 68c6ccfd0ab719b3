"""Classes of custom operators: what is imported and interpreted, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from tests.custom.models import SoftClip, clipped, model, node

import intaglio
from intaglio import custom
from intaglio.interpret import interpret

X = np.linspace(-3, 3, 16, dtype=np.float32).reshape(2, 8)


def want(x: np.ndarray, limit: float = 1.0) -> np.ndarray:
    return -SoftClip().compute(np.maximum(x, 0), limit=limit)


def test_a_class_is_imported_and_interpreted():
    assert custom.register(SoftClip) is SoftClip
    assert custom.registered() == {"sample.soft_clip": "Python"}
    graph = intaglio.load(clipped(limit=0.5))
    assert [n.op for n in graph.nodes()] == ["relu", "sample.soft_clip", "neg"]
    np.testing.assert_array_equal(interpret(graph, {"x": X})["y"], want(X, 0.5))


def test_an_object_may_hold_what_it_needs():
    class Table:
        name = "sample.table"

        def __init__(self, numbers):
            self.numbers = np.array(numbers, np.float32)

        def shape(self, x):
            return ("f32", x.shape)

        def compute(self, x):
            return self.numbers[x]

    custom.register(Table([3, 1, 4]))
    graph = intaglio.load(model([node("sample::table", ["x"], ["y"])], {"x": ("i64", (4,))}, ["y"]))
    assert interpret(graph, {"x": np.array([2, 0, 1, 2])})["y"].tolist() == [4, 3, 1, 4]
    with pytest.raises(intaglio.BadInput, match="register an object of the class instead"):
        custom.register(Table)


def test_attributes_have_the_types_of_their_defaults():
    seen = {}

    @custom.register
    class Options:
        name = "sample.options"

        def shape(self, x, *, flag=False, scale=1.0, axes=(0,), word="a", table=(), more=None):
            return x.shape

        def compute(self, x, *, flag=False, scale=1.0, axes=(0,), word="a", table=(), more=None):
            seen.update(flag=flag, scale=scale, axes=axes, word=word, table=table, more=more)
            return x

    table = onnx_tensor(np.array([[1, 2], [3, 4]], np.float32))
    made = node("sample::options", ["x"], ["y"], flag=1, scale=2, axes=1, word="b", table=table)
    graph = intaglio.load(model([made], {"x": (2,)}, ["y"]))
    package = intaglio.compile(graph)
    want = {"flag": True, "scale": 2.0, "axes": (1,), "word": "b", "more": None}
    want["table"] = ((1.0, 2.0), (3.0, 4.0))
    interpret(graph, {"x": X[0, :2]})
    assert seen == want
    seen.clear()
    intaglio.open(package).run({"x": X[0, :2]})
    assert seen == want
    assert {k: type(v) for k, v in seen.items()} == {k: type(v) for k, v in want.items()}


def onnx_tensor(a: np.ndarray):
    from onnx import numpy_helper

    return numpy_helper.from_array(a)


def test_optional_inputs_and_several_results():
    @custom.register
    class Split:
        name = "sample.split"

        def shape(self, x, y=None, *zs, at):
            return [(at,), ("i64", (x.shape[0] - at,))]

        def compute(self, x, y=None, *zs, at):
            low = x if y is None else x + y
            return low[:at], sum(zs, x)[at:].astype(np.int64)

    for reads in (["x"], ["x", "x"], ["x", "", "x", "x"]):
        made = node("sample::split", reads, ["a", "b"], at=3)
        graph = intaglio.load(model([made], {"x": (5,)}, ["a", "b"]))
        x = np.arange(5, dtype=np.float32)
        results = [interpret(graph, {"x": x}), intaglio.open(intaglio.compile(graph)).run({"x": x})]
        for one in results:
            assert one["a"].tolist() == (x[:3] * (1 + (len(reads) == 2))).tolist()
            assert one["b"].tolist() == (x[3:] * max(len(reads) - 1, 1)).astype(int).tolist()
        assert results[0]["b"].dtype == np.int64


def test_the_value_of_a_constant_may_decide_a_shape():
    @custom.register
    class Repeat:
        name = "sample.repeat"

        def shape(self, x, times):
            if times.data is None:
                raise ValueError("times must be constant")
            return (x.shape[0] * int(times.data),)

        def compute(self, x, times):
            return np.tile(x, int(times))

    made = node("sample::repeat", ["x", "n"], ["y"])
    graph = intaglio.load(model([made], {"x": (2,)}, ["y"], {"n": np.array(3)}))
    x = np.array([1, 2], np.float32)
    assert intaglio.open(intaglio.compile(graph)).run({"x": x})["y"].tolist() == [1, 2] * 3
    with pytest.raises(intaglio.BadInput, match=r"'y' .*its shape function raised ValueError: tim"):
        intaglio.load(model([made], {"x": (2,), "n": ("i64", ())}, ["y"]))


def test_constants_are_folded_with_the_body():
    custom.register(SoftClip)
    nodes = [node("sample.ops::SoftClip", ["w"], ["c"]), node("Add", ["x", "c"], ["y"])]
    graph = intaglio.load(model(nodes, {"x": (3,)}, ["y"], {"w": np.full(3, 9, np.float32)}))
    package = intaglio.compile(graph)
    assert [s.op for s in package.plan.steps] == ["add"]
    x = np.zeros(3, np.float32)
    np.testing.assert_allclose(intaglio.open(package).run({"x": x})["y"], np.tanh(9))


# ---- refusals ------------------------------------------------------------------------------------
def test_an_unknown_operator_says_how_to_register_it():
    with pytest.raises(intaglio.Unsupported) as error:
        intaglio.load(clipped())
    assert "node 'b': sample.ops.SoftClip (opset 1) is not supported" in str(error.value)
    assert 'register a class with onnx = "sample.ops::SoftClip"' in str(error.value)
    assert "docs/custom-operators.md" in str(error.value)


def made(**parts):
    usual = {"name": "sample.x", "shape": lambda self, x: x.shape, "compute": lambda self, x: x}
    return type("Made", (), {k: v for k, v in {**usual, **parts}.items() if v is not ...})


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"name": "clip"}, "name is 'clip'; it needs a prefix of its own"),
        ({"name": ...}, "Made: name is None"),
        ({"name": "cpu.clip"}, "prefix 'cpu' is taken"),
        ({"name": "a." + "b" * 60}, "at most 53 characters"),
        ({"shape": ...}, "has no method shape"),
        ({"compute": ...}, "has no method compute, and no plug-in"),
        ({"quantize": "int4"}, "quantize is 'int4'; it is 'float' or 'like input'"),
        (
            {"shape": lambda self, x, *, limit=1: x.shape},
            r"compute takes \(x\) and shape takes \(x, limit\)",
        ),
    ],
)
def test_a_class_that_lacks_something_is_refused(parts, words):
    with pytest.raises(intaglio.BadInput, match=words):
        custom.register(made(**parts))


def test_two_classes_of_one_name():
    custom.register(SoftClip)
    custom.register(SoftClip)  # again, as in a notebook
    with pytest.raises(intaglio.BadInput, match=r"registered already, by tests.custom.models.Soft"):
        custom.register(made(name="sample.soft_clip"))
    with pytest.raises(intaglio.BadInput, match=r"onnx operator 'sample.ops::SoftClip' is custom"):
        custom.register(made(name="sample.other", onnx="sample.ops::SoftClip"))
    assert custom.registered() == {"sample.soft_clip": "Python"}


def test_unregistering_what_is_not_there():
    custom.register(SoftClip)
    with pytest.raises(
        intaglio.BadInput, match=r"no custom operator .*; did you mean 'sample.soft"
    ):
        custom.unregister("sample.soft_clp")


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        (
            {"limits": 1.0},
            "'limits' is no parameter of custom operator sample.soft_clip, which has",
        ),
        ({"limit": np.float32(1).tobytes()}, "raised ValueError: could not convert string"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(attrs, words):
    custom.register(SoftClip)
    with pytest.raises(intaglio.IntaglioError, match=words):
        interpret(intaglio.load(clipped(**attrs)), {"x": X})


def test_a_missing_attribute_is_refused():
    custom.register(
        made(shape=lambda self, x, *, k: x.shape, compute=lambda self, x, *, k: x, onnx="s::K")
    )
    with pytest.raises(intaglio.BadInput, match="attribute 'k' is missing; custom operator sample"):
        intaglio.load(model([node("s::K", ["x"], ["y"])], {"x": (2,)}, ["y"]))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (lambda self, x: None, "its shape function returned None; return a shape such as"),
        (lambda self, x: (1.5, 2), "extents are whole numbers"),
        (lambda self, x: (-1, 2), "extents are whole numbers"),
        (lambda self, x: ("f33", (1,)), "element type 'f33'; it is one of f32"),
        (lambda self, x: 1 / 0, "sample.x: its shape function raised ZeroDivisionError"),
        (lambda self, x: custom.Type("f32", (4,), dynamic=(0,)), "set dynamic = True in the class"),
    ],
)
def test_a_wrong_shape_function_is_an_error_of_the_import(shape, words):
    custom.register(made(shape=shape))
    with pytest.raises(intaglio.BadInput, match=rf"onnx: node 'y' \(x\): .*{words}"):
        intaglio.load(model([node("sample::x", ["x"], ["y"])], {"x": (4,)}, ["y"]))


@pytest.mark.parametrize(
    ("compute", "words"),
    [
        (lambda self, x: x.astype(np.float64), r"made float64\[4\]; its shape function says f32"),
        (lambda self, x: x[:3], r"made float32\[3\]; its shape function says f32\[4\]"),
        (lambda self, x: (x, x), "made 2 results; its shape function says 1"),
        (lambda self, x: x[9], "its Python function raised IndexError: index 9 is out of bounds"),
        (lambda self, x: None, "made object"),
    ],
)
def test_a_wrong_body_is_a_run_error_that_names_the_node(compute, words):
    """In the interpreter and in a session, in one line."""
    custom.register(made(compute=compute))
    graph = intaglio.load(model([node("sample::x", ["x"], ["y"])], {"x": (4,)}, ["y"]))
    x = np.zeros(4, np.float32)
    with pytest.raises(intaglio.RunError, match=rf"^sample.x 'y': .*{words}") as one:
        interpret(graph, {"x": x})
    session = intaglio.open(intaglio.compile(graph))
    with pytest.raises(intaglio.RunError, match=rf"^python.sample.x 'y': .*{words}") as two:
        session.run({"x": x})
    assert "\n" not in f"{one.value}{two.value}"
    if "raised" in words:
        assert isinstance(one.value.__cause__, IndexError)
        assert isinstance(two.value.__cause__, IndexError)
