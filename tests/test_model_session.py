"""Sessions of model files: compiled at first sight of a shape, kept and cached."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import onnx
import pytest
from tests.frontends.onnx_text import model
from tests.test_ranges import CONVOLUTIONS, ENCODER, R, agree, feeds_of

import intaglio
from intaglio import BadInput
from intaglio.ir import Graph
from intaglio.model_session import ModelSession


@pytest.fixture
def encoder(tmp_path):
    onnx.save(ENCODER, tmp_path / "encoder.onnx")
    return tmp_path / "encoder.onnx"


def want(batch: int, seq: int, feeds: dict) -> list[np.ndarray]:
    graph = intaglio.load(ENCODER, dims={"batch": batch, "seq": seq})
    return list(intaglio.interpret(graph, feeds).values())


@pytest.mark.parametrize("background", [False, True])
def test_every_shape_runs(encoder, background):
    with intaglio.Session(encoder, threads=1, background=background) as session:
        assert isinstance(session, ModelSession)
        assert str(session.inputs["ids"]) == "i64[batch, seq]"
        assert session.output_names == ["y", "z"]
        for b, s in ((1, 4), (2, 9), (1, 4), (3, 11), (3, 11), (1, 1), (4, 60), (3, 11), (3, 11)):
            feeds = feeds_of(ENCODER, {"batch": b, "seq": s})
            agree(session.run(feeds), want(b, s, feeds), (b, s))
            session.wait()


def test_a_range_serves_new_shapes_once_it_is_compiled(encoder):
    with intaglio.Session(encoder, threads=1) as session:
        for s in (5, 7):
            session.run(feeds_of(ENCODER, {"batch": 1, "seq": s}))
        session.wait()
        plans = len(session._exact)
        feeds = feeds_of(ENCODER, {"batch": 1, "seq": 6})
        agree(session.run(feeds), want(1, 6, feeds), 6)
        assert len(session._exact) == plans  # nothing was compiled for it
        for _ in range(3):  # until it comes often
            agree(session.run(feeds), want(1, 6, feeds), 6)
            session.run(feeds_of(ENCODER, {"batch": 1, "seq": 5}))
        session.wait()
        assert len(session._exact) == plans + 1
        agree(session.run(feeds), want(1, 6, feeds), 6)


def test_the_last_plans_are_kept(encoder):
    with intaglio.Session(encoder, threads=1, keep=2, background=False) as session:
        for s in range(1, 6):
            feeds = feeds_of(ENCODER, {"batch": 1, "seq": s})
            agree(session.run(feeds), want(1, s, feeds), s)
            assert len(session._exact) <= 2


def test_plans_that_are_not_kept_are_freed(encoder):
    alive = weakref.WeakSet()
    with intaglio.Session(encoder, threads=1, keep=2) as session:
        for s in (3, 5, *range(6, 18)):
            for _ in range(4):  # often enough for a plan of its own
                session.run(feeds_of(ENCODER, {"batch": 1, "seq": s}))
            session.wait()
            alive.update(sized.native for sized in session._exact.values())
        gc.collect()
        assert len(session._exact) == 2
        assert len(alive) <= 3  # those, and the one that ran last


def test_clones_share_what_they_compile(encoder):
    with intaglio.Session(encoder, threads=1) as session, session.clone() as other:
        feeds = feeds_of(ENCODER, {"batch": 1, "seq": 4})
        agree(session.run(feeds), want(1, 4, feeds), "first")
        agree(other.run(feeds), want(1, 4, feeds), "second")
        assert other._now is not session._now
        assert other._now.model is session._now.model


def test_the_calling_convention_of_onnxruntime(encoder):
    with intaglio.Session(encoder) as session:
        feeds = feeds_of(ENCODER, {"batch": 1, "seq": 4})
        named = session.run(feeds)
        listed = session.run(None, feeds)
        assert [a.shape for a in listed] == [a.shape for a in named.values()]
        np.testing.assert_array_equal(session.run(["z"], feeds)[0], named["z"])
        with pytest.raises(BadInput, match="no output is called 'w'"):
            session.run(["w"], feeds)


def test_packages_are_cached_on_disk(encoder, tmp_path):
    feeds = feeds_of(ENCODER, {"batch": 1, "seq": 4})
    for _ in range(2):
        with intaglio.Session(encoder, cache=tmp_path / "cache") as session:
            agree(session.run(feeds), want(1, 4, feeds), "cached")
    files = list((tmp_path / "cache").glob("*.itg"))
    assert len(files) == 1
    files[0].write_bytes(b"damaged")
    with intaglio.Session(encoder, cache=tmp_path / "cache") as session:
        agree(session.run(feeds), want(1, 4, feeds), "compiled again")
    (encoder.parent / "encoder.onnx").touch()
    with pytest.raises(BadInput, match="cannot be made"):
        intaglio.Session(encoder, cache=encoder)


def test_inputs_that_decide_shapes():
    source = model("(float[n,4] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }")
    with intaglio.Session(source, threads=1) as session:
        x = R.standard_normal((2, 4)).astype(np.float32)
        for shape in ((4, 2), (1, 8), (8, 1), (4, 2)):
            got = session.run({"x": x, "s": np.array(shape)})["y"]
            np.testing.assert_array_equal(got, x.reshape(shape))


def test_bytes_graphs_and_fixed_models():
    x = R.standard_normal((1, 3, 8, 8)).astype(np.float32)
    graph = intaglio.load(CONVOLUTIONS, shapes={"x": x.shape})
    expected = list(intaglio.interpret(graph, {"x": x}).values())
    for source in (CONVOLUTIONS, CONVOLUTIONS.SerializeToString(), graph):
        with intaglio.Session(source) as session:
            agree(session.run({"x": x}), expected, type(source))
    with (
        intaglio.Session(graph) as session,
        pytest.raises(BadInput, match="the model takes float32"),
    ):
        session.run({"x": x[:, :2]})


def test_some_dimensions_may_be_bound(encoder):
    with intaglio.Session(encoder, dims={"batch": 1}) as session:
        assert str(session.inputs["ids"]) == "i64[1, seq]"
        feeds = feeds_of(ENCODER, {"batch": 1, "seq": 4})
        agree(session.run(feeds), want(1, 4, feeds), "bound")
        with pytest.raises(BadInput, match=r"shape \(2, 4\)"):
            session.run(feeds_of(ENCODER, {"batch": 2, "seq": 4}))


def test_clones_and_closing(encoder):
    session = intaglio.Session(encoder, threads=1)
    feeds = feeds_of(ENCODER, {"batch": 1, "seq": 4})
    other = session.clone()
    expected = session.run(feeds)
    session.close()
    session.close()
    agree(other.run(feeds), list(expected.values()), "clone")
    with pytest.raises(BadInput, match="closed"):
        session.run(feeds)
    with pytest.raises(BadInput, match="closed"):
        session.run(feeds_of(ENCODER, {"batch": 1, "seq": 5}))
    other.close()


def test_a_package_is_opened_as_it_is(tmp_path):
    intaglio.compile(CONVOLUTIONS, shapes={"x": (1, 3, 8, 8)}).save(tmp_path / "m.itg")
    with intaglio.Session(tmp_path / "m.itg") as session:
        assert type(session) is intaglio.Session
    with pytest.raises(BadInput, match="cannot open"):
        intaglio.Session(tmp_path / "none.itg")
    with pytest.raises(BadInput, match=r"cannot (open|read)"):
        intaglio.Session(tmp_path / "none.onnx")


def test_wrong_inputs_are_refused(encoder):
    with intaglio.Session(encoder) as session:
        with pytest.raises(BadInput, match="input 'mask' is missing"):
            session.run({"ids": np.zeros((1, 4), np.int64)})
        with pytest.raises(BadInput, match="seq=5"):
            session.run({"ids": np.zeros((1, 4), np.int64), "mask": np.zeros((1, 5), np.int64)})
        with pytest.raises(BadInput, match="dtype"):
            session.run({"ids": np.zeros((1, 4), np.float32), "mask": np.zeros((1, 4), np.int64)})


def test_a_graph_with_ranges_has_one_plan_for_all_sizes():
    x = open_axis_graph({"n": "1..16"})
    with intaglio.Session(x) as session:
        for n in (1, 16, 7, 7, 7, 7, 7):
            a = np.random.default_rng(n).normal(size=(n, 4)).astype(np.float32)
            np.testing.assert_array_equal(session.run({"x": a})["y"], np.maximum(a, 0))
        assert session.output_shapes({"x": (3, 4)}) == {"y": (3, 4)}
        assert session.clone().run({"x": a})["y"].shape == (7, 4)
        with pytest.raises(BadInput, match=r"n=17; the model was compiled for n=1\.\.16"):
            session.run({"x": np.zeros((17, 4), np.float32)})


def open_axis_graph(dims: dict[str, str]) -> Graph:
    """A Graph of relu whose first axis is open."""
    from onnx import TensorProto, helper

    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ("n", 4)) for name in ("x", "y")
    ]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return intaglio.load(model.SerializeToString(), dims=dims)
