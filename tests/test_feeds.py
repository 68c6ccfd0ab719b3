"""Arrays that callers give to `run` and `interpret`: what is wrong, and what to write instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.errors import BadInput, RunError
from intaglio.ir import Graph, Type, Value

NCHW = (1, 3, 8, 10)


def image_net(shape: tuple[int, ...] = NCHW) -> Graph:
    x = Value(Type("f32", shape), "image")
    return Graph([x], [ops.relu(x)], ["y"])


def sum_net() -> Graph:
    a, b = Value(Type("f32", NCHW), "a"), Value(Type("f32", NCHW), "b")
    return Graph([a, b], [ops.add(a, b)], ["y"])


def refused(graph: Graph, *args: Any, **out: Any) -> str:
    """What `run` says; `interpret` says the same of the inputs."""
    with intaglio.open(intaglio.compile(graph)) as session, pytest.raises(BadInput) as e:
        session.run(*args, **out)
    words = str(e.value)
    assert "\n" not in words
    if len(args) == 1 and not out:
        with pytest.raises(BadInput) as e:
            intaglio.interpret(graph, args[0])
        assert str(e.value).replace("intaglio.interpret(graph, ", "session.run(") == words
    return words


X = np.zeros(NCHW, np.float32)
OR = ", or compile the model with"


@pytest.mark.parametrize("given", [X, [X], (X,), X.tolist(), None, 3, "image.png"])
def test_inputs_without_names(given: Any):
    assert refused(image_net(), given).endswith('write session.run({"image": x})')


def test_several_inputs_without_names():
    for args in ([X, X], X):
        assert refused(sum_net(), args).endswith('write session.run({"a": x0, "b": x1})')


@pytest.mark.parametrize("names", [None, ["y"], []])
def test_the_order_of_onnxruntime(names: Any):
    graph = image_net()
    x = np.zeros(graph.inputs[0].shape, np.float32)
    with intaglio.open(intaglio.compile(graph)) as session:
        (got,) = session.run(names, {"image": x})
        np.testing.assert_array_equal(got, session.run({"image": x})["y"])


@pytest.mark.parametrize(
    ("shape", "dtype", "remedy"),
    [
        ((3, 8, 10), "f4", "give x[None]"),
        ((1, 1, 3, 8, 10), "f4", "give x[0]"),
        ((1, 8, 10, 3), "f4", f'x.transpose(0, 3, 1, 2){OR} input_layout="NHWC"'),
        ((8, 10, 3), "f4", f'x.transpose(2, 0, 1)[None]{OR} input_layout="NHWC" and give x[None]'),
        ((8, 10, 3), "u1", "x.transpose(2, 0, 1)[None].astype('float32'), or compile"),
        ((8, 10, 3), "u1", 'input_type="uint8" and input_layout="NHWC"'),
        (NCHW, "f8", "give x.astype('float32')"),
        (NCHW, "u1", "x.astype('float32'), or compile the model with input_type=\"uint8\""),
        (NCHW, ">f4", "give x.astype('float32')"),
        ((4, 3, 8, 10), "f4", f'1 at a time{OR} shapes={{"image": (4, 3, 8, 10)}}'),
        ((1, 3, 16, 20), "f4", "resize it, or compile the model with shapes="),
        ((7, 9), "f4", "give an array with 4 axes"),
    ],
)
def test_other_shapes_and_types(shape: tuple[int, ...], dtype: str, remedy: str):
    words = refused(image_net(), {"image": np.zeros(shape, dtype)})
    assert remedy in words
    assert "the model takes float32 (1, 3, 8, 10)" in words


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((8, 10, 3), NCHW),
        ((3, 8, 10), NCHW),
        ((1, 8, 10, 3), NCHW),
        ((1, 3, 8, 10), (1, 8, 10, 3)),
        ((3, 8, 10), (1, 8, 10, 3)),
        ((8, 10), (1, 1, 8, 10)),
        ((1, 5), (5,)),
    ],
)
def test_the_remedy_is_right(given: tuple[int, ...], wanted: tuple[int, ...]):
    """The expression of the message, evaluated, is an input that the model takes."""
    words = refused(image_net(wanted), {"image": np.zeros(given, np.uint8)})
    code = words.split("; give ")[1].split(", or compile")[0]
    made = eval(code, {"x": np.zeros(given, np.uint8), "np": np})
    assert (made.shape, made.dtype) == (wanted, np.float32)


def test_the_other_remedy_is_right():
    package = intaglio.compile(image_net(), input_type="uint8", input_layout="NHWC")
    with intaglio.open(package) as session:
        assert session.run({"image": np.zeros((8, 10, 3), np.uint8)[None]})["y"].shape == NCHW


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "is None; give an array of float32 (1, 3, 8, 10)"),
        ("a.png", "is the string 'a.png'; give an array"),
        (object(), "is an object; give an array"),
        ([[1, 2], [3]], "cannot be read as an array"),
        (X.tolist(), "give np.asarray(x).astype('float32')"),
    ],
)
def test_things_that_are_no_arrays(given: Any, words: str):
    assert words in refused(image_net(), {"image": given})


def test_a_tensor_with_gradients():
    torch = pytest.importorskip("torch")
    given = torch.zeros(NCHW, requires_grad=True)
    assert "give x.detach().cpu().numpy()" in refused(image_net(), {"image": given})


def test_names():
    assert "did you mean 'image'?" in refused(image_net(), {"imgae": X})
    assert "did you mean 'image'?" in refused(image_net(), {"IMAGE": X})
    assert "the model has 'image' f32[1x3x8x10]" in refused(image_net(), {0: X})
    assert "input 'b' is missing; the model needs 'a' f32" in refused(sum_net(), {"a": X})
    assert "no output is called 'z'" in refused(image_net(), {"image": X}, out={"z": X})


@pytest.mark.parametrize("given", [None, [1], np.zeros((1, 3), "f4"), np.zeros(NCHW, "f8")])
def test_arrays_for_outputs(given: Any):
    words = refused(image_net(), {"image": X}, out={"y": given})
    assert "out['y'] is " in words
    assert "np.empty((1, 3, 8, 10), 'float32')" in words
    assert "out is a list of 1" in refused(image_net(), {"image": X}, [X])


def test_memory_that_is_not_there(monkeypatch: pytest.MonkeyPatch):
    def empty(*args: Any) -> Any:
        raise MemoryError

    with intaglio.open(intaglio.compile(image_net())) as session:
        monkeypatch.setattr("intaglio.direct_run._empty", empty)
        with pytest.raises(RunError, match="not enough memory for the inputs and outputs, 0 MiB"):
            session.run({"image": X})
