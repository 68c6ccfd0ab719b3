"""`profile`: times, work and bytes of steps; two builds; the trace."""

import json

import pytest
from click.testing import CliRunner

import intaglio
from intaglio import catalogue
from intaglio.analysis.profile import MachinePeak, Profile, StepTime, profile
from intaglio.analysis.profile_difference import difference, difference_text
from intaglio.cli import cli
from intaglio.errors import BadInput


@pytest.fixture(scope="module")
def package():
    return intaglio.compile(catalogue.build("squeezenet1_1", "random", size=64))


def test_steps_have_the_work_of_the_network(package):
    found = profile(package, 0.05)
    assert sum(s.macs for s in found.steps) == sum(s.macs for s in package.plan.steps)
    assert len(found.steps) == len(package.plan.steps)
    conv = max(found.steps, key=lambda s: s.macs)
    assert conv.bytes > 0
    assert conv.gmacs == pytest.approx(conv.macs / conv.microseconds / 1e3)
    assert 0 < conv.roofline <= 1
    events = json.loads(found.trace())["traceEvents"]
    assert [e["ts"] for e in events] == sorted(e["ts"] for e in events)
    assert len(events) == len(found.steps)
    assert "GB/s of memory" in str(found)


def test_two_builds_are_joined_by_node(package):
    slow = intaglio.compile(catalogue.build("squeezenet1_1", "random", size=64), level=0)
    rows = difference(profile(slow, 0.02), profile(package, 0.02))
    assert any(r["before"] and r["after"] for r in rows)
    changes = [abs(r["change"]) for r in rows]
    assert changes == sorted(changes, reverse=True)


def test_steps_that_another_build_fuses_are_added_up():
    def made(*steps):
        each = [StepTime(n, "conv", us, 0, 0, "f32", None, "memory", e) for n, us, e in steps]
        return Profile(each, 1.0, 1, MachinePeak(None, None, 1.0))

    before = made(("a", 5.0, ("a_t", "a")), ("b", 7.0, ("b_t", "b")), ("c", 3.0, ("c",)))
    quantize, fused = ("q", 1.0, ()), ("b_1", 2.0, ("b_1", "b"))
    after = made(quantize, fused, ("c", 1.0, ("c",)), ("d", 4.0, ("d",)))
    rows = {r["name"]: (r["before"], r["after"]) for r in difference(before, after)}
    assert rows == {"b": (12.0, 3.0), "c": (3.0, 1.0), "(after the last joined step)": (0.0, 4.0)}
    assert "b" in difference_text(before, after).splitlines()[1]


def test_command(package, tmp_path):
    path = tmp_path / "m.itg"
    package.save(path)
    run = CliRunner().invoke
    trace = tmp_path / "t.json"
    shown = run(cli, ["profile", str(path), "--seconds", "0.02", "--trace", str(trace), "--json"])
    assert json.loads(shown.output)["peak"]["gigabytes"] > 0
    assert json.loads(trace.read_text())["traceEvents"]
    with pytest.raises(BadInput, match="no such file"):
        run(cli, ["profile", "none.itg"], catch_exceptions=False, standalone_mode=False)
