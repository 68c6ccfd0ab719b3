"""Cuts of a model: where they are, that both parts give the whole, and which one is chosen."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import pytest
from click.testing import CliRunner
from tests.split.models import float_model, int8_model

import intaglio
from intaglio.cli import cli
from intaglio.errors import BadInput
from intaglio.split import Chip, Cpu, Link, parts, plan_split, single_tensor_cuts, write_parts
from intaglio.split.plan import ALL_CLOUD, ALL_EDGE, HEADERS
from intaglio.split.plot import picture

X = np.random.default_rng(2).standard_normal((1, 3, 32, 32)).astype(np.float32)


@dataclass
class Fixed:
    """A machine whose time is so many milliseconds for each node that is no quantisation."""

    each: float
    name: str = "cpu"
    basis: str = "fixed"
    heavy: tuple[str, ...] = ()  # ops that take a hundred times as long
    calls: list[int] = field(default_factory=list)

    def layers(self, graph):
        return [(n.origin or n.outputs[0].name, self._of(n)) for n in graph.nodes()]

    def milliseconds(self, graph):
        self.calls.append(len(list(graph.nodes())))
        return sum(self._of(n) for n in graph.nodes())

    def _of(self, node) -> float:
        return 0.0 if "quantize" in node.op else self.each * (100 if node.op in self.heavy else 1)


def link_of(milliseconds_per_kb: float, rtt: float = 1.0) -> Link:
    return Link(bandwidth=8e6 / milliseconds_per_kb, rtt=rtt)


def test_cuts_are_bytes_that_alone_cross():
    graph = int8_model()
    cuts = single_tensor_cuts(graph)
    assert [c.at_input for c in cuts].count(True) == 1
    assert cuts[0].at_input
    assert cuts[0].shape == (1, 3, 32, 32)
    assert all(c.dtype in ("i8", "u8") for c in cuts)
    assert [c.bytes for c in cuts] == [int(np.prod(c.shape)) for c in cuts]
    inside = [c for c in cuts if c.shape == (1, 8, 16, 16)]
    assert len(inside) == 2  # before and behind the residual block, whose branch is no cut
    assert len({c.tensor for c in cuts}) == len(cuts)


@pytest.mark.parametrize("index", range(6))
def test_both_parts_give_what_the_whole_model_gives(index):
    graph = int8_model()
    cuts = single_tensor_cuts(graph)
    if index >= len(cuts):
        pytest.skip("the model has fewer cuts")
    device, server = parts(graph, cuts[index].tensor)
    whole = intaglio.interpret(graph, {"x": X})
    sent = intaglio.interpret(device, {"x": X})
    assert list(sent) == [cuts[index].tensor]
    assert sent[cuts[index].tensor].nbytes == cuts[index].bytes
    both = intaglio.interpret(server, sent)
    assert list(both) == list(whole)
    for name in whole:
        np.testing.assert_array_equal(both[name], whole[name])
    with intaglio.open(intaglio.compile(device)) as a, intaglio.open(intaglio.compile(server)) as b:
        np.testing.assert_allclose(b.run(a.run({"x": X}))["y"], whole["y"], atol=1e-5)


def test_a_float_model_has_no_cut():
    assert single_tensor_cuts(float_model()) == []


def test_the_plan_is_the_least_time():
    graph = int8_model()
    slow, fast = Fixed(10.0), Fixed(0.1)
    near = plan_split(graph, slow, fast, link_of(0.001, rtt=0.1))
    assert near.best.place in (ALL_CLOUD, single_tensor_cuts(graph)[0].tensor)
    far = plan_split(graph, slow, fast, link_of(0.001, rtt=1e5))
    assert far.best.place == ALL_EDGE
    assert far.best.per_second == pytest.approx(1e3 / far.best.edge)
    heavy = next(n.op for n in reversed(list(graph.nodes())) if "quantize" not in n.op)
    middle = plan_split(graph, Fixed(1.0, heavy=(heavy,)), Fixed(0.01), link_of(20.0))
    assert middle.best.cut is not None
    assert not middle.best.cut.at_input
    for plan in (near, far, middle):
        assert plan.best.total == min(r.total for r in plan.rows)


def test_estimates_equal_what_is_timed_where_layers_are_independent():
    graph = int8_model()
    slow, fast = Fixed(3.0), Fixed(0.2)
    plan = plan_split(graph, slow, fast, link_of(1.0))
    for row in plan.rows:
        if row.cut is None:
            continue
        device, server = parts(graph, row.place)
        assert row.edge == pytest.approx(slow.milliseconds(device), abs=1e-9), row.place
        assert row.cloud == pytest.approx(fast.milliseconds(server), abs=1e-9), row.place
        assert row.up == pytest.approx((row.bytes_up + HEADERS) / 1e3)


def test_the_fastest_cut_and_a_chosen_one_are_timed():
    graph = int8_model()
    cuts = single_tensor_cuts(graph)
    plan = plan_split(graph, Fixed(1.0), Fixed(0.01), link_of(1.0), at=cuts[0].tensor)
    assert plan.row(cuts[0].tensor).timed
    assert min((r for r in plan.rows if r.cut), key=lambda r: r.total).timed
    with pytest.raises(BadInput, match="'nothing' is no cut of this model; cuts are"):
        plan_split(graph, Fixed(1.0), Fixed(1.0), link_of(1.0), at="nothing")


def test_compressed_inputs_and_another_way_back():
    graph = int8_model()
    plan = plan_split(graph, Fixed(1.0), Fixed(0.1), Link(1e6, 5.0, downlink=4e6), upload_bytes=500)
    first = plan.rows[0]
    assert first.up == pytest.approx((500 + HEADERS) * 8 / 1e3)
    assert first.down == pytest.approx((20 + HEADERS) * 8 / 4e3)
    assert first.on(Link(2e6, 5.0)).up == pytest.approx(first.up / 2)
    assert plan.rows[-1].on(Link(1.0, 1.0)).total == plan.rows[-1].total


def test_links_are_checked():
    for wrong in ({"bandwidth": 0}, {"bandwidth": 1e6, "rtt": -1}, {"bandwidth": float("nan")}):
        with pytest.raises(BadInput, match="give"):
            Link(**{"rtt": 1.0, **wrong})


def test_a_chip_is_predicted_and_its_parts_are_written(tmp_path):
    graph = int8_model("rk3588")
    edge, cloud = Chip("rk3588"), Cpu(seconds=0.01)
    plan = plan_split(graph, edge, cloud, Link(5e6, 20))
    assert plan.best.place == ALL_EDGE  # a small network; the round trip alone takes longer
    cut = next(r for r in plan.rows if r.cut and not r.cut.at_input)
    files = write_parts(graph, cut, edge, cloud, tmp_path / "out")
    assert [f.name for f in files] == ["whole.itg", "edge.itg", "cloud.itg", "split.json"]
    about = json.loads(files[-1].read_text())
    assert about["sent"] == cut.place
    assert about["bytes"] == cut.bytes_up
    with intaglio.open(files[1]) as a, intaglio.open(files[2]) as b, intaglio.open(files[0]) as w:
        sent = a.run({"x": X})
        np.testing.assert_allclose(b.run(sent)["y"], w.run({"x": X})["y"], atol=1e-5)


def test_the_plot_names_every_cut():
    plan = plan_split(int8_model(), Fixed(1.0), Fixed(0.1), link_of(1.0))
    svg = picture(plan)
    assert svg.count('font-weight="bold"') >= 3
    assert all(r.place[-20:] in svg for r in plan.rows)
    assert "Mbit/s" in svg


def cli_run(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["split", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_command(tmp_path):
    intaglio.save_onnx(int8_model(), tmp_path / "m.onnx")
    model, out = str(tmp_path / "m.onnx"), tmp_path / "out"
    link = ("--bandwidth", "5M", "--rtt", "20ms")
    said = cli_run(model, "--edge", "rk3588", *link, "--svg", str(tmp_path / "s.svg"))
    assert "all on the device" in said
    assert "best" in said
    assert "predicted" in said
    assert (tmp_path / "s.svg").read_text().startswith("<svg")
    found = json.loads(cli_run(model, "--edge", "cpu", *link, "-o", str(out), "--json"))
    assert found["best"]["place"] == ALL_EDGE
    assert found["link"] == {"bandwidth": 5e6, "rtt": 20.0, "downlink": None}
    assert sorted(p.name for p in out.iterdir()) == ["split.json", "whole.itg"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--bandwidth", "fast", "--rtt", "1ms"), "--bandwidth is 'fast'; give bits per second"),
        (("--bandwidth", "5M", "--rtt", "1h"), "--rtt is '1h'; give a time such as 20ms"),
        (("--bandwidth", "0M", "--rtt", "1ms"), "give bits per second above 0"),
        (("--bandwidth", "5M", "--rtt", "1ms", "--edge-speed", "2"), "--edge-speed is for cpu"),
    ],
)
def test_wrong_options(tmp_path, arguments, words):
    done = CliRunner().invoke(cli, ["split", "m.onnx", "--edge", "rk3588", *arguments])
    assert done.exit_code != 0
    assert words in str(done.exception)
