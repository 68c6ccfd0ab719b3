"""The fast path of `Session.run`: it gives what the slow one gives, or leaves the call to it."""

import threading

import numpy as np
import pytest

import intaglio
from intaglio import numpy_struct, ops
from intaglio.array_addresses import address_of
from intaglio.direct_run import run_directly
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value

A = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def session():
    x, y = (Value(Type("f32", (2, 3)), n) for n in "xy")
    with intaglio.open(intaglio.compile(Graph([x, y], [ops.sub(x, y)], ["z"]))) as opened:
        yield opened


def directly(session, inputs, out=None):
    return run_directly(session._sized, inputs, out, session._turn.lock)


def test_arrays_that_fit_are_used_in_place(session):
    out = {"z": np.zeros((2, 3), np.float32)}
    assert (directly(session, {"y": A, "x": 3 * A})["z"] == 2 * A).all()
    assert directly(session, {"x": 3 * A, "y": A}, out)["z"] is out["z"]
    assert (out["z"] == 2 * A).all()


def test_read_only_inputs_are_read_in_place(session):
    fixed = A.copy()
    fixed.flags.writeable = False
    assert (directly(session, {"x": fixed, "y": fixed})["z"] == 0).all()


@pytest.mark.parametrize(
    ("inputs", "out"),
    [
        ({"x": A}, None),
        ({"x": A, "y": A, "z": A}, None),
        ({"x": A, "z": A}, None),
        ({"x": A, "y": A.astype(np.float64)}, None),
        ({"x": A, "y": A[:1]}, None),
        ({"x": A, "y": A.tolist()}, None),
        ({"x": A, "y": A[:, ::-1]}, None),
        ({"x": A, "y": A}, {"z": A}),
        ({"x": A, "y": A}, {"w": np.zeros_like(A)}),
        ({"x": A, "y": A}, {"z": np.zeros_like(A)[::-1]}),
        ({"x": A, "y": A}, {"z": np.zeros((2, 3))}),
        ({"x": A, "y": A}, {"z": None}),
    ],
)
def test_other_arrays_are_left_to_the_slow_path(session, inputs, out):
    """It also frees the lock: the next run works."""
    assert directly(session, inputs, out) is None
    assert (session.run({"x": 2 * A, "y": A})["z"] == A).all()


def test_a_closed_session_does_not_run(session):
    session.close()
    with pytest.raises(BadInput, match="the session is closed"):
        session.run({"x": A, "y": A})
    with pytest.raises(BadInput, match="the session is closed"):
        directly(session, {"x": A, "y": A})


def test_threads_get_the_results_of_their_own_inputs(session):
    wrong = []

    def work(k: int) -> None:
        for i in range(300):
            x = np.full((2, 3), 1000 * k + i, np.float32)
            if not (session.run({"x": x, "y": A})["z"] == x - A).all():
                wrong.append((k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.parametrize("known", [True, False])
def test_addresses(known, monkeypatch):
    if not known:  # as in an interpreter with other structs
        monkeypatch.setattr("intaglio.array_addresses.DATA_OFFSET", None)
    fixed = A.copy()
    fixed.flags.writeable = False
    for a in (A, A[1:], A.T, fixed, np.empty((0, 3)), np.array(1.0), A.view(np.matrix)):
        assert address_of(a) == a.ctypes.data


def test_without_a_known_struct_all_runs_take_the_slow_path(session, monkeypatch):
    monkeypatch.setattr(session._sized, "direct", None)
    assert directly(session, {"x": A, "y": A}) is None
    assert (session.run({"x": 3 * A, "y": A})["z"] == 2 * A).all()


def test_the_struct_that_c_reads_is_that_of_numpy():
    assert numpy_struct.KNOWN  # else no run is direct


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_outputs_that_overlap_an_input_are_left_to_the_slow_path(session, offset):
    memory = np.zeros(24, np.float32)
    out = {"z": memory[9 + offset : 15 + offset].reshape(2, 3)}
    before, after = memory[3:9].reshape(2, 3), memory[15:21].reshape(2, 3)
    overlaps = [directly(session, {"x": x, "y": A}, out) is None for x in (before, after)]
    assert overlaps == [offset == -1, offset == 1]


def test_arrays_of_a_subclass_are_left_to_the_slow_path(session):
    for other in (A.view(np.matrix), A.view(np.recarray)):
        assert directly(session, {"x": other, "y": A}) is None
        assert (session.run({"x": other, "y": A})["z"] == 0).all()


def test_another_byte_order_is_not_taken_for_floats(session):
    assert directly(session, {"x": A.astype(">f4"), "y": A}) is None
