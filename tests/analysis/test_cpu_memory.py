"""The memory of a package on a CPU: what is live, the cause of the peak, and remedies."""

import json

import pytest
from click.testing import CliRunner
from tests.small_networks import classifier

import intaglio
from intaglio.analysis.arena import Span
from intaglio.analysis.cpu_memory import CpuMemory
from intaglio.cli import cli


def memory(spans, steps, internal):
    names = [f"s{i}" for i in range(steps)]
    types = {s.name: "f32" for s in spans}
    return CpuMemory("cpu", 100, 10, internal, 4, 4, 90, names, spans, types)


def test_tensors_in_the_same_place_count_once():
    spans = [Span("a", 0, 64, 0, 2), Span("view", 0, 32, 1, 2), Span("b", 64, 32, 1, 1)]
    found = memory(spans, 3, 96)
    assert found.live() == [64, 96, 64]
    assert found.peak()["step"] == 1
    assert found.peak()["second"] == 64
    assert [t["name"] for t in found.peak()["tensors"]] == ["a", "view", "b"]


def test_a_tensor_that_waits_is_named_with_what_would_be_saved():
    spans = [Span("long", 0, 50, 0, 3), Span("x", 50, 40, 1, 2), Span("y", 90, 40, 2, 3)]
    words = "\n".join(memory(spans, 4, 130).advice())
    assert "peaks at step 2 's2', where 130 of 130 bytes are live: 'long' 50" in words
    assert (
        "'long' is kept from step 0 to 3 and not used in this one: without it at most 80" in words
    )
    assert "takes a quarter" in words
    spans = [Span("long", 0, 50, 0, 3), Span("x", 50, 40, 1, 1), Span("y", 0, 90, 4, 4)]
    twice = memory([*spans, Span("z", 50, 40, 2, 2)], 5, 90).advice()  # nothing saved without it
    assert not [line for line in twice if "is kept from" in line]
    assert twice[-1].startswith("2 more steps need as much: a smaller input")
    gaps = "\n".join(memory([Span("x", 0, 10, 0, 0)], 1, 20).advice())
    assert "10 bytes of the arena are gaps" in gaps
    assert memory([], 2, 0).advice()[-1] == "no tensor needs internal memory"


def test_a_package_and_the_command(tmp_path):
    package = intaglio.compile(classifier())
    found = package.memory()
    assert found.internal == package.plan.arena >= max(found.live()) > 0
    assert found.weights + found.other == found.file == len(package.bytes)
    assert found.to_dict()["peak"]["bytes"] == max(found.live())
    assert "<table>" in found._repr_html_()
    path = tmp_path / "m.itg"
    package.save(path)
    svg = tmp_path / "m.svg"
    run = CliRunner().invoke
    shown = run(cli, ["memory", str(path), "--svg", str(svg)])
    assert "internal memory peaks at step" in shown.output
    assert svg.read_text().count("<rect") > len(found.spans)
    assert json.loads(run(cli, ["memory", str(path), "--json"]).output) == json.loads(
        json.dumps(found.to_dict())
    )
    assert found.total == pytest.approx(found.file + found.internal + 3 * 16 * 16 * 4 + 16)
