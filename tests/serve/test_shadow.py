"""Copies of requests to another server: clients get their own answer, results are counted."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from tests.serve.fleet import REQUEST, scores
from tests.serve.running import running

from intaglio.errors import BadInput
from intaglio.serve.shadow import MAX_WAITING, Copied, Shadow

INFER = "/v2/models/m/infer"
SHARE = "/v2/repository/models/m/shadow"


def counted(ask, n: int) -> dict[str, int]:
    """The results, as soon as there are n."""
    end = time.monotonic() + 20
    while True:
        found = ask("POST", SHARE, {})[1]
        if sum(v for k, v in found.items() if k != "percent") >= n:
            return found
        assert time.monotonic() < end, found
        time.sleep(0.01)


def binary() -> tuple[bytes, dict[str, str]]:
    x = np.array([[1, 2, 4]], np.float32)
    given = {"name": "x", "shape": [1, 3], "datatype": "FP32"}
    given["parameters"] = {"binary_data_size": x.nbytes}
    head = {"inputs": [given], "parameters": {"binary_data_output": True}}
    text = json.dumps(head).encode()
    return text + x.tobytes(), {"Inference-Header-Content-Length": str(len(text))}


@pytest.mark.parametrize(
    ("weights", "result"), [((10, 20, 30), "same"), ((3, 2, 0), "different")], ids=str
)
def test_answers_are_compared(weights, result):
    with running(scores(weights), token="correct horse") as other:
        shadow = {"shadow": f"http://{other.http}", "shadow_percent": 100.0}
        with running(scores((1, 2, 3)), control=True, token="correct horse", **shadow) as server:

            def ask(method, path, body=None, headers=(), server=server):
                token = {"Authorization": "Bearer correct horse"}
                return server.request(method, path, body, token | dict(headers))

            for _ in range(5):
                status, got, _ = ask("POST", INFER, REQUEST)
                assert (status, got["outputs"][0]["data"]) == (200, [1, 4, 12])
            body, headers = binary()
            for _ in range(5):
                assert ask("POST", INFER, body, headers)[0] == 200
            for given in ({}, {"binary_data": True}):
                asked = {"name": "y", "parameters": {"classification": 2} | given}
                wanted = json.loads(REQUEST) | {"outputs": [asked]}
                assert ask("POST", INFER, wanted)[0] == 200
            assert counted(ask, 12)[result] == 12
            assert ask("POST", "/v2/models/m/versions/1/infer", REQUEST)[0] == 200
            assert ask("POST", INFER, {"inputs": []})[0] == 400  # neither is copied
            assert ask("POST", SHARE, {"percent": 0})[1]["percent"] == 0
            for _ in range(5):
                ask("POST", INFER, REQUEST)
            assert counted(ask, 12)[result] == 12
            _, text, _ = ask("GET", "/metrics")
            line = f'intaglio_shadow_total{{model="m",result="{result}"}} 12.0'
            assert line.encode() in text
            for wrong in ("x", True, 101, -1):
                assert ask("POST", SHARE, {"percent": wrong})[0] == 400


def test_a_dead_shadow_disturbs_nobody():
    shadow = {"shadow": "http://127.0.0.1:9", "shadow_percent": 100.0}
    with running(scores((1, 2, 3)), control=True, **shadow) as server:
        for _ in range(5):
            assert server.request("POST", INFER, REQUEST)[0] == 200
        assert counted(server.request, 5)["failed"] == 5
    with running(scores((1, 2, 3)), **shadow) as server:
        assert server.request("POST", SHARE, {"percent": 1})[0] == 403
    with running(scores((1, 2, 3)), control=True) as server:
        assert "start it with shadow" in server.request("POST", SHARE, {})[1]["error"]


def test_what_is_too_much_is_left_out():
    shadow = Shadow("http://127.0.0.1:9", 100, None)
    shadow._waiting = MAX_WAITING
    shadow.copy("m", Copied(b"", None, b"", None))
    assert shadow.counts["m"]["left_out"] == 1
    with pytest.raises(BadInput, match="give a URL"):
        Shadow("ftp://a", 1, None)
