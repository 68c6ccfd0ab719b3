"""The protocol over HTTP: answers, and one clear line for everything that is wrong."""

from __future__ import annotations

import asyncio
import datetime
import gzip
import json
import select
import socket
import ssl
import time
from contextlib import suppress

import numpy as np
import pytest
from tests.frontends.onnx_text import model
from tests.serve.models import rows, rows_model
from tests.serve.running import running, tensor

import intaglio
from intaglio.errors import BadInput
from intaglio.serve import http_protocol
from intaglio.serve.server import tls_context
from intaglio.serve.settings import ServeSettings

INFER = "/v2/models/m/infer"
HEAD = "Inference-Header-Content-Length"


@pytest.fixture(scope="module")
def server():
    limits = {"max_body": 4096, "header_timeout_s": 0.3, "body_timeout_s": 0.3}
    with running(rows_model(), **limits) as made:
        yield made


def binary(x: np.ndarray, size: int | None = None, **more: object) -> tuple[bytes, dict[str, str]]:
    given = {"name": "x", "shape": list(x.shape), "datatype": "FP32"}
    given["parameters"] = {"binary_data_size": x.nbytes if size is None else size}
    head = json.dumps({"inputs": [given], "id": "7", **more}).encode()
    return head + x.tobytes(), {HEAD: str(len(head))}


def test_json(server):
    request = {"inputs": [tensor("x", rows(1, 2, 3))], "id": "a", "outputs": [{"name": "y"}]}
    status, got, _ = server.request("POST", INFER, request)
    assert (status, got["id"], got["model_version"]) == (200, "a", "1")
    assert got["outputs"][0]["shape"] == [3, 3]
    assert got["outputs"][0]["data"] == [3.0] * 3 + [5.0] * 3 + [7.0] * 3


def test_nested_and_compressed_json(server):
    given = tensor("x", rows(1, 2)) | {"data": rows(1, 2).tolist()}
    body = gzip.compress(json.dumps({"inputs": [given]}).encode())
    status, got, _ = server.request("POST", INFER, body, {"Content-Encoding": "gzip"})
    assert (status, got["outputs"][0]["data"]) == (200, [3.0] * 3 + [5.0] * 3)


def test_binary_tensors(server):
    body, headers = binary(rows(4), parameters={"binary_data_output": True})
    status, raw, found = server.request("POST", INFER, body, headers | {"X-Request-Id": "r1"})
    head = json.loads(raw[: int(found[HEAD.lower()])])
    assert (status, found["x-request-id"], head["id"]) == (200, "r1", "7")
    assert head["outputs"][0]["parameters"] == {"binary_data_size": 12}
    assert np.frombuffer(raw[int(found[HEAD.lower()]) :], "f4").tolist() == [9.0] * 3


def test_metadata_config_and_statistics(server):
    _, found, _ = server.request("GET", "/v2/models/m/versions/1")
    assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    _, found, _ = server.request("GET", "/v2/models/m/config")
    assert (found["max_batch_size"], found["input"][0]["dims"]) == (4, [3])
    server.request("POST", INFER, {"inputs": [tensor("x", rows(1))]})
    _, found, _ = server.request("GET", "/v2/models/m/stats")
    assert found["model_stats"][0]["inference_count"] >= 1
    status, text, _ = server.request("GET", "/metrics")
    assert status == 200
    assert b'intaglio_latency_seconds_count{model="m",version="1"}' in text
    assert b"<table>" in server.request("GET", "/")[1]
    _, live, _ = server.request("GET", "/live.json")
    assert (live["ready"], live["models"][0]["state"]) == (True, "READY")


GOOD = tensor("x", rows(1))
BAD = {
    "no JSON": (b"{", "no inference request"),
    "deep JSON": (b'{"inputs":' + b"[" * 3000, "no inference request"),
    "no inputs": ({}, "inputs"),
    "empty inputs": ({"inputs": []}, "'x' is missing"),
    "twice": ({"inputs": [GOOD, GOOD]}, "twice"),
    "name": ({"inputs": [GOOD | {"name": "z"}]}, "no input 'z'"),
    "datatype": ({"inputs": [GOOD | {"datatype": "INT8"}]}, "takes FP32"),
    "rank": ({"inputs": [GOOD | {"shape": [3]}]}, "has shape [3]"),
    "large batch": ({"inputs": [GOOD | {"shape": [5, 3]}]}, "at most 4"),
    "huge": ({"inputs": [GOOD | {"shape": [1 << 62, 1 << 62]}]}, "has shape"),
    "negative": ({"inputs": [GOOD | {"shape": [-1, 3]}]}, "has shape"),
    "empty batch": ({"inputs": [GOOD | {"shape": [0, 3], "data": []}]}, "empty"),
    "count": ({"inputs": [GOOD | {"data": [1, 2]}]}, "has 2 numbers"),
    "words": ({"inputs": [GOOD | {"data": ["a", "b", "c"]}]}, "no FP32 numbers"),
    "ragged": ({"inputs": [GOOD | {"data": [[1], [2, 3]]}]}, "no FP32 numbers"),
    "deep data": (b'{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":'
                  + b"[" * 1200 + b"]" * 1200 + b"}]}", ""),
    "output": ({"inputs": [GOOD], "outputs": [{"name": "q"}]}, "no output 'q'"),
    "priority": ({"inputs": [GOOD], "parameters": {"priority": -1}}, "priority"),
    "shared memory": ({"inputs": [GOOD | {"parameters": {"shared_memory_region": "r"}}]},
                      "shared_memory_region"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_get_400_and_a_line(server, case):
    body, words = BAD[case]
    status, got, _ = server.request("POST", INFER, body)
    assert status == 400
    assert words in got["error"]
    assert "\n" not in got["error"]


def test_bad_binary_sizes(server):
    for size in (0, 13, 1 << 60, -12):
        body, headers = binary(rows(4), size)
        assert server.request("POST", INFER, body, headers)[0] == 400
    body, headers = binary(rows(4))
    for wrong in (body + b"x", body[:-1]):
        assert server.request("POST", INFER, wrong, headers)[0] == 400
    for length in ("9999", "-1", "x", "9" * 30):
        assert server.request("POST", INFER, body, {HEAD: length})[0] == 400
    assert server.request("POST", INFER, b"zz", {"Content-Encoding": "gzip"})[0] == 400


def test_unknown_places(server):
    for path in ("/v2/models/none", "/v2/models/m/versions/9", "/v2/models/..%2f/config", "/x"):
        assert server.request("GET", path)[0] == 404
    assert server.request("POST", "/v2/models/none/infer", {"inputs": []})[0] == 404
    assert server.request("GET", INFER)[0] == 405
    assert server.request("DELETE", "/v2/models/m")[0] == 405
    assert server.request("GET", "/v2/repository/index")[1][0]["state"] == "READY"
    assert server.request("POST", "/v2/repository/models/m/unload", {})[0] == 403


def test_large_bodies_are_refused_before_they_are_read(server):
    with socket.create_connection(("127.0.0.1", server.server.http_port), 5) as s:
        s.sendall(
            b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 80000000\r\n\r\n" % INFER.encode()
        )
        assert b" 413 " in s.recv(200)
    with socket.create_connection(("127.0.0.1", server.server.http_port), 5) as s:
        s.sendall(
            b"POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % INFER.encode()
        )
        s.sendall(b"1388\r\n" + b" " * 5000 + b"\r\n")  # and no end
        assert b" 413 " in s.recv(200)
    bomb = gzip.compress(b" " * 100_000)
    assert server.request("POST", INFER, bomb, {"Content-Encoding": "gzip"})[0] == 413


def test_clients_that_send_all_before_they_read_get_the_refusal(server):
    """The rest of the request is thrown away, so that the system does not reset the connection."""
    assert server.request("POST", INFER, bytes(8 << 20))[0] == 413
    with socket.create_connection(("127.0.0.1", server.server.http_port), 5) as s:
        s.sendall(b"no HTTP\r\n\r\n" + bytes(8 << 20))
        assert s.recv(4096).startswith(b"HTTP/1.1 400")
        assert s.recv(4096) == b""


def test_a_full_queue_refuses_large_requests_before_it_reads_them():
    """The rest of the body is thrown away, and the connection goes on."""
    body, headers = binary(np.zeros((1, 3, 300, 300), np.float32))
    head = b"POST %s HTTP/1.1\r\nHost: a\r\n%s: %s\r\nContent-Length: %d\r\n\r\n" % (
        INFER.encode(), HEAD.encode(), headers[HEAD].encode(), len(body)
    )  # fmt: skip
    with running(intaglio.compile(model(LARGE))) as server:
        batcher = server.repository.find("m").batcher
        with socket.create_connection(("127.0.0.1", server.server.http_port), 20) as s:
            for full, words in ((False, b" 200 "), (True, b" 429 "), (True, b" 429 ")):
                batcher._max_queue = 0 if full else 256
                s.sendall(head + body[:100_000])
                answer = s.recv(200) if full else b""
                s.sendall(body[100_000:])
                assert words in (answer or s.recv(200))
                s.settimeout(0.2)
                with suppress(TimeoutError):
                    while s.recv(1 << 20):
                        pass
                s.settimeout(20)
            s.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
            assert b" 200 " in s.recv(200)
        assert server.server.metrics._refused["queue_full"] == 2


def test_bodies_that_arrive_together_have_a_limit(monkeypatch):
    monkeypatch.setattr(http_protocol, "MIN_ARRIVING", 0)
    head = b"POST %s HTTP/1.1\r\nHost: a\r\n" % INFER.encode()
    framings = (b"Content-Length: 400000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n61a80\r\n")
    for framing in framings:
        with running(rows_model(), max_body=400_000) as server:
            port = server.server.http_port
            held = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(5)]
            for s in held:
                s.sendall(head + framing + bytes(390_000))
            refused = select.select(held, [], [], 5)[0][0].recv(400)
            assert b" 503 " in refused
            assert b"retry-after: 1" in refused
            for s in held:
                s.close()
            end = time.monotonic() + 5
            while server.server._state.connections:
                assert time.monotonic() < end
                time.sleep(0.01)
            body = {"inputs": [tensor("x", rows(1))]}
            status = server.request("POST", INFER, json.dumps(body).encode().ljust(300_000))[0]
            assert status == 200


def test_bodies_in_tiny_chunks(server):
    body = json.dumps({"inputs": [tensor("x", rows(1))]}).encode().ljust(2000)
    chunks = b"".join(b"1\r\n%c\r\n" % c for c in body) + b"0\r\n\r\n"
    head = b"POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % INFER.encode()
    with socket.create_connection(("127.0.0.1", server.server.http_port), 5) as s:
        s.sendall(head + chunks)
        assert b" 200 " in s.recv(200)


@pytest.mark.parametrize(
    "sent",
    [b"", b"\r\n", b"POST / HT", b"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"],
    ids=["nothing", "an empty line", "half of the headers", "half of the body"],
)
def test_slow_clients_are_cut_off(server, sent):
    with socket.create_connection(("127.0.0.1", server.server.http_port), 5) as s:
        s.sendall(sent)
        start = time.monotonic()
        while s.recv(4096):
            pass
        assert time.monotonic() - start < 3


def test_long_headers_and_garbage_are_refused(server):
    long = b"GET / HTTP/1.1\r\n" + b"A: " + b"b" * 200_000
    many = b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000
    for sent in (long, many, b"\x00\x16\x03 hello\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.server.http_port), 5) as s:
            s.sendall(sent)
            assert b"HTTP/1.1 4" in s.recv(100)
    assert server.request("GET", "/v2/health/ready")[0] == 200


UPGRADE = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"


@pytest.mark.parametrize("size", [20, 150, 1 << 20], ids=["small", "middle", "one"])
@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_offers_to_upgrade_are_ignored(server, framing, size):
    """As Java's HttpClient sends them; the body is a body, wherever packets end, even one that
    looks like a request."""
    body, headers = binary(rows(4), more="GET /metrics HTTP/1.1\r\n\r\n")
    length = f"Content-Length: {len(body)}\r\n"
    sent_body = body
    if framing == "chunks":
        length, sent_body = (
            "Transfer-Encoding: chunked\r\n",
            b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body),
        )
    head = f"POST {INFER} HTTP/1.1\r\nHost: a\r\n{UPGRADE}{HEAD}: {headers[HEAD]}\r\n{length}\r\n"
    get = f"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n{UPGRADE}\r\n".encode()
    sent = (head.encode() + sent_body + get) * 2
    with socket.create_connection(("127.0.0.1", server.server.http_port), 5) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(sent), size):
            s.sendall(sent[at : at + size])
            time.sleep(0.001)
        s.shutdown(socket.SHUT_WR)
        got = b"".join(iter(lambda: s.recv(1 << 16), b""))
    assert got.count(b"HTTP/1.1 200 OK") == 4, got
    assert got.count(b'"data":[9.0,9.0,9.0]') == 2
    assert got.count(b"HTTP/1.1 ") == 4


def test_token():
    with running(rows_model(), token="correct horse") as server:
        assert server.request("GET", "/v2/health/ready")[0] == 200
        assert server.request("GET", "/v2")[0] == 401
        wrong = {"Authorization": "Bearer correct"}
        assert server.request("GET", "/v2", headers=wrong)[0] == 401
        right = {"Authorization": "Bearer correct horse"}
        assert server.request("GET", "/v2", headers=right)[0] == 200


def test_changed_requests_never_break_the_server(server):
    rng = np.random.default_rng(0)
    body, headers = binary(rows(1, 2), outputs=[{"name": "y"}])
    for _ in range(150):
        changed = bytearray(body)
        for at in rng.integers(0, int(headers[HEAD]), rng.integers(1, 4)):
            changed[at] = rng.integers(32, 127)
        status, got, _ = server.request("POST", INFER, bytes(changed), headers)
        assert status in (200, 400), got
    _, found, _ = server.request("GET", "/v2/models/m/stats")
    assert found["model_stats"][0]["inference_stats"]["fail"]["count"] > 50


def test_tls(tmp_path):
    pytest.importorskip("cryptography", reason="pip install cryptography")
    certificate, key = self_signed(tmp_path)
    with running(rows_model(), certificate=certificate, private_key=key, grpc_port=0) as server:
        trusted = ssl.create_default_context(cafile=certificate)
        port = server.server.http_port
        with (
            socket.create_connection(("127.0.0.1", port), 5) as plain,
            trusted.wrap_socket(plain, server_hostname="localhost") as s,
        ):
            s.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: a\r\n\r\n")
            assert b"200 OK" in s.recv(100)
            assert s.version() in ("TLSv1.2", "TLSv1.3")
        import grpc

        with open(certificate, "rb") as f:
            credentials = grpc.ssl_channel_credentials(f.read())
        with grpc.secure_channel(f"localhost:{server.server.grpc_port}", credentials) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ServerReady")
            assert call(b"", timeout=10) == b"\x08\x01"
    with pytest.raises(BadInput, match="cannot use certificate"):
        tls_context(ServeSettings(certificate=str(tmp_path / "none.pem")))


def self_signed(folder) -> tuple[str, str]:
    """A certificate for localhost and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(1))
        .not_valid_after(now + datetime.timedelta(1))
        .add_extension(names, False)
        .sign(key, hashes.SHA256())
    )
    paths = str(folder / "certificate.pem"), str(folder / "key.pem")
    pem = serialization.Encoding.PEM
    pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    for path, data in zip(
        paths, (made.public_bytes(pem), key.private_bytes(pem, pkcs8, plain)), strict=True
    ):
        with open(path, "wb") as f:
            f.write(data)
    return paths


LARGE = "(float[1,3,300,300] x) => (float[1,3,300,300] y) <float[1] k = {2}> { y = Mul(x, k) }"


@pytest.mark.parametrize("loop", ["asyncio", pytest.param("uvloop", marks=pytest.mark.slow)])
def test_large_bodies_are_not_copied_again(loop):
    """A body of many pieces; the binary part behind any length of JSON is aligned."""
    factory = pytest.importorskip("uvloop").new_event_loop if loop == "uvloop" else None
    x = np.random.default_rng(0).standard_normal((1, 3, 300, 300), np.float32)
    with running(intaglio.compile(model(LARGE)), loop=factory) as server:
        instance = server.repository.find("m").batcher._instances[0]
        run, aligned = instance.run, []

        def watch(jobs, size):
            aligned.append(jobs[0].inputs["x"].flags.aligned)
            return run(jobs, size)

        instance.run = watch
        for i in range(4):
            body, headers = binary(x, id="a" * i, parameters={"binary_data_output": True})
            status, raw, found = server.request("POST", INFER, body, headers)
            assert status == 200
            got = np.frombuffer(raw[int(found[HEAD.lower()]) :], np.float32)
            assert np.array_equal(got, 2 * x.ravel())
        packed = gzip.compress(body, 1)
        both = headers | {"Content-Encoding": "gzip"}
        assert server.request("POST", INFER, packed, both)[0] == 200
        listed = {"inputs": [tensor("x", x)]}
        assert server.request("POST", INFER, listed)[0] == 200
        assert all(aligned[:4])


async def answers(port: int, pieces: list[bytes], count: int, trust: str | None) -> list[bytes]:
    """The bodies of so many answers on one connection, read while the pieces are sent."""
    context = ssl.create_default_context(cafile=trust) if trust else None
    name = "localhost" if trust else None
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=name
    )

    async def send() -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    async def read() -> list[bytes]:
        found = []
        for _ in range(count):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.1 200"), head
            found.append(
                await reader.readexactly(int(head.split(b"\ncontent-length: ")[1].split()[0]))
            )
        return found

    found, _ = await asyncio.wait_for(asyncio.gather(read(), send()), 30)
    writer.close()
    return found


@pytest.mark.parametrize("loop", [pytest.param("asyncio", marks=pytest.mark.slow), "uvloop"])
def test_large_bodies_in_any_pieces_on_one_connection(loop, tmp_path):
    """Large and small requests follow each other without a pause, over TLS too; a client that
    stops in the middle is cut off, one that goes leaves nothing."""
    pytest.importorskip("cryptography", reason="pip install cryptography")
    factory = pytest.importorskip("uvloop").new_event_loop if loop == "uvloop" else None
    certificate, key = self_signed(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 3, 300, 300), np.float32)
    body, headers = binary(x, outputs=[{"name": "y", "parameters": {"binary_data": True}}])
    large = b"POST %s HTTP/1.1\r\nHost: a\r\n%s: %s\r\nContent-Length: %d\r\n\r\n" % (
        INFER.encode(), HEAD.encode(), headers[HEAD].encode(), len(body)
    )  # fmt: skip
    small = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"
    package, limits = intaglio.compile(model(LARGE)), {"body_timeout_s": 0.3}
    for tls in ({}, {"certificate": certificate, "private_key": key}):
        with running(package, loop=factory, **limits, **tls) as server:

            def connected(tls=tls, server=server) -> socket.socket:
                plain = socket.create_connection(("127.0.0.1", server.server.http_port), 5)
                if not tls:
                    return plain
                trusted = ssl.create_default_context(cafile=certificate)
                return trusted.wrap_socket(plain, server_hostname="localhost")

            sent = (large + body + small) * 3
            cuts = sorted(rng.integers(0, len(sent), 12))
            pieces = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
            port, trust = server.server.http_port, certificate if tls else None
            for i, got in enumerate(asyncio.run(answers(port, pieces, 6, trust))):
                if not i % 2:
                    assert np.array_equal(np.frombuffer(got[-x.nbytes :], "f4"), 2 * x.ravel())
            with connected() as s, suppress(OSError):
                s.sendall(large + body[: len(body) // 2])
                assert b" 408 " in s.recv(4096)  # after the limit
                assert s.recv(4096) == b""
            s = connected()
            s.sendall(large + body[: len(body) // 2])
            s.close()
            end = time.monotonic() + 5
            while server.server._state.connections:
                assert time.monotonic() < end
                time.sleep(0.01)
