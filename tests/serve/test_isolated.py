"""Models in processes of their own: a crash ends only those, and they are replaced."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from tests.serve.models import rows, rows_model
from tests.serve.running import running, tensor
from tests.test_state import counting

import intaglio
from intaglio.errors import BadInput
from intaglio.serve.isolated import IsolatedInstance
from intaglio.serve.settings import ModelSettings

INFER = "/v2/models/m/infer"
ISOLATED = ModelSettings(threads=1, isolate=True)


def process(server) -> int:
    return server.repository.find("m").batcher._instances[0]._process.pid


def until(done) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_dead_process_makes_the_server_unready_and_is_replaced():
    request = {"inputs": [tensor("x", rows(1, 2, 3))]}
    with running(rows_model(), model=ISOLATED) as server:
        status, got, _ = server.request("POST", INFER, request)
        assert (status, got["outputs"][0]["data"]) == (200, [3.0] * 3 + [5.0] * 3 + [7.0] * 3)
        wrong = {"inputs": [tensor("x", rows(1)) | {"shape": [3]}]}
        assert server.request("POST", INFER, wrong)[0] == 400
        first = process(server)
        os.kill(first, signal.SIGSTOP)  # a request is in the process when that is killed
        asked = []
        thread = threading.Thread(
            target=lambda: asked.append(server.request("POST", INFER, request))
        )
        thread.start()
        until(lambda: server.repository.find("m").batcher._busy)
        os.kill(first, signal.SIGKILL)
        thread.join(20)
        status, got, headers = asked[0]
        assert (status, headers["retry-after"]) == (503, "1")
        assert "process of the model ended" in got["error"]
        assert server.request("GET", "/v2/health/live")[0] == 200
        assert server.request("GET", "/v2/health/ready")[0] == 503
        assert server.request("GET", "/v2/models/m/ready")[0] == 503
        assert server.request("POST", INFER, request)[0] == 200  # waits for the new process
        assert process(server) != first
        assert server.request("GET", "/v2/health/ready")[0] == 200
        second = process(server)
        os.kill(second, signal.SIGKILL)  # while it has nothing to do
        until(lambda: server.request("GET", "/v2/health/ready")[0] == 503)
        until(lambda: server.request("GET", "/v2/health/ready")[0] == 200)
        third = process(server)
    with pytest.raises(ProcessLookupError):
        os.kill(third, 0)


def test_packages_that_cannot_be_opened_are_refused(tmp_path):
    (tmp_path / "bad.itg").write_bytes(rows_model().bytes[:-64])
    with pytest.raises(BadInput, match=r"bad\.itg"):
        IsolatedInstance(tmp_path / "bad.itg", ISOLATED)


def test_sequences_in_another_process():
    x = [tensor("x", np.zeros(3, np.float32))]

    def run(server, **parameters):
        status, got, _ = server.request("POST", INFER, {"inputs": x, "parameters": parameters})
        return got["outputs"][0]["data"][0] if status == 200 else got["error"]

    with running(intaglio.compile(counting()), model=ISOLATED) as server:
        assert run(server, sequence_id=1, sequence_start=True) == 0
        assert run(server, sequence_id=2, sequence_start=True) == 0
        assert [run(server, sequence_id=i) for i in (1, 1, 2)] == [1, 2, 1]
        os.kill(process(server), signal.SIGKILL)
        until(lambda: not server.server.is_ready())
        assert "state of the sequence was lost" in run(server, sequence_id=1)
        assert run(server, sequence_id=1, sequence_start=True) == 0
        assert run(server, sequence_id=1, sequence_end=True) == 1
