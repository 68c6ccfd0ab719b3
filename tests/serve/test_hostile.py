"""Clients that mean harm: what the other tests of serving do not send."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
import time

import numpy as np
import pytest
from tests.frontends.onnx_text import model
from tests.serve.models import rows, rows_model
from tests.serve.running import Running, running, tensor
from tests.serve.test_serve_http import self_signed
from tests.test_state import counting

import intaglio
from intaglio.serve import served_model
from intaglio.serve.grpc_schema import CLASSES, METHODS, SERVICE
from intaglio.serve.repository import Repository, version_number
from intaglio.serve.settings import ModelSettings, ServeSettings

INFER = "/v2/models/m/infer"


def raw(port: int, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 5) as s:
        s.sendall(sent)
        return s.recv(4096)


@pytest.fixture(scope="module")
def server():
    with running(rows_model(), grpc_port=0, max_body=1 << 16, max_connections=40) as made:
        yield made


def test_versions_are_plain_digits(server):
    for text in ("٣", "+1", "1.0", "01", "1_0", " 1", "-1", "0", "9" * 30, "1\n", ""):
        assert version_number(text) is None
    for text in ("%D9%A3", "+1", "1.0", "01", "1%0a", "-1", "0", "9" * 30):
        body = {"inputs": [tensor("x", rows(1))]}
        status, got, _ = server.request("POST", f"/v2/models/m/versions/{text}/infer", body)
        assert status == 404, (text, got)


def test_many_tensors(server):
    for field in ("inputs", "outputs"):
        request = {"inputs": [tensor("x", rows(1))]} | {field: [tensor("x", rows(1))] * 300}
        status, got, _ = server.request("POST", INFER, request)
        assert status == 400
        assert "300" in got["error"]


def test_long_numbers(server):
    body = json.dumps({"inputs": [tensor("x", rows(1)) | {"data": "DATA"}]}).encode()
    for digits, words in ((3000, "no FP32 numbers"), (5000, "cannot be read: Integer value out")):
        sent = body.replace(b'"DATA"', b"[1, 2, 1" + b"0" * digits + b"]")
        status, got, _ = server.request("POST", INFER, sent)
        assert (status, words in got["error"]) == (400, True), got


def test_unknown_names_make_no_metrics(server):
    for i in range(300):
        assert server.request("POST", f"/v2/models/evil{i}/infer", {"inputs": []})[0] == 404
        assert server.request("GET", f"/v2/evil{i}")[0] == 404
    _, text, _ = server.request("GET", "/metrics")
    assert b"evil" not in text
    assert len(text.splitlines()) < 400
    assert set(re.findall(rb'model="(\w+)"', text)) == {b"m"}
    assert len(server.server.metrics._refused) < 12


def test_requests_that_two_parsers_read_differently(server):
    head = b"POST %s HTTP/1.1\r\nHost: a\r\n" % INFER.encode()
    for sent in (
        head
        + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        head + b"Content-Length: +5\r\n\r\nhello",
        head + b"Content-Length: -1\r\n\r\n",
        head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\nHost: a\r\n\r\n",
    ):
        found = raw(server.server.http_port, sent)
        assert found.startswith(b"HTTP/1.1 4"), (sent, found)
        assert found.count(b"HTTP/1.1") == 1


def test_more_connections_than_allowed(server):
    port = server.server.http_port
    held = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(40)]
    try:
        time.sleep(0.1)
        with socket.create_connection(("127.0.0.1", port), 5) as s:
            s.sendall(b"POST %s HTTP/1.1\r\nContent-Length: 9000\r\n\r\n" % INFER.encode())
            s.sendall(bytes(9000))
            found = s.recv(400)
            assert b" 503 " in found
            assert b"retry-after: 1" in found
    finally:
        for s in held:
            s.close()
    end = time.monotonic() + 5
    while server.server._state.connections and time.monotonic() < end:
        time.sleep(0.02)
    assert server.request("GET", "/v2/health/ready")[0] == 200


def test_request_ids_in_other_encodings(server):
    assert server.request("GET", "/v2", headers={"X-Request-Id": "é\xff"})[0] == 200
    long = server.request("GET", "/v2", headers={"X-Request-Id": "a" * 5000})[2]
    assert len(long["x-request-id"]) == 128


def test_changed_grpc_messages_never_break_the_server(server):
    """Mutated bytes to every method: an error or an answer, and the server goes on."""
    import grpc

    request = CLASSES["ModelInferRequest"](model_name="m", id="7")
    request.inputs.add(name="x", datatype="FP32", shape=[1, 3])
    request.raw_input_contents.append(rows(1).tobytes())
    codes: set[str] = set()
    good, rng = request.SerializeToString(), np.random.default_rng(0)
    with grpc.insecure_channel(server.grpc) as channel:
        for i in range(300):
            changed = bytearray(good)
            for at in rng.integers(0, len(good), rng.integers(1, 5)):
                changed[at] = rng.integers(256)
            if i % 5 == 0:
                changed = changed[: rng.integers(len(good))]
            method = "ModelInfer" if i % 2 else METHODS[i // 2 % len(METHODS)]
            made = channel.unary_unary(f"/{SERVICE}/{method}").future(bytes(changed), timeout=10)
            made.exception()
            codes.add(made.code().name)
        assert channel.unary_unary(f"/{SERVICE}/ModelInfer")(good, timeout=10)
    known = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED"}
    assert {"OK", "INVALID_ARGUMENT"} <= codes <= known


def test_client_certificates(tmp_path):
    pytest.importorskip("cryptography", reason="pip install cryptography")
    certificate, key = self_signed(tmp_path)
    tls = {"certificate": certificate, "private_key": key, "client_authority": certificate}
    with running(rows_model(), **tls) as server:

        def status(context: ssl.SSLContext) -> bytes:
            with (
                socket.create_connection(("127.0.0.1", server.server.http_port), 5) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as s,
            ):
                s.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: a\r\n\r\n")
                return s.recv(100)

        context = ssl.create_default_context(cafile=certificate)
        with pytest.raises(OSError, match=r"certificate|closed|reset"):
            status(context) or raise_closed()
        context.load_cert_chain(certificate, key)
        assert b"200 OK" in status(context)


def raise_closed() -> None:
    raise ConnectionResetError("closed")


@pytest.mark.slow
def test_answers_that_nobody_reads_are_given_up():
    """Clients that never read hold neither a connection nor memory."""
    proto = model(
        "(float[1] x) => (float[4194304] y) <int64[1] n = {4194304}> { y = Expand(x, n) }"
    )
    body = json.dumps({"inputs": [tensor("x", np.zeros(1, np.float32))],
                       "parameters": {"binary_data_output": True}}).encode()  # fmt: skip
    head = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    with running(intaglio.compile(proto), body_timeout_s=1.0) as server:
        held = [socket.create_connection(("127.0.0.1", server.server.http_port), 5) for _ in "ab"]
        for s in held:
            s.sendall(head % (INFER.encode(), len(body)) + body)
        end = time.monotonic() + 30
        while server.server.repository.find("m").statistics.inferences < 2:
            assert time.monotonic() < end
            time.sleep(0.05)
        while server.server._state.connections:
            assert time.monotonic() < end
            time.sleep(0.05)
        for s in held:
            s.close()


def test_the_server_ends_before_it_has_loaded_all_models(monkeypatch):
    loading, go, opened = threading.Event(), threading.Event(), []

    class Slow(served_model.Opened):
        def __init__(self, *a):
            loading.set()
            assert go.wait(20)
            opened.append(a)
            super().__init__(*a)

    monkeypatch.setattr(served_model, "Opened", Slow)
    chosen = ModelSettings(threads=1)
    models = Repository(None, chosen)
    for name in "abc":
        models.add(name, rows_model())
    made = Running(models, ServeSettings(http_port=0, grpc_port=None, model=chosen))
    made._thread.start()
    assert loading.wait(20)
    made.loop.call_soon_threadsafe(made.server.stop)
    time.sleep(0.05)
    go.set()
    made._thread.join(20)
    assert not made._thread.is_alive()
    assert made.failed is None
    assert len(opened) == 1


def test_the_server_is_alive_but_not_ready_while_it_loads(monkeypatch):
    loading, go = threading.Event(), threading.Event()

    class Slow(served_model.Opened):
        def __init__(self, *a):
            loading.set()
            assert go.wait(20)
            super().__init__(*a)

    monkeypatch.setattr(served_model, "Opened", Slow)
    chosen = ModelSettings(threads=1)
    models = Repository(None, chosen)
    models.add("m", rows_model())
    made = Running(models, ServeSettings(http_port=0, grpc_port=None, model=chosen))
    made._thread.start()
    try:
        assert loading.wait(20)
        assert made.request("GET", "/v2/health/live")[0] == 200
        assert made.request("GET", "/v2/health/ready")[0] == 503
        assert made.request("GET", "/v2/models/m/ready")[0] in (404, 503)
        body = {"inputs": [tensor("x", rows(1))]}
        assert made.request("POST", INFER, body)[0] in (404, 503)
    finally:
        go.set()
    assert made._started.wait(20)
    assert made.request("GET", "/v2/health/ready")[0] == 200
    made.end()
    assert ServeSettings().host == "127.0.0.1"
    assert not ServeSettings().control


def test_idle_sequences_lose_their_state_without_a_request():
    x = [tensor("x", np.zeros(3, np.float32))]
    with running(intaglio.compile(counting())) as server:
        sequences = server.repository.find("m").sequences
        sequences._idle_s = 0.05
        for i in range(1, 4):
            parameters = {"sequence_id": i, "sequence_start": True}
            assert server.request("POST", INFER, {"inputs": x, "parameters": parameters})[0] == 200
        end = time.monotonic() + 5
        while len(sequences):
            assert time.monotonic() < end
            time.sleep(0.01)
        body = {"inputs": x, "parameters": {"sequence_id": 1}}
        assert "is not known" in server.request("POST", INFER, body)[1]["error"]


def test_logs_are_json_with_request_ids(capsys):
    with running(rows_model(), log_requests=True) as server:
        body = {"inputs": [tensor("x", rows(1))]}
        server.request("POST", INFER, body, {"X-Request-Id": 'a"b'})
        server.request("POST", INFER, body)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    named, other = [line for line in lines if line["event"] == "request"]
    assert (named["request_id"], named["status"], named["path"]) == ('a"b', 200, INFER)
    assert re.fullmatch(r"[0-9a-f]{16}", other["request_id"])
