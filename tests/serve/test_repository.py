"""The repository: publishing, versions, broken versions, names, and the end of a server."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from click.testing import CliRunner
from tests.serve.models import rows, rows_model
from tests.serve.running import running, tensor

from intaglio.cli import cli
from intaglio.errors import BadInput
from intaglio.serve.publish import publish, request_load
from intaglio.serve.settings import ModelSettings


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")
    for factor in (2, 3):
        rows_model((1, 2, 4), factor).save(folder / f"{factor}.itg")
    return folder


@pytest.fixture
def repository(tmp_path, packages):
    publish(packages / "2.itg", tmp_path / "repo", "m")
    return tmp_path / "repo"


def answer(server, version: str = "") -> float:
    path = f"/v2/models/m{version and '/versions/' + version}/infer"
    status, got, _ = server.request("POST", path, {"inputs": [tensor("x", rows(1))]})
    assert status == 200, got
    return got["outputs"][0]["data"][0]


def states(server) -> list[tuple[str, str]]:
    return [(r["version"], r["state"]) for r in server.request("POST", "/v2/repository/index")[1]]


def test_new_versions_replace_old_ones_under_load(repository, packages):
    with running(repository, control=True) as server:
        wrong, ending = [], threading.Event()

        def load():
            while not ending.is_set():
                try:
                    if (got := answer(server)) not in (3.0, 4.0):
                        wrong.append(got)
                except BaseException as e:
                    wrong.append(e)

        threads = [threading.Thread(target=load) for _ in range(2)]
        for t in threads:
            t.start()
        for version in range(2, 6):
            publish(packages / f"{2 + version % 2}.itg", repository, "m")
            request_load(f"http://{server.http}", "m")
            assert answer(server) == 3.0 + version % 2
        broken = repository / "m" / "6"
        broken.mkdir()
        (broken / "model.itg").write_bytes((packages / "2.itg").read_bytes()[:-64])
        with pytest.raises(BadInput, match="version 6 of model 'm' is not served"):
            request_load(f"http://{server.http}", "m")
        assert answer(server) == 4.0
        assert states(server) == [("5", "READY"), ("6", "UNAVAILABLE")]
        ending.set()
        for t in threads:
            t.join(10)
        assert not wrong
    with running(repository) as server:  # a restart serves the newest one that works
        assert answer(server) == 4.0


@pytest.mark.parametrize(
    ("versions", "served"),
    [("latest", ["3"]), ("latest:2", ["2", "3"]), ("all", ["1", "2", "3"]), ([1, 3], ["1", "3"])],
)
def test_version_policies(repository, packages, versions, served):
    publish(packages / "3.itg", repository, "m")
    publish(packages / "2.itg", repository, "m")
    with running(repository, model=ModelSettings(versions=versions, threads=1)) as server:
        assert states(server) == [(v, "READY") for v in served]
        assert answer(server, served[0]) in (3.0, 4.0)


def test_settings_of_a_model(repository):
    (repository / "m" / "serve.toml").write_text('versions = "all"\nmax_delay_us = 10\n')
    with running(repository, control=True) as server:
        config = server.request("GET", "/v2/models/m/config")[1]
        assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 10
        (repository / "m" / "serve.toml").write_text("max_dely_us = 10\n")
        with pytest.raises(BadInput, match="did you mean 'max_delay_us'"):
            request_load(f"http://{server.http}", "m")
        assert answer(server) == 3.0


def test_the_index_says_why_a_model_is_not_served(repository):
    (repository / "m" / "serve.toml").write_text("max_queu = 3")
    (repository / "empty").mkdir()
    with running(repository, control=True) as server:
        rows = server.request("POST", "/v2/repository/index", {})[1]
        found = {r["name"]: r["reason"] for r in rows}
        assert "did you mean 'max_queue'?" in found["m"]
        assert "no version with a model.itg" in found["empty"]
        (repository / "m" / "serve.toml").unlink()
        assert server.request("POST", "/v2/repository/models/m/load", {})[0] == 200
        server.request("POST", "/v2/repository/models/m/unload", {})
        rows = server.request("POST", "/v2/repository/index", {})[1]
        assert {r["name"]: r["reason"] for r in rows}["m"] == "unloaded"


def test_nothing_outside_of_the_repository_is_served(repository, packages, tmp_path):
    (repository / ".hidden" / "1").mkdir(parents=True)
    (repository / "link" / "1").mkdir(parents=True)
    (repository / "link" / "1" / "model.itg").symlink_to(packages / "2.itg")
    (repository / "m" / "01").mkdir()
    for version, target in (("2", packages / "3.itg"), ("3", "model.itg"), ("4", "nothing")):
        (repository / "m" / version).mkdir()
        (repository / "m" / version / "model.itg").symlink_to(target)
    (repository / "m" / "5" / "model.itg").mkdir(parents=True)
    (repository / "m" / "6").mkdir()
    os.mkfifo(repository / "m" / "6" / "model.itg")
    with running(repository, control=True) as server:
        broken = [(n, "UNAVAILABLE") for n in "23456"]
        assert states(server) == [("1", "UNAVAILABLE"), ("1", "READY"), *broken]
        for name in ("..", "%2e%2e", "m%2f..%2fm", ".hidden", "a" * 200, "link"):
            status, got, _ = server.request("POST", f"/v2/repository/models/{name}/load", {})
            assert status in (400, 404), got
        reasons = [r["reason"] for r in server.request("POST", "/v2/repository/index")[1]]
        assert "leads out of the repository" in reasons[0]
        assert "leads out of the repository" in reasons[2]
        upload = {"parameters": {"config": "{}", "file:1/model.itg": "AAAA"}}
        assert server.request("POST", "/v2/repository/models/m/load", upload)[0] == 400
        assert answer(server) == 3.0


def test_publish_refuses_what_cannot_be_served(repository, packages, tmp_path):
    (tmp_path / "bad.itg").write_bytes((packages / "2.itg").read_bytes()[:-64])
    with pytest.raises(BadInput):
        publish(tmp_path / "bad.itg", repository, "m")
    for name in ("../m", "", ".m", "a/b"):
        with pytest.raises(BadInput, match="no name of a model"):
            publish(packages / "2.itg", repository, name)
    with pytest.raises(BadInput, match="is there already"):
        publish(packages / "2.itg", repository, "m", 1)
    assert publish(packages / "2.itg", repository, "m", 7).parent.name == "7"
    assert publish(packages / "2.itg", repository, "m").parent.name == "8"
    assert os.listdir(repository / ".incoming") == []
    assert sorted(os.listdir(repository / "m")) == ["1", "7", "8"]


def test_a_publisher_that_dies_leaves_a_repository_that_loads(repository, packages):
    """A process ends before each system call that changes the repository."""
    deaths = [(name, n) for name in ("mkdir", "fsync", "rename") for n in range(3)]
    ended = [die_before(*death, packages / "3.itg", repository) for death in deaths]
    assert ended.count(9) >= 4
    assert set(ended) == {0, 9}
    with running(repository, model=ModelSettings(versions="all", threads=1)) as server:
        found = states(server)
        assert [state for _, state in found] == ["READY"] * len(found)
        assert len(found) >= 1 + ended.count(0)
    assert publish(packages / "3.itg", repository, "m").parent.name == str(1 + len(found))


def die_before(name: str, count: int, package, repository) -> int:
    """The exit code of a child that publishes and ends before the call of os.`name` after `count`
    others: 9, or 0 if there are fewer calls."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        real, left = getattr(os, name), [count]

        def step(*a, **k):
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)
            return real(*a, **k)

        setattr(os, name, step)
        publish(package, repository, "m")
        os._exit(0)
    except BaseException:
        os._exit(1)


def test_a_publisher_that_is_killed_anywhere_leaves_a_repository_that_loads(repository, packages):
    """kill -9 before every file operation of Python, until one process reaches the end."""
    ended, kills = None, 0
    while ended != 0:
        pid = os.fork()
        if not pid:
            left = [kills]

            def step(event: str, _: object, left=left) -> None:
                if event.startswith(("open", "os.", "shutil.")) and event != "os.kill":
                    left[0] -= 1
                    if left[0] < 0:
                        os.kill(os.getpid(), signal.SIGKILL)

            try:
                sys.addaudithook(step)
                publish(packages / "3.itg", repository, "m")
                os._exit(0)
            except BaseException:
                os._exit(1)
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert ended in (0, -signal.SIGKILL)
        kills += ended != 0
        assert kills < 200
        with running(repository, model=ModelSettings(versions="all", threads=1)) as server:
            found = states(server)
            assert [state for _, state in found] == ["READY"] * len(found)
    print(f"{kills} kills")
    assert kills > 8
    assert publish(packages / "3.itg", repository, "m").parent.name == str(1 + len(found))


def test_single_models_that_cannot_be_served_end_the_command(tmp_path, packages, monkeypatch):
    (tmp_path / "text.itg").write_text("hello")
    (tmp_path / "half.itg").write_bytes((packages / "2.itg").read_bytes()[:-64])
    os.mkfifo(tmp_path / "pipe.itg")
    monkeypatch.delenv("NOTHING", raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words, *arguments in (
            ("no package file", "text.itg"),
            ("half.itg", "half.itg"),
            ("not a file", "pipe.itg"),
            ("Address already in use; choose another", packages / "2.itg", "--grpc-port", port),
            ("NOTHING: it is not set", packages / "2.itg", "--token", "env:NOTHING"),
        ):
            source = str(tmp_path / arguments[0])
            done = CliRunner().invoke(cli, ["serve", source, "--port", "0", *arguments[1:]])
            assert isinstance(done.exception, BadInput), done.output
            assert words in str(done.exception)
    arguments = [str(packages / "2.itg"), str(tmp_path / "repo"), "--load", "127.0.0.1:8000"]
    assert isinstance(CliRunner().invoke(cli, ["publish", *arguments]).exception, BadInput)
    assert not (tmp_path / "repo").exists()


def test_requests_in_flight_are_answered_at_the_end(repository):
    """`stop` while a request runs and another waits: both get their answers."""
    with running(repository) as server:
        model = server.repository.find("m")
        model.batcher.inline = False
        instance, go, entered = (
            model.batcher._idle[0].instance,
            threading.Event(),
            threading.Event(),
        )
        run, got, port = instance.run, [], server.server.http_port

        def wait(jobs, size):
            entered.set()
            assert go.wait(20)
            return run(jobs, size)

        instance.run = wait
        threads = [threading.Thread(target=lambda: got.append(answer(server))) for _ in range(2)]
        threads[0].start()
        assert entered.wait(20)
        threads[1].start()
        until(lambda: model.batcher.waiting == 1)
        server.loop.call_soon_threadsafe(server.server.stop)
        until(lambda: not server.server.ready)
        until(lambda: not listens(port))
        go.set()
        for thread in threads:
            thread.join(20)
        assert got == [3.0, 3.0]


def until(done) -> None:
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_clients_of_kept_connections_are_told_before_the_end(repository):
    """No request of a client in a loop is lost: the last answer says that the connection ends."""
    body = json.dumps({"inputs": [tensor("x", rows(1))]})
    ends, wrong = [], []

    def client(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            while True:
                connection.request("POST", "/v2/models/m/infer", body)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200 or answer.getheader("connection") == "close":
                    ends.append(answer.status)
                    return
        except OSError as e:
            wrong.append(repr(e))
        finally:
            connection.close()

    with running(repository) as server:
        port = server.server.http_port
        threads = [threading.Thread(target=client, args=(port,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        until(lambda: server.repository.find("m").statistics.inferences > 100)
    for thread in threads:
        thread.join(20)
    assert (ends, wrong) == ([200] * 8, [])


def test_the_command_ends_in_order(repository):
    """SIGTERM: not ready, the request in flight is answered, exit code 0."""
    command = [sys.executable, "-m", "intaglio", "serve", str(repository)]
    options = ["--port", "0", "--no-grpc", "--drain", "0.3", "--threads", "1"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as server:
        try:
            lines = [server.stdout.readline() for _ in range(2)]
            url = re.search(r"http://\S+", lines[1])[0]
            assert lines[0].split() == ["m", "1", "READY"]
            with urllib.request.urlopen(f"{url}/v2/health/ready", timeout=10) as found:
                assert found.status == 200
            server.send_signal(signal.SIGTERM)
            time.sleep(0.1)
            with pytest.raises(urllib.error.HTTPError, match="503"):
                urllib.request.urlopen(f"{url}/v2/health/ready", timeout=10)
            assert server.wait(10) == 0
        finally:
            server.kill()
