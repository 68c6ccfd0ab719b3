"""Triton's own clients work unmodified; gRPC and HTTP give the same answers."""

from __future__ import annotations

import importlib
import json

import numpy as np
import pytest
from tests.frontends.onnx_text import model
from tests.serve.models import rows, rows_model
from tests.serve.running import running
from tests.test_state import counting

import intaglio
from intaglio.serve import grpc_schema
from intaglio.serve.publish import publish

pytest.importorskip("tritonclient", reason="pip install tritonclient[http,grpc]")


@pytest.fixture(scope="module")
def server():
    with running(rows_model(), grpc_port=0, control=True, max_body=1 << 16) as made:
        yield made


def client_of(server, kind: str):
    module = importlib.import_module(f"tritonclient.{kind}")
    return module, module.InferenceServerClient(getattr(server, kind))


def given(module, x: np.ndarray, name: str = "x"):
    tensor = module.InferInput(name, list(x.shape), "FP32")
    tensor.set_data_from_numpy(x)
    return [tensor]


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_tritonclient(server, kind):
    module, client = client_of(server, kind)
    as_json = {} if kind == "http" else {"as_json": True}
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("m", "1")
    assert not client.is_model_ready("none")
    answer = client.infer("m", given(module, rows(1, 2, 3)), request_id="9", timeout=1_000_000)
    assert np.array_equal(answer.as_numpy("y"), rows(3, 5, 7))
    assert client.get_server_metadata(**as_json)["name"] == "intaglio"
    found = client.get_model_metadata("m", **as_json)["inputs"][0]
    assert [int(d) for d in found["shape"]] == [-1, 3]
    config = client.get_model_config("m", **as_json)
    assert config.get("config", config)["max_batch_size"] == 4
    statistics = client.get_inference_statistics("m", **as_json)["model_stats"][0]
    assert int(statistics["inference_count"]) >= 3
    index = client.get_model_repository_index(**as_json)
    assert (index["models"] if kind == "grpc" else index)[0]["state"] == "READY"
    client.unload_model("m")
    assert not client.is_model_ready("m")
    client.load_model("m")
    assert client.is_model_ready("m")
    client.load_model("m", config='{"instance_group": [{"count": 2}]}')
    config = client.get_model_config("m", **as_json)
    assert config.get("config", config)["instance_group"][0]["count"] == 2
    client.load_model("m")
    for call in (client.load_model, client.get_model_metadata):
        with pytest.raises(Exception, match=r"failed to load|Request for unknown model"):
            call("none")


@pytest.mark.parametrize("kind", ["http", "grpc"])
@pytest.mark.parametrize(
    ("x", "name", "words"),
    [
        (rows(1, 2, 3, 4, 5), "x", "at most 4"),
        (np.zeros((1, 4), np.float32), "x", "has shape [1, 4]"),
        (rows(1), "z", "no input 'z'"),
    ],
    ids=["batch", "shape", "name"],
)
def test_wrong_inputs_are_named(server, kind, x, name, words):
    module, client = client_of(server, kind)
    with pytest.raises(Exception, match=r"400|INVALID_ARGUMENT") as e:
        client.infer("m", given(module, x, name))
    assert words in str(e.value)


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_extensions_that_are_not_here_are_named(server, kind):
    module, client = client_of(server, kind)
    for call, words in (
        (lambda: client.register_system_shared_memory("a", "/a", 12), "shared memory; send"),
        (client.get_system_shared_memory_status, "shared memory"),
        (client.unregister_cuda_shared_memory, "shared memory"),
        (client.get_trace_settings, "trace settings"),
        (lambda: client.get_trace_settings("m"), "trace settings"),
        (client.get_log_settings, "log settings"),
    ):
        with pytest.raises(Exception, match=f"this server does not have {words}"):
            call()
    shared = module.InferInput("x", [1, 3], "FP32")
    shared.set_shared_memory("a", 12)
    with pytest.raises(Exception, match="this server does not have that extension"):
        client.infer("m", [shared])
    assert client.infer("m", given(module, rows(1))).as_numpy("y")[0, 0] == 3


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_classes(tmp_path, kind):
    """The best classes of each row, with the model's labels."""
    rows_model().save(tmp_path / "m.itg")
    publish(tmp_path / "m.itg", tmp_path / "repo", "m")
    (tmp_path / "repo/m/labels.txt").write_text("cat\nbig dog\n")
    x = np.array([[1, 3, 2], [5, 5, np.nan]], np.float32)
    with running(tmp_path / "repo", grpc_port=0) as server:
        module, client = client_of(server, kind)

        def found(count, **more):
            asked = module.InferRequestedOutput("y", class_count=count, **more)
            return client.infer("m", given(module, x), outputs=[asked]).as_numpy("y")

        best = [
            [b"7.000000:1:big dog", b"5.000000:2"],
            [b"11.000000:0:cat", b"11.000000:1:big dog"],
        ]
        assert found(2).tolist() == best
        if kind == "http":
            assert found(2, binary_data=False).tolist() == [[w.decode() for w in r] for r in best]
        assert found(9).shape == (2, 3)
        assert found(0).dtype == np.float32
        with pytest.raises(Exception, match="give a number of classes"):
            found(-1)


def test_bytes_of_bools_are_true_unless_0():
    """perf_analyzer sends random ones."""
    proto = model("(bool[3] x) => (bool[3] y) { y = Not(x) }")
    head = {"name": "x", "datatype": "BOOL", "shape": [3], "parameters": {"binary_data_size": 3}}
    body = json.dumps({"inputs": [head]}).encode()
    sized = {"Inference-Header-Content-Length": str(len(body))}
    with running(intaglio.compile(proto)) as server:
        sent = body + b"\x00\x01\xff"
        status, answer, _ = server.request("POST", "/v2/models/m/infer", sent, sized)
    assert (status, answer["outputs"][0]["data"]) == (200, [True, False, False])


def test_the_health_service_of_grpc(server):
    import grpc

    with grpc.insecure_channel(server.grpc) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"") == b"\x08\x01"
        named = grpc_schema.CLASSES["HealthCheckRequest"](service=grpc_schema.SERVICE)
        assert check(named.SerializeToString()) == b"\x08\x01"
        server.server.ready = False
        assert check(b"") == b"\x08\x02"
        server.server.ready = True
        for message, code in ((b"\x0a\x01x", "NOT_FOUND"), (b"\xff", "INVALID_ARGUMENT")):
            with pytest.raises(grpc.RpcError, match=code):
                check(message)


def test_grpc_streams_and_typed_contents(server):
    module, client = client_of(server, "grpc")
    answers = []
    client.start_stream(lambda result, error: answers.append((result, error)))
    client.async_stream_infer("m", given(module, rows(1)))
    client.async_stream_infer("none", given(module, rows(1)))
    client.stop_stream()
    assert np.array_equal(answers[0][0].as_numpy("y"), rows(3))
    assert answers[0][0].get_response().parameters["triton_final_response"].bool_param
    assert "unknown model" in str(answers[1][1])
    request = grpc_schema.CLASSES["ModelInferRequest"](model_name="m")
    tensor = request.inputs.add(name="x", datatype="FP32", shape=[1, 3])
    tensor.contents.fp32_contents.extend([1, 2, 3])
    answer = client._client_stub.ModelInfer(
        module.service_pb2.ModelInferRequest.FromString(request.SerializeToString())
    )
    assert np.frombuffer(answer.raw_output_contents[0], "f4").tolist() == [3, 5, 7]


def test_grpc_bodies_are_limited(server):
    module, client = client_of(server, "grpc")
    with pytest.raises(Exception, match="RESOURCE_EXHAUSTED"):
        client.infer("m", given(module, np.zeros((1 << 15, 3), np.float32)))


def test_our_messages_have_the_numbers_of_the_clients():
    from tritonclient.grpc import model_config_pb2, service_pb2

    def fields(descriptor):
        return {f.name: (f.number, f.type) for f in descriptor.fields}

    for name, made in grpc_schema.CLASSES.items():
        theirs = getattr(service_pb2, name, None) or getattr(model_config_pb2, name, None)
        if theirs is None:
            continue  # one that theirs has inside of another message
        known = fields(theirs.DESCRIPTOR)
        for field, (number, kind) in fields(made.DESCRIPTOR).items():
            enum_as_number = (name, field) in (
                ("ModelInstanceGroup", "kind"),
                ("ModelInput", "format"),
            )
            assert known[field][0] == number, (name, field)
            assert enum_as_number or known[field][1] == kind, (name, field)


def test_sequences_keep_their_own_state():
    package = intaglio.compile(counting())
    with running(package, grpc_port=0) as server:
        for kind in ("http", "grpc"):
            module, client = client_of(server, kind)
            x, ids = np.zeros(3, np.float32), {"http": (1, 2), "grpc": ("a", "b")}[kind]

            def run(sequence, client=client, module=module, x=x, **more):
                answer = client.infer("m", given(module, x), sequence_id=sequence, **more)
                return float(answer.as_numpy("y")[0])

            assert run(ids[0], sequence_start=True) == 0
            assert run(ids[1], sequence_start=True) == 0
            assert [run(ids[0]), run(ids[0]), run(ids[1])] == [1, 2, 1]
            assert run(ids[0], sequence_end=True) == 3
            with pytest.raises(Exception, match="is not known"):
                run(ids[0])
            with pytest.raises(Exception, match="sequence_id"):
                client.infer("m", given(module, x))
