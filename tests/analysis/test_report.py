"""The report of a model: nodes and edges, errors and times by node, and the page as text."""

import itertools
import json

import pytest
from click.testing import CliRunner
from tests.small_networks import classifier, samples

import intaglio
from intaglio.analysis.report.layered_layout import GAP, layered
from intaglio.analysis.report.report_page import page_data
from intaglio.analysis.step_names import tensor_name
from intaglio.cli import cli
from intaglio.errors import BadInput
from intaglio.ir import constant
from intaglio.quant import Options, calibrate

BREAK = 8  # factor of the scale of a broken layer


@pytest.fixture(scope="module")
def made():
    how = Options(method="minmax", accuracy=None, rounding="nearest")
    return calibrate(classifier(), samples(), options=how)


@pytest.fixture(scope="module")
def report(made):
    return intaglio.report(made.graph, made.float_graph, samples(1), samples=1)


def test_every_node_has_what_is_known_of_it(made, report):
    steps = [n for n in report.nodes if n.unit]
    assert [n.op for n in report.nodes if not n.unit] == ["input", "output"]
    assert all(n.microseconds > 0 and n.live is not None for n in steps)
    assert sum(n.macs for n in steps) == report.macs > 0
    assert report.milliseconds > 0
    rows = report.comparison.rows
    joined = sum(len(n.rows) for n in report.nodes)
    assert joined >= 0.8 * len(rows)
    known = [n for n in steps if n.rows]
    assert any("kept" in " ".join(n.facts()) for n in known)
    plain = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert len(plain["nodes"]) == len(report.nodes)
    assert {f["about"] for f in plain["findings"]} >= {"accuracy", "time", "memory"}


def test_edges_follow_the_data(report):
    names = {n.name: i for i, n in enumerate(report.nodes)}
    assert all(a < b for a, b in report.edges)
    reached = {0}
    for a, b in sorted(report.edges):
        if a in reached:
            reached.add(b)
    assert reached == set(range(len(report.nodes)))
    adds = [b for b in range(len(report.nodes)) if sum(y == b for _, y in report.edges) == 2]
    assert len(adds) >= 2, names  # one for each residual block


def test_a_broken_layer_is_named_and_red(made):
    graph = made.graph.copy()
    pairs = [
        (v, v.producer.inputs[0].producer)
        for v in graph.values()
        if v.producer is not None and v.producer.op == "dequantize_linear"
        and v.producer.inputs[0].producer is not None and len(v.shape) == 4
    ]  # fmt: skip
    value, quantize = pairs[len(pairs) // 2]
    for node in (quantize, value.producer):
        graph.set_input(node, 1, constant(node.inputs[1].data * BREAK))
    found = intaglio.report(graph, made.float_graph, samples(1), speed=False)
    guilty = found.comparison.guilty
    assert guilty is found.comparison.by_single()[0]
    assert dict(found.findings())["accuracy"].count(f"'{guilty.name}'") == 1
    worst = max((n for n in found.nodes if n.error is not None), key=lambda n: n.error)
    assert guilty in worst.rows
    assert found.nodes[page_data(found)["guilty"]] is worst
    assert guilty.name in (value.name, guilty.other)


def test_the_page_is_one_file_that_loads_nothing(report):
    html = report.html()
    for outside in ("http:", "https:", "src=", "<link", "@import", "url("):
        assert outside not in html.replace("http://www.w3.org/2000/svg", "")
    data = page_data(report)
    assert any(n.get("histogram") and n.get("limits") for n in data["nodes"])
    assert sum(map(bool, (n.get("histogram") for n in data["nodes"]))) > 3
    assert all(len(e["path"]) >= 2 for e in data["edges"])
    for section in ("findings", "graph", "layers", "accuracy", "speed", "memory"):
        assert f'<section id="{section}">' in html
    assert "<table>" in report._repr_html_()


def test_names_are_text(made):
    graph = made.graph.copy()
    evil = "</script><img src=x onerror=alert(1)>"
    for n in graph.nodes():
        n.origin = evil
    html = intaglio.report(graph, speed=False, accuracy=False, name=evil).html()
    assert "<img" not in html
    assert html.count("</script>") == 2


def test_a_quantised_model_alone_names_the_guilty_layer(made):
    graph = made.graph.copy()
    real = next(v for v in graph.values() if v.name == made.float_graph.outputs[0].name).producer
    values = [
        v for v in graph.values()
        if v.producer is not None and v.producer.op == "dequantize_linear" and len(v.shape) == 4
        and v.producer.inputs[0].producer is not None and v.producer is not real
    ]  # fmt: skip
    for node in (values[3].producer, values[3].producer.inputs[0].producer):
        graph.set_input(node, 1, constant(node.inputs[1].data * BREAK))
    found = intaglio.report(graph, speed=False)
    assert found.comparison.golden == "the model without rounding"
    assert found.comparison.guilty.name == values[3].name
    assert max(found.nodes, key=lambda n: n.error or 0).rows


def test_long_names_are_short_on_the_page(made):
    graph = made.float_graph.copy()
    for i, n in enumerate(graph.nodes()):
        n.origin = f"net/layer{i}/Relu;net/layer{i}/FusedBatchNorm;net/conv"
    found = intaglio.report(graph, speed=False, accuracy=False)
    page = found.html()
    assert "/Relu;…</button>" in page
    assert "FusedBatchNorm" not in str(found)
    assert "FusedBatchNorm" in json.dumps(page_data(found))  # beside the chosen node


def test_layers_on_an_npu_have_the_errors_of_their_nodes(tmp_path):
    graph = classifier()
    for i, n in enumerate(graph.nodes()):
        n.origin = f"Node_{i}"
    path = tmp_path / "m.onnx"
    intaglio.save_onnx(graph, path)
    found = intaglio.report(path, target="rk3588", speed=False)
    layers = [n for n in found.nodes if n.unit == "NPU"]
    assert len(layers) > 5
    assert all(n.name.startswith("Node_") for n in layers)
    assert all(n.error is not None for n in layers)
    assert all(n.worst.single for n in layers if n.rows)


def test_an_npu_package_has_its_layers_and_partition(tmp_path):
    made = intaglio.quantize(
        classifier(), samples(), target="rk3588", accuracy=None, method="minmax"
    )
    package = intaglio.compile(made, target="rk3588")
    found = intaglio.report(package)
    assert found.performance is not None
    layers = [n for n in found.nodes if n.unit == "NPU"]
    assert layers
    assert all(n.microseconds is not None and n.bound for n in layers)
    whole = sum(r.microseconds for r in found.performance.layers)  # of CPU ops too
    assert sum(n.microseconds or 0 for n in found.nodes) == pytest.approx(whole)
    ends = {b for _, b in found.edges}
    assert all(i in ends for i, n in enumerate(found.nodes) if n.unit)
    sums = [b for b in range(len(found.nodes)) if sum(y == b for _, y in found.edges) == 2]
    assert len(sums) >= 2  # the residual blocks
    assert '<section id="partition">' in found.html()
    assert "missing" in dict(found.findings())  # accuracy needs the float model


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("relu:0231", "relu"),
        ("a;b:0312:0231", "a;b"),
        ("conv:0", "conv:0"),  # TensorFlow's own
        ("x:12", "x:12"),
        ("relu_stored:0231", "relu"),
    ],
)
def test_names_of_tensors_are_the_models(name, plain):
    assert tensor_name(name) == plain


def test_layout_keeps_nodes_apart_and_edges_downward():
    edges = [(0, 1), (1, 2), (0, 2), (2, 3), (2, 4), (3, 5), (4, 5), (0, 5)]
    widths = [100.0, 80.0, 120.0, 90.0, 200.0, 60.0]
    found = layered(widths, edges)
    for (a, b), path in zip(edges, found.paths, strict=True):
        assert path[0] == found.places[a]
        assert path[-1] == found.places[b]
        assert all(p[1] < q[1] for p, q in itertools.pairwise(path))
    (x3, y3), (x4, y4) = found.places[3], found.places[4]
    assert y3 == y4
    assert abs(x3 - x4) >= (widths[3] + widths[4]) / 2 + GAP - 1e-6
    assert all(0 <= x <= found.width and 0 <= y <= found.height for x, y in found.places)
    assert layered([], []).places == []


def test_command(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    intaglio.compile(made.graph).save("m.itg")
    intaglio.save_onnx(made.float_graph, "m.onnx")
    run = CliRunner().invoke
    shown = run(cli, ["report", "m.itg", "--golden", "m.onnx", "--no-speed"])
    assert shown.exit_code == 0, shown.output
    assert "accuracy" in shown.output
    assert (tmp_path / "m.html").stat().st_size > 30_000
    plain = run(cli, ["report", "m.itg", "--no-speed", "--json"])
    assert json.loads(plain.output)["memory"]["internal"] > 0
    for words, args in (
        ("none.itg: no such file", ["none.itg"]),
        ("ends in .html", ["m.itg", "-o", "m.pdf"]),
        ("no such file", ["m.itg", "--golden", "none.onnx"]),
        ("leave out", ["m.itg", "--target", "rk3588"]),
        ("no/such", ["m.itg", "--golden", "m.onnx", "--data", "no/such", "--no-speed"]),
    ):
        with pytest.raises(BadInput, match=words):
            run(cli, ["report", *args], catch_exceptions=False, standalone_mode=False)


def test_layers_that_are_named_like_ops_have_their_accuracy():
    made = calibrate(classifier(2), samples(), method="minmax", accuracy=None)
    found = intaglio.report(made.graph, made.float_graph, samples(1))
    assert "add" in {r.name for r in found.comparison.rows}
    assert [r.name for n in found.nodes if n.unit for r in n.rows if r.name == "add"] == ["add"]
    assert "x 8-bit" in found.html()
