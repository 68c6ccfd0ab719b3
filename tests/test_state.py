"""State carried between runs: in the interpreter, in packages and in sessions."""

from __future__ import annotations

import ctypes
import json

import numpy as np
import pytest

import intaglio
from intaglio import native, ops
from intaglio.cli import main
from intaglio.errors import BadFile, BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.package import Package
from intaglio.plan import State
from intaglio.verify import BrokenGraph, verify


def counting(initial=None, last: bool = False) -> Graph:
    """y = x + s, s becomes s + 1; `last`: another state keeps the x of the last call."""
    x, s = Value(Type("f32", (3,)), "x"), Value(Type("f32", (3,)), "state.s")
    after = ops.add(s, constant(np.ones(3, np.float32)))
    names, state = ["y", "state.s"], {"state.s": initial}
    inputs, outputs = [x, s], [ops.add(x, s), after]
    if last:
        old = Value(Type("f32", (3,)), "state.last")
        inputs.append(old)
        outputs += [x, ops.mul(old, constant(np.full(3, 2, np.float32)))]
        names += ["state.last", "twice"]
        state["state.last"] = None
    return Graph(inputs, outputs, names, state=state)


X = np.arange(3, dtype=np.float32)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("initial", [None, np.array([5, 6, 7], np.float32)])
def test_a_session_carries_the_state(initial, threads):
    begin = np.zeros(3, np.float32) if initial is None else initial
    with intaglio.open(intaglio.compile(counting(initial)), threads=threads) as session:
        assert (list(session.inputs), list(session.outputs)) == (["x"], ["y"])
        for step in range(50):
            np.testing.assert_array_equal(session.run({"x": X})["y"], X + begin + step)
        np.testing.assert_array_equal(session.state["state.s"], begin + 50)
        other = session.clone()
        np.testing.assert_array_equal(other.run({"x": X})["y"], X + begin)
        session.reset()
        np.testing.assert_array_equal(session.run({"x": X})["y"], X + begin)
        session.state = {"state.s": X}
        np.testing.assert_array_equal(session.run({"x": X})["y"], X + X)


def test_a_state_may_be_an_unchanged_input():
    """The output of that state has no memory of its own in the plan."""
    with intaglio.open(intaglio.compile(counting(last=True))) as session:
        before = np.zeros(3, np.float32)
        for step in range(4):
            got = session.run({"x": X * step})
            np.testing.assert_array_equal(got["twice"], 2 * before)
            before = X * step


def test_a_failed_run_keeps_the_state():
    package = intaglio.compile(counting())
    with intaglio.open(package) as session:
        session.run({"x": X})
        with pytest.raises(BadInput, match="'x' has shape"):
            session.run({"x": X[:2]})
        with pytest.raises(BadInput, match=r"no state is called 's'; the model has 'state\.s'"):
            session.state = {"s": X}
        with pytest.raises(BadInput, match=r"'state\.s' has shape"):
            session.state = {"state.s": X[:2]}
        np.testing.assert_array_equal(session.state["state.s"], np.ones(3, np.float32))


def test_the_interpreter_takes_and_returns_the_state():
    graph = counting(X)
    got = intaglio.interpret(graph, {"x": X})
    np.testing.assert_array_equal(got["y"], X + X)
    again = intaglio.interpret(graph, {"x": X, "state.s": got["state.s"]})
    np.testing.assert_array_equal(again["y"], X + X + 1)
    assert "state state.s" in str(graph)
    assert graph.copy().state.keys() == graph.state.keys()


def test_a_graph_with_half_a_state_is_broken():
    graph = counting()
    graph.state["x"] = None
    with pytest.raises(BrokenGraph, match="state 'x'"):
        verify(graph)


def test_packages_list_the_states(tmp_path, capsys):
    package = intaglio.compile(counting(X))
    package.save(tmp_path / "m.itg")
    again = Package.load(tmp_path / "m.itg")
    assert (list(again.inputs), list(again.outputs)) == (["x"], ["y"])
    assert again.state == {"state.s": Type("f32", (3,))}
    (state,) = again.plan.states
    assert (state.input, state.output) == (1, 1)
    np.testing.assert_array_equal(state.initial, X)
    main(["inspect", str(tmp_path / "m.itg")])
    assert "state       state.s  f32[3]" in capsys.readouterr().out
    main(["inspect", str(tmp_path / "m.itg"), "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert (list(facts["inputs"]), list(facts["state"])) == (["x"], ["state.s"])


def test_the_command_line_runs_several_steps(tmp_path, capsys):
    intaglio.compile(counting()).save(tmp_path / "m.itg")
    frames = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.save(tmp_path / "x.npy", frames)
    paths = [str(tmp_path / "m.itg"), str(tmp_path / "x.npy")]
    main(["run", *paths, "--steps", "4", "-o", str(tmp_path / "y.npz")])
    with np.load(tmp_path / "y.npz") as got:
        np.testing.assert_array_equal(got["y"], frames + np.arange(4, dtype=np.float32)[:, None])
    with pytest.raises(SystemExit, match="2"):
        main(["run", *paths, "--steps", "5"])
    assert "4 frames" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (State(2, 0), "does not exist"),
        (State(0, 7), "does not exist"),
        (State(1, 1), "another state"),
        (State(0, 2), "differ in type"),
    ],
)
def test_hostile_packages_are_refused(state, words):
    graph = counting()
    graph.set_input(graph.result, len(graph.outputs), ops.reshape(graph.outputs[0], shape=(3, 1)))
    graph.output_names.append("other")
    plan = intaglio.compile(graph).plan
    plan.states.append(state)
    with pytest.raises(BadFile, match=words):
        intaglio.open(Package.build([plan], isa=native.machine()).bytes)


class _View(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_uint8),
        ("rank", ctypes.c_uint8),
        ("shape", ctypes.c_int64 * 8),
        ("bytes", ctypes.c_uint64),
    ]


def test_the_c_api_carries_the_state():
    """Without bound buffers: set the input, run, read the output and the state."""
    lib, package = native.library(), intaglio.compile(counting())
    data = np.frombuffer(package.bytes, np.uint8)
    model, session, view = ctypes.c_void_p(), ctypes.c_void_p(), _View()
    lib.itg_model_open(
        data.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_size_t(data.size),
        0,
        ctypes.byref(model),
        None,
    )
    assert lib.itg_session_create(model, None, ctypes.byref(session), None) == 0
    for step in range(3):
        lib.itg_set_input(session, 0, X.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(X.nbytes))
        assert lib.itg_run(session) == 0
        lib.itg_get_output(session, 0, ctypes.byref(view))
        y = np.ctypeslib.as_array(ctypes.cast(view.data, ctypes.POINTER(ctypes.c_float)), (3,))
        np.testing.assert_array_equal(y, X + step)
    assert lib.itg_get_state(session, 1, ctypes.byref(view)) != 0
    lib.itg_session_destroy(session)
    lib.itg_model_close(model)


def test_quantising_observes_states():
    """Calibration runs the samples as one stream, so that ranges of states are observed."""
    rng = np.random.default_rng(0)
    x, s = Value(Type("f32", (1, 8)), "x"), Value(Type("f32", (1, 8)), "state.s")
    mixed = ops.add(ops.mul(s, constant(np.full(8, 0.9, np.float32))), x)
    w = constant(rng.standard_normal((8, 4)).astype(np.float32))
    graph = Graph([x, s], [ops.matmul(mixed, w), mixed], ["y", "state.s"], state={"state.s": None})
    frames = [{"x": 1 + rng.random((1, 8), np.float32)} for _ in range(30)]
    quantised = intaglio.quantize(graph, data=frames)
    assert list(quantised.state) == ["state.s"]
    with (
        intaglio.open(intaglio.compile(graph)) as exact,
        intaglio.open(intaglio.compile(quantised)) as session,
    ):
        pairs = [(exact.run(f)["y"], session.run(f)["y"]) for f in frames]
    want, got = (np.concatenate(side) for side in zip(*pairs, strict=True))
    assert np.abs(want - got).max() < 0.03 * np.abs(want).max()
