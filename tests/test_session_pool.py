"""Session pools and futures: right answers for each caller, bounded queues, errors, closing."""

from __future__ import annotations

import gc
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from tests.frontends.onnx_text import model
from tests.test_ranges import CONVOLUTIONS, ENCODER, PICTURE, feeds_of
from tests.test_session import big
from tests.test_state import counting

import intaglio
from intaglio import BadInput, QueueFull, SessionPool, ThreadPool

N = 3000


@pytest.fixture(scope="module")
def package():
    return big(N)[0]


def request(i: int) -> dict[str, np.ndarray]:
    return {"x": np.full(N, i / 50, np.float32)}


def right(answer: dict[str, np.ndarray], i: int) -> bool:
    return bool(np.allclose(answer["y"], np.exp(np.float32(i / 50)), rtol=1e-4))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("how", ["run", "submit", "map"])
def test_many_threads_get_their_own_answers(package, threads, how):
    with SessionPool(package, sessions=3, threads=threads, queue=2) as pool:
        assert len(pool) == 3

        def work(k: int) -> list[int]:
            numbers = range(100 * k, 100 * k + 40)
            if how == "run":
                answers = [pool.run(request(i)) for i in numbers]
            elif how == "submit":
                answers = [f.result() for f in [pool.submit(request(i)) for i in numbers]]
            else:
                answers = list(pool.map(request(i) for i in numbers))
            return [i for i, a in zip(numbers, answers, strict=True) if not right(a, i)]

        with ThreadPoolExecutor(8) as callers:
            assert list(callers.map(work, range(8))) == [[]] * 8


def test_shapes_of_many_threads_are_not_mixed():
    """Eight threads with three shapes, on one session and on a pool."""
    package = intaglio.compile(CONVOLUTIONS, dims=PICTURE)
    sizes = [{"n": 1, "h": 9, "w": 12}, {"n": 3, "h": 20, "w": 5}, {"n": 2, "h": 64, "w": 33}]
    feeds = [feeds_of(CONVOLUTIONS, s) for s in sizes]
    with intaglio.open(package, threads=1) as alone:
        want = [alone.run(f) for f in feeds]
    session = intaglio.open(package, threads=2)
    pool = SessionPool(session, sessions=4, threads=2)

    def work(k: int) -> bool:
        for i in range(30):
            s = (i * (k + 1)) % 3
            for answer in (session.run(feeds[s]), pool.run(feeds[s])):
                for name, a in answer.items():
                    np.testing.assert_allclose(a, want[s][name], 1e-5, 1e-6)
        return True

    with session, pool, ThreadPoolExecutor(8) as callers:
        assert all(callers.map(work, range(8)))


def test_an_error_reaches_only_its_caller(package):
    with SessionPool(package, sessions=2) as pool:
        futures = [pool.submit({"z": np.zeros(3)} if i % 5 == 3 else request(i)) for i in range(40)]
        for i, future in enumerate(futures):
            if i % 5 == 3:
                with pytest.raises(BadInput, match="no input is called 'z'"):
                    future.result()
            else:
                assert right(future.result(), i)
        with pytest.raises(BadInput, match="no input is called 'z'"):
            pool.run({"z": np.zeros(3)})
        answers = pool.map([request(1), {"z": np.zeros(3)}, request(2)])
        assert right(next(answers), 1)
        with pytest.raises(BadInput, match="no input is called 'z'"):
            next(answers)
        assert right(pool.run(request(7)), 7)


def test_the_queue_is_bounded(package):
    with SessionPool(package, sessions=1, queue=2) as pool:
        session = pool._idle.take()  # the only one is busy
        futures = [pool.submit(request(i)) for i in range(3)]  # one of them waits in a worker
        with pytest.raises(QueueFull, match="the queue is full: 2 requests wait for 1 sessions"):
            pool.submit(request(9), timeout=0)
        with pytest.raises(QueueFull):
            pool.submit(request(9), timeout=0.01)
        waited = threading.Thread(target=lambda: futures.append(pool.submit(request(3))))
        waited.start()
        pool._idle.give(session)
        waited.join()
        assert all(right(f.result(), i) for i, f in enumerate(futures))
        for wrong in (-1, float("nan")):
            with pytest.raises(BadInput, match="timeout is"):
                pool.submit(request(1), timeout=wrong)


def test_map_reads_few_requests_ahead(package):
    read = 0

    def requests():
        nonlocal read
        for i in range(1000):
            read += 1
            yield request(i % 100)

    with SessionPool(package, sessions=2) as pool:
        answers = pool.map(requests())
        for i in range(10):
            assert right(next(answers), i)
        assert read <= 10 + 2 * 2 + 1
        answers.close()


def test_closing_answers_what_was_submitted(package):
    pool = SessionPool(package, sessions=2, queue=100)
    futures = [pool.submit(request(i)) for i in range(60)]
    pool.close()
    assert all(right(f.result(0), i) for i, f in enumerate(futures))
    pool.close()
    for call in (pool.run, pool.submit, lambda r: next(pool.map([r]))):
        with pytest.raises(BadInput, match="the session pool is closed"):
            call(request(1))


def test_a_callback_of_an_answer_may_close_the_pool(package):
    pool = SessionPool(package, sessions=1)
    closed = threading.Event()

    def close(_: Future) -> None:
        pool.close()
        closed.set()

    pool.submit(request(1)).add_done_callback(close)
    assert closed.wait(30)


def test_a_pool_that_is_dropped_ends_its_threads(package):
    before = set(threading.enumerate())
    pool = SessionPool(package, sessions=3, threads=2)
    assert right(pool.submit(request(3)).result(), 3)
    assert set(threading.enumerate()) - before
    del pool
    gc.collect()
    end = time.monotonic() + 30
    while set(threading.enumerate()) - before and time.monotonic() < end:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before


def test_out_and_shared_threads(package):
    threads = ThreadPool(2)
    with SessionPool(package, 2, pool=threads) as pool:
        y = np.empty(N, np.float32)
        assert pool.run(request(2), out={"y": y})["y"] is y
        assert pool.submit(request(4), {"y": y}).result()["y"] is y
        assert right({"y": y}, 4)
        assert {s.threads for s in pool._sessions} == {2}


def test_sessions_share_large_internal_memory():
    small, large = SessionPool(big(N)[0], 3), SessionPool(big(200_000)[0], 3)
    assert [s._settings.internal for s in small._sessions] == [None] * 3
    memory = {s._settings.internal for s in large._sessions}
    assert len(memory) == 1
    assert memory.pop().blocks == min(3, len(os.sched_getaffinity(0)))
    mine = intaglio.InternalMemory(1)
    with intaglio.open(big(200_000)[0], internal=mine) as session:
        assert {s._settings.internal for s in SessionPool(session, 2)._sessions} == {mine}


def test_sessions_of_model_files_compile_once(tmp_path, monkeypatch):
    onnx.save(ENCODER, tmp_path / "encoder.onnx")
    compiled = []
    compile_ = intaglio.compile
    monkeypatch.setattr(
        intaglio, "compile", lambda *a, **k: compiled.append(1) or compile_(*a, **k)
    )
    feeds = feeds_of(ENCODER, {"batch": 2, "seq": 5})
    with (
        SessionPool(tmp_path / "encoder.onnx", sessions=4, background=False) as pool,
        ThreadPoolExecutor(8) as callers,
    ):
        answers = list(callers.map(lambda _: pool.run(feeds), range(40)))
        assert len({id(s._now.model) for s in pool._sessions if s._now}) == 1  # shared weights
        assert pool.inputs["ids"].rank == 2
    assert len(compiled) == 1
    for a in answers:
        np.testing.assert_array_equal(a["y"], answers[0]["y"])


def test_a_model_with_state_is_refused():
    graph, x = counting(), {"x": np.zeros(3, np.float32)}
    with pytest.raises(BadInput, match="keeps state between runs"):
        SessionPool(intaglio.compile(graph))
    pool = SessionPool(graph)  # compiled by its first run
    for _ in range(2):
        with pytest.raises(BadInput, match="keeps state between runs"):
            pool.run(x)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sessions": 0}, "sessions is 0; give a whole number from 1 to 4096"),
        ({"threads": 0}, "threads is 0"),
        ({"queue": -1}, "queue is -1"),
        ({"pool": "p"}, "pool is the string 'p'"),
    ],
)
def test_wrong_arguments(package, arguments, words):
    with pytest.raises(BadInput, match=words):
        SessionPool(package, **arguments)


def test_options_of_files_are_refused_for_an_open_session(package):
    with (
        intaglio.open(package) as session,
        pytest.raises(BadInput, match="verify= is for files; the session is open"),
    ):
        SessionPool(session, verify=False)


# ---- futures of one session ----------------------------------------------------------------------
def test_a_session_answers_submitted_requests_in_order(package):
    order = []
    with intaglio.open(package, threads=1) as session:
        futures = [session.submit(request(i)) for i in range(100)]  # more than may wait
        for i, f in enumerate(futures):
            f.add_done_callback(lambda _, i=i: order.append(i))
        assert all(right(f.result(), i) for i, f in enumerate(futures))
        y = np.empty(N, np.float32)
        assert session.submit(request(5), out={"y": y}).result()["y"] is y
        failed = session.submit({})
        assert isinstance(failed.exception(), BadInput)
        last = session.submit(request(6))
    assert order == sorted(order)
    assert right(last.result(0), 6)  # closing waits for it
    with pytest.raises(BadInput, match="closed"):
        session.submit(request(1))


def test_a_session_of_a_model_file_answers_futures():
    source = model("(float[n] x) => (float[n] y) { y = Neg(x) }")
    with intaglio.Session(source) as session:
        futures = [session.submit({"x": np.arange(n, dtype=np.float32)}) for n in (3, 4, 3, 9)]
        assert [f.result()["y"].size for f in futures] == [3, 4, 3, 9]
