"""The catalogue: parameters and MACs as published; the networks run."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import intaglio
from intaglio import catalogue
from intaglio.analysis.agreement import usable_inputs
from intaglio.analysis.catalogue_table import catalogue_table
from intaglio.analysis.whatif import Model, WhatIf
from intaglio.cli import cli
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.index import gather
from intaglio.quant import calibrate
from intaglio.targets import chip


@pytest.fixture(scope="module")
def table():
    return catalogue_table(["rk3588", "k210"], predict=False)


def test_most_networks_are_within_one_percent_of_the_published_figures(table):
    near = [r.name for r in table.rows if r.difference < 0.01]
    assert len(near) >= 35
    counted = [r for r in table.rows if r.source.startswith("torchvision")]
    off = {r.name: r.parameters - round(r.published_parameters * 1e6) for r in counted}
    assert not any(off.values()), off


@pytest.mark.parametrize(
    ("name", "macs", "parameters"),
    [("resnet50", 4.09, 25.56), ("mobilenet_v2", 0.30, 3.50), ("vgg16", 15.5, 138)],
)
def test_well_known_figures(name, macs, parameters, table):
    row = next(r for r in table.rows if r.name == name)
    digits = 1 if name == "vgg16" else 2
    assert round(row.macs / 1e9, digits) == macs
    assert round(row.parameters / 1e6, 0 if name == "vgg16" else 2) == parameters


def test_times_are_no_less_than_the_peak_allows(table):
    row = next(r for r in table.rows if r.name == "resnet50")
    c = chip.load("rk3588")
    peak = row.macs / (c.units["conv"].rate["i8"] * c.clock * 1e6) * 1e3
    assert row.least_ms["rk3588"] == pytest.approx(peak)
    assert row.least_ms["rk3588"] < row.least_ms["k210"]
    svg = table.svg("rk3588")
    assert all(r.name in svg for r in table.rows)


def test_a_quantised_model_has_the_figures_of_the_float_one():
    graph = catalogue.build("mobilenet_v3_small", "random", size=64)
    data = [usable_inputs(graph, i)[0] for i in range(2)]
    made = calibrate(graph, data, method="minmax", accuracy=None, rounding="nearest")
    before, after = intaglio.stats(made.float_graph), intaglio.stats(made.graph)
    assert after.macs == before.macs
    # scales are no parameters; the quantiser adds biases that correct rounding
    assert before.parameters <= after.parameters < 1.005 * before.parameters
    assert before.parameter_bytes == 4 * before.parameters
    assert after.parameter_bytes < 0.3 * before.parameter_bytes
    assert after.bytes < 0.5 * before.bytes
    first = next(n for n in after.layers if n.op == "conv")
    assert first.parameters in (432, 448)


def test_tables_of_functions_are_no_parameters():
    x = Value(Type("i32", (1, 8)), "x")
    table = constant(np.zeros(65536, np.int16))
    y = gather(table, x, axis=0)
    found = intaglio.stats(Graph([x], [y], name="small"))
    assert found.parameters == 0
    assert found.summary().startswith("small: 0 parameters (0.0 kB), 0.000 MMACs")


def test_predictions_are_those_of_perf_and_not_below_the_least_times():
    names = ["squeezenet1_1", "mobilenet_v3_small"]
    table = catalogue_table(["rk3588", "cv181x", "k210"], names)
    data = [usable_inputs(graph := catalogue.build(names[0], "random"), 3)[0]]
    model = Model(calibrate(graph, data, method="minmax", accuracy=None).graph, as_vendor=True)
    for row in table.rows:
        for c in table.chips:
            low, high = row.bands[c]
            assert row.least_ms[c] < row.predicted_ms[c]
            assert low < row.predicted_ms[c] < high
    wanted = model.performance("rk3588", WhatIf()).milliseconds
    assert table.rows[0].predicted_ms["rk3588"] == pytest.approx(wanted, rel=1e-6)
    assert "predicted" in str(table)
    assert "at most" not in table.svg() + table.svg("k210")
    plain = json.loads(json.dumps(table.to_dict()))["networks"][0]
    assert plain["predicted_ms"]["k210"] > 1


def test_a_network_runs():
    graph = catalogue.build("squeezenet1_1", "random", size=64)
    x = np.random.default_rng(0).standard_normal((1, 3, 64, 64)).astype(np.float32)
    with intaglio.open(intaglio.compile(graph)) as session:
        native = session.run({"input": x})["logits"]
    np.testing.assert_allclose(native, intaglio.interpret(graph, {"input": x})["logits"], atol=1e-3)


def test_layers_add_up_and_the_command_prints_them(tmp_path):
    graph = catalogue.build("mobilenet_v3_small", "random")
    found = intaglio.stats(graph)
    assert sum(n.macs for n in found.layers) == found.macs
    assert sum(n.parameters for n in found.layers) == found.parameters
    first = next(n for n in found.layers if n.op == "conv")
    assert first.bytes == 4 * (3 * 224 * 224 + 16 * 27 + 16 * 112 * 112)
    path = tmp_path / "m.onnx"
    intaglio.save_onnx(graph, str(path))
    run = CliRunner().invoke
    assert "0.057 GMACs" in run(cli, ["stats", str(path)]).output
    plain = json.loads(run(cli, ["stats", str(path), "--json"]).output)
    assert plain["macs"] == found.macs
    for args, words in (
        (["stats"], "give a model file"),
        (["stats", "--catalogue", "--network", "resnet5"], "did you mean 'resnet50'"),
        (["stats", "--catalogue", "--chips", "rk358"], "no chip is called"),
    ):
        with pytest.raises(BadInput, match=words):
            run(cli, args, catch_exceptions=False, standalone_mode=False)
