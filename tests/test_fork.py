"""fork: children run, close or leave the sessions of their parent, which goes on undisturbed.

Every case runs in a Python of its own, because a fork of pytest would fork its threads too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.test_session import big

import intaglio
from intaglio import BadInput

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

SET_UP = """
import gc, multiprocessing, os, signal, sys, threading, time
import numpy as np
import intaglio

session = intaglio.open(sys.argv[1], threads=3)
x = np.linspace(-2, 2, 50_003, dtype=np.float32)

def right(k):
    return np.allclose(session.run({"x": x / k})["y"], np.exp(x / k), rtol=1e-4)

def fork(child):
    if pid := os.fork():
        return pid
    sys.exit(child())  # with everything that Python does at its end

def ended(pid):
    return os.waitpid(pid, 0)[1]

assert right(1)
time.sleep(0.3)  # the workers sleep
"""
CASES = {
    "exit": "assert ended(fork(lambda: 0)) == 0",
    "close": "assert ended(fork(session.close)) == 0",
    "collect": """
def child():
    global session
    session = None
    gc.collect()
assert ended(fork(child)) == 0
""",
    "run": "assert ended(fork(lambda: not right(2))) == 0",
    "run and close": "assert ended(fork(lambda: not right(2) or session.close())) == 0",
    "clone": """
def child():
    global session
    session = session.clone()
    return not right(3)
assert ended(fork(child)) == 0
""",
    "grandchild": """
def child():
    return not right(2) or ended(fork(lambda: not right(3)))
assert ended(fork(child)) == 0
""",
    "pool": """
with multiprocessing.get_context("fork").Pool(3) as pool:
    jobs = pool.map_async(right, range(1, 13))
    assert right(5)
    assert all(jobs.get(60))
""",
    "workers": """  # of a server that forks before it serves
pipes = [os.pipe() for _ in range(3)]
def serve(k):
    for i in range(20):
        os.write(pipes[k][1], b"." if right(1 + i % 4) else b"!")
    signal.pause()
workers = [fork(lambda: serve(k)) for k in range(3)]
for k in range(3):
    got = b""
    while len(got) < 20:
        assert right(2)
        got += os.read(pipes[k][0], 20)
    assert got == b"." * 20
for pid in workers:
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(ended(pid)) == -signal.SIGTERM
""",
    "shared threads": """
threads = intaglio.ThreadPool(3)
sessions = [session.clone(pool=threads) for _ in range(4)]
def all_right(k):
    right = []
    def work(one):
        for i in range(1, 9):
            y = one.run({"x": x / (i + k)})["y"]
            right.append(np.allclose(y, np.exp(x / (i + k)), rtol=1e-4))
    workers = [threading.Thread(target=work, args=(s,)) for s in sessions]
    for w in workers: w.start()
    for w in workers: w.join()
    return len(right) == 32 and all(right)
assert all_right(1)
for _ in range(3):
    pid = fork(lambda: not all_right(2) or ended(fork(lambda: not all_right(3))))
    assert all_right(4)
    assert ended(pid) == 0
""",
    "futures": """  # the parent's stay the parent's
hold = session._turn.lock
hold.acquire()
futures = [session.submit({"x": x / k}) for k in range(1, 5)]
def child():
    for f in futures:
        try:
            f.result(10)
            return 1
        except intaglio.RunError as e:
            assert "submitted before the process was forked" in str(e)
    answer = session.submit({"x": x / 7}).result(60)["y"]
    return not np.allclose(answer, np.exp(x / 7), rtol=1e-4)
pid = fork(child)
hold.release()
for k, f in enumerate(futures, 1):
    assert np.allclose(f.result(60)["y"], np.exp(x / k), rtol=1e-4)
assert ended(pid) == 0
""",
    "session pool": """
pool = intaglio.SessionPool(session, sessions=3, threads=2, queue=4)
def serve(k):
    feeds = [{"x": x / (k + i)} for i in range(30)]
    answers = list(pool.map(feeds)) + [pool.run(f) for f in feeds]
    return all(
        np.allclose(a["y"], np.exp(f["x"]), rtol=1e-4)
        for a, f in zip(answers, 2 * feeds, strict=True)
    )
assert serve(1)
stop = threading.Event()
def busy():
    while not stop.is_set():
        assert serve(1)
threads = [threading.Thread(target=busy) for _ in range(3)]
for t in threads: t.start()
for i in range(5):
    time.sleep(0.01)
    assert ended(fork(lambda: not serve(2) or pool.close())) == 0
stop.set()
for t in threads: t.join()
with multiprocessing.get_context("fork").Pool(2) as processes:
    assert all(processes.map(serve, range(1, 7)))
pool.close()
""",
    "shared internal memory": """
memory = intaglio.InternalMemory(1)
session = session.clone(internal=memory)
other = session.clone()
assert right(2)
block = memory.take()  # a thread of the parent runs
pid = fork(lambda: not right(3) or not np.allclose(other.run({"x": x})["y"], np.exp(x), rtol=1e-4))
assert ended(pid) == 0
memory.give(block)
""",
    "a model file": """  # its threads compile in the background
from intaglio import ops
from intaglio.ir import Graph, Type, Value
v = Value(Type("f32", x.shape), "x")
model = intaglio.Session(Graph([v], [ops.exp(v)], ["y"]), threads=2)
pool = intaglio.SessionPool(model, sessions=2)
def child():
    return not all(np.allclose(s.run({"x": x})["y"], np.exp(x), rtol=1e-4) for s in (model, pool))
assert ended(fork(child)) == 0
assert not child()
assert ended(fork(child)) == 0
model.wait()
""",
    "during a run": """
stop = threading.Event()
def busy():
    while not stop.is_set():
        assert right(1)
thread = threading.Thread(target=busy)
thread.start()
for i in range(8):
    time.sleep(0.003)
    assert ended(fork(lambda: not right(2) or session.close())) == 0
stop.set()
thread.join()
""",
}


@pytest.mark.parametrize("case", CASES)
def test_child(case, tmp_path: Path):
    package, _ = big(50_003)
    package.save(tmp_path / "m.itg")
    after = "\nassert right(4)\nsession.close()\nprint('the parent goes on')\n"
    script = SET_UP + CASES[case] + after
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "m.itg"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("the parent goes on\n")


def test_a_run_while_another_thread_runs_the_session_is_refused():
    """`Session.run` waits for its lock; without it, the runtime refuses the second thread."""

    class NoLock:
        def acquire(self, *exc: object) -> None: ...

        release = __enter__ = __exit__ = acquire

    package, x = big(200_003)
    refused = []
    with intaglio.open(package, threads=1) as session:
        session._turn.lock = NoLock()  # type: ignore[assignment]

        def work() -> None:
            while len(refused) < 2:
                try:
                    session.run({"x": x})
                except BadInput as e:
                    refused.append(str(e))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert all("session is already running" in words for words in refused)
        np.testing.assert_allclose(session.run({"x": x})["y"], np.exp(x), rtol=1e-4)
