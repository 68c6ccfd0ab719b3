"""The backend in the real Triton server: answers, batches, refusals, reloads, lost clients."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from tests.frontends.onnx_text import model
from tests.serve.models import rows, rows_model
from tests.serve.triton_server import needs_triton, triton

import intaglio
from intaglio.serve.publish import publish
from intaglio.serve.triton_config import CONFIG, write_config

pytestmark = [pytest.mark.slow, needs_triton]


def served(repository, name, package, labels="", **settings):
    (repository / name).mkdir(parents=True, exist_ok=True)
    if labels:
        (repository / name / "labels.txt").write_text(labels)
    source = repository.parent / f"{name}.itg"
    package.save(source)
    path = publish(source, repository, name)
    if settings.pop("config", True):
        write_config(path, repository / name, **{"instances": 1, "threads": 1, **settings})
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    work = tmp_path_factory.mktemp("triton")
    repository = work / "repo"
    served(repository, "rows", rows_model((1, 2, 4)), "cat\nbig dog\nowl\n", instances=2)
    open_model = model("(int64[N,M] x) => (int64[N,M] y, float[2] z) <float[2] k = {1, 2}> "
                       "{ y = Add(x, x)  z = Relu(k) }")  # fmt: skip
    served(repository, "open", intaglio.compile(open_model, dims={"N": "1..4", "M": "1..8"}))
    where = model("(float[6] x) => (int64[1,K] y, float[6] t) { y = NonZero(x)  t = Neg(x) }")
    served(repository, "varying", intaglio.compile(where))
    wrong = served(repository, "wrong", rows_model((1, 2)))
    text = (wrong.parents[1] / CONFIG).read_text()
    (wrong.parents[1] / CONFIG).write_text(text.replace('"y"', '"other"').split("\n", 1)[1])
    large = served(repository, "large", rows_model((1, 2)))
    text = (large.parents[1] / CONFIG).read_text()
    (large.parents[1] / CONFIG).write_text(text.replace("max_batch_size: 2", "max_batch_size: 9"))
    broken = served(repository, "broken", rows_model((1, 2)))
    data = broken.read_bytes()
    broken.write_bytes(data[: len(data) // 2])
    with triton(repository, work) as made:
        made.repository = repository
        yield made


def clients(server):
    import tritonclient.grpc
    import tritonclient.http

    yield tritonclient.http, tritonclient.http.InferenceServerClient(server.http, concurrency=4)
    yield tritonclient.grpc, tritonclient.grpc.InferenceServerClient(server.grpc)


def infer(module, client, name, feeds, outputs=None):
    inputs = []
    for n, a in feeds.items():
        kind = {"f": "FP32", "i": "INT64"}[a.dtype.kind]
        inputs.append(module.InferInput(n, list(a.shape), kind))
        inputs[-1].set_data_from_numpy(a)
    asked = None if outputs is None else [module.InferRequestedOutput(n) for n in outputs]
    return client.infer(name, inputs, outputs=asked)


def test_every_batch_equals_single_rows(server):
    for module, client in clients(server):
        for n in (1, 2, 3, 4):
            x = rows(*range(n))
            np.testing.assert_array_equal(infer(module, client, "rows", {"x": x}).as_numpy("y"),
                                          2 * x + 1)  # fmt: skip
        with pytest.raises(Exception, match="batch-size must be <= 4"):
            infer(module, client, "rows", {"x": rows(*range(5))})
        with pytest.raises(Exception, match="shape"):
            infer(module, client, "rows", {"x": np.zeros((1, 4), np.float32)})


def test_requests_of_many_clients_are_joined_and_never_mixed(server):
    import tritonclient.http

    wrong = []

    def ask(seed):
        rng = np.random.default_rng(seed)
        with tritonclient.http.InferenceServerClient(server.http) as client:
            for _ in range(100):
                x = rng.standard_normal((rng.integers(1, 4), 3)).astype(np.float32)
                got = infer(tritonclient.http, client, "rows", {"x": x}).as_numpy("y")
                if not np.array_equal(got, 2 * x + 1):
                    wrong.append((x, got))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    client = tritonclient.http.InferenceServerClient(server.http)
    stats = client.get_inference_statistics("rows")["model_stats"][0]
    assert stats["inference_stats"]["success"]["count"] >= 800
    assert not stats["inference_stats"]["fail"].get("count")
    assert stats["execution_count"] < stats["inference_count"]


def test_open_dimensions_and_outputs_of_varying_size(server):
    for module, client in clients(server):
        for shape in ((1, 1), (4, 8), (2, 5)):
            x = np.arange(np.prod(shape)).reshape(shape)
            got = infer(module, client, "open", {"x": x})
            np.testing.assert_array_equal(got.as_numpy("y"), 2 * x)
            np.testing.assert_array_equal(got.as_numpy("z"), np.float32([1, 2]))
            got = infer(module, client, "open", {"x": x}, ["z"])
            assert got.as_numpy("y") is None
        with pytest.raises(Exception, match=r"x|shape"):
            infer(module, client, "open", {"x": np.zeros((5, 1), np.int64)})
        for values in ([0, 1, 0, 2, 0, 0], [1] * 6, [0] * 6):
            x = np.array(values, np.float32)
            got = infer(module, client, "varying", {"x": x})
            np.testing.assert_array_equal(got.as_numpy("y"), np.stack(np.nonzero(x)))
            np.testing.assert_array_equal(got.as_numpy("t"), -x)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wrong", "config.pbtxt names the output 'other'; the package has none of this name"),
        ("large", "max_batch_size is 9; the package's largest batch is 2; compile it with --batch"),
        ("broken", "broken/1/model.itg"),
    ],
)
def test_what_cannot_be_loaded_says_why(server, name, words):
    import tritonclient.http

    client = tritonclient.http.InferenceServerClient(server.http)
    assert not client.is_model_ready(name)
    with pytest.raises(Exception, match="load failed"):
        client.load_model(name)
    found = [r for r in client.get_model_repository_index() if r["name"] == name]
    assert words in found[0]["reason"]
    assert client.is_model_ready("rows")


def test_the_same_requests_give_the_same_answers_as_our_server(server):
    from tests.serve.running import running

    bodies = []
    x = rows(1, 2)
    tensor = {"name": "x", "shape": [2, 3], "datatype": "FP32"}
    bodies.append({"inputs": [{**tensor, "data": x.ravel().tolist()}]})
    bodies.append({"inputs": [{**tensor, "data": x.ravel().tolist()}], "outputs": [{"name": "y"}]})
    bodies.append({"id": "7", "inputs": [{**tensor, "data": x.ravel().tolist()}]})
    for given in ({}, {"binary_data": False}):
        asked = {"name": "y", "parameters": {"classification": 2} | given}
        falling = [[3, 2, 1], [-1, 5, 0]]
        bodies.append({"inputs": [{**tensor, "data": falling}], "outputs": [asked]})
    wrong = [
        {"inputs": [{**tensor, "shape": [2, 4], "data": [0] * 8}]},
        {"inputs": [{**tensor, "data": [1]}]},
        {"inputs": [{**tensor, "name": "z", "data": [0] * 6}]},
        {"inputs": [{**tensor, "datatype": "INT64", "data": [0] * 6}]},
        {"inputs": [{**tensor, "data": [0] * 6}], "outputs": [{"name": "nothing"}]},
        {"inputs": []},
    ]
    with running(server.repository) as ours:
        for path in ("/v2/models/rows",):
            theirs, mine = get(server.http, path), get(ours.http, path)
            assert theirs[1] == mine[1]
            theirs, mine = (get(s.http, f"{path}/config")[1] for s in (server, ours))
            for key in ("name", "platform", "backend", "version_policy", "max_batch_size"):
                assert theirs[key] == mine[key]
            for key in ("input", "output"):
                for a, b in zip(theirs[key], mine[key], strict=True):
                    assert a == a | b  # ours says less, and nothing else
        for body in bodies:
            theirs, mine = (post(s.http, body) for s in (server, ours))
            assert theirs[0] == mine[0] == 200
            assert theirs[1]["outputs"] == mine[1]["outputs"]
            assert theirs[1].get("id") == mine[1].get("id")
        for body in wrong:
            theirs, mine = (post(s.http, body) for s in (server, ours))
            assert theirs[0] in (400, 500), theirs
            assert mine[0] == 400, mine
            assert mine[1]["error"].startswith(("input", "the model", "the request")), mine


def get(address, path):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as answer:
        return answer.status, json.loads(answer.read())


def post(address, body):
    request = urllib.request.Request(
        f"http://{address}/v2/models/rows/infer", json.dumps(body).encode()
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read())


def test_clients_that_leave_do_not_end_the_server(server):
    body = json.dumps(
        {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
    ).encode()
    head = f"POST /v2/models/rows/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    host, port = server.http.split(":")
    for i in range(200):
        with socket.create_connection((host, int(port)), timeout=10) as s:
            s.sendall((head.encode() + body)[: None if i % 2 else -5])
    assert server.process.poll() is None
    assert post(server.http, json.loads(body))[1]["outputs"][0]["data"] == [3, 5, 7]


def test_versions_are_loaded_and_reloads_leave_nothing_behind(server, tmp_path):
    import tritonclient.http

    client = tritonclient.http.InferenceServerClient(server.http)
    x = rows(1)
    rows_model((1, 2, 4), 3).save(tmp_path / "3.itg")
    publish(tmp_path / "3.itg", server.repository, "rows")
    client.load_model("rows")
    assert infer(tritonclient.http, client, "rows", {"x": x}).as_numpy("y")[0, 0] == 4
    sizes = []
    for i in range(220):
        client.unload_model("rows")
        client.load_model("rows")
        time.sleep(0.02)  # Triton 2.51 may crash if a model's thread has not settled (see docs)
        if i % 20 == 19:
            sizes.append(server.resident_kb())
    assert infer(tritonclient.http, client, "rows", {"x": x}).as_numpy("y")[0, 0] == 4
    assert sizes[-1] - sizes[1] < 1024, sizes
