"""Longer runs: reloads, clients that vanish, more requests than the server can answer."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from tests.serve.models import rows, rows_model
from tests.serve.running import running, tensor

from intaglio.serve.publish import publish
from intaglio.serve.settings import ModelSettings

pytestmark = pytest.mark.slow
MAX_GROWTH = 1 << 20


SOAK_S = float(os.environ.get("INTAGLIO_SOAK_S", "600"))


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_reloads_do_not_grow(tmp_path):
    rows_model().save(tmp_path / "m.itg")
    path = publish(tmp_path / "m.itg", tmp_path / "repo", "m")
    with running(tmp_path / "repo", control=True) as server:

        def reload(times: int) -> None:
            for _ in range(times):
                os.utime(path)  # as if another file were there
                assert server.request("POST", "/v2/repository/models/m/load", {})[0] == 200

        reload(600)  # until the heap has its size
        before, files = resident(), open_files()
        reload(1000)
        assert resident() - before < MAX_GROWTH
        assert open_files() <= files + 4


def test_reloads_of_the_command_do_not_grow(tmp_path):
    """`intaglio serve`, a process of its own, from its first reloads on."""
    rows_model().save(tmp_path / "m.itg")
    path = publish(tmp_path / "m.itg", tmp_path / "repo", "m")
    command = [sys.executable, "-m", "intaglio", "serve", str(tmp_path / "repo"), "--control"]
    server = subprocess.Popen(
        [*command, "--port", "0", "--no-grpc", "--threads", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        url = [server.stdout.readline() for _ in range(2)][1].split()[1]

        def reload(times: int) -> int:
            for _ in range(times):
                os.utime(path)
                asked = urllib.request.Request(f"{url}/v2/repository/models/m/load", b"{}")
                assert urllib.request.urlopen(asked, timeout=20).status == 200
            pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")

        before = reload(20)
        grown = reload(1000) - before
        print(f"grown by {grown >> 10} KiB")
        assert grown < MAX_GROWTH
    finally:
        server.terminate()
        server.wait(30)


def test_clients_that_vanish_leave_nothing_behind():
    body = json.dumps({"inputs": [tensor("x", rows(1))]}).encode()
    head = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    whole = head % len(body) + body
    with running(rows_model(), model=ModelSettings(threads=1, max_delay_us=2000)) as server:
        for i in range(1000):
            with socket.create_connection(("127.0.0.1", server.server.http_port), 5) as s:
                s.sendall(whole[: len(whole) * (i % 10 + 1) // 10])
        deadline = time.monotonic() + 10
        while server.server._state.connections and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not server.server._state.connections
        assert not server.server._state.tasks
        model = server.repository.find("m")
        assert model.batcher.waiting == 0
        assert model.statistics.inferences + model.statistics.refused.get("client_gone", 0) <= 100


def test_grpc_clients_that_vanish_leave_nothing_behind():
    """1,000 calls are cancelled while they wait for their batch or run."""
    import grpc

    from intaglio.serve.grpc_schema import CLASSES, SERVICE

    request = CLASSES["ModelInferRequest"](model_name="m")
    request.inputs.add(name="x", datatype="FP32", shape=[1, 3])
    request.raw_input_contents.append(rows(1).tobytes())
    sent = request.SerializeToString()
    chosen = ModelSettings(threads=1, max_delay_us=3000)
    with running(rows_model(), model=chosen, grpc_port=0) as server:
        model = server.repository.find("m")
        model.batcher.inline = False
        files = open_files()
        answered = 0
        for _ in range(20):
            with grpc.insecure_channel(server.grpc) as channel:
                call = channel.unary_unary(f"/{SERVICE}/ModelInfer")
                calls = [call.future(sent, timeout=10) for _ in range(50)]
                time.sleep(0.002)
                answered += sum(c.done() and not c.cancelled() and not c.exception() for c in calls)
                for c in calls:
                    c.cancel()
        wait_until(lambda: not model.batcher.waiting and not model.batcher._busy)
        wait_until(lambda: open_files() <= files + 4)
        s = model.statistics
        assert s.phases["success"].count + s.phases["fail"].count <= 1000
        assert s.phases["success"].count >= answered
        with grpc.insecure_channel(server.grpc) as channel:
            assert channel.unary_unary(f"/{SERVICE}/ModelInfer")(sent, timeout=10)


def wait_until(done) -> None:
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_three_times_capacity_in_an_open_loop():
    """Poisson arrivals at three times what the model can do, for 6 s: what is accepted waits for at
    most the queue, the rest gets 429 and Retry-After, memory stays."""
    service, queue = 0.01, 16
    with running(rows_model((1, 2)), model=ModelSettings(threads=1, max_queue=queue)) as server:
        model = server.repository.find("m")
        model.batcher.inline, model.batcher.sizes = False, None  # one row a run: a known capacity
        instance = model.batcher._idle[0].instance
        runs: list[float] = []

        def slow(jobs, size, run=instance.run):
            start = time.perf_counter()
            time.sleep(service)
            made = run(jobs, 1)
            runs.append(time.perf_counter() - start)
            return made

        instance.run = slow
        body = json.dumps({"inputs": [tensor("x", rows(1))]}).encode()
        sent = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
        sent = sent % len(body) + body
        answered: list[float] = []
        counts = {200: 0, 429: 0}

        async def one(free: list, port: int) -> None:
            reader, writer = (
                free.pop() if free else await asyncio.open_connection("127.0.0.1", port)
            )
            start = time.perf_counter()
            writer.write(sent)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(size)
            status = int(head.split()[1])
            counts[status] += 1
            if status == 200:
                answered.append(time.perf_counter() - start)
            else:
                assert b"retry-after: 1" in head
            free.append((reader, writer))

        async def arrivals(seconds: float) -> None:
            rng, free, tasks = np.random.default_rng(0), [], []
            at = time.perf_counter()
            end = at + seconds
            while at < end:
                at += rng.exponential(service / 3)
                await asyncio.sleep(max(0, at - time.perf_counter()))
                tasks.append(asyncio.create_task(one(free, server.server.http_port)))
            await asyncio.gather(*tasks)
            for _, writer in free:
                writer.close()

        asyncio.run(arrivals(2))
        before, accepted = resident(), counts[200]
        asyncio.run(arrivals(6))
        assert resident() - before < 8 * MAX_GROWTH
        assert counts[429] > counts[200] > accepted
        longest = (queue + 2) * float(np.percentile(runs, 99))
        assert np.percentile(answered, 99) < 1.5 * longest


def test_version_switches_under_load_lose_no_request(tmp_path):
    """100,000 requests over kept connections while versions are published, loaded, found corrupt
    and taken back."""
    for factor in (2, 3):
        rows_model((1, 2, 4), factor).save(tmp_path / f"{factor}.itg")
    publish(tmp_path / "2.itg", tmp_path / "repo", "m")
    body = json.dumps({"inputs": [tensor("x", rows(1))]}).encode()
    sent = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    counts = {"right": 0, "wrong": 0}
    load_path = "/v2/repository/models/m/load"

    async def client(port: int, times: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(times):
            writer.write(sent + body)
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            got = json.loads(await reader.readexactly(size))
            right = b" 200 " in head and got["outputs"][0]["data"][0] in (3.0, 4.0)
            counts["right" if right else "wrong"] += 1
        writer.close()

    with running(tmp_path / "repo", control=True) as server:

        async def load() -> None:
            await asyncio.gather(*(client(server.server.http_port, 12_500) for _ in range(8)))

        clients = threading.Thread(target=lambda: asyncio.run(load()))
        clients.start()
        switches = 0
        while clients.is_alive():
            path = publish(tmp_path / f"{2 + switches % 2}.itg", tmp_path / "repo", "m")
            assert server.request("POST", load_path, {})[0] == 200
            if switches % 3 == 1:  # the version before serves again
                path.parent.rename(path.parent.with_suffix(".rejected"))
                assert server.request("POST", load_path, {})[0] == 200
            elif switches % 3 == 2:
                corrupt = path.parent.with_name(str(int(path.parent.name) + 1))
                corrupt.mkdir()
                (corrupt / "model.itg").write_bytes(path.read_bytes()[:-64])
                assert server.request("POST", load_path, {})[0] == 400
                (corrupt / "model.itg").unlink()
                corrupt.rmdir()
            switches += 1
            clients.join(0.05)
        assert switches > 20
    assert counts == {"right": 100_000, "wrong": 0}


class Witness:
    """A thread that answers after a pause: how slow the machine itself is at that time."""

    def __init__(self, pause: float):
        self._ours, theirs = socket.socketpair()
        self._thread = threading.Thread(target=self._echo, args=(theirs, pause), daemon=True)
        self._thread.start()

    def _echo(self, theirs: socket.socket, pause: float) -> None:
        with theirs:
            while theirs.recv(1):
                time.sleep(pause)
                theirs.sendall(b"a")

    def ask(self) -> float:
        start = time.perf_counter()
        self._ours.sendall(b"q")
        self._ours.recv(1)
        return time.perf_counter() - start

    def close(self) -> None:
        self._ours.close()
        self._thread.join(10)


def test_soak():
    """Ten minutes (INTAGLIO_SOAK_S) at 70 % load: memory and open files stay, and so does p99,
    beside that of a thread that does nothing but wait: other programs slow both down."""
    slices, service = 10, 0.002
    with running(rows_model(), model=ModelSettings(threads=1)) as server:
        model = server.repository.find("m")
        model.batcher.inline, model.batcher.sizes = False, None
        instance = model.batcher._idle[0].instance

        def slow(jobs, size, run=instance.run):
            time.sleep(service)
            return run(jobs, 1)

        instance.run = slow
        x = {"inputs": [tensor("x", rows(1))]}
        start = time.perf_counter()
        for _ in range(100):
            assert server.request("POST", "/v2/models/m/infer", x)[0] == 200
        pause = (time.perf_counter() - start) / 100 * (1 / 0.7 - 1)
        seen, witness = [], Witness(service / 4)
        for _ in range(slices):
            end, latencies, waits = time.perf_counter() + SOAK_S / slices, [], []
            while time.perf_counter() < end:
                sent = time.perf_counter()
                status, got, _ = server.request("POST", "/v2/models/m/infer", x)
                latencies.append(time.perf_counter() - sent)
                assert (status, got["outputs"][0]["data"]) == (200, [3.0] * 3)
                waits.append(witness.ask())
                time.sleep(max(0.0, pause - waits[-1]))
            p99 = np.percentile(latencies, 99)
            seen.append((resident(), open_files(), p99 / np.percentile(waits, 99), p99 * 1e3))
        witness.close()
        memory, files, slower, p99_ms = zip(*seen, strict=True)
        print(f"p99 {np.round(p99_ms, 1)} ms; beside the witness {np.round(slower, 2)}")
        assert memory[-1] - memory[1] < 2 * MAX_GROWTH
        assert files[-1] <= files[1] + 2
        assert np.median(slower[-3:]) < 2 * np.median(slower[:4])
