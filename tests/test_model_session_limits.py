"""Sessions of model files: threads, memory, and inputs of every kind."""

from __future__ import annotations

import gc
import os
import threading
import weakref

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.frontends.onnx_text import model
from tests.test_ranges import ENCODER, R, agree, feeds_of
from tests.test_state import counting

import intaglio
from intaglio import BadInput, Unsupported, model_plans
from intaglio.reserved_memory import ReservedMemory
from intaglio.runtime import Model
from intaglio.session import Session
from intaglio.shared_weights import RECORD_BYTES, SharedWeights

X = R.standard_normal((2, 3)).astype(np.float32)


def want(source, feeds: dict) -> list[np.ndarray]:
    shapes = {n: a.shape for n, a in feeds.items()}
    return list(intaglio.interpret(intaglio.load(source, shapes=shapes), feeds).values())


def layers(width: int = 96, count: int = 3) -> onnx.ModelProto:
    """Matrix products with an open batch."""
    made = model(f"(float[batch,{width}] x) => (float[batch,{width}] y) {{ }}")
    for i in range(count):
        w = (R.standard_normal((width, width)) / width**0.5).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(w, f"w{i}"))
        source, result = f"r{i - 1}" if i else "x", "y" if i == count - 1 else f"r{i}"
        made.graph.node.append(helper.make_node("MatMul", [source, f"w{i}"], [f"m{i}"]))
        made.graph.node.append(helper.make_node("Relu", [f"m{i}"], [result]))
    return made


# ---- threads -----------------------------------------------------------------------------------
@pytest.mark.parametrize("keep", [2, 8])
def test_threads_may_bring_new_shapes_at_once(keep):
    session = Session(ENCODER, threads=1, keep=keep)
    wrong: list[object] = []

    def work(first: int) -> None:
        try:
            for seq in (first, first + 1, 9, first + 2, first):
                feeds = feeds_of(ENCODER, {"batch": 1, "seq": seq})
                agree(session.run(feeds), want(ENCODER, feeds), seq)
        except BaseException as e:
            wrong.append(e)

    started = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 4, 5)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    session.wait()
    assert not wrong
    assert len(session._exact) <= keep
    session.close()


def test_a_shape_is_compiled_once_for_all_threads_and_clones(monkeypatch):
    compiled, compile_now = [], intaglio.compile

    def counted(graph, **options):
        compiled.append(graph.inputs[0].shape)
        return compile_now(graph, **options)

    monkeypatch.setattr(model_plans.intaglio, "compile", counted)
    session = Session(layers(), threads=1, background=False)
    sessions = [session, session.clone(), session.clone()]
    ready = threading.Barrier(6)
    results = []

    def work(which: int) -> None:
        ready.wait()
        for n in (1, 2, 3):
            results.append((n, sessions[which % 3].run({"x": np.ones((n, 96), np.float32)})["y"]))

    started = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert sorted(compiled) == [(1, 96), (2, 96), (3, 96)]
    assert len(results) == 18
    for n, y in results:
        assert y.shape == (n, 96)
    for one in sessions:
        one.close()


def test_a_forked_child_compiles_for_itself():
    session = Session(layers(), threads=1)
    session.run({"x": np.ones((1, 96), np.float32)})
    session.run({"x": np.ones((2, 96), np.float32)})  # a range is being compiled now
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for n in (1, 5, 6):
                session.run({"x": np.ones((n, 96), np.float32)})
            session.wait()
            session.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    session.close()


# ---- memory ------------------------------------------------------------------------------------
def test_plans_that_are_not_kept_are_freed():
    session = Session(layers(), threads=1, keep=2, background=False)
    natives = weakref.WeakSet()
    gc.collect()
    gc.disable()  # no cycle may hold them
    try:
        for n in range(1, 9):
            session.run({"x": np.ones((n, 96), np.float32)})
            natives.update(s.native for s in session._exact.values())
            assert len(natives) <= 3  # the new one is made before the oldest is forgotten
        assert len(natives) == 2
        session.close()
        del session
        assert not natives
    finally:
        gc.enable()


def test_plans_of_a_session_share_weights():
    made = layers()
    session = Session(made, threads=1, background=False)
    for n in (1, 2, 3, 4, 5):
        x = R.standard_normal((n, 96)).astype(np.float32)
        agree(session.run({"x": x}), want(made, {"x": x}), n)
    block = session._plans._weights._block
    assert block is not None
    used = block.memory.used_end - RECORD_BYTES
    one = 3 * 96 * 96 * 4
    assert one <= used < 2 * one  # five packages have five times as much
    addresses = {id(s.native.settings.internal) for s in session._exact.values()}
    assert len(addresses) == 1
    session.close()


def test_shared_weights_free_what_no_package_uses():
    shared = SharedWeights()
    packages = [intaglio.compile(layers(64), dims={"batch": n}) for n in (1, 2, 3)]  # others each
    adopted = [shared.adopt(p) for p in packages]
    block = shared._block
    ends = block.memory.used_end
    for before, after in zip(packages, adopted, strict=True):
        assert after is not before
        assert after.meta == before.meta
        x = R.standard_normal(before.inputs["x"].shape).astype(np.float32)
        results = []
        for package in (before, after):
            with intaglio.open(package, threads=1) as session:
                results.append(session.run({"x": x})["y"])
        np.testing.assert_array_equal(*results)
    del after, package, session
    adopted.clear()
    again = shared.adopt(packages[0])
    assert shared._block is block
    assert block.memory.used_end < ends  # the places of the others are free
    assert Model(again, True).plans == 1


def test_initial_values_of_states_move_too():
    initial = np.arange(3, dtype=np.float32)
    package = intaglio.compile(counting(initial))
    after = SharedWeights().adopt(package)
    assert after is not package
    with intaglio.open(package) as a, intaglio.open(after) as b:
        for name, value in a.state.items():
            np.testing.assert_array_equal(value, b.state[name])
        feeds = {n: np.ones(t.shape, np.float32) for n, t in a.inputs.items()}
        agree(b.run(feeds), list(a.run(feeds).values()), "state")


def test_reserved_memory_never_gives_a_place_twice():
    memory = ReservedMemory(1 << 16)
    used: dict[int, int] = {}
    for _ in range(2000):
        if used and R.random() < 0.45:
            start = int(R.choice(list(used)))
            memory.give_back(start, used.pop(start))
        else:
            size = int(R.integers(1, 3000))
            start = memory.take(size)
            if start is None:
                continue
            assert start % 64 == 0
            assert all(start >= a + n or a >= start + size for a, n in used.items())
            used[start] = size
        assert memory.used_end >= max((a + n for a, n in used.items()), default=0)
    for start, size in used.items():
        memory.give_back(start, size)
    assert memory._free == [(0, 1 << 16)]
    assert memory.used_end == 0
    assert memory.take(1 << 17) is None


def test_without_reserved_memory_every_plan_has_its_own(monkeypatch):
    def refuse(self, size):
        raise OSError("not allowed")

    monkeypatch.setattr(ReservedMemory, "__init__", refuse)
    made = layers()
    with Session(made, threads=1, background=False) as session:
        for n in (1, 2, 3):
            x = R.standard_normal((n, 96)).astype(np.float32)
            agree(session.run({"x": x}), want(made, {"x": x}), n)


# ---- inputs of every kind ----------------------------------------------------------------------
def test_inputs_without_a_rank():
    made = model("(float[] x) => (float[] z) { z = Relu(x) }")
    for info in (*made.graph.input, *made.graph.output):
        info.type.tensor_type.ClearField("shape")
    with Session(made, threads=1) as session:
        assert session.inputs == {}
        for x in (X, X[0], X[None], X):
            np.testing.assert_array_equal(session.run({"x": x})["z"], np.maximum(x, 0))
        assert str(session.inputs["x"]) == "f32[2x3]"
        with pytest.raises(BadInput, match="the model has 'x' f32 of any shape"):
            session.run({"x": X, "q": X})
        with pytest.raises(BadInput, match="input 'x' is missing"):
            session.run({})
        with pytest.raises(BadInput, match=r"give x.astype\('float32'\)"):
            session.run({"x": X.astype(np.float64)})


def test_initialisers_that_are_inputs():
    made = model("(float[n,3] x, float[k] b, int64[2] s) => (float[p,q] y) { }")
    made.graph.initializer.append(numpy_helper.from_array(np.zeros(3, np.float32), "b"))
    made.graph.initializer.append(numpy_helper.from_array(np.array([3, -1]), "s"))
    made.graph.node.append(helper.make_node("Add", ["x", "b"], ["t"]))
    made.graph.node.append(helper.make_node("Reshape", ["t", "s"], ["y"]))
    with Session(made, threads=1) as session:
        assert list(session.inputs) == ["x"]
        for b in (None, np.arange(3, dtype=np.float32), np.ones(1, np.float32), None):
            for s in (None, np.array([6, 1]), np.array([1, 6])):
                given = {n: a for n, a in (("b", b), ("s", s)) if a is not None}
                got = session.run({"x": X, **given})["y"]
                expected = (X + (0 if b is None else b)).reshape([3, -1] if s is None else s)
                np.testing.assert_array_equal(got, expected)
        with pytest.raises(BadInput, match="input 'b' has dtype int64"):
            session.run({"x": X, "b": np.arange(3)})


@pytest.mark.parametrize("text", [
    "(float[n,3] x) => (float[n,3] y) { y = Softmax(x) }",
    "(float[n,3] x) => (float[n,3] x) { }",
    "(float[n,3] x) => (float[n,3] x, float[n,3] y) { y = Neg(x) }",
    "(float[n,3] x) => (float[m,3] y) { y = Concat<axis=0>(x, x) }",
])  # fmt: skip
def test_empty_arrays_and_outputs_that_are_inputs(text):
    made = model(text)
    with Session(made, threads=1) as session:
        for n in (0, 2, 0, 1, 5):
            x = np.resize(X, (n, 3))
            names = [o.name for o in made.graph.output]
            got = session.run({"x": x})
            assert list(got) == names
            if "x" in names:
                np.testing.assert_array_equal(got["x"], x)
            assert all(a.shape[0] in (n, 2 * n) for a in got.values())
        session.wait()


def test_strings_are_refused_in_words():
    with pytest.raises(Unsupported, match="input 'x' has strings"):
        Session(model("(string[n] x) => (string[n] y) { y = Identity(x) }"))
    made = model("(float[n] x) => (string[n] t, float[n] y) { t = Cast<to=8>(x) y = Neg(x) }")
    with Session(made, threads=1) as session:
        assert session.output_names == ["y"]
        with pytest.warns(UserWarning, match="holds strings"):
            got = session.run({"x": X[0]})
        assert list(got) == ["y"]
        with pytest.raises(BadInput, match="give an array of float32"):
            session.run({"x": np.array(["a", "b"])})


def test_weights_in_other_files(tmp_path):
    made = layers()
    onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin")
    with Session(tmp_path / "m.onnx", threads=1, cache=tmp_path / "cache") as session:
        for n in (1, 3):
            x = R.standard_normal((n, 96)).astype(np.float32)
            agree(session.run({"x": x}), want(tmp_path / "m.onnx", {"x": x}), n)
    with (
        Session((tmp_path / "m.onnx").read_bytes(), threads=1) as session,
        pytest.raises(BadInput, match="load it from its path"),
    ):
        session.run({"x": np.ones((1, 96), np.float32)})


@pytest.mark.filterwarnings("ignore:onnx. the element type")
def test_parts_of_a_model_need_their_inputs_only():
    made = model(
        "(float[n] a, float[n] b) => (float[n] y, float[n] z) "
        "{ t = Neg(a) y = Abs(t) z = Add(t, b) }"
    )
    with Session(made, outputs=["y"]) as session:
        assert list(session.inputs) == ["a"]
        np.testing.assert_array_equal(session.run({"a": X[0]})["y"], np.abs(X[0]))
    with Session(made, inputs=["t", "b"], outputs=["z"], shapes={"t": (3,), "b": (3,)}) as session:
        np.testing.assert_array_equal(session.run({"t": X[0], "b": X[1]})["z"], X[0] + X[1])


def test_preprocessing_changes_the_inputs():
    made = model("(float[1,3,8,8] x) => (float[1,3,8,8] y) { y = Neg(x) }")
    with Session(made, input_type="uint8", input_layout="NHWC") as session:
        assert str(session.inputs["x"]) == "u8[1x8x8x3]"
        assert session.run({"x": np.ones((1, 8, 8, 3), np.uint8)})["y"].shape == (1, 3, 8, 8)


def test_mistakes_are_found_when_the_session_is_made():
    made = model("(float[n] x) => (float[n] y) { y = Neg(x) }")
    with pytest.raises(TypeError, match="did you mean 'precision'"):
        Session(made, presicion="bf16")
    for dims in ({"n": "1..8"}, {"n": [1, 8]}):
        with pytest.raises(BadInput, match="compiles for the sizes that come"):
            Session(made, dims=dims)
    with pytest.raises(BadInput, match="keep is 0"):
        Session(made, keep=0)
    with pytest.raises(BadInput, match="max_steps"):
        Session(made, max_steps=-1)
