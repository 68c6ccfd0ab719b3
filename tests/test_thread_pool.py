"""Thread pools that sessions share: right results, pinned threads, wrong arguments."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.test_session import big

import intaglio
from intaglio import BadInput, ThreadPool

CPUS = sorted(os.sched_getaffinity(0))


def affinities() -> list[set[int]]:
    """The CPUs that each thread of this process may use."""
    return [os.sched_getaffinity(int(p.name)) for p in Path("/proc/self/task").iterdir()]


def test_sessions_share_a_pool_at_the_same_time():
    package, x = big(60_003)
    pool = ThreadPool(3)
    first = intaglio.open(package, pool=pool, profile=True)
    sessions = [first, *(first.clone() for _ in range(3))]
    assert {s.threads for s in sessions} == {3}
    wrong = []

    def work(k: int) -> None:
        for i in range(1, 20):
            y = sessions[k].run({"x": x / (i + k)})["y"]
            if not np.allclose(y, np.exp(x / (i + k)), rtol=1e-4):
                wrong.append((k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert {s.threads for s in first.profile()} == {3}


def test_a_session_may_use_fewer_threads_than_the_pool_has():
    package, x = big(200_003)
    pool = ThreadPool(4)
    with intaglio.open(package, threads=2, pool=pool, profile=True) as session:
        np.testing.assert_allclose(session.run({"x": x})["y"], np.exp(x), rtol=1e-4)
        assert {s.threads for s in session.profile()} == {2}
        assert intaglio.open(package, threads=9, pool=pool).threads == 4  # no more than there are
        assert session.clone(threads=1).threads == 1
        other = session.clone(pool=ThreadPool(2))
        assert (other.threads, session.clone().threads) == (2, 2)
        np.testing.assert_allclose(other.run({"x": x})["y"], np.exp(x), rtol=1e-4)


def test_the_threads_end_with_the_last_session():
    package, x = big(60_003)
    gc.collect()
    before = len(affinities())
    pool = ThreadPool(3)
    session = intaglio.open(package, pool=pool)
    del pool
    gc.collect()
    assert len(affinities()) == before + 2
    np.testing.assert_allclose(session.run({"x": x})["y"], np.exp(x), rtol=1e-4)
    session.close()
    del session
    gc.collect()
    assert len(affinities()) == before


def test_pinned_threads():
    package, x = big(60_003)
    gc.collect()
    before = affinities().count({CPUS[-1]})
    pool = ThreadPool(cpus=[CPUS[-1]])
    assert pool.threads == 2
    assert affinities().count({CPUS[-1]}) == before + 1
    assert os.sched_getaffinity(0) == set(CPUS)  # the caller's thread is the caller's
    with intaglio.open(package, pool=pool) as session:
        np.testing.assert_allclose(session.run({"x": x})["y"], np.exp(x), rtol=1e-4)
    assert repr(pool) == f"ThreadPool(2, cpus=[{CPUS[-1]}])"
    assert ThreadPool(4, cpus=CPUS).threads == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"threads": 0}, "threads is 0; give a whole number from 1 to 256"),
        ({"threads": 257}, "threads is 257"),
        ({"cpus": []}, "cpus is a list of 0; give a list of CPU numbers"),
        ({"cpus": "0"}, "cpus is the string '0'"),
        ({"cpus": 1}, "cpus is 1; give a list"),
        ({"cpus": [-1]}, "a CPU in cpus is -1"),
        ({"cpus": [1024]}, "a CPU in cpus is 1024"),
        ({"cpus": [1023]}, "cannot be pinned"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises(BadInput, match=words):
        ThreadPool(**arguments)


def test_a_pool_of_another_kind_is_refused():
    package, _ = big(10)
    with pytest.raises(BadInput, match=r"pool is 3; give an intaglio.ThreadPool"):
        intaglio.open(package, pool=3)
