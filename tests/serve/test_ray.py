"""A repository on Ray Serve: answers, new versions under load, and nodes that die."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from tests.serve.models import rows, rows_model

from intaglio.errors import BadInput
from intaglio.serve import ray_serve
from intaglio.serve.publish import publish
from intaglio.serve.ray_serve import RaySettings, deploy, model_names, wait_ready
from intaglio.serve.settings import ModelSettings

pytestmark = pytest.mark.slow
ray = pytest.importorskip("ray", reason='needs pip install "intaglio[ray]"')
serve = pytest.importorskip("ray.serve", reason='needs pip install "intaglio[ray]"')


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture
def repository(tmp_path):
    for factor in (2, 3):
        rows_model((1, 2, 4), factor).save(tmp_path / f"{factor}.itg")
    publish(tmp_path / "2.itg", tmp_path / "repo", "m")
    return tmp_path / "repo"


@pytest.fixture
def ended():
    yield
    serve.shutdown()
    ray.shutdown()


def ask(port: int, name: str = "m", value: float = 1.0) -> float:
    tensor = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [value] * 3}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v2/models/{name}/infer", json.dumps({"inputs": [tensor]}).encode()
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())["outputs"][0]["data"][0]


class Load:
    """Clients that ask until they are stopped."""

    def __init__(self, port: int, clients: int = 2):
        self.port, self.stop = port, threading.Event()
        self.answers: list[float] = []
        self.failures: list[str] = []
        self.threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def _run(self) -> None:
        while not self.stop.is_set():
            try:
                self.answers.append(ask(self.port))
            except (OSError, urllib.error.HTTPError) as e:
                self.failures.append(repr(e))

    def __enter__(self) -> Load:
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for t in self.threads:
            t.join()


def test_models_answer_as_on_our_own_server_and_new_versions_lose_no_request(
    repository, tmp_path, ended
):
    publish(tmp_path / "3.itg", repository, "other")
    port = free_port()
    settings = RaySettings(port=port, cpus=0.2)
    assert deploy(repository, ModelSettings(), settings) == ["m", "other"]
    wait_ready(["m", "other"])
    assert (ask(port), ask(port, "other")) == (3.0, 4.0)
    client = pytest.importorskip("tritonclient.http").InferenceServerClient(f"127.0.0.1:{port}")
    import tritonclient.http as http

    given = http.InferInput("x", [4, 3], "FP32")
    given.set_data_from_numpy(rows(1, 2, 3, 4))
    np.testing.assert_array_equal(
        client.infer("m", [given]).as_numpy("y"), 2 * rows(1, 2, 3, 4) + 1
    )
    assert client.get_model_metadata("m")["versions"] == ["1"]
    with pytest.raises(urllib.error.HTTPError) as e:
        ask(port, "nothing")
    assert e.value.code == 404
    with Load(port) as load:
        time.sleep(1)
        publish(tmp_path / "3.itg", repository, "m")
        deploy(repository, ModelSettings(), settings)
        end = time.monotonic() + 60
        while ask(port) != 4.0:
            assert time.monotonic() < end
        time.sleep(1)
    assert load.failures == []
    assert set(load.answers) == {3.0, 4.0}


def test_a_node_that_dies_costs_few_requests(repository):
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"h": 1}})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    port = free_port()
    try:
        ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        settings = RaySettings(port=port, cpus=1.0, min_replicas=2, max_replicas=2, spread=True)
        deploy(repository, ModelSettings(), settings)
        wait_ready(["m"])
        with Load(port) as load:
            time.sleep(3)
            cluster.remove_node(nodes[0], allow_graceful=False)
            killed = time.monotonic()
            cluster.add_node(num_cpus=1)
            time.sleep(2)  # until Ray knows
            while replicas() < 2:
                assert time.monotonic() - killed < 120
                time.sleep(0.1)
            back = time.monotonic() - killed
            time.sleep(3)
        asked = len(load.answers) + len(load.failures)
        print(f"{len(load.failures)} of {asked} failed; two replicas after {back:.1f} s")
        assert set(load.answers) == {3.0}
        assert asked > 100
        assert len(load.failures) <= max(0.005 * asked, 4), load.failures  # those in flight
    finally:
        serve.shutdown()
        ray.shutdown()
        cluster.shutdown()


def replicas() -> int:
    found = serve.status().applications["m"].deployments["m"].replica_states
    return found.get("RUNNING", 0)


def test_a_broken_model_and_an_empty_repository_are_named(repository, tmp_path, ended):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(BadInput, match="has no model; `intaglio publish`"):
        model_names(empty)
    path = repository / "m/1/model.itg"
    path.write_bytes(path.read_bytes()[:-64])
    settings = RaySettings(port=free_port(), cpus=0.2)
    with pytest.raises((BadInput, RuntimeError)):
        ray_serve.deploy(repository, ModelSettings(), settings)
