"""HAProxy in front of servers: limits, tokens, retries, weights, canary by header."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress

import pytest
from click.testing import CliRunner
from tests.serve.fleet import (
    REQUEST,
    Clients,
    Fleet,
    free_port,
    needs_haproxy,
    ready,
    scores,
    until,
)

from intaglio.cli.gateway import command
from intaglio.errors import BadInput
from intaglio.serve.gateway import Gateway, configuration, token_hash
from intaglio.serve.haproxy_socket import HaproxySocket, weights_of
from intaglio.serve.publish import publish

STABLE = ["127.0.0.1:8000"]


def test_weights_are_near_the_share():
    for stable in (1, 2, 3, 7):
        for canary in (1, 2):
            for percent in (1, 2.5, 5, 10, 33, 50, 90):
                s, c = weights_of(percent, stable, canary)
                assert 0 < s <= 256
                assert 0 < c <= 256
                share = 100 * c * canary / (c * canary + s * stable)
                assert abs(share - percent) < 0.5, (stable, canary, percent)
    assert weights_of(0, 2, 1) == (256, 0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"stable": []}, "no stable server"),
        ({"stable": ["8000"]}, "HOST:PORT"),
        ({"stable": ["a:99999"]}, "HOST:PORT"),
        ({"stable": ["a:80\n server x"]}, "HOST:PORT"),
        ({"models": ["m m"]}, "no name of a model"),
        ({"socket": "/tmp/a b"}, "rename it"),
        ({"socket": "/" + "a" * 120}, "shorter path"),
        ({"client_authority": "/ca.pem"}, "need TLS"),
        ({"certificate": "/none.pem"}, "cannot read the certificate"),
        ({"grpc_listen": "127.0.0.1:1"}, "gRPC needs both"),
    ],
)
def test_what_cannot_be_configured(settings, words):
    with pytest.raises(BadInput, match=words):
        Gateway(**{"models": ["m"], "stable": STABLE} | settings)


def test_a_token_is_written_as_its_hash():
    text = configuration(Gateway(["m"], STABLE, token_hashes="/etc/tokens"))
    assert "-f /etc/tokens" in text
    assert token_hash("correct horse") == hashlib.sha256(b"correct horse").hexdigest().upper()


def answer(url: str, path: str, body: bytes | None = None, **headers: str):
    """Status, JSON and headers."""
    named = {k.replace("_", "-"): v for k, v in headers.items()}
    request = urllib.request.Request(url + path, body, named)
    try:
        with urllib.request.urlopen(request, timeout=20) as found:
            return found.status, found.read(), found.headers
    except urllib.error.HTTPError as e:
        return e.code, e.read(), e.headers


@pytest.fixture
def fleet(tmp_path):
    scores((1, 2, 3)).save(tmp_path / "m.itg")
    publish(tmp_path / "m.itg", tmp_path / "repo", "m")
    with ExitStack() as stack:
        yield Fleet(stack, tmp_path, tmp_path / "repo")


@needs_haproxy
@pytest.mark.slow
def test_the_gateway_refuses_what_no_server_should_see(fleet, tmp_path, monkeypatch):
    _, port = fleet.server()
    monkeypatch.setenv("TOKEN", "correct horse")
    options = f"--stable 127.0.0.1:{port} --listen 127.0.0.1:{fleet.port} --token env:TOKEN"
    options += f" --max-body 1 --slow-client 1 --socket {fleet.socket} -o {tmp_path}/haproxy.cfg"
    written = CliRunner().invoke(command, [str(fleet.repository), *options.split()])
    assert written.exit_code == 0, written.output
    assert "checked by haproxy" in written.output
    assert "correct" not in "".join(p.read_text() for p in tmp_path.glob("haproxy.*[!k]"))
    fleet.haproxy(tmp_path / "haproxy.cfg")
    until(lambda: ready(fleet.url))
    token = {"Authorization": "Bearer correct horse"}
    infer = "/v2/models/m/infer"
    assert answer(fleet.url, infer, REQUEST)[0] == 401
    assert answer(fleet.url, infer, REQUEST, Authorization="Bearer wrong horse")[0] == 401
    status, body, headers = answer(fleet.url, infer, REQUEST, **token)
    assert status == 200
    assert json.loads(body)["outputs"][0]["data"] == [1, 4, 12]
    assert headers["x-intaglio-server"] == "stable1"
    assert len(headers["x-request-id"]) == 36
    assert answer(fleet.url, infer, REQUEST, X_Request_Id="r1", **token)[2]["x-request-id"] == "r1"
    for path in ("/metrics", "/", "/v2/repository/models/m/unload", "//v2/repository/models/m/load",
                 "/v2%2frepository/models/m/load", "/v2/repository%2fmodels/m/unload"):  # fmt: skip
        assert answer(fleet.url, path, b"{}", **token)[0] == 403, path
    large = b"POST %s HTTP/1.1\r\nhost: a\r\ncontent-length: 80000000\r\n" % infer.encode()
    large += b"authorization: Bearer correct horse\r\n\r\n"
    for sent, expected in (
        (large, b" 413 "),
        (b"POST / HT", b" 408 "),
        (large.replace(b"80000000", b"9") + b"{", b" 408 "),
        (b"\x16\x03\x01 hello\r\n\r\n", b" 400 "),
    ):
        with socket.create_connection(("127.0.0.1", fleet.port), 10) as s:
            s.sendall(sent)
            assert expected in s.recv(4096)


@needs_haproxy
@pytest.mark.slow
def test_a_killed_replica_costs_no_request(fleet):
    """Each of two servers is killed in the middle of 20,000 requests and comes back; with none, 503
    and Retry-After."""
    servers = [fleet.server() for _ in range(2)]
    ports = [port for _, port in servers]
    fleet.gateway(stable=[f"127.0.0.1:{port}" for port in ports])
    until(lambda: ready(fleet.url))
    clients = Clients(fleet.port)
    thread = threading.Thread(target=lambda: asyncio.run(clients.run(8, 20_000)))
    thread.start()
    for i in range(2):
        done = sum(clients.statuses.values())
        until(lambda done=done: sum(clients.statuses.values()) > done + 3000)
        os.kill(servers[i][0].pid, signal.SIGKILL)
        done = sum(clients.statuses.values())
        until(lambda done=done: sum(clients.statuses.values()) > done + 1500)
        servers[i] = fleet.server(port=ports[i])
        until(lambda: sum(s.is_up for s in HaproxySocket(fleet.socket).servers("models")) == 2)
    thread.join(120)
    assert not thread.is_alive()
    assert set(clients.statuses) == {200}, clients.statuses
    assert min(clients.servers[f"stable{i}"] for i in (1, 2)) > 3000
    for process, _ in servers:
        process.kill()
    until(lambda: not any(s.is_up for s in HaproxySocket(fleet.socket).servers("models")))
    status, body, headers = answer(fleet.url, "/v2/models/m/infer", REQUEST)
    assert (status, headers["retry-after"]) == (503, "1")
    assert "no server is ready" in json.loads(body)["error"]


@needs_haproxy
@pytest.mark.slow
def test_canary_share_header_and_sequences(fleet):
    """10,000 requests: the share of each weight within 1 point; a header chooses the side."""
    ports = [fleet.server()[1] for _ in range(3)]
    fleet.gateway(stable=[f"127.0.0.1:{p}" for p in ports[:2]], canary=[f"127.0.0.1:{ports[2]}"])
    until(lambda: ready(fleet.url))
    until(lambda: all(s.is_up for s in HaproxySocket(fleet.socket).servers("model.m")))
    proxy = HaproxySocket(fleet.socket)
    for percent in (0, 1, 10, 50):
        stable, canary = weights_of(percent, 2, 1)
        for name, weight in (("stable1", stable), ("stable2", stable), ("canary1", canary)):
            proxy.set_weight("model.m", name, weight)
        clients = Clients(fleet.port)
        asyncio.run(clients.run(4, 2500))
        assert set(clients.statuses) == {200}
        share = 100 * clients.servers["canary1"] / sum(clients.servers.values())
        assert abs(share - percent) < 1, clients.servers
    for side in ("canary", "stable"):
        clients = Clients(fleet.port, b"X-Intaglio-Version: %s\r\n" % side.encode())
        asyncio.run(clients.run(2, 40))
        assert {name[:-1] for name in clients.servers} == {side}
    for key in (b"a", b"b", b"c"):
        clients = Clients(fleet.port, b"X-Sequence-Id: %s\r\n" % key)
        asyncio.run(clients.run(2, 40))
        assert len(clients.servers) == 1
    with pytest.raises(BadInput, match="has no backend"):
        proxy.servers("model.other")
    with pytest.raises(BadInput, match="cannot reach HAProxy"):
        HaproxySocket(fleet.folder / "none.sock").servers("model.m")


@needs_haproxy
@pytest.mark.slow
def test_tls_and_client_certificates(fleet, tmp_path):
    pytest.importorskip("cryptography", reason="pip install cryptography")
    from tests.serve.test_serve_http import self_signed

    certificate, key = self_signed(tmp_path)
    both = tmp_path / "both.pem"
    with open(both, "wb") as out:
        for path in (certificate, key):
            with open(path, "rb") as f:
                shutil.copyfileobj(f, out)
    port = fleet.server()[1]
    fleet.gateway(stable=[f"127.0.0.1:{port}"], certificate=str(both), client_authority=certificate)
    time.sleep(1)

    def status(context: ssl.SSLContext) -> bytes:
        with (
            socket.create_connection(("127.0.0.1", fleet.port), 5) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as s,
        ):
            s.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: a\r\n\r\n")
            return s.recv(100)

    trusted = ssl.create_default_context(cafile=certificate)
    with suppress(OSError):  # of TLS, or a reset
        assert status(trusted) == b""  # no certificate of a client
    trusted.load_cert_chain(certificate, key)
    assert b" 200 " in status(trusted)
    old = ssl.create_default_context(cafile=certificate)
    old.load_cert_chain(certificate, key)
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, OSError)):
        status(old)


@needs_haproxy
@pytest.mark.slow
def test_grpc_through_the_gateway(fleet):
    tritonclient = pytest.importorskip("tritonclient.grpc", reason="pip install tritonclient[grpc]")
    from tests.serve.fleet import ROW
    from tests.serve.running import running

    grpc_port = free_port()
    with running(fleet.repository, grpc_port=0, control=True) as server:
        fleet.gateway(
            stable=[server.http], grpc=[server.grpc], grpc_listen=f"127.0.0.1:{grpc_port}"
        )
        until(lambda: ready(fleet.url))
        client = tritonclient.InferenceServerClient(f"127.0.0.1:{grpc_port}")
        tensor = tritonclient.InferInput("x", [1, 3], "FP32")
        tensor.set_data_from_numpy(ROW)
        assert client.infer("m", [tensor]).as_numpy("y").tolist() == [[1, 4, 12]]
        with pytest.raises(Exception, match=r"403|PERMISSION_DENIED"):
            client.unload_model("m")
        client.close()


def test_the_command_names_what_is_wrong(tmp_path):
    done = CliRunner().invoke(command, [str(tmp_path), "--stable", "x"])
    assert isinstance(done.exception, BadInput)
