"""Inputs in another layout than the model declares: the step that transposes them is dropped."""

from __future__ import annotations

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.errors import BadInput
from intaglio.internal_memory import InternalMemory
from intaglio.ir import Array, Graph, Type, Value

NHWC, NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


def picture(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def conv(x: Value, out: int, seed: int = 0) -> Value:
    w = np.random.default_rng(seed).normal(0, 0.2, (out, x.shape[1], 3, 3)).astype(np.float32)
    return ops.conv(x, w, None, stride=(1, 1), pad=(1,) * 4, dilation=(1, 1), groups=1)


def network(channels: int = 3, size: int = 12) -> Graph:
    """Two convolutions, whose kernels read NHWC."""
    x = Value(Type("f32", (1, channels, size, size)), "x")
    return Graph([x], [ops.relu(conv(ops.relu(conv(x, 16)), 8))], ["y"])


def as_nhwc(a: Array) -> Array:
    return np.ascontiguousarray(a.transpose(NHWC))


def ran(session: intaglio.Session) -> list[str]:
    """The ops that the last runs called."""
    return [s.op for s in session.profile() if s.calls]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("internal", [False, True])
def test_the_transpose_is_dropped(threads: int, internal: bool):
    package = intaglio.compile(network())
    memory = InternalMemory(1) if internal else None
    x = picture((1, 3, 12, 12))
    with intaglio.open(package, threads, profile=True, internal=memory) as session:
        want = session.run({"x": x})["y"]
        assert "transpose" in ran(session)
        before = len(ran(session))
        assert session.input_layout("x") == "NHWC"
        session.set_input_layout("x", "nhwc")
        assert session.inputs["x"].shape == (1, 12, 12, 3)
        session.reset_profile()
        for seed in range(3):
            other = picture((1, 3, 12, 12), seed)
            want = intaglio.interpret(network(), {"x": other})["y"]
            got = session.run({"x": as_nhwc(other)})["y"]
            np.testing.assert_allclose(got, want, atol=1e-4)
        assert len(ran(session)) == before - 1
        with pytest.raises(BadInput, match=r"\(1, 12, 12, 3\)"):
            session.run({"x": x})
        session.set_input_layout("x", None)
        np.testing.assert_allclose(session.run({"x": other})["y"], want, atol=1e-4)
        assert session.inputs["x"].shape == (1, 3, 12, 12)


def test_the_bits_are_those_of_the_declared_layout():
    package, x = intaglio.compile(network(16, 20)), picture((1, 16, 20, 20))
    with intaglio.open(package) as session:
        want = session.run({"x": x})["y"]
        session.set_input_layout("x", "NHWC")
        np.testing.assert_array_equal(session.run({"x": as_nhwc(x)})["y"], want)
        binding = session.bind({"x": as_nhwc(x)})
        np.testing.assert_array_equal(binding.run()["y"], want)
        clone = session.clone()
        np.testing.assert_array_equal(clone.run({"x": as_nhwc(x)})["y"], want)
        clone.set_input_layout("x", None)
        np.testing.assert_array_equal(clone.run({"x": x})["y"], want)
        np.testing.assert_array_equal(session.run({"x": as_nhwc(x)})["y"], want)


def test_a_quantised_model_copies_what_it_would_transpose():
    """Bytes are transposed after they were rounded; the step becomes a copy."""
    samples = [{"x": picture((1, 3, 12, 12), seed)} for seed in range(3)]
    package = intaglio.compile(intaglio.quantize(network(), samples))
    assert [s.op for s in package.plan.steps][:2] == ["quantize_linear", "transpose"]
    x = samples[0]["x"]
    with intaglio.open(package) as session:
        want = session.run({"x": x})["y"]
        assert session.input_layout("x") == "NHWC"
        session.set_input_layout("x", "NHWC")
        np.testing.assert_array_equal(session.run({"x": as_nhwc(x)})["y"], want)


def test_a_model_that_declares_nhwc():
    x = Value(Type("f32", (1, 8, 8, 4)), "x")
    y = ops.softmax(ops.transpose(x, perm=NCHW), axis=3)
    package, a = intaglio.compile(Graph([x], [y], ["y"])), picture((1, 8, 8, 4))
    with intaglio.open(package) as session:
        want = session.run({"x": a})["y"]
        assert session.input_layout("x") == "NCHW"
        session.set_input_layout("x", "NCHW")
        got = session.run({"x": np.ascontiguousarray(a.transpose(NCHW))})["y"]
        np.testing.assert_array_equal(got, want)
        with pytest.raises(BadInput, match="its first steps read it as NCHW"):
            session.set_input_layout("x", "NHWC")


def test_a_tensor_that_is_changed_in_place_keeps_memory_of_its_own():
    x = Value(Type("f32", (1, 3, 40, 40)), "x")
    turned = ops.transpose(x, perm=NHWC)
    y = ops.reduce_mean(ops.exp(ops.tanh(turned)), axes=(1, 2), keepdims=False)
    package, a = intaglio.compile(Graph([x], [y], ["y"]), level=0), picture((1, 3, 40, 40))
    with intaglio.open(package) as session:
        want = session.run({"x": a})["y"]
        assert session.input_layout("x") == "NHWC"
        session.set_input_layout("x", "NHWC")
        given = as_nhwc(a)
        for _ in range(2):
            np.testing.assert_array_equal(session.run({"x": given})["y"], want)
            np.testing.assert_array_equal(given, as_nhwc(a))


def test_open_dimensions():
    package = intaglio.compile(network_file(), dims={"h": "8..24", "w": "8..24"})
    with intaglio.open(package) as session:
        session.set_input_layout("x", "NHWC")
        for h, w in ((8, 8), (24, 9), (11, 24), (8, 8)):
            a = picture((1, 3, h, w))
            with intaglio.open(package) as plain:
                want = plain.run({"x": a})["y"]
            np.testing.assert_array_equal(session.run({"x": as_nhwc(a)})["y"], want)
        with pytest.raises(BadInput):
            session.run({"x": picture((1, 30, 8, 3))})


def network_file() -> bytes:
    """The network in ONNX, with open height and width."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    w = np.random.default_rng(0).normal(0, 0.2, (8, 3, 3, 3)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    graph = helper.make_graph(
        [node],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, "h", "w"))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 8, "h", "w"))],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def test_refusals():
    x, z = Value(Type("f32", (1, 3, 8, 8)), "x"), Value(Type("f32", (4,)), "z")
    both = Graph([x, z], [ops.relu(conv(x, 8)), ops.exp(x), ops.relu(z)], ["a", "b", "c"])
    with intaglio.open(intaglio.compile(both)) as session:
        assert session.input_layout("z") is None
        assert session.input_layout("x") is None  # another step reads it as it is
        with pytest.raises(BadInput, match="compile the model with --input-layout NHWC"):
            session.set_input_layout("x", "NHWC")
        with pytest.raises(BadInput, match="layout is the string 'HWC'; it is NHWC, NCHW or None"):
            session.set_input_layout("x", "HWC")
        with pytest.raises(BadInput, match="'q'"):
            session.set_input_layout("q", "NHWC")
        with pytest.raises(BadInput, match="'q'"):
            session.input_layout("q")
    with (
        intaglio.Session(network()) as session,
        pytest.raises(BadInput, match="has the layouts of the model"),
    ):
        session.set_input_layout("x", "NHWC")


def test_lists_of_shapes_are_refused():
    package = intaglio.compile(network_file(), dims={"h": [8, 16], "w": [8, 16]})
    with (
        intaglio.open(package) as session,
        pytest.raises(BadInput, match="a list of shapes, so its layout cannot be set"),
    ):
        session.set_input_layout("x", "NHWC")
