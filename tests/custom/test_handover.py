"""Results of Python operators that a run returns without a copy, and those that it must copy."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import intaglio
from intaglio import custom, ops
from intaglio.ir import Graph, Type, Value
from intaglio.ops.registry import REGISTRY

ROWS, COLUMNS = 128, 160  # 80 KB
X = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)


def session_of(body, outputs=lambda y: [y], count: int = 1):
    """A session of one operator with this body, whose results are the outputs of the model."""

    class Made:
        name = "sample.made"

        def shape(self, x):
            return [x] * count if count > 1 else x

        def compute(self, x):
            return body(x)

    custom.register(Made)
    x = Value(Type("f32", (ROWS, COLUMNS)), "x")
    made = REGISTRY["sample.made"](x)
    results = outputs(made)
    return intaglio.open(
        intaglio.compile(Graph([x], results, [f"y{i}" for i in range(len(results))]))
    )


class Kept:
    """Remembers the addresses of arrays that a body made."""

    def __init__(self):
        self.addresses = []

    def __call__(self, a):
        self.addresses.append(a.ctypes.data)
        return a


@pytest.mark.parametrize("shaped", [False, True])
def test_a_new_array_is_the_output_itself(shaped):
    kept = Kept()
    session = session_of(lambda x: kept((x + 1).reshape(ROWS, COLUMNS) if shaped else x + 1))
    held = [session.run({"x": X + k})["y0"] for k in range(4)]
    assert [a.ctypes.data for a in held] == kept.addresses
    for k, a in enumerate(held):  # results that the caller holds never change
        np.testing.assert_array_equal(a, X + k + 1)
        assert a.flags.writeable


def test_two_results_are_told_apart():
    session = session_of(lambda x: (x + 1, x * 2), outputs=lambda ys: [ys[1], ys[0]], count=2)
    got = session.run({"x": X})
    np.testing.assert_array_equal(got["y0"], X * 2)
    np.testing.assert_array_equal(got["y1"], X + 1)


STORE = np.zeros((ROWS, COLUMNS), np.float32)
LARGE = np.zeros((2 * ROWS, COLUMNS), np.float32)
KEPT: list[np.ndarray] = []


def held_view(x):
    a = x + 1
    KEPT.append(a[:1])
    return a


def held_base(x):
    a = x + 1
    KEPT.append(a)
    return a.reshape(ROWS, COLUMNS)


def store(x):
    STORE[...] = x + 1
    return STORE


def part(x):
    LARGE[:ROWS] = x + 1
    return LARGE[:ROWS]


def fixed(x):
    a = x + 1
    a.flags.writeable = False
    return a


def listed(x):
    KEPT.append([x + 1])
    return KEPT[-1]


@pytest.mark.parametrize(
    "body",
    [
        *(held_view, held_base, store, part, fixed, listed),
        lambda x: np.asfortranarray(x + 1),
        lambda x: (x + 1)[:, ::-1][:, ::-1],
        lambda x: np.concatenate([x + 1, x])[:ROWS],
        lambda x: (x + 1).view(np.matrix),
        lambda x: (x + 1).tolist() and np.float32(x + 1),
    ],
)
def test_arrays_that_someone_else_may_change_are_copied(body):
    session = session_of(body)
    got = session.run({"x": X})["y0"]
    STORE[...] = LARGE[...] = -1
    for a in KEPT:
        a[0][...] = -1
    KEPT.clear()
    np.testing.assert_array_equal(got, X + 1)
    assert type(got) is np.ndarray
    assert got.flags.writeable


def test_an_input_that_is_returned_is_copied():
    session, x = session_of(lambda x: x), X.copy()
    got = session.run({"x": x})["y0"]
    x[...] = -1
    np.testing.assert_array_equal(got, X)


def test_outputs_that_the_model_reads_are_written():
    kept = Kept()
    session = session_of(lambda x: kept(x + 1), outputs=lambda y: [y, ops.neg(y)])
    got = session.run({"x": X})
    assert got["y0"].ctypes.data != kept.addresses[0]
    np.testing.assert_array_equal(got["y0"], X + 1)
    np.testing.assert_array_equal(got["y1"], -X - 1)


def test_a_result_that_is_two_outputs():
    got = session_of(lambda x: x + 1, outputs=lambda y: [y, y]).run({"x": X})
    np.testing.assert_array_equal(got["y0"], X + 1)
    np.testing.assert_array_equal(got["y1"], X + 1)
    assert not np.shares_memory(got["y0"], got["y1"])


def test_arrays_of_the_caller_are_written():
    session, out = session_of(lambda x: x + 1), np.zeros((ROWS, COLUMNS), np.float32)
    assert session.run({"x": X}, {"y0": out})["y0"] is out
    np.testing.assert_array_equal(out, X + 1)
    bound = session.bind({"x": X}, {"y0": out})
    out[...] = 0
    bound.run()
    np.testing.assert_array_equal(out, X + 1)


def test_a_body_that_runs_another_session():
    inner = session_of(lambda x: x * 3)

    def body(x):
        return inner.run({"x": np.array(x)})["y0"] + 1

    outer = session_of(body)
    for k in range(3):
        np.testing.assert_array_equal(outer.run({"x": X + k})["y0"], (X + k) * 3 + 1)


def test_nothing_keeps_a_result_that_the_caller_drops():
    session = session_of(lambda x: x + 1)
    got = session.run({"x": X})["y0"]
    alive = weakref.ref(got)
    del got
    gc.collect()
    assert alive() is None


def test_threads_on_one_session():
    session, wrong = session_of(lambda x: x + 1), []

    def work(k):
        held = [(i, session.run({"x": X + 100 * k + i})["y0"]) for i in range(100)]
        wrong.extend((k, i) for i, a in held if not (a == X + 100 * k + i + 1).all())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
