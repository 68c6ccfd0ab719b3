"""Clients on a device: what they ask the server, and what they do without one."""

from __future__ import annotations

import http.server
import json
import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from tests.serve.models import rows, rows_model
from tests.split.models import int8_model

import intaglio
from intaglio.client import (
    Cascade,
    Server,
    SplitModel,
    Unreachable,
    margin_for,
    margins,
    tradeoffs,
    wire,
)
from intaglio.client import server as client_server
from intaglio.errors import BadFile, BadInput
from intaglio.split import Cpu, Link, plan_split, write_parts

SURE, UNSURE = rows(9, 0)[:1], rows(1)  # of the device below, whose scores are x @ (1, 0, -1)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with `reply(json, binary) -> (status, headers, body)` of the server."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        size = int(self.headers["Inference-Header-Content-Length"])
        self.server.seen.append((self.path, dict(self.headers), json.loads(body[:size])))
        status, headers, answer = self.server.reply(json.loads(body[:size]), body[size:])
        self.send_response(status)
        for name, value in {"Content-Length": str(len(answer)), **headers}.items():
            self.send_header(name, value)
        self._headers_buffer.append(b"\r\n" + answer)  # in one piece with the headers
        self.flush_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(reply):
    """A server on a port of its own."""
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads, made.reply, made.seen = True, reply, []
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()
        thread.join()


def url(made) -> str:
    return f"http://127.0.0.1:{made.server_address[1]}"


def scores_answer(*scores: float, name: str = "scores"):
    raw = np.array([scores], np.float32).tobytes()
    head = json.dumps(
        {
            "model_name": "large",
            "model_version": "1",
            "outputs": [
                {
                    "name": name,
                    "datatype": "FP32",
                    "shape": [1, len(scores)],
                    "parameters": {"binary_data_size": len(raw)},
                }
            ],
        }
    ).encode()
    return 200, {"Inference-Header-Content-Length": str(len(head))}, head + raw


@pytest.fixture(scope="module")
def device():
    """Scores of two classes: sure for large inputs, unsure for small ones."""
    from tests.frontends.onnx_text import model

    constants = "<float[3,2] w = {1, -1, 0, 0, 1, -1}>"
    made = intaglio.compile(
        model(f"(float[1,3] x) => (float[1,2] scores) {constants} {{ scores = MatMul(x, w) }}")
    )
    return made


def feeds(value: float) -> dict[str, np.ndarray]:
    return {"x": np.full((1, 3), value, np.float32)}


# ---- cascade ----
def test_the_server_is_asked_only_if_the_device_is_unsure(device):
    with serving(lambda *_: scores_answer(0.1, 0.9)) as made:
        with Cascade(device, Server(url(made), "large", token="t"), margin=0.5) as cascade:
            sure, unsure = cascade.run(feeds(3)), cascade.run(feeds(0.01))
        assert (sure.source, unsure.source) == ("device", "server")
        assert sure.margin > 0.5 > unsure.margin
        np.testing.assert_array_equal(unsure.outputs["scores"], np.float32([[0.1, 0.9]]))
        assert len(made.seen) == 1
        path, headers, asked = made.seen[0]
        assert path == "/v2/models/large/infer"
        assert headers["Authorization"] == "Bearer t"
        assert asked["inputs"][0] == {
            "name": "x",
            "shape": [1, 3],
            "datatype": "FP32",
            "parameters": {"binary_data_size": 12},
        }


def test_without_a_link_the_device_answers_at_once(device, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        server = Server(f"http://127.0.0.1:{port}", "large", timeout=5)
        with Cascade(device, server, margin=0.5) as cascade:
            first, second = cascade.run(feeds(0)), cascade.run(feeds(0))
    assert first.source == second.source == "device"
    assert "does not answer" in first.reason
    assert "next try" in second.reason
    assert server.down


def test_the_link_is_tried_again_later(device, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(client_server.time, "monotonic", lambda: now[0])
    replies = [(503, {}, b'{"error": "loading"}'), scores_answer(1, 0), scores_answer(1, 0)]
    with serving(lambda *_: replies.pop(0)) as made:
        server = Server(url(made), "large")
        with Cascade(device, server, margin=0.5) as cascade:
            assert "answers 503: loading" in cascade.run(feeds(0)).reason
            now[0] += 0.9
            assert "next try is in 0.1 s" in cascade.run(feeds(0)).reason
            now[0] += 0.2
            assert cascade.run(feeds(0)).source == "server"
            assert cascade.run(feeds(0)).source == "server"
    assert len(made.seen) == 3


def test_a_server_that_says_nothing_costs_the_timeout_once(device):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        server = Server(f"http://127.0.0.1:{silent.getsockname()[1]}", "large", timeout=0.2)
        with pytest.raises(Unreachable, match="does not answer"):
            server.run(feeds(0))
        start = time.monotonic()
        with pytest.raises(Unreachable, match="next try"):
            server.run(feeds(0))
        assert time.monotonic() - start < 0.2


def test_a_server_that_drips_is_cut_off_at_the_deadline():
    def drip(listening):
        connection, _ = listening.accept()
        with connection:
            connection.recv(1 << 16)
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                for _ in range(100):
                    connection.sendall(b"x")
                    time.sleep(0.02)
            except OSError:
                pass

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        server = Server(f"http://127.0.0.1:{listening.getsockname()[1]}", "m", timeout=0.3)
        with pytest.raises(Unreachable):
            server.run(feeds(0))
        thread.join()


def test_an_idle_connection_that_was_closed_is_opened_again(device):
    with serving(lambda *_: scores_answer(1, 0)) as made:
        server = Server(url(made), "large")
        server.run(feeds(0))
        server._connection.sock.shutdown(socket.SHUT_RDWR)
        server.run(feeds(0))
        assert len(made.seen) == 2


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, b"not json"),
        (200, {"Inference-Header-Content-Length": "999"}, b"{}"),
        (200, {}, b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [4], "data": [1]}]}'),
        (200, {}, b'{"outputs": [{"name": "y", "datatype": "TEXT", "shape": [1], "data": [1]}]}'),
        (200, {}, b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}]}'),
        (
            200,
            {},
            b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [99999999999, 9999999999],'
            b' "parameters": {"binary_data_size": 4}}]}',
        ),
        (502, {}, b""),
    ],
)
def test_an_answer_that_cannot_be_read_is_none(device, answer):
    with (
        serving(lambda *_: answer) as made,
        Cascade(device, Server(url(made), "m"), margin=1.0) as cascade,
    ):
        assert cascade.run(feeds(0)).source == "device"


def test_a_refused_request_is_an_error(device):
    with serving(lambda *_: (400, {}, b'{"error": "no input x"}')) as made:
        server = Server(url(made), "m")
        with pytest.raises(BadInput, match="refuses a request for 'm': no input x"):
            server.run(feeds(0))
        assert not server.down


def test_budget(device):
    with serving(lambda *_: scores_answer(1, 0)) as made:
        server = Server(url(made), "m")
        cascade = Cascade(device, server, margin=1.0, budget=0.1)
        sources = [cascade.run(feeds(0)).source for _ in range(100)]
        cascade.close()
    assert 10 <= sources.count("server") <= 11
    assert len(made.seen) == sources.count("server")


def test_wrong_arguments(device):
    server = Server("http://127.0.0.1:1", "m")
    for wrong in ({"margin": 2}, {"margin": 0.5, "budget": 3}):
        with pytest.raises(BadInput, match="0 to 1"):
            Cascade(device, server, **wrong)
    with pytest.raises(BadInput, match="give a URL"):
        Server("127.0.0.1:8000", "m")
    with (
        Cascade(device, server, margin=0.5, output="no") as cascade,
        pytest.raises(BadInput, match="no output 'no'; it has scores"),
    ):
        cascade.run(feeds(0))


# ---- margins ----
def test_margins_of_probabilities_and_logits():
    probabilities = np.array([[0.7, 0.2, 0.1], [0.4, 0.4, 0.2]])
    np.testing.assert_allclose(margins(probabilities), [0.5, 0.0], atol=1e-12)
    np.testing.assert_allclose(margins(np.log(probabilities) + 7), [0.5, 0.0], atol=1e-12)
    with pytest.raises(BadInput, match="two classes"):
        margins(np.zeros((3, 1)))


def test_tradeoffs_are_what_a_cascade_does():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 200)
    server = np.eye(4)[labels] * 5 + rng.normal(0, 1, (200, 4))
    device = np.eye(4)[labels] * 2 + rng.normal(0, 1.5, (200, 4))
    found = margins(device)
    rows_ = tradeoffs(device, server, labels)
    for t in rows_[:: len(rows_) // 10]:
        asked = found < t.margin
        chosen = np.where(asked, server.argmax(-1), device.argmax(-1))
        assert t.sent == pytest.approx(asked.mean())
        assert t.right == pytest.approx((chosen == labels).mean())
    assert rows_[0].sent == 0
    assert rows_[-1].sent == 1
    cheap = margin_for(device, server, labels, sent=0.2)
    assert cheap.sent <= 0.2
    assert cheap.right >= rows_[0].right
    good = margin_for(device, server, labels, right=cheap.right)
    assert good.right >= cheap.right
    assert good.sent <= cheap.sent
    with pytest.raises(BadInput, match="no margin is right in 101"):
        margin_for(device, server, labels, right=1.01)
    with pytest.raises(BadInput, match="give either"):
        margin_for(device, server)


# ---- a split model, with our own server ----
def test_split_model_answers_from_both_sides(tmp_path):
    from tests.serve.running import running

    graph = int8_model()
    plan = plan_split(graph, Cpu(seconds=0.01), Cpu(seconds=0.01), Link(1e9, 0.01))
    cut = next(r for r in plan.rows if r.cut and not r.cut.at_input)
    write_parts(graph, cut, Cpu(), Cpu(), tmp_path / "out")
    x = {"x": np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)}
    from intaglio.serve.publish import publish

    publish(tmp_path / "out/cloud.itg", tmp_path / "repo", "half")
    with running(tmp_path / "repo") as made:
        server = Server(f"http://{made.http}", "half", timeout=10)
        with SplitModel(tmp_path / "out", server) as model:
            above = model.run(x)
    with SplitModel(tmp_path / "out", Server("http://127.0.0.1:9", "half")) as model:
        below = model.run(x)
    assert (above.source, below.source) == ("server", "device")
    np.testing.assert_allclose(above.outputs["y"], below.outputs["y"], atol=1e-5)
    with pytest.raises(BadFile, match=r"split\.json"):
        SplitModel(tmp_path, server)


def test_wire_refuses_types_that_the_protocol_lacks():
    import ml_dtypes

    with pytest.raises(BadInput, match="the protocol has no such data type"):
        wire.request({"x": np.zeros(2, ml_dtypes.int4)})


def test_rows_are_sent_as_they_are():
    package = rows_model()
    assert package is not None
    body, size = wire.request({"x": np.asfortranarray(rows(1, 2))})
    assert body[size:] == rows(1, 2).tobytes()
