"""OpenTelemetry: spans reach a collector, with the caller's trace and the times of the parts."""

from __future__ import annotations

import importlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tests.serve.models import rows, rows_model
from tests.serve.running import running, tensor

from intaglio.serve.settings import ModelSettings

pytest.importorskip("opentelemetry.sdk", reason='pip install "intaglio[traces]"')
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collector(BaseHTTPRequestHandler):
    """Takes OTLP over HTTP, as an OpenTelemetry collector does."""

    bodies: list[bytes]

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        self.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_) -> None: ...


@pytest.fixture
def collector():
    kind = type("Collector", (Collector,), {"bodies": []})
    server = HTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", kind.bodies
    server.shutdown()
    thread.join()
    server.server_close()


def spans_of(bodies: list[bytes]):
    module = importlib.import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    requests = [module.ExportTraceServiceRequest.FromString(body) for body in bodies]
    found = [
        s for r in requests for rs in r.resource_spans for ss in rs.scope_spans for s in ss.spans
    ]
    return sorted(found, key=lambda s: s.start_time_unix_nano)


@pytest.mark.parametrize("inline", [True, False])
def test_spans_of_requests(collector, inline):
    url, bodies = collector
    with running(rows_model(), traces=url, grpc_port=0, model=ModelSettings(threads=1)) as server:
        server.repository.find("m").batcher.inline = inline
        request = {"inputs": [tensor("x", rows(1, 2))]}
        named = {"traceparent": CALLER, "X-Request-Id": "r1"}
        assert server.request("POST", "/v2/models/m/infer", request, named)[0] == 200
        wrong = {"inputs": [tensor("x", rows(1, 2, 3, 4, 5))]}
        assert server.request("POST", "/v2/models/m/infer", wrong)[0] == 400
        tritonclient = pytest.importorskip("tritonclient.grpc")
        client = tritonclient.InferenceServerClient(server.grpc)
        x = tritonclient.InferInput("x", [1, 3], "FP32")
        x.set_data_from_numpy(rows(1))
        client.infer("m", [x], headers={"traceparent": CALLER})
        client.close()
    spans = spans_of(bodies)
    whole = [s for s in spans if s.name == "infer m"]
    assert len(whole) == 2  # requests that never reach a model have none
    first = whole[0]
    assert {s.trace_id.hex() for s in spans} == {CALLER.split("-")[1]}
    assert first.parent_span_id.hex() == CALLER.split("-")[2]
    told = {a.key: a.value for a in first.attributes}
    assert told["intaglio.model"].string_value == "m"
    assert told["intaglio.rows"].int_value == 2
    assert told["intaglio.request_id"].string_value == "r1"
    assert told["http.response.status_code"].int_value == 200
    parts = [s for s in spans if s.parent_span_id == first.span_id]
    assert [p.name for p in parts] == ["queue", "run"]
    assert parts[0].end_time_unix_nano == parts[1].start_time_unix_nano
    for p in parts:
        assert first.start_time_unix_nano <= p.start_time_unix_nano <= p.end_time_unix_nano
        assert p.end_time_unix_nano <= first.end_time_unix_nano
