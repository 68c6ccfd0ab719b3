"""Memory of large results: taken again when nobody has it, and never before."""

import ctypes
import gc
import threading

import numpy as np
import pytest

import intaglio
from intaglio import ops, result_memory
from intaglio.ir import Graph, Type, Value

N = 3000
X = np.arange(N, dtype=np.float32)


@pytest.fixture
def session(monkeypatch):
    """A session whose results all count as large."""
    monkeypatch.setattr(result_memory, "MIN_BYTES", 1000)
    x = Value(Type("f32", (N,)), "x")
    small = ops.reduce_sum(x, axes=(0,), keepdims=True)
    graph = Graph([x], [ops.neg(x), small], ["y", "s"])
    with intaglio.open(intaglio.compile(graph), threads=1) as opened:
        yield opened


def address(a: np.ndarray) -> int:
    return a.__array_interface__["data"][0]


def test_a_dropped_result_is_taken_again(session):
    found = {address(session.run({"x": X})["y"]) for _ in range(10)}
    assert len(found) == 1


def test_a_loop_that_holds_the_last_result_takes_two_blocks(session):
    found = set()
    for k in range(10):
        y = session.run({"x": X + k})["y"]
        found.add(address(y))
    assert len(found) == 2
    np.testing.assert_array_equal(y, -(X + 9))


def by_pointer(held) -> np.ndarray:
    return np.ctypeslib.as_array(held.data_as(ctypes.POINTER(ctypes.c_float)), (N,))


@pytest.mark.parametrize(
    ("hold", "read", "want"),
    [
        (lambda y: y, np.asarray, -X),
        (lambda y: y[10:20], np.asarray, -X[10:20]),
        (lambda y: y.reshape(30, 100)[3:, ::2].T, np.asarray, -X.reshape(30, 100)[3:, ::2].T),
        (lambda y: y.view(np.int32), lambda held: held.view(np.float32), -X),
        (lambda y: memoryview(y)[5:], np.asarray, -X[5:]),
        (np.from_dlpack, np.asarray, -X),
        (lambda y: y.ctypes, by_pointer, -X),
        (iter, lambda held: np.fromiter(held, np.float32), -X),
    ],
)
def test_what_the_caller_holds_never_changes(session, hold, read, want):
    held = [hold(session.run({"x": X})["y"]) for _ in range(3)]
    gc.collect()
    for k in range(5):
        session.run({"x": X + 7 + k})
    for one in held:
        np.testing.assert_array_equal(read(one), want)


def test_few_blocks_wait(session):
    many = [session.run({"x": X})["y"] for _ in range(6)]
    many.clear()
    gc.collect()
    assert len(session._now.memory_of_results._free) == result_memory.MAX_FREE


def test_results_outlive_their_session(session):
    y = session.run({"x": X})["y"]
    session.close()
    view, y = y[1:], None
    gc.collect()
    np.testing.assert_array_equal(view, -X[1:])


def test_threads_that_share_a_session(session):
    wrong = []

    def work(k: int) -> None:
        held: list[tuple[int, np.ndarray]] = []
        for i in range(100):
            held.append((i, session.run({"x": X + 1000 * k + i})["y"]))
            held = held[-3:]
            wrong.extend((k, j) for j, y in held if not (y == -(X + 1000 * k + j)).all())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_blocks_of_other_sizes_stay():
    memory = result_memory.ResultMemory()
    kinds = [((100,), np.dtype("f4")), ((1000,), np.dtype("f4"))]
    first = [memory.empty(*kind) for kind in kinds]
    places = [address(a) for a in first]
    first.clear()
    again = [memory.empty(*kind) for kind in reversed(kinds)]
    assert [address(a) for a in again] == places[::-1]
    assert [(a.shape, a.dtype) for a in again] == kinds[::-1]
