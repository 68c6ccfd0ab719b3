"""`compare` names the tensor with a wrong scale, in graphs and packages; outputs that differ."""

import re

import numpy as np
import pytest

import intaglio
from intaglio.analysis.channel_factors import ChannelFactors, by_channel
from intaglio.analysis.comparison import excess
from intaglio.analysis.comparison_text import shown_rows
from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.activation import relu, sigmoid
from intaglio.ops.conv import conv
from intaglio.ops.elementwise import add, exp, mul
from intaglio.ops.linear import gemm
from intaglio.ops.normalize import softmax
from intaglio.ops.shape import concat, reshape, transpose
from intaglio.quant import Options, calibrate

ENDING = re.compile("(_by_channel|_dequantized|_exact)+$")
FUSED = ("relu", "sigmoid", "mul", "swish", "quantize_linear", "dequantize_linear")
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


def detector():
    """Swish, whose input has 16 bits, heads that share a merged convolution, a raw map as output,
    and two maps that are written into one tensor."""
    rng = np.random.default_rng(7)
    x = Value(Type("f32", (1, 8, 8, 8)), "x")
    before = conv(x, constant(numbers(rng, 16, 8, 3, 3) * 0.2), None, **ATTRS)
    v = mul(before, sigmoid(before))
    v.name = "swish"
    v = relu(conv(v, constant(numbers(rng, 16, 16, 3, 3) * 0.1), None, **ATTRS))
    v.name = "neck"
    flat, heads = ATTRS | {"pad": (0, 0, 0, 0)}, []
    for name in ("boxes", "scores", "points"):
        head = conv(v, constant(numbers(rng, 8, 16, 1, 1) * 0.2), None, **flat)
        head.name = f"{name}_stem"
        heads.append(conv(head, constant(numbers(rng, 4, 8, 3, 3) * 0.2), None, **ATTRS))
        heads[-1].name = name
    flats = [reshape(transpose(h, perm=(0, 2, 3, 1)), shape=(1, 64, 4)) for h in heads[:2]]
    both = concat(*flats, axis=1)
    both.name = "both"
    part = softmax(both, axis=2)
    part.name = "part"
    outputs = [heads[2], part]
    return Graph([x], outputs, [h.name for h in outputs])


def made(graph, folder):
    """The float and the int8 model, back from their files, and samples."""
    rng = np.random.default_rng(6)
    samples = [{"x": numbers(rng, 1, 8, 8, 8)} for _ in range(4)]
    done = calibrate(graph, samples, options=Options(method="minmax", accuracy=None))
    intaglio.save_onnx(done.float_graph, folder / "float.onnx")
    intaglio.save_onnx(done.graph, folder / "int8.onnx")
    golden, integers = (intaglio.load(folder / f"{n}.onnx") for n in ("float", "int8"))
    return golden, integers, samples[:2]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return made(classifier(), tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def detectors(tmp_path_factory):
    return made(detector(), tmp_path_factory.mktemp("models"))


def roundings(graph):
    """The dequantize nodes of weights, then of activations and inputs, in order."""
    every = [n for n in graph.nodes() if n.op == "dequantize_linear"]
    weights = [n for n in every if n.inputs[0].data is not None and n.inputs[0].data.ndim > 1]
    return weights, [n for n in every if n.inputs[0].producer is not None]


def scaled(graph, node):
    for each in (node, node.inputs[0].producer):
        if each is not None:
            graph.set_input(each, 1, constant(each.inputs[1].data * np.float32(8)))


def layer(node):
    """The names of the tensors that a wrong scale of the node's integers makes wrong: the nearest
    one behind weights, and what may be fused with it."""
    if node.inputs[0].producer is not None:
        return [ENDING.sub("", node.outputs[0].name)]
    v = next(iter(node.outputs[0].uses)).outputs[0]
    names = [v.name]
    while len(v.uses) == 1 and (reader := next(iter(v.uses))).op in FUSED:
        v = reader.outputs[0]
        names.append(v.name)
    return [ENDING.sub("", n) for n in names]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("name", "weights"), [("models", 4), ("detectors", 8)])
def test_every_wrong_scale_is_named_and_tops_the_single_column(name, weights, packed, request):
    golden, integers, samples = request.getfixturevalue(name)
    assert len(roundings(integers)[0]) == weights
    for kind in (0, 1):
        for i, original in enumerate(roundings(integers)[kind]):
            if original.inputs[0].dtype == "i16":  # still finer than 8 bits
                continue
            graph = integers.copy()
            scaled(graph, roundings(graph)[kind][i])
            found = intaglio.compare(
                golden, intaglio.compile(graph) if packed else graph, samples, runs=("interpreter",)
            )
            assert found.guilty is found.by_single()[0]
            assert found.guilty.name in layer(original), (kind, i, found.verdict)
            assert f"'{found.guilty.name}'" in found.verdict
            assert excess(found.guilty) > 4
            plain = found.to_dict()
            assert plain["by_single"][0] == plain["guilty"] == found.guilty.name
            assert str(found).splitlines()[3].split()[0] == found.guilty.name


def test_the_table_is_sorted_by_the_error_alone_or_by_the_model(models):
    golden, integers, samples = models
    found = intaglio.compare(golden, integers, samples, runs=("interpreter",))
    worst = [r.single.relative for r in shown_rows(found, True) if r.single]
    assert worst == sorted(worst, reverse=True)
    assert shown_rows(found, True, "model") == found.rows
    times = {r["name"]: r["single"]["times_rounding"] for r in found.to_dict()["tensors"]}
    assert times[found.rows[0].name] == pytest.approx(1.0, abs=0.3)  # only rounded


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
    golden[0, 2] = 0.11  # a channel without weights: rounding moves all its values alike
    factors = np.array([1.1, 1.5, 2, 1.2, 1.3, 1])[None, :, None, None]

    def found(scale, dead=(), bits=8):
        x = golden.copy()
        x[:, dead] = 0
        step = (golden * factors).max() / 2**bits
        levels = np.clip(np.rint(x * factors * scale / step), 0, 2**bits - 1)
        inside = (levels > 0) & (levels < 2**bits - 1)
        factors_of = ChannelFactors(step)
        factors_of.add(x, levels * step, inside)
        return factors_of.factors.ravel()

    assert found(1) == pytest.approx(factors.ravel(), rel=0.06)
    assert found(1)[5] == pytest.approx(1, rel=0.005)  # not 1.03, by the channel of one value
    assert found(8, bits=16) == pytest.approx(factors.ravel(), rel=0.3)  # not 8 times that
    dead = found(1, [5])  # no channel that is seen has the factor 1
    assert dead[:5] == pytest.approx(factors.ravel()[:5], rel=0.06)
    assert dead[5] == 1


def test_factors_of_a_channel_without_weights_are_those_of_its_bias():
    rng = np.random.default_rng(4)
    x = Value(Type("f32", (1, 3, 4, 4)), "x")
    weights, bias = numbers(rng, 5, 3, 1, 1), np.array([1, 2, 0.1, 3, 0.5], np.float32)
    weights[1:3] *= 1e-31
    by = np.array([1.2, 1, 1.6, 1.4, 2], np.float32)
    flat = ATTRS | {"pad": (0, 0, 0, 0)}
    for scale in (1, 8):  # of all weights: no factor
        a = conv(x, constant(weights), constant(bias), **flat)
        b = conv(
            x, constant(weights * by[:, None, None, None] * scale), constant(bias * by), **flat
        )
        a.name, b.name = "t", "t_by_channel"
        found = by_channel([a], {b.name: b}, lambda *_: None)
        np.testing.assert_allclose(found[a].ravel(), by, rtol=1e-5)


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
    same = intaglio.compare(head(True), head(True), samples=1, runs=("interpreter",))
    assert same.outputs
    assert "every layer alone is exact" in same.verdict


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
