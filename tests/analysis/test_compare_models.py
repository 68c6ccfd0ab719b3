"""`compare`: golden against quantised, native and simulated tensors; joining; the verdict."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import intaglio
from intaglio.analysis.joining import NCHW, NHWC, join
from intaglio.cli import cli
from intaglio.errors import BadInput
from intaglio.ir import Graph, Quant, Type, Value, constant
from intaglio.ops.activation import relu
from intaglio.ops.conv import conv
from intaglio.ops.elementwise import add, mul
from intaglio.ops.normalize import batch_norm
from intaglio.ops.shape import transpose
from intaglio.quant import Options, calibrate

RNG = np.random.default_rng(7)
ATTRS = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
LAYERS = ("a", "b", "c", "d")


def numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def network(names=LAYERS):
    x = v = Value(Type("f32", (1, 8, 8, 8)), "x")
    for name in names:
        v = relu(conv(v, constant(numbers(8, 8, 3, 3) * 0.2), constant(numbers(8)), **ATTRS))
        v.name = name
    return Graph([x], [v])


@pytest.fixture(scope="module")
def made():
    samples = [{"x": numbers(1, 8, 8, 8)} for _ in range(4)]
    return calibrate(network(), samples, options=Options(method="minmax", accuracy=None))


def broken(graph, layer, inputs=("quantize", "dequantize"), factor=8):
    """The quantised graph with the scale of one activation some times as large."""
    graph = graph.copy()
    dequantize = next(v for v in graph.values() if v.name == layer).producer
    quantize = dequantize.inputs[0].producer
    for node in (quantize, dequantize):
        if node.op.removesuffix("_linear") in inputs:
            graph.set_input(node, 1, constant(node.inputs[1].data * np.float32(factor)))
    return graph


@pytest.mark.parametrize("layer", ["b", "c"])
@pytest.mark.parametrize("where", [("quantize", "dequantize"), ("dequantize",)])
def test_a_layer_with_a_wrong_scale_is_named(made, layer, where):
    found = intaglio.compare(made.float_graph, broken(made.graph, layer, where), samples=2)
    assert found.by_single()[0].name == layer
    assert found.guilty.name == layer
    assert f"'{layer}'" in found.verdict
    assert ("times as wide as its values" in found.verdict) == (len(where) == 2)
    assert [r.name for r in found.outputs] == ["d"]


def test_a_wrong_scale_of_the_input_is_named(made):
    graph = made.graph.copy()
    (quantize,) = next(v for v in graph.inputs if v.name == "x").uses
    (dequantize,) = quantize.outputs[0].uses
    for node in (quantize, dequantize):
        graph.set_input(node, 1, constant(node.inputs[1].data * np.float32(8)))
    data = [made.dataset[i] for i in range(2)]
    found = intaglio.compare(made.float_graph, graph, data)
    assert found.by_single()[0].name == "x"
    assert found.guilty.op == "input"
    assert intaglio.compare(made.float_graph, made.graph, data).guilty is None


def test_an_input_of_bytes_that_cannot_hold_the_samples_is_named():
    samples = [{"x": numbers(1, 8, 8, 8)} for _ in range(4)]
    made = calibrate(network(), samples, options=Options(method="minmax", accuracy=None))
    graph = made.graph.copy()
    (quantize,) = graph.inputs[0].uses
    scale, zero = (float(v.data) for v in quantize.inputs[1:])
    integers = Value(Type("i8", (1, 8, 8, 8), Quant((scale,), (int(zero),))), "x")
    graph.replace(quantize.outputs[0], integers)  # as TFLite's models begin
    graph.inputs[:] = [integers]
    large = [{"x": 4 * s["x"]} for s in samples[:2]]
    found = intaglio.compare(made.float_graph, graph, large)
    assert found.guilty.op == "input"
    assert found.guilty.range.saturation > 0.1
    assert "saturate: give samples like those that it was quantised with" in found.verdict


def test_a_wrong_scale_is_told_from_a_tensor_that_is_hard_to_round():
    rng = np.random.default_rng(3)
    graph = network()
    samples = [{"x": rng.standard_normal((1, 8, 8, 8)).astype(np.float32)} for _ in range(4)]
    for s in samples:
        s["x"][0, 0, 0, 0] = 150.0  # its outlier makes the rounding of the input coarse
    made = calibrate(graph, samples, options=Options(method="minmax", accuracy=None))
    healthy = intaglio.compare(made.float_graph, made.graph, samples[:2])
    assert healthy.by_single()[0].name == "x"
    found = intaglio.compare(made.float_graph, broken(made.graph, "c", factor=4), samples[:2])
    wrong, hard = (next(r for r in found.rows if r.name == n) for n in ("c", "x"))
    assert 0.5 < wrong.single.relative / hard.single.relative < 1.9
    assert found.guilty is wrong
    assert "'c'" in found.verdict


def test_every_sample_of_a_model_with_state_starts_anew():
    x, state = Value(Type("f32", (1, 4)), "x"), Value(Type("f32", (1, 4)), "sum")
    total = add(x, state)
    y = mul(total, constant(np.float32(0.5)))
    y.name = "y"
    graph = Graph([x, state], [y, total], ["y", "sum"], state={"sum": None})
    found = intaglio.compare(graph, samples=3)
    assert found.samples == 3
    assert found.worst_output > 0.999999
    package = intaglio.compare(graph, intaglio.compile(graph.copy()), samples=3)
    assert package.worst_output > 0.999999
    assert intaglio.compare(graph, graph.copy(), samples=3).by_single()


def test_a_good_model_has_no_guilty_layer(made):
    data = [made.dataset[i] for i in range(2)]
    found = intaglio.compare(made.float_graph, made.graph, data, target="rk3588")
    assert found.guilty is None
    assert found.runs == ["interpreter", "native", "rk3588"]
    assert found.worst_output > 0.99
    row = next(r for r in found.rows if r.name == "c")
    assert set(row.entire) == set(found.runs)
    assert row.single.relative < row.entire["interpreter"].relative
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["tensors"][0]["entire"]["native"]["sqnr_db"] > 20
    assert "verdict: outputs" in str(found)
    assert "<table>" in found._repr_html_()


def test_without_a_float_model_rounding_is_left_out(made):
    found = intaglio.compare(broken(made.graph, "b"), samples=2)
    assert found.golden == "the model without rounding"
    assert found.guilty.name == "b"


def test_saturation_and_f16_overflow_are_marked(made):
    graph = made.graph.copy()
    dequantize = next(v for v in graph.values() if v.name == "b").producer
    for node in (dequantize.inputs[0].producer, dequantize):
        graph.set_input(node, 1, constant(node.inputs[1].data / np.float32(8)))
    found = intaglio.compare(made.float_graph, graph, samples=2)
    row = next(r for r in found.rows if r.name == "b")
    assert row.range.saturation > 0.1
    assert "saturate" in found.verdict
    x = Value(Type("f32", (1, 8)), "x")
    y = mul(x, constant(np.float32(1e6)))
    y.name = "y"
    large = intaglio.compare(Graph([x], [y]))
    assert large.rows[0].range.f16_overflow
    assert "too large for f16" in large.verdict


def test_a_package_is_compared_with_its_model(made, tmp_path):
    graph = network()
    found = intaglio.compare(graph, intaglio.compile(graph))
    assert found.worst_output > 0.999999
    assert len(found.rows) > 1
    intaglio.save_onnx(made.graph, str(tmp_path / "int8.onnx"))
    integers = intaglio.load(tmp_path / "int8.onnx")  # its nodes have names
    package = intaglio.compile(integers)
    found = intaglio.compare(integers, package)
    assert found.worst_output > 0.99
    assert not any(r.fitted for r in found.rows)
    names = [r.name for r in found.rows]
    del package.meta["scales"]  # as in packages of earlier versions
    found = intaglio.compare(integers, package)
    assert [r.name for r in found.rows] == names
    assert {r.name for r in found.rows if r.fitted}


def test_the_guilty_layer_of_a_package_is_named(tmp_path):
    rng = np.random.default_rng(1)
    samples = [{"x": rng.standard_normal((1, 8, 8, 8)).astype(np.float32)} for _ in range(4)]
    made = calibrate(depthwise_network(), samples, options=Options(method="minmax", accuracy=None))
    intaglio.save_onnx(made.float_graph, str(tmp_path / "float.onnx"))
    intaglio.save_onnx(made.graph, str(tmp_path / "int8.onnx"))
    golden, integers = (intaglio.load(tmp_path / f"{n}.onnx") for n in ("float", "int8"))
    package = intaglio.compile(integers)
    assert {row[2] for row in package.meta["scales"]} == {"i8"}
    found = intaglio.compare(golden, package, samples[:2])
    assert found.guilty is None
    assert "no layer stands out" in found.verdict
    rows = {r.name: r for r in found.rows}
    assert len(rows) >= 6
    for row in rows.values():
        assert not row.fitted
        assert row.single.sqnr > 30
    for layer in ("wide1", "depthwise0", "narrow0"):  # the wrong scale of its weights
        graph = integers.copy()
        named = {v.name: v for v in graph.values()}
        weights = named.get(layer, named.get(f"{layer}_by_channel")).producer.inputs[1].producer
        graph.set_input(weights, 1, constant(weights.inputs[1].data * np.float32(8)))
        found = intaglio.compare(golden, intaglio.compile(graph), samples[:2])
        assert found.guilty.name.startswith(layer)
    graph = integers.copy()  # the wrong scale of an activation
    real = next(v for v in graph.values() if v.name == "depthwise0_relu").producer
    for node in (real, real.inputs[0].producer):
        graph.set_input(node, 1, constant(node.inputs[1].data * np.float32(8)))
    found = intaglio.compare(golden, intaglio.compile(graph), samples[:2])
    assert found.guilty.name == "depthwise0_relu"
    stripped = intaglio.compile(graph, strip=True)
    assert "scales" not in stripped.meta
    found = intaglio.compare(golden, stripped, samples[:1])
    assert "does not name its layers" in found.golden
    assert [r.name for r in found.rows] == ["narrow1_relu"]
    assert found.guilty is None


def test_models_are_joined_by_name_and_by_structure():
    graph = network()
    optimized = intaglio.optimize(graph)
    assert set(join(graph, optimized).how.values()) == {"name"}
    foreign = graph.copy()
    for v in foreign.values():
        if v.producer:
            v.name = f"their_{v.name}"
    joined = join(graph, foreign)
    assert [joined.pairs[v].name for v in joined.pairs] == [f"their_{n}" for n in LAYERS]
    assert set(joined.how.values()) == {"structure"}
    short = intaglio.compare(graph, network(("a", "b")))
    assert {"c", "d"} <= {*short.golden_only}
    assert not short.outputs


def normalized(nhwc: bool, wrong: float = 1.0):
    """Convolution, batch norm, relu, three times; or with folded batch norms and axes turned, as
    converters to TFLite write it, and a layer whose weights are wrong."""
    rng = np.random.default_rng(3)
    x = v = Value(Type("f32", (1, 8, 6, 4) if nhwc else (1, 4, 8, 6)), "x")
    for k in range(3):
        w = rng.standard_normal((4, 4, 3, 3)).astype(np.float32) * np.float32(0.3)
        scale, shift, mean = rng.uniform(0.5, 1.5, (3, 4)).astype(np.float32)
        if nhwc:
            w = w * scale[:, None, None, None] * np.float32(wrong if k == 1 else 1)
            made = conv(
                transpose(v, perm=NCHW), constant(w), constant(shift - mean * scale), **ATTRS
            )
            v = relu(transpose(made, perm=NHWC))
        else:
            ones = constant(np.ones(4, np.float32))
            of_norm = (constant(scale), constant(shift), constant(mean), ones)
            v = relu(batch_norm(conv(v, constant(w), None, **ATTRS), *of_norm, epsilon=0.0))
        v.name = f"{'theirs' if nhwc else 'ours'}{k}"
    return Graph([x], [v])


def test_a_model_is_joined_with_its_form_with_other_axes_and_folded_norms():
    found = intaglio.compare(normalized(False), normalized(True), samples=1)
    rows = [r for r in found.rows if r.name.startswith("ours")]
    assert [r.name for r in rows] == ["ours0", "ours1", "ours2"]
    for row in rows:
        assert row.entire["native"].cosine > 0.999999
        assert row.single.cosine > 0.999999
    found = intaglio.compare(normalized(False), normalized(True, 1.5), samples=1)
    assert found.guilty.name == "ours1"
    assert next(r for r in found.rows if r.name == "ours2").single.cosine > 0.999999


def test_one_name_before_a_batch_norm_and_behind_it_are_two_tensors():
    def made(folded):
        rng = np.random.default_rng(5)
        x = v = Value(Type("f32", (1, 4, 6, 6)), "x")
        for k in range(2):
            w = rng.standard_normal((4, 4, 3, 3)).astype(np.float32) * np.float32(0.3)
            scale, shift, mean = rng.uniform(0.5, 1.5, (3, 4)).astype(np.float32)
            if folded:
                w = w * scale[:, None, None, None]
                v = conv(v, constant(w), constant(shift - mean * scale), **ATTRS)
                v.name = f"conv{k}"
            else:
                v = conv(v, constant(w), None, **ATTRS)
                v.name = f"conv{k}"
                of_norm = (constant(a) for a in (scale, shift, mean, np.ones(4, np.float32)))
                v = batch_norm(v, *of_norm, epsilon=0.0)
                v.name = f"norm{k}"
            v = relu(v)
            v.name = f"relu{k}"
        return Graph([x], [v])

    for folded in (True, False):
        found = intaglio.compare(made(folded), made(not folded), samples=1)
        assert [r.op for r in found.rows] == ["conv" if folded else "batch_norm", "relu"] * 2
        for row in found.rows:
            assert row.entire["interpreter"].cosine > 0.999999
            assert row.single.cosine > 0.999999


def depthwise_network():
    """Pointwise, depthwise, pointwise; the channels in between have very different ranges."""
    rng = np.random.default_rng(11)
    x = v = Value(Type("f32", (1, 8, 8, 8)), "x")
    point, factors = ATTRS | {"pad": (0, 0, 0, 0)}, np.geomspace(0.02, 1, 16)[:, None, None, None]
    for k in range(2):
        for name, w, attrs in (
            ("wide", rng.standard_normal((16, 8, 1, 1)) * factors, point),
            ("depthwise", rng.standard_normal((16, 1, 3, 3)) * 0.5, ATTRS | {"groups": 16}),
            ("narrow", rng.standard_normal((8, 16, 1, 1)) * 0.3, point),
        ):
            bias = constant(rng.standard_normal(len(w)).astype(np.float32) * np.float32(0.02))
            v = conv(v, constant(w.astype(np.float32)), bias, **attrs)
            v.name = f"{name}{k}"
            v = relu(v)
            v.name = f"{name}{k}_relu"
    return Graph([x], [v])


def test_scales_of_channels_are_taken_back():
    rng = np.random.default_rng(1)
    samples = [{"x": rng.standard_normal((1, 8, 8, 8)).astype(np.float32)} for _ in range(4)]
    made = calibrate(depthwise_network(), samples, options=Options(method="minmax", accuracy=None))
    assert {"wide0_by_channel", "wide1_relu_by_channel"} <= {v.name for v in made.graph.values()}
    found = intaglio.compare(made.float_graph, made.graph, samples)
    assert found.golden_only == []
    assert found.guilty is None
    rows = {r.name: r for r in found.rows}
    for name in ("wide0_relu", "wide1_relu"):
        assert rows[name].single.sqnr > 30
        assert rows[name].entire["native"].cosine > 0.999
        assert rows[name].range.limits is not None
        assert rows[name].range.saturation < 0.01
    for layer in ("wide1", "depthwise0", "narrow0"):
        graph = made.graph.copy()
        named = {v.name: v for v in graph.values()}
        weights = named.get(layer, named.get(f"{layer}_by_channel")).producer.inputs[1].producer
        assert weights.op == "dequantize_linear"
        graph.set_input(weights, 1, constant(weights.inputs[1].data * np.float32(8)))
        assert intaglio.compare(made.float_graph, graph, samples).guilty.name == layer


def test_long_names_are_shortened_and_found():
    names = ("m/a/Relu;m/bn/Fused;m/conv", "m/b/Relu;m/conv", "c", "d")
    graph = network(names)
    found = intaglio.compare(graph, graph.copy(), samples=1)
    assert "m/a/Relu;… " in str(found)
    assert "Fused" not in str(found)
    assert [r.name for r in found.rows] == list(names)
    for given in (names[0], "m/a/Relu;…", "m/a/Relu"):
        only = intaglio.compare(graph, graph.copy(), samples=1, tensors=[given])
        assert [r.name for r in only.rows] == [names[0]]


def test_command_line(made, tmp_path):
    good, bad = tmp_path / "float.onnx", tmp_path / "int8.onnx"
    intaglio.save_onnx(made.float_graph, str(good))
    intaglio.save_onnx(broken(made.graph, "c"), str(bad))
    run = CliRunner().invoke
    args = ["compare", str(good), str(bad), "--samples", "1"]
    shot = tmp_path / "shot"
    found = run(cli, [*args, "--json", "--min-cosine", "0.9999", "--snapshot", str(shot)])
    assert found.exit_code == 1
    assert json.loads(found.output)["guilty"] == "c"
    files = json.loads((shot / "index.json").read_text())
    golden = [f for f, name in files.items() if name == "c" and "golden" in f]
    assert np.load(shot / golden[0]).shape == (1, 8, 8, 8)
    assert run(cli, [*args, "--min-cosine", "0.1"]).exit_code == 0
    for more, words in (
        (["--tensor", "cc"], "no tensor that both models have is called 'cc'"),
        (["--snapshot", str(shot)], "not empty"),
        (["--data", str(tmp_path / "none")], "no such file"),
    ):
        with pytest.raises(intaglio.IntaglioError, match=words):
            run(cli, [*args, *more], catch_exceptions=False, standalone_mode=False)
    package = tmp_path / "m.itg"
    intaglio.compile(made.graph).save(package)
    with pytest.raises(BadInput, match="holds no float values"):
        run(cli, ["compare", str(package)], catch_exceptions=False, standalone_mode=False)
