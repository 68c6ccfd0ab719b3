"""Sessions that share memory for intermediate tensors: in turn, at the same time, in forks."""

from __future__ import annotations

import mmap
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.test_ranges import CONVOLUTIONS, ENCODER, PICTURE, agree, feeds_of
from tests.test_session import big
from tests.test_state import X, counting

import intaglio
from intaglio import BadInput, InternalMemory, SessionPool


def needed(package: intaglio.Package) -> int:
    with intaglio.open(package, threads=1) as session:
        assert session.internal_bytes >= session.memory()["arena"]
        return session.internal_bytes


@pytest.fixture(scope="module")
def models():
    """Two models, their inputs and outputs."""
    found = []
    for source, dims, size in (
        (CONVOLUTIONS, PICTURE, {"n": 2, "h": 20, "w": 31}),
        (ENCODER, {"batch": "1..4", "seq": "1..64"}, {"batch": 2, "seq": 33}),
    ):
        package, feeds = intaglio.compile(source, dims=dims), feeds_of(source, size)
        with intaglio.open(package, threads=1) as session:
            found.append((package, feeds, list(session.run(feeds).values())))
    return found


@pytest.mark.parametrize("kind", ["own", "array", "mmap"])
@pytest.mark.parametrize("threads", [1, 2])
def test_sessions_of_two_models_in_turn(models, kind, threads):
    size = max(needed(package) for package, _, _ in models) + 200_000
    buffer = {"own": None, "array": np.full(size, 255, np.uint8), "mmap": mmap.mmap(-1, size)}[kind]
    memory = InternalMemory(buffer=buffer)
    sessions = [intaglio.open(p, threads=threads, internal=memory) for p, _, _ in models]
    sessions += [s.clone() for s in sessions]
    for _ in range(3):
        for session, (_, feeds, want) in zip(sessions, 2 * models, strict=True):
            agree(session.run(feeds), want, kind)
    assert memory.blocks == 1 or kind == "own"
    if kind == "own":
        assert 0 < memory.bytes <= 2 * size  # one of two blocks was needed


def test_at_the_same_time_each_run_has_a_block_of_its_own(models):
    memory = InternalMemory(2)
    sessions = [intaglio.open(p, threads=1, internal=memory) for p, _, _ in 4 * models]

    def work(k: int) -> None:
        _, feeds, want = models[k % 2]
        for _ in range(15):
            agree(sessions[k].run(feeds), want, k)

    with ThreadPoolExecutor(len(sessions)) as callers:
        list(callers.map(work, range(len(sessions))))
    assert len(memory._idle) == 2


def test_a_run_waits_for_a_block(models):
    package, feeds, want = models[0]
    memory = InternalMemory(1)
    session = intaglio.open(package, threads=1, internal=memory)
    agree(session.run(feeds), want, "first")
    block = memory.take()
    got = []
    thread = threading.Thread(target=lambda: got.append(session.run(feeds)))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    memory.give(block)
    thread.join(30)
    agree(got[0], want, "waited")


def test_a_failed_run_returns_its_block():
    source = intaglio.compile(counting(), level=0)
    memory = InternalMemory(1)
    with intaglio.open(source, internal=memory, max_steps=1) as session:
        for _ in range(3):
            with pytest.raises(intaglio.RunError, match="more than 1 steps"):
                session.run({"x": X})
    with intaglio.open(source, internal=memory) as session:
        for step in range(3):  # state is the session's own
            np.testing.assert_array_equal(session.run({"x": X})["y"], X + step)


def test_blocks_grow_with_the_largest_session():
    small, x = big(2000)
    large, y = big(300_000)
    memory = InternalMemory(1)
    one = intaglio.open(small, threads=1, internal=memory)
    np.testing.assert_allclose(one.run({"x": x})["y"], np.exp(x), rtol=1e-4)
    before = memory.bytes
    two = intaglio.open(large, threads=1, internal=memory)
    np.testing.assert_allclose(two.run({"x": y})["y"], np.exp(y), rtol=1e-4)
    assert memory.bytes > before
    np.testing.assert_allclose(one.run({"x": x})["y"], np.exp(x), rtol=1e-4)


def test_pools_of_two_models_share(models):
    memory = InternalMemory(2)
    pools = [SessionPool(p, 3, internal=memory) for p, _, _ in models]
    with pools[0], pools[1], ThreadPoolExecutor(6) as callers:
        answers = [callers.submit(pools[i % 2].run, models[i % 2][1]) for i in range(40)]
        for i, f in enumerate(answers):
            agree(f.result(), models[i % 2][2], i)
    assert memory.bytes <= 2 * max(needed(p) for p, _, _ in models) + 128


def test_a_session_of_a_model_file(models):
    memory = InternalMemory(1)
    with intaglio.Session(CONVOLUTIONS, threads=1, internal=memory) as session:
        for _ in range(2):
            agree(session.run(models[0][1]), models[0][2], "model file")
    assert memory.bytes


def test_wrong_arguments(models):
    package, buffer = models[0][0], np.zeros(1000, np.uint8)
    memory = InternalMemory(buffer=buffer)
    with pytest.raises(BadInput, match=r"has \d+ bytes .*; the session needs \d+; give a larger"):
        intaglio.open(package, internal=memory)
    with pytest.raises(BadInput, match="used by another InternalMemory"):
        InternalMemory(buffer=buffer[500:])
    with pytest.raises(BadInput, match="internal is an array"):
        intaglio.open(package, internal=buffer)
    with pytest.raises(BadInput, match="blocks is 0"):
        InternalMemory(0)
    with pytest.raises(BadInput, match="a buffer is one block"):
        InternalMemory(2, buffer=np.zeros(10, np.uint8))
    for wrong in (b"12", 7, np.zeros((4, 4))[:, ::2]):
        with pytest.raises(BadInput, match="give contiguous memory that can be written"):
            InternalMemory(buffer=wrong)
