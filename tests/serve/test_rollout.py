"""Rollouts behind HAProxy: a good version is accepted; a slower, wrong or crashing one is not."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack, contextmanager

import pytest
from click.testing import CliRunner
from tests.serve.fleet import Clients, Fleet, needs_haproxy, ready, scores, until

from intaglio.cli.rollout import command
from intaglio.errors import BadInput
from intaglio.serve.guards import Limits
from intaglio.serve.haproxy_socket import HaproxySocket
from intaglio.serve.publish import decide, newest_candidate, publish
from intaglio.serve.rollout import Rollout, Steps

OLD = (1.0, 4.0, 12.0)  # answers to the request
BETTER = (10.0, 40.0, 120.0)  # of the same class
CRASH = """
import os, signal
from intaglio.serve.instance import Instance
run = Instance.run
def crash(self, jobs, size):
    y = run(self, jobs, size)
    if jobs[0].outputs["y"][0, 0] == 10:
        os.kill(os.getpid(), signal.SIGKILL)
    return y
Instance.run = crash
"""


def test_candidates_are_versions_that_no_server_loads(tmp_path):
    scores((1, 2, 3)).save(tmp_path / "m.itg")
    repository = tmp_path / "repo"

    def names() -> list[str]:
        return sorted(p.name for p in (repository / "m").iterdir())

    publish(tmp_path / "m.itg", repository, "m")
    for _ in range(2):
        publish(tmp_path / "m.itg", repository, "m", candidate=True)
    assert names() == ["1", "2.candidate", "3.candidate"]
    assert newest_candidate(repository, "m") == 3
    decide(repository, "m", 3, False)
    decide(repository, "m", 2, True)
    assert names() == ["1", "2", "3.rejected"]
    assert newest_candidate(repository, "m") is None
    assert publish(tmp_path / "m.itg", repository, "m").parent.name == "4"  # 3 is taken
    with pytest.raises(BadInput, match="is there already"):
        publish(tmp_path / "m.itg", repository, "m", 3)
    with pytest.raises(BadInput, match="cannot rename candidate 9"):
        decide(repository, "m", 9, True)
    with pytest.raises(BadInput, match="has no candidate"):
        Rollout("m", repository, tmp_path / "s", Steps()).run()
    with pytest.raises(BadInput, match="has no model"):
        Rollout("other", repository, tmp_path / "s", Steps()).run()


@pytest.fixture
def fleet(tmp_path):
    scores((1, 2, 3)).save(tmp_path / "m.itg")
    publish(tmp_path / "m.itg", tmp_path / "repo", "m")
    with ExitStack() as stack:
        yield Fleet(stack, tmp_path, tmp_path / "repo")


@contextmanager
def loaded(fleet, canary_script: str = ""):
    """Two stable servers, one for candidates, HAProxy, and clients that never stop."""
    _, canary = fleet.server("--candidates", script=canary_script)
    shadow = ("--shadow", f"http://127.0.0.1:{canary}", "--shadow-percent", "0")
    stable = [fleet.server(*shadow)[1] for _ in range(2)]
    fleet.gateway(stable=[f"127.0.0.1:{p}" for p in stable], canary=[f"127.0.0.1:{canary}"])
    until(lambda: ready(fleet.url))
    until(lambda: all(s.is_up for s in HaproxySocket(fleet.socket).servers("model.m")))
    clients = Clients(fleet.port)
    thread = threading.Thread(target=lambda: asyncio.run(clients.run(2)))
    thread.start()
    try:
        until(lambda: clients.statuses[200] > 50)
        yield clients
    finally:
        clients.ended = True
        thread.join(60)
    assert set(clients.statuses) == {200}, clients.statuses


def rolled(fleet, told=None, **limits):
    chosen = Limits(min_requests=60, **{"max_slower": 20} | limits)
    steps = Steps((10, 50), hold_s=2, shadow_percent=20, limits=chosen)
    return Rollout("m", fleet.repository, fleet.socket, steps, told=(told or [].append)).run()


def names(fleet) -> list[str]:
    return sorted(p.name for p in (fleet.repository / "m").iterdir())


def weights(fleet) -> list[int]:
    return [s.weight for s in HaproxySocket(fleet.socket).servers("model.m")]


@needs_haproxy
@pytest.mark.slow
def test_a_good_version_is_accepted_and_a_wrong_one_is_taken_back(fleet):
    lines: list[str] = []
    with loaded(fleet) as clients:
        scores((10, 20, 30)).save(fleet.folder / "better.itg")
        publish(fleet.folder / "better.itg", fleet.repository, "m", candidate=True)
        outcome = rolled(fleet, lines.append)
        assert outcome.accepted, outcome
        assert any("50 %" in line and "answers agree" in line for line in lines)
        clients.answers.clear()
        until(lambda: sum(clients.answers.values()) > 100)
        assert set(list(clients.answers)[-1:]) == {BETTER}
        assert names(fleet) == ["1", "2"]
        assert weights(fleet) == [100, 100, 0]

        scores((30, 20, 1)).save(fleet.folder / "wrong.itg")
        publish(fleet.folder / "wrong.itg", fleet.repository, "m", candidate=True)
        outcome = rolled(fleet)
        assert not outcome.accepted
        assert "agreement" in outcome.reason
        assert names(fleet) == ["1", "2", "3.rejected"]
        assert weights(fleet) == [100, 100, 0]
        clients.answers.clear()
        until(lambda: sum(clients.answers.values()) > 100)
        assert set(list(clients.answers)[1:]) <= {BETTER}

        (fleet.folder / "broken.itg").write_bytes(b"ITG1" + bytes(100))
        candidate = fleet.repository / "m" / "4.candidate"
        candidate.mkdir()
        (fleet.folder / "broken.itg").rename(candidate / "model.itg")
        outcome = rolled(fleet)
        assert not outcome.accepted
        assert "is not served" in outcome.reason


@needs_haproxy
@pytest.mark.slow
def test_a_slower_version_is_taken_back(fleet):
    with loaded(fleet):
        scores((10, 20, 30), 1500).save(fleet.folder / "slow.itg")  # 1,000 times as slow
        publish(fleet.folder / "slow.itg", fleet.repository, "m", candidate=True)
        outcome = rolled(fleet, max_slower=10)
        assert not outcome.accepted
        assert "p99" in outcome.reason
        assert names(fleet) == ["1", "2.rejected"]
        assert weights(fleet) == [100, 100, 0]


@needs_haproxy
@pytest.mark.slow
def test_a_crashing_version_is_taken_back(fleet):
    """The candidate kills its server at the first request: clients see nothing of it."""
    with loaded(fleet, CRASH):
        scores((10, 20, 30)).save(fleet.folder / "crash.itg")
        publish(fleet.folder / "crash.itg", fleet.repository, "m", candidate=True)
        options = f"--socket {fleet.socket} --canary 10 --hold 2 --guard p99,errors"
        options += " --min-requests 60 --max-slower 20"
        done = CliRunner().invoke(command, ["m", str(fleet.repository), *options.split()])
        assert done.exit_code == 1, done.output
        assert "version 2 of 'm' is taken back: at 10 %" in done.output
        assert "is down" in done.output or "errors" in done.output
        assert names(fleet) == ["1", "2.rejected"]
        assert weights(fleet)[:2] == [100, 100]
