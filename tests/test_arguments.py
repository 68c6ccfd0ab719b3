"""Mistakes of API callers: every public function answers with one line that says what to give."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.errors import IntaglioError
from intaglio.ir import Graph, Type, Value

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples/digits/digits.onnx"
NAN = float("nan")


@dataclass
class Things:
    """One of everything that a caller may have."""

    graph: Graph
    package: intaglio.Package
    session: intaglio.Session
    x: np.ndarray
    folder: Path


@pytest.fixture(scope="module")
def has(tmp_path_factory: pytest.TempPathFactory) -> Things:
    x = Value(Type("f32", (1, 3, 8, 10)), "image")
    graph = Graph([x], [ops.relu(x)], ["y"])
    package = intaglio.compile(graph)
    folder = tmp_path_factory.mktemp("arguments")
    (folder / "text.txt").write_text("hello")
    (folder / "empty.onnx").write_bytes(b"")
    intaglio.save_onnx(graph, folder / "fixed.onnx")
    package.save(folder / "m.itg")
    return Things(graph, package, intaglio.open(package), np.zeros((1, 3, 8, 10), "f4"), folder)


def refused(call: Callable[[], Any]) -> str:
    """The message of the error, which is one of ours, in one line."""
    with pytest.raises(IntaglioError) as e:
        call()
    words = str(e.value)
    assert words
    assert "\n" not in words
    assert "damaged" not in words, "a caller's mistake is not the file's"
    assert len(words) < 500
    return words


class Other:
    """An object that no function takes."""


WRONG: dict[str, Callable[[Things], Any]] = {
    "None": lambda t: None,
    "number": lambda t: 3,
    "float": lambda t: 1.5,
    "list": lambda t: ["model.onnx"],
    "dict": lambda t: {},
    "object": lambda t: Other(),
    "class": lambda t: Other,
    "session": lambda t: t.session,
    "empty path": lambda t: "",
    "folder": lambda t: t.folder,
    "missing file": lambda t: t.folder / "nowhere.onnx",
    "empty file": lambda t: t.folder / "empty.onnx",
}
ENTRY_POINTS: dict[str, Callable[[Things, Any], Any]] = {
    "load": lambda t, given: intaglio.load(given),
    "compile": lambda t, given: intaglio.compile(given),
    "optimize": lambda t, given: intaglio.optimize(given),
    "quantize": lambda t, given: intaglio.quantize(given, t.x),
    "samples": lambda t, given: intaglio.quantize(t.graph, given),
    "open": lambda t, given: intaglio.open(given),
    "interpret": lambda t, given: intaglio.interpret(given, {"image": t.x}),
    "Package": lambda t, given: intaglio.Package(given),
    "Package.load": lambda t, given: intaglio.Package.load(given),
    "to_onnx": lambda t, given: intaglio.to_onnx(given),
    "save_onnx": lambda t, given: intaglio.save_onnx(given, t.folder / "made.onnx"),
    "run": lambda t, given: t.session.run(given),
    "target": lambda t, given: intaglio.compile(t.graph, target=given),
    "options": lambda t, given: intaglio.compile(t.graph, options=given or 0),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("function", ENTRY_POINTS)
def test_wrong_types_are_refused_in_one_line(function: str, wrong: str, has: Things):
    refused(lambda: ENTRY_POINTS[function](has, WRONG[wrong](has)))


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda t: intaglio.load(t.graph), "use it as it is"),
        (lambda t: intaglio.load(t.package), "intaglio.open runs a package"),
        (lambda t: intaglio.compile(t.package), "intaglio.open runs a package"),
        (lambda t: intaglio.load(Other), "Other()"),
        (lambda t: intaglio.load("https://example.com/m.onnx"), "is an address; download the file"),
        (lambda t: intaglio.load("~/m.onnx"), "which only shells expand"),
        (lambda t: intaglio.Matmul(k="a", n=3), "K is 'a'; give a whole number of at least 1"),
        (lambda t: intaglio.Matmul(k=NAN, n=3), "K is nan"),
        (lambda t: intaglio.Matmul(k=4, n=3, m=0), "M is 0; give a whole number"),
        (lambda t: intaglio.Matmul(k=4, n=3, target=None), 'target is None; give "cpu"'),
        (
            lambda t: intaglio.to_onnx(t.graph, opset="17"),
            "opset is '17'; give a whole number from",
        ),
        (lambda t: intaglio.to_onnx(t.graph, opset=99), "opset is 99"),
        (lambda t: intaglio.to_onnx(t.graph, ir_version="8"), "ir_version is '8'"),
        (lambda t: intaglio.interpret(t.graph, {"image": t.x}, keep=3), "keep is 3; give a dict"),
        (lambda t: intaglio.load({"conv.weight": t.x}), "the module that they belong to"),
        (lambda t: intaglio.optimize("m.onnx"), 'intaglio.load("m.onnx")'),
        (lambda t: intaglio.open(t.graph), "intaglio.open(intaglio.compile(model))"),
        (lambda t: intaglio.open(t.folder), "is a folder; give the path of a .itg file"),
        (lambda t: intaglio.open(t.folder / "fixed.onnx"), '.save("fixed.itg")'),
        (lambda t: intaglio.open(DIGITS), "is an ONNX model, not a package"),
    ],
)
def test_the_remedy_is_what_to_write(call: Callable[[Things], Any], remedy: str, has: Things):
    assert remedy in refused(lambda: call(has))


# ---- options -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shapes": [(1, 1, 8, 8)]}, 'shapes={"input": (1, 3, 224, 224)}'),
        ({"shapes": [1, 1, 8, 8]}, 'shapes={"input": (1, 1, 8, 8)}'),
        ({"shapes": 3}, "maps names of inputs to shapes"),
        ({"shapes": {3: (1,)}}, "has the key 3"),
        ({"shapes": {"image": 8}}, "the shape of 'image' is 8"),
        ({"shapes": {"image": "1x1x8x8"}}, "a tuple of whole numbers"),
        ({"shapes": {"image": (1, 1, NAN, 8)}}, "nan"),
        ({"shapes": {"image": (-1, 1, 8, 8)}}, "of at least 0"),
        ({"shapes": {"image": (0, 1, 8, 8)}}, "its batch, is 0; give a whole number of at least 1"),
        ({"shapes": {"imag": (1, 1, 8, 8)}}, "did you mean 'image'?"),
        ({"dims": ["batch"]}, 'dims={"batch": 1}'),
        ({"dims": {"batch": 0}}, "dimension 'batch' is 0; give a whole number of at least 1"),
        ({"dims": {"batch": 1.5}}, "dimension 'batch' is 1.5"),
        ({"dims": {"batch": "1"}}, "dimension 'batch' is '1'"),
        ({"dims": {"batch": True}}, "dimension 'batch' is True"),
        ({"dims": {"bach": 1}}, "did you mean 'batch'?"),
        ({"values": ["image"]}, 'values={"k": 5}'),
        ({"values": {"image": None}}, "numbers are needed"),
        ({"inputs": "image"}, 'inputs=["image"]'),
        ({"inputs": [3]}, "a list of names"),
        ({"outputs": "scores"}, 'outputs=["scores"]'),
        ({"outputs": []}, "name at least 1"),
        ({"dtypes": "f32"}, 'dtypes={"ids": "i64"}'),
        ({"dtypes": {"image": "f99"}}, "is not one of f32"),
        ({"dims": {"batch": 1}, "dtypes": {"image": "i64"}}, "'image' is f32 in the file"),
        ({"state": "yes"}, "give True or False"),
        ({"signature": 3}, "give the name of one"),
        ({"signature": "main"}, "only SavedModel folders and TFLite files have signatures"),
        ({"weights": 3}, 'weights="yolov3.weights"'),
        ({"weights": "a.weights"}, "an ONNX model is one file"),
        ({"dims": {"batch": 1}, "input_layout": 3}, "input_layout is '3'"),
        ({"dim": {"batch": 1}}, "did you mean 'dims'?"),
    ],
)
def test_options_of_load(options: dict[str, Any], words: str):
    for function in (intaglio.load, intaglio.compile):
        assert words in refused(lambda f=function: f(DIGITS, **options))


def test_an_empty_past_is_no_mistake():
    """A decoder's first step has a past of 0 positions."""
    past = Value(Type("f32", (1, 2, 4)), "past")
    graph = Graph([past], [ops.relu(past)], ["y"])
    proto = intaglio.to_onnx(graph)
    for info in (*proto.graph.input, *proto.graph.output):
        info.type.tensor_type.shape.dim[1].dim_param = "past_length"
    made = intaglio.load(proto, dims={"past_length": 0})
    assert made.inputs[0].shape == (1, 0, 4)
    assert intaglio.load(proto, shapes={"past": (1, 0, 4)}).inputs[0].shape == (1, 0, 4)


def test_dims_of_a_model_with_fixed_dimensions(has: Things):
    words = refused(lambda: intaglio.load(has.folder / "fixed.onnx", dims={"batch": 1}))
    assert "no open dimension 'batch'" in words
    assert 'leave dims={"batch": 1} out' in words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": "int8"}, "quantise the model first, with intaglio.quantize"),
        ({"precision": "INT4"}, "intaglio.quantize"),
        ({"precision": "f12"}, "known are f32, bf16, f16"),
        ({"precision": ["f16"]}, "known are f32, bf16, f16"),
        ({"level": 7}, "level is 7; it is one of 0 (none)"),
        ({"level": "3"}, "level is '3'"),
        ({"level": 1.0}, "level is 1.0"),
        ({"level": True}, "level is True"),
        ({"level": NAN}, "level is nan"),
        ({"disable": "slice_batch"}, 'disable=["slice_batch"]'),
        ({"disable": [3]}, "a list of names"),
        ({"disable": None}, "a list of names"),
        ({"cores": 0}, "cores is 0; give a whole number of at least 1"),
        ({"cores": 1.5}, "cores is 1.5"),
        ({"cores": 9, "target": "rk3588"}, "rk3588 has 3"),
        ({"isa": []}, "known are scalar, avx2"),
        ({"tune": "yes"}, "give True, False or an intaglio.tune.Tuning"),
        ({"strip": 1}, "give True or False"),
        ({"progress": 3}, "give a function"),
        ({"dump_dir": 3}, "the path of a folder"),
        ({"precison": "f16"}, "did you mean 'precision'?"),
        ({"shapes": {"image": (1, 3, 8, 10)}}, "a Graph is loaded already"),
    ],
)
def test_options_of_compile(options: dict[str, Any], words: str, has: Things):
    assert words in refused(lambda: intaglio.compile(has.graph, **options))


@pytest.mark.parametrize("given", [0, -1, 257, 1000, 1 << 70, 1.5, "2", NAN, True, [1]])
def test_threads_are_refused_with_their_range(given: Any, has: Things):
    words = refused(lambda: intaglio.open(has.package, threads=given))
    assert words == f"threads is {given!r}; give a whole number from 1 to 256"


def test_the_most_threads_are_those_of_the_runtime(has: Things):
    (most,) = re.findall(r"ITG_MAX_THREADS (\d+)", (ROOT / "csrc/runtime.h").read_text())
    with intaglio.open(has.package, threads=np.int64(most)) as session:
        assert session.threads == int(most) == 256


@pytest.mark.parametrize("name", ["plan", "max_steps"])
@pytest.mark.parametrize("given", [-1, 1.5, "1", NAN])
def test_other_numbers_of_open(name: str, given: Any, has: Things):
    words = refused(lambda: intaglio.open(has.package, **{name: given}))
    assert f"{name} is {given!r}; give a whole number" in words


# ---- files to write ------------------------------------------------------------------------------
@pytest.mark.parametrize("given", [None, 3, ["a"], "", "a\0b", "nowhere/m.itg", ".", b"m.itg"])
def test_places_that_cannot_be_written(given: Any, has: Things):
    refused(lambda: has.package.save(given))
    refused(lambda: intaglio.save_onnx(has.graph, given))


def test_a_folder_is_no_place_for_a_file(has: Things):
    words = refused(lambda: has.package.save(has.folder))
    assert "it is a folder; give the name of a file" in words
    words = refused(lambda: has.package.save(has.folder / "deep" / "m.itg"))
    assert f"there is no folder '{has.folder}/deep'; make it first" in words


def test_unknown_keywords_are_type_errors_too(has: Things):
    with pytest.raises(TypeError, match="did you mean 'precision'"):
        intaglio.compile(has.graph, precison="f16")


# ---- live modules --------------------------------------------------------------------------------
def test_a_live_module_without_examples(has: Things):
    torch = pytest.importorskip("torch")
    module = torch.nn.ReLU()
    for call in (intaglio.load, intaglio.compile, lambda m: intaglio.quantize(m, has.x)):
        assert "inputs=(example,)" in refused(lambda f=call: f(module))
    assert "intaglio.open(intaglio.compile(model))" in refused(lambda: intaglio.open(module))
    assert "ReLU()" in refused(lambda: intaglio.load(torch.nn.ReLU))


def test_names_of_dimensions_that_a_program_does_not_have(tmp_path: Path):
    torch = pytest.importorskip("torch")
    x = torch.zeros(2, 3)
    many = {"x": {0: torch.export.Dim("many", max=64)}}

    class Net(torch.nn.Module):
        def forward(self, x):
            return x * 2

    program = torch.export.export(Net(), (x,), dynamic_shapes=many)
    torch.export.save(program, tmp_path / "m.pt2")
    words = refused(lambda: intaglio.load(tmp_path / "m.pt2", dims={"batch": 1}))
    assert "torch: the model has no open dimension 'batch'; it has " in words
    torch.jit.save(torch.jit.trace(Net(), x), tmp_path / "m.pt")
    words = refused(lambda: intaglio.load(tmp_path / "m.pt", dims={"batch": 1}))
    assert 'leave dims={"batch": 1} out' in words
