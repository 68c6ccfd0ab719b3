"""The growth figures: graphs of the size that is asked for, and arithmetic on made-up times."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

import intaglio
from benchmarks import growth, machine
from intaglio.analysis import charts

QUADRATIC = {1.0: {"1": 2.0, "2": 1.0}, 2.0: {"1": 8.0, "2": 4.0}, 4.0: {"1": 32.0, "2": 16.0}}
NODES = {
    n: {"load": n / 1e4, "optimise": n / 1e3, "compile": n / 500, "left": n / 2}
    for n in (100.0, 1e3, 1e4)
}
FOUND = {"batch": QUADRATIC, "size": QUADRATIC, "depth": QUADRATIC, "nodes": NODES}


def test_cost_per_unit_is_relative_to_the_first_point():
    assert growth.relative(QUADRATIC, 2) == {
        "1 thread": [(1, 1), (2, 1), (4, 1)],
        "2 threads": [(1, 0.5), (2, 0.5), (4, 0.5)],
    }
    assert growth.relative(QUADRATIC)["1 thread"] == [(1, 1), (2, 2), (4, 4)]


def test_the_exponent_of_growth():
    assert growth.exponent({x: 3 * x**1.5 for x in (1.0, 10.0, 70.0)}) == pytest.approx(1.5)


def test_the_report_judges_the_largest_graph():
    text = growth.report(FOUND, machine.Busy(0.0, 0.0, 0.0))
    assert "power 1.00 over the last decade" in text
    assert "10,000 nodes take 10.0 s, within the limit of 10 s" in text
    assert "Two threads are 2.00 to 2.00 times as fast" in text
    slow = {**FOUND, "nodes": {n: {**r, "optimise": 2 * n / 1e3} for n, r in NODES.items()}}
    assert "ABOVE the limit" in growth.report(slow, machine.Busy(0.0, 0.0, 0.0))


def test_charts_are_well_formed_and_show_every_point():
    root = ET.fromstring(charts.page(growth.charts(FOUND)))
    circles = root.iter("{http://www.w3.org/2000/svg}circle")
    assert len(list(circles)) == 3 * 2 * 3 + 3 * 3


@pytest.mark.parametrize("nodes", [50, 200])
def test_the_stack_computes_something_and_has_the_nodes(nodes, tmp_path):
    file = tmp_path / "stack.onnx"
    file.write_bytes(growth.transformer(nodes))
    graph = intaglio.load(file)
    x = np.random.default_rng(0).standard_normal((1, 16, 32), np.float32)
    (wanted,) = intaglio.interpret(graph, {"x": x}).values()
    with intaglio.open(intaglio.compile(graph)) as session:
        (made,) = session.run({"x": x}).values()
    np.testing.assert_allclose(made, wanted, rtol=1e-3, atol=1e-4)


def test_the_network_grows_as_it_is_told():
    graph = growth.network(batch=3, size=32, blocks=5)
    assert graph.inputs[0].shape == (3, 3, 32, 32)
    assert sum(n.op == "conv" for n in graph.nodes()) == 1 + 3 * 5
    times = growth.latencies({1.0: growth.network(size=16, blocks=1)}, 0.01)
    assert times[1.0]["1"] > 0
