"""Longer runs: reloads, clients that vanish, more requests than the server can answer."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.serve.models import rows, rows_model
from tests.serve.running import running, tensor

from intaglio.serve.publish import publish
from intaglio.serve.settings import ModelSettings

pytestmark = pytest.mark.slow
MAX_GROWTH = 1 << 20


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


def test_overload_is_refused_and_the_rest_is_answered_in_bounded_time():
    """Each run takes 20 ms, the queue holds 8: at most about 60 ms for each answer."""
    with running(rows_model(), model=ModelSettings(threads=1, max_queue=8)) as server:
        model = server.repository.find("m")
        model.batcher.inline = False
        instance = model.batcher._idle[0].instance
        run = instance.run

        def slow(jobs, size):
            time.sleep(0.02)
            return run(jobs, size)

        instance.run = slow
        answered, refused, wrong = [], [], []

        def client(value: float) -> None:
            end = time.monotonic() + 3
            while time.monotonic() < end:
                start = time.monotonic()
                request = {"inputs": [tensor("x", rows(value))]}
                status, got, headers = server.request("POST", "/v2/models/m/infer", request)
                if status == 200 and got["outputs"][0]["data"][0] == 2 * value + 1:
                    answered.append(time.monotonic() - start)
                elif status == 429 and headers["retry-after"] == "1":
                    refused.append(value)
                else:
                    wrong.append(got)

        threads = [threading.Thread(target=client, args=(i,)) for i in range(24)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong
        assert refused
        assert np.percentile(answered, 50) < 0.5


def test_version_switches_under_load_lose_no_request(tmp_path):
    """20,000 requests over kept connections while 40 versions are published and loaded."""
    for factor in (2, 3):
        rows_model((1, 2, 4), factor).save(tmp_path / f"{factor}.itg")
    publish(tmp_path / "2.itg", tmp_path / "repo", "m")
    body = json.dumps({"inputs": [tensor("x", rows(1))]}).encode()
    sent = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    counts = {"right": 0, "wrong": 0}

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
            await asyncio.gather(*(client(server.server.http_port, 2500) for _ in range(8)))

        clients = threading.Thread(target=lambda: asyncio.run(load()))
        clients.start()
        for i in range(40):
            publish(tmp_path / f"{2 + i % 2}.itg", tmp_path / "repo", "m")
            assert server.request("POST", "/v2/repository/models/m/load", {})[0] == 200
        clients.join(300)
    assert counts == {"right": 20_000, "wrong": 0}
