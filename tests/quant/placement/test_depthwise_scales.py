"""Per-channel scales before depthwise convolutions: lower error, exact folding, kept in schemes."""

import numpy as np
import pytest

import intaglio
from intaglio.analysis.accuracy import compare
from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.activation import clip, relu, sigmoid
from intaglio.ops.conv import conv
from intaglio.quant.options import Options
from intaglio.quant.pipeline import calibrate
from intaglio.quant.placement import depthwise_scales
from intaglio.quant.placement.place import place
from intaglio.quant.prepare import prepare
from intaglio.quant.search.output_error import Reference

RNG = np.random.default_rng(8)
ATTRS = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1)}
PLAIN = Options(method="minmax", accuracy=None)


def numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def network(between=relu, outputs=("y",)):
    """A convolution, a depthwise one that equalises channels of very different ranges, another."""
    x = Value(Type("f32", (1, 3, 10, 10)), "x")
    size = (2.0 ** np.arange(-6, 2)).astype(np.float32).reshape(-1, 1, 1, 1)
    w, d = numbers(8, 3, 3, 3) * size, numbers(8, 1, 3, 3) / size
    a = between(conv(x, constant(w), constant(numbers(8) * size.ravel()), groups=1, **ATTRS))
    b = relu(conv(a, constant(d), constant(numbers(8)), groups=8, **ATTRS))
    y = conv(b, constant(numbers(4, 8, 3, 3)), constant(numbers(4)), groups=1, **ATTRS)
    named = {"a": a, "b": b, "y": y}
    for name, v in named.items():
        v.name = name
    return Graph([x], [named[name] for name in outputs])


def clamped(x):
    return clip(x, lo=0.0, hi=6.0)


def samples(n=80):
    return [{"x": numbers(1, 3, 10, 10)} for _ in range(n)]


def steps(graph):
    """The scales of all activations."""
    return [n.inputs[1] for n in graph.nodes() if n.op == "quantize_linear"]


def error(made, graph, data):
    return max(m.error for m in Reference.of(graph, data).compare(made.graph))


@pytest.mark.parametrize("between", [relu, clamped, lambda x: x])
def test_channels_have_their_own_scales(between, monkeypatch):
    graph, data, more = network(between), samples(), samples(20)
    made = calibrate(graph, data, options=PLAIN, limit=80)
    own = made.scheme.tensors["a"]
    assert own.axis == 1
    assert max(own.scale) > 3 * min(own.scale)
    assert len(made.scheme.tensors["b"].scale) == 1
    fine = error(made, graph, more)
    monkeypatch.setattr(depthwise_scales, "find", lambda graph, placement: {})
    one = calibrate(graph, data, options=PLAIN, limit=80)
    assert one.scheme.tensors["a"].axis is None
    assert fine < 0.7 * error(one, graph, more)


def test_channel_scales_are_folded_when_compiling():
    made = calibrate(network(clamped), samples(), options=PLAIN, limit=80)
    assert all(s.type.size == 1 for s in steps(made.graph))
    compiled = intaglio.optimize(made.graph, level=3)
    assert not any(n.op == "conv" for n in compiled.nodes())
    sample = samples(1)[0]
    with intaglio.open(intaglio.compile(made.graph)) as session:
        ran = session.run(sample)["y"]
    np.testing.assert_array_equal(ran, intaglio.interpret(compiled, sample)["y"])


@pytest.mark.parametrize("count", [8, 16, 80])
def test_channel_scales_do_not_need_many_samples(count):
    made = calibrate(network(), samples(count), options=PLAIN)
    assert made.scheme.tensors["a"].axis == 1


def test_a_scheme_keeps_channel_scales_for_other_samples(tmp_path):
    graph, data = network(clamped), samples()
    first = calibrate(graph, data, options=PLAIN, limit=80)
    first.scheme.save(tmp_path / "scheme.yaml")
    for given in (data, samples(5)):
        how = {"scheme": tmp_path / "scheme.yaml", "limit": len(given)}
        again = calibrate(graph, given, options=PLAIN, **how)
        assert again.scheme.tensors == first.scheme.tensors
        assert all(s.type.size == 1 for s in steps(again.graph))
        intaglio.save_onnx(again.graph, tmp_path / f"{len(given)}.onnx")
    intaglio.save_onnx(first.graph, tmp_path / "first.onnx")
    assert (tmp_path / "first.onnx").read_bytes() == (tmp_path / "80.onnx").read_bytes()


@pytest.mark.parametrize("graph", [network(sigmoid), network(outputs=("y", "a"))])
def test_other_functions_and_outputs_keep_one_scale(graph):
    graph = prepare(graph)
    assert not depthwise_scales.find(graph, place(graph, {}))


def test_clipping_large_channels_does_not_clip_small_ones():
    graph = network()
    made = calibrate(
        graph, samples(), options=Options(method="percentile:90", accuracy=None), limit=80
    )
    own, seen = made.scheme.tensors["a"], made.observations["a"]
    reach = np.array(own.scale) * 255
    assert seen.high > 1.5 * reach.max()
    small = seen.channels.high < reach.max() / 8
    assert small.any()
    assert (reach[small] > seen.channels.high[small]).all()


def test_the_report_compares_rescaled_tensors():
    graph, data = network(clamped), samples()
    made = calibrate(graph, data, options=PLAIN, limit=80)
    found = compare(made.float_graph, made.graph, data[:8])
    assert {"b", "y"} <= {m.name for m in found.layers}
    assert all(m.accumulated.cosine > 0.99 for m in found.layers)
    assert all(m.single.cosine > 0.99 for m in found.layers if m.single)


@pytest.mark.parametrize("target", ["rk3588", "k230"])
def test_chips_fold_channel_scales_too(target):
    made = calibrate(network(clamped), samples(), options=PLAIN, limit=80, target=target)
    assert all(s.type.size == 1 for s in steps(made.graph))
    assert error(made, made.float_graph, samples(8)) < 0.05
