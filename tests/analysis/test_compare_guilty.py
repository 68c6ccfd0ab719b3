"""`compare` names the tensor with a wrong scale, in graphs and packages; outputs that differ."""

import re

import numpy as np
import pytest

import intaglio
from intaglio.analysis.channel_factors import factors_between
from intaglio.analysis.comparison import excess
from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.activation import relu
from intaglio.ops.conv import conv
from intaglio.ops.elementwise import add, exp, mul
from intaglio.ops.linear import gemm
from intaglio.ops.normalize import softmax
from intaglio.ops.shape import reshape
from intaglio.quant import Options, calibrate

ENDING = re.compile("(_by_channel|_dequantized|_exact)+$")
ATTRS = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


def numbers(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def classifier():
    """Convolutions, of which one is read twice, then a product and softmax."""
    rng = np.random.default_rng(5)
    x = v = Value(Type("f32", (1, 8, 8, 8)), "x")
    for name in ("a", "b", "c"):
        v = relu(conv(v, constant(numbers(rng, 8, 8, 3, 3) * 0.2), None, **ATTRS))
        v.name = name
    both = add(v, next(iter(v.producer.inputs)))
    both.name = "both"
    flat = reshape(both, shape=(1, 512))
    logits = gemm(flat, constant(numbers(rng, 512, 10) * 0.1))
    logits.name = "logits"
    y = softmax(logits, axis=1)
    y.name = "y"
    return Graph([x], [y])


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    rng, folder = np.random.default_rng(6), tmp_path_factory.mktemp("models")
    samples = [{"x": numbers(rng, 1, 8, 8, 8)} for _ in range(4)]
    made = calibrate(classifier(), samples, options=Options(method="minmax", accuracy=None))
    intaglio.save_onnx(made.float_graph, folder / "float.onnx")
    intaglio.save_onnx(made.graph, folder / "int8.onnx")
    golden, integers = (intaglio.load(folder / f"{n}.onnx") for n in ("float", "int8"))
    return golden, integers, samples[:2]


def roundings(graph):
    """The dequantize nodes of weights, then of activations and inputs, in order."""
    every = [n for n in graph.nodes() if n.op == "dequantize_linear"]
    weights = [n for n in every if n.inputs[0].data is not None and n.inputs[0].data.ndim > 1]
    return weights, [n for n in every if n.inputs[0].producer is not None]


def scaled(graph, node):
    for each in (node, node.inputs[0].producer):
        if each is not None:
            graph.set_input(each, 1, constant(each.inputs[1].data * np.float32(8)))


@pytest.mark.parametrize("packed", [False, True])
def test_every_wrong_scale_is_named_and_tops_the_single_column(models, packed):
    golden, integers, samples = models
    assert len(roundings(integers)[0]) == 4
    for kind in (0, 1):
        for i, original in enumerate(roundings(integers)[kind]):
            graph = integers.copy()
            node = roundings(graph)[kind][i]
            scaled(graph, node)
            found = intaglio.compare(
                golden, intaglio.compile(graph) if packed else graph, samples, runs=("interpreter",)
            )
            after = next(iter(original.outputs[0].uses)).outputs[0]
            reader = next(iter(after.uses), None)
            wanted = [original.outputs[0]] if kind else [after]
            if kind == 0 and reader is not None:  # fused with its activation
                wanted += reader.outputs
            names = {ENDING.sub("", v.name) for v in wanted}
            assert found.guilty is found.by_single()[0]
            assert found.guilty.name in names, (kind, wanted, found.verdict)
            assert f"'{found.guilty.name}'" in found.verdict
            assert excess(found.guilty) > 4


def test_a_reader_is_not_charged_with_the_rounding_of_what_it_reads(models):
    golden, integers, samples = models
    whole = intaglio.compare(golden, intaglio.compile(integers.copy()), samples)
    assert whole.guilty is None
    graph = integers.copy()
    scaled(graph, next(n for n in roundings(graph)[1] if n.outputs[0].name.startswith("b")))
    broken = intaglio.compare(golden, intaglio.compile(graph), samples)
    before, after = ({r.name: r.single.relative for r in f.rows} for f in (whole, broken))
    assert after["b"] > 4 * before["b"]
    assert after["c"] < 1.5 * before["c"]


def test_factors_of_channels_are_not_scaled_by_noise():
    rng = np.random.default_rng(2)
    golden = np.abs(numbers(rng, 1, 6, 8, 8)) * np.geomspace(0.1, 1, 6)[None, :, None, None]
    factors = np.array([1, 1.5, 2, 1.2, 1.3, 1.1])[None, :, None, None]
    inside = np.ones_like(golden, bool)
    found = factors_between(golden, golden * factors, inside)
    np.testing.assert_allclose(found, factors, rtol=1e-5)
    found = factors_between(golden, golden * factors * 8, inside)  # a scale that all share
    np.testing.assert_allclose(found, factors, rtol=1e-5)


def head(decoded):
    rng = np.random.default_rng(3)
    x = Value(Type("f32", (1, 8)), "x")
    hidden = relu(gemm(x, constant(numbers(rng, 8, 8))))
    boxes = gemm(hidden, constant(numbers(rng, 8, 4) * 0.1))
    if decoded:
        boxes = mul(exp(boxes), constant(np.float32(0.2)))
    boxes.name = "boxes"
    return Graph([x], [boxes])


def test_decoded_boxes_are_not_compared_with_raw_ones():
    found = intaglio.compare(head(True), head(False), samples=1)
    assert not found.outputs
    assert found.not_comparable == ["'boxes': the golden model applies exp as well"]
    assert "not comparable: 'boxes'" in found.verdict
    assert found.to_dict()["not_comparable"]
    back = intaglio.compare(head(False), head(True), samples=1)
    assert back.not_comparable == ["'boxes': the other model applies exp as well"]
    assert intaglio.compare(head(True), head(True), samples=1).outputs


def test_a_model_with_state_is_compared_with_its_onnx_form(tmp_path):
    x, state = Value(Type("f32", (1, 4)), "x"), Value(Type("f32", (1, 4)), "sum")
    total = add(x, state)
    y = mul(total, constant(np.float32(0.5)))
    y.name = "y"
    graph = Graph([x, state], [y, total], ["y", "sum"], state={"sum": None})
    intaglio.save_onnx(graph, tmp_path / "m.onnx")
    plain = intaglio.load(tmp_path / "m.onnx")  # its names are unique
    assert plain.output_names == ["y", "sum_next"]
    assert intaglio.compare(graph, plain, samples=2).worst_output > 0.999999
