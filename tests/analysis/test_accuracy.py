"""Accuracy reports: joined by name, per layer alone and accumulated, per column group."""

import numpy as np
import pytest

from intaglio.analysis.accuracy import compare
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.activation import relu, sigmoid
from intaglio.ops.conv import conv
from intaglio.ops.elementwise import mul
from intaglio.ops.shape import concat, reshape
from intaglio.quant import Options, calibrate
from intaglio.quant.search.output_error import Columns, Match, Reference, column_groups

RNG = np.random.default_rng(5)
ATTRS = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


def numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def detector():
    """Three convolutions; boxes of hundreds and scores below one in one output."""
    x = Value(Type("f32", (1, 3, 16, 16)), "x")
    a = relu(conv(x, constant(numbers(16, 3, 3, 3)), constant(numbers(16)), **ATTRS))
    b = relu(conv(a, constant(numbers(16, 16, 3, 3)), constant(numbers(16)), **ATTRS))
    c = conv(b, constant(numbers(6, 16, 3, 3) * 0.05), constant(numbers(6)), **ATTRS)
    d = conv(b, constant(numbers(4, 16, 3, 3)), constant(numbers(4)), **ATTRS)
    scores, boxes = sigmoid(c), mul(d, constant(20.0))
    y = reshape(concat(boxes, scores, axis=1), shape=(1, 10, 256))
    for name, v in {"a": a, "b": b, "c": c, "d": d, "y": y}.items():
        v.name = name
    return Graph([x], [y])


def samples(n=6):
    return [{"x": numbers(1, 3, 16, 16)} for _ in range(n)]


@pytest.fixture(scope="module")
def made():
    return calibrate(detector(), samples(), options=Options(method="minmax"))


def test_layers_are_compared_alone_and_accumulated(made):
    report = compare(made.float_graph, made.graph, samples(3), observations=made.observations)
    by_name = {m.name: m for m in report.layers}
    first, second = (by_name[f"conv{i}"] for i in ("", "_1"))
    assert 0.99 < second.accumulated.cosine < 1
    assert first.single.error == pytest.approx(first.accumulated.error, rel=1e-3)
    assert 0 < second.single.error < second.accumulated.error
    assert 0 < by_name["a"].single.error < by_name["a"].accumulated.error
    assert report.worst(1)[0].single.error == max(m.single.error for m in report.layers if m.single)
    plain = report.to_dict()
    assert {"name", "op", "cosine", "error"} <= set(plain["layers"][0])
    assert [o["output"] for o in plain["outputs"]] == ["y[:,0-3]", "y[:,4-9]"]


def test_the_error_of_a_single_layer_equals_numpy(made):
    """The first layer's error, computed in numpy from the scheme."""
    from intaglio.quant.weights.integers import to_integers

    data = samples(2)
    report = compare(made.float_graph, made.graph, data)
    node = next(n for n in made.float_graph.nodes() if n.op == "conv")
    w, b = node.inputs[1], node.inputs[2].data
    scheme = made.scheme.tensors

    def rounded(a, t):
        scale, zero = np.float32(t.scale[0]), t.zero[0]
        return (np.clip(np.rint(a / scale) + zero, -128, 127) - zero) * scale

    weights = scheme[w.name]
    stored = to_integers(w.data, weights) * np.float32(weights.scale).reshape(-1, 1, 1, 1)
    total = Match()
    for s in data:
        mine = conv.body(rounded(s["x"], scheme["x"]), stored, b, **node.attrs)
        total.add(conv.body(s["x"], w.data, b, **node.attrs), mine)
    found = next(m for m in report.layers if m.op == "conv").single
    assert found.error == pytest.approx(total.error, rel=0.02)


def test_several_passes_give_the_same_report(made):
    data = samples(2)
    words = []
    one = compare(made.float_graph, made.graph, data)
    more = compare(
        made.float_graph, made.graph, data, limit=3, progress=lambda *said: words.append(said)
    )
    for a, b in zip(one.layers, more.layers, strict=True):
        assert a.accumulated.error == pytest.approx(b.accumulated.error, rel=1e-3, abs=1e-6)
    assert words[-1][0].startswith("comparing layers, part ")


def test_the_report_prints(made):
    from rich.console import Console

    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(compare(made.float_graph, made.graph, samples(1)))
    text = console.export_text()
    assert "own cosine" in text
    assert "y[:,4-9]" in text


def test_outliers_are_named():
    graph = detector()
    data = samples(3)
    data[0]["x"][0, 0, 0, 0] = 500
    made = calibrate(graph, data, options=Options(method="minmax"))
    report = compare(made.float_graph, made.graph, data, observations=made.observations)
    assert any("'x' reaches 500" in w for w in report.warnings)


def test_columns_of_equal_magnitude_are_one_group():
    boxes, scores = 300 * np.abs(numbers(2, 50, 4)), np.abs(numbers(2, 50, 6)) * 0.3
    both = np.concatenate([boxes, scores], -1)
    parts = column_groups([both, both])
    assert [str(p) for p in parts] == ["[:,:,0-3]", "[:,:,4-9]"]
    assert np.array_equal(parts[1].of(both), scores)
    assert column_groups([boxes]) == [Columns()]
    scores[:, :, 2] *= 1e-4  # a class that was never seen is no part of its own
    both = np.concatenate([boxes, scores], -1)
    assert [str(p) for p in column_groups([both])] == ["[:,:,0-3]", "[:,:,4-9]"]
    raw = np.concatenate([numbers(1, 50, 4) * 2, RNG.random((1, 50, 6), np.float32)], -1)
    assert [str(p) for p in column_groups([raw])] == ["[:,:,0-3]", "[:,:,4-9]"]
    assert column_groups([np.zeros((3, 4), np.float32)]) == [Columns()]
    assert column_groups([np.zeros((3, 4), np.int64)]) == [Columns()]
    assert column_groups([numbers(10)]) == [Columns()]


def test_measures_equal_their_definitions():
    a, b = numbers(1003), numbers(1003)
    m = Match()
    m.add(a, b)
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    assert m.cosine == pytest.approx(cosine, abs=1e-5)
    assert m.error == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(a), rel=1e-5)
    nothing = Match()
    nothing.add(np.zeros(3), np.zeros(3))
    assert (nothing.cosine, nothing.error) == (1.0, 0.0)
    nothing.add(np.zeros(3), np.ones(3))
    assert (nothing.cosine, nothing.error) == (0.0, float("inf"))
    with pytest.raises(BadInput, match="cannot be compared"):
        m.add(np.zeros(3), np.zeros(4))


def test_nothing_to_compare_with_is_refused(made):
    with pytest.raises(BadInput, match="no samples"):
        compare(made.float_graph, made.graph, [])
    with pytest.raises(BadInput, match="no samples"):
        Reference.of(made.float_graph, [])
