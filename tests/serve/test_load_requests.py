"""Settings that a load request brings, and a repository that has no model yet."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.serve.models import rows_model
from tests.serve.running import Running, running

from intaglio.cli import cli
from intaglio.cli.serve import _started
from intaglio.errors import BadInput
from intaglio.serve.publish import publish
from intaglio.serve.repository import Repository
from intaglio.serve.settings import ModelSettings, ServeSettings


@pytest.fixture
def repository(tmp_path):
    rows_model().save(tmp_path / "m.itg")
    publish(tmp_path / "m.itg", tmp_path / "repo", "m")
    return tmp_path / "repo"


def test_a_load_request_overrides_settings_until_the_next(repository):
    load, config = "/v2/repository/models/m/load", "/v2/models/m/config"
    (repository / "m/serve.toml").write_text("instances = 2\nmax_queue = 9\n")
    with running(repository, control=True) as server:
        ask = server.request
        known = ask("GET", config)[1]
        batching = {
            "max_queue_delay_microseconds": "50",
            "default_queue_policy": {"max_queue_size": 3},
        }
        changed = known | {"instance_group": [{"count": 3}], "dynamic_batching": batching}
        sent = {"parameters": {"config": json.dumps(changed)}}
        assert ask("POST", load, sent)[0] == 200
        found = ask("GET", config)[1]
        assert found["instance_group"][0]["count"] == 3
        assert found["dynamic_batching"]["max_queue_delay_microseconds"] == 50
        assert server.repository.find("m").settings.max_queue == 3
        for wrong, words in (
            ({"max_batch_size": 16}, "max_batch_size '16', which comes from the package"),
            ({"optimization": {}}, "config has 'optimization'; only version_policy"),
            ({"instance_group": [{"kind": "KIND_GPU"}]}, "one group of KIND_CPU"),
            ({"instance_group": [{"count": 99}]}, "instances is 99"),
            ({"dynamic_batching": {"preserve_ordering": True}}, "'preserve_ordering' in dyn"),
            ({"dynamic_batching": {"preferred_batch_size": 4}}, "that is no list"),
            ({"version_policy": {"latest": 3}}, "none of latest, all and specific"),
            ({"sequence_batching": {"max_sequence_idle_microseconds": -1}}, "0 or more"),
        ):
            sent = {"parameters": {"config": json.dumps(wrong)}}
            status, got, _ = ask("POST", load, sent)
            assert (status, words in got["error"]) == (400, True), got
            assert got["error"].startswith("failed to load 'm': config")
        for wrong in ("x", "[]", 3, None):
            assert ask("POST", load, {"parameters": {"config": wrong}})[0] == 400
        for name in ("file:1/model.itg", "other"):
            status, got, _ = ask("POST", load, {"parameters": {name: "eA=="}})
            assert (status, "takes no parameter" in got["error"]) == (400, True)
        assert ask("GET", config)[1] == found
        assert ask("POST", load, {})[0] == 200
        assert ask("GET", config)[1] == known


def test_models_that_are_loaded_at_the_start(repository, tmp_path, monkeypatch):
    publish(tmp_path / "m.itg", repository, "other")
    served = Repository(repository, ModelSettings(threads=1))
    served.at_start = ["m"]
    server = Running(served, ServeSettings(http_port=0, grpc_port=None, control=True))
    server.start()
    try:
        (repository / "later").mkdir()
        rows = server.request("POST", "/v2/repository/index")[1]
        found = [(r["name"], r["version"], r["state"], r["reason"]) for r in rows]
        assert found == [
            ("later", "", "UNAVAILABLE", "not loaded"),
            ("m", "1", "READY", ""),
            ("other", "", "UNAVAILABLE", "not loaded"),
        ]
        assert server.request("GET", "/v2/health/ready")[0] == 200
        assert server.request("POST", "/v2/repository/models/other/load", {})[0] == 200
        assert server.request("GET", "/v2/models/other/ready")[0] == 200
        repository.rename(tmp_path / "gone")
        assert len(server.request("POST", "/v2/repository/index")[1]) == 2
    finally:
        server.end()
    (tmp_path / "gone").rename(repository)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    for source, words in (
        (repository, "the repository has no model 'none'"),
        (tmp_path / "m.itg", "--load names models of a repository"),
    ):
        ports = ["--port", "0", "--no-grpc"]
        done = CliRunner().invoke(cli, ["serve", str(source), "--load", "none", *ports])
        assert isinstance(done.exception, BadInput)
        assert words in str(done.exception)


def test_an_empty_repository_says_how_to_begin(repository, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    with running(tmp_path / "empty", control=True) as server:
        _started(server.server)
        assert "no model yet: `intaglio publish model.itg" in capsys.readouterr().out
    with running(repository) as server:
        _started(server.server)
        assert capsys.readouterr().out.startswith("m 1  READY")
