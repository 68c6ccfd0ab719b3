"""The whole pipeline: accuracy, names, options, separated concatenations."""

from __future__ import annotations

import numpy as np
import pytest
from tests.quant.placement.test_place import SAME, conv, image

import intaglio
from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant import STEPS, state, steps
from intaglio.quant.huge_pages import without_huge_pages
from intaglio.quant.options import Options
from intaglio.quant.pipeline import calibrate

RNG = np.random.default_rng(5)
SAMPLES = [RNG.standard_normal((1, 8, 8, 8)).astype(np.float32) for _ in range(4)]


def graph(x: Value, *outputs: Value) -> Graph:
    return Graph([x], list(outputs), [f"y{i}" for i in range(len(outputs))])


def cosine(a, b) -> float:
    a, b = (np.asarray(v, np.float64).ravel() for v in (a, b))
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def run(g: Graph, sample) -> list:
    with intaglio.open(intaglio.compile(g)) as session:
        return [np.array(v) for v in session.run({"x": sample}).values()]


def net() -> Graph:
    x = image()
    a = ops.relu(conv(x, seed=1))
    b = ops.swish(ops.add(conv(a, seed=2), a))
    c = ops.concat(b, ops.relu(conv(b, seed=3)), axis=1)
    pooled = ops.reduce_mean(c, axes=(2, 3), keepdims=False)
    w = np.random.default_rng(4).standard_normal((16, 10)).astype(np.float32)
    return graph(x, ops.gemm(pooled, constant(w), constant(np.ones(10, np.float32))))


@pytest.mark.parametrize(
    ("method", "least"),
    [
        ("minmax", 0.999),
        ("moving", 0.997),  # it leaves out what only a few samples reach
        ("percentile", 0.999),
        ("kl", 0.999),
        ("mse", 0.999),
    ],
)
def test_outputs_are_close_to_float(method, least):
    made = calibrate(net(), SAMPLES, options=Options(method=method))
    assert not made.floats
    for sample in SAMPLES:
        assert cosine(run(made.graph, sample)[0], run(net(), sample)[0]) > least


def test_the_given_model_is_not_changed():
    g = net()
    before = str(g)
    intaglio.quantize(g, SAMPLES)
    assert str(g) == before


def test_options_are_keywords_and_others_are_refused():
    made = calibrate(net(), SAMPLES, weights="int4", method="minmax", accuracy=None)
    assert {t.dtype for t in made.scheme.tensors.values()} == {"i8", "i4"}
    same = calibrate(net(), SAMPLES, options=Options("minmax", accuracy=None, weights="int4"))
    assert made.scheme == same.scheme
    assert len(repr(made)) < 500, "a page of numbers tells nobody anything"
    for mode in ("static", "weights"):
        with pytest.raises(BadInput, match="foo= is no option of quantisation"):
            intaglio.quantize(net(), SAMPLES, mode=mode, foo=3)
    with pytest.raises(BadInput, match=r"acuracy= is no option.*did you mean accuracy="):
        intaglio.quantize("net.onnx", SAMPLES, acuracy=0.9)
    with pytest.raises(BadInput, match="dims= is for model files"):
        intaglio.quantize(net(), SAMPLES, dims={"n": 1})


def test_integers_are_the_same_in_numpy_and_natively():
    made = intaglio.quantize(net(), SAMPLES)
    whole = intaglio.optimize(made, level=3)
    got, want = run(made, SAMPLES[0])[0], intaglio.interpret(whole, {"x": SAMPLES[0]})["y0"]
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_the_scheme_names_every_quantised_tensor_and_layer():
    made = calibrate(net(), SAMPLES)
    names = {v.name for v in made.float_graph.values()}
    assert set(made.scheme.tensors) <= names
    assert {"x"} < set(made.scheme.tensors)
    assert set(made.scheme.layers.values()) == {"int8"}


def test_a_tensor_with_integer_and_float_readers_is_rounded_for_both():
    x = image()
    a = ops.relu(conv(x, seed=1))
    made = calibrate(graph(x, conv(a, seed=2), ops.softmax(a, axis=1)), SAMPLES)
    readers = [n.op for n in made.graph.nodes() if n.op == "softmax"]
    soft = next(n for n in made.graph.nodes() if n.op == "softmax")
    assert readers == ["softmax"]
    assert soft.inputs[0].producer.op == "dequantize_linear"


def test_concat_parts_of_different_ranges_are_separated_by_rescaled_weights():
    """Boxes in hundreds of pixels beside scores below 1, read by one convolution."""
    x = image()
    boxes = ops.mul(ops.relu(conv(x, seed=1)), constant(100.0, dtype="f32"))
    scores = ops.sigmoid(conv(x, seed=2))
    w = np.random.default_rng(3).standard_normal((8, 16, 3, 3)).astype(np.float32)
    w[:, :8] /= 1000  # both parts matter
    y = ops.conv(ops.concat(boxes, scores, axis=1), constant(w), None, **SAME)
    made = calibrate(graph(x, y), SAMPLES)
    assert len(made.notes) == 1
    assert "weights are rescaled" in made.notes[0]
    assert cosine(run(made.graph, SAMPLES[0])[0], run(graph(x, y), SAMPLES[0])[0]) > 0.999


def test_separating_a_concat_repeats_no_step(monkeypatch: pytest.MonkeyPatch):
    """Weights are stored once and every tensor is observed once, however a concat is read."""
    stored, observed = [], []
    real = state.observe
    monkeypatch.setattr(
        steps, "store_all", lambda *a, store=steps.store_all: stored.append(1) or store(*a)
    )
    monkeypatch.setattr(
        state,
        "observe",
        lambda g, tensors, *a, **k: observed.append(tensors) or real(g, tensors, *a, **k),
    )
    x = image()
    boxes = ops.mul(ops.relu(conv(x, seed=1)), constant(1000.0, dtype="f32"))
    both = ops.concat(boxes, ops.sigmoid(conv(x, seed=2)), axis=1)
    made = calibrate(graph(x, conv(both, seed=3)), SAMPLES)
    assert made.notes
    assert len(stored) == len(observed) == 1


def test_names_of_steps_are_unique():
    names = [s.name for s in STEPS]
    assert len(names) == len(set(names))


def test_concat_parts_with_other_readers_are_separated_in_floats():
    x = image()
    boxes = ops.mul(ops.relu(conv(x, seed=1)), constant(1000.0, dtype="f32"))
    both = ops.concat(boxes, ops.sigmoid(conv(x, seed=2)), axis=1)
    pooled = ops.avg_pool(both, kernel=(2, 2), stride=(2, 2), pad=(0,) * 4, dilation=(1, 1))
    made = calibrate(graph(x, conv(pooled, seed=3)), SAMPLES)
    assert "in floats" in made.notes[0]


def test_nothing_to_quantise_is_refused():
    x = image()
    with pytest.raises(BadInput, match="nothing to quantise"):
        intaglio.quantize(graph(x, ops.relu(x)), SAMPLES)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "best"}, "method is 'best'; known are"),
        ({"weights": "int3"}, "weights is 'int3'; known are"),
        ({"weights": "int4", "mode": "dynamic"}, 'known in mode="dynamic" are int8'),
        ({"rounding": "up"}, "rounding is 'up'; known are auto"),
        ({"per": "row"}, "per is 'row'; known are channel, tensor"),
        ({"activations": "f8"}, "activations is 'f8'; known are"),
        ({"mode": "hybrid"}, "mode is 'hybrid'; known are static, dynamic, weights"),
        ({"accuracy": "high"}, "accuracy is 'high'; give a cosine"),
        ({"headroom": 0.5}, "headroom is 0.5; give a factor from 1 to 16, or None"),
        ({"layers": "head"}, "layers is 'head'; give a dict by name"),
        ({"limit": 0}, "limit is 0; give a number of samples from 1 on"),
        ({"limit": "10"}, "limit is '10'"),
        ({"seed": -1}, "seed is -1"),
        ({"input_type": "int7"}, "input_type is 'int7'; known are float"),
        ({"letterbox": (480, 640)}, "letterbox is for input_type 'uint8'"),
        ({"strict": True}, "strict= is for scheme=, which is not given"),
        ({"method": "kl", "mode": "weights"}, 'method= has no meaning in mode="weights"'),
        ({"group": 32}, 'group= has no meaning in mode="static".*use mode="weights"'),
    ],
)
def test_wrong_options_are_refused(given, words):
    with pytest.raises(BadInput, match=words):
        Options(**given)


def test_samples_are_needed():
    with pytest.raises(BadInput, match="data= is missing: quantising needs samples"):
        intaglio.quantize(net())


def test_samples_by_position_need_a_single_input():
    x, z = image(), Value(Type("f32", (1, 8, 8, 8)), "z")
    two = Graph([x, z], [ops.add(conv(x), z)], ["y"])
    with pytest.raises(BadInput, match="x, z"):
        intaglio.quantize(two, SAMPLES)


def test_no_samples_are_refused():
    with pytest.raises(BadInput, match="no sample"):
        intaglio.quantize(net(), [])


@pytest.mark.parametrize(("groups", "dtype", "levels"), [(1, "i16", 1022), (8, "i8", 255)])
def test_the_range_ends_where_a_function_is_constant(groups, dtype, levels):
    """Swish of all that is far below 0 is 0; sums that a table is looked up by have ten bits."""
    x = image()
    w = np.random.default_rng(1).standard_normal((8, 8 // groups, 3, 3)).astype(np.float32)
    low = constant(np.full(8, -20, np.float32))
    far = ops.conv(x, constant(w * (5 if groups == 1 else 15)), low, **{**SAME, "groups": groups})
    made = calibrate(graph(x, conv(ops.swish(far), seed=2)), SAMPLES)
    (name,) = [n.inputs[0].name for n in made.float_graph.nodes() if n.op == "swish"]
    seen, scheme = made.observations[name], made.scheme.tensors[name]
    assert seen.low < -60
    assert scheme.dtype == dtype
    assert 0.8 * seen.high < scheme.scale[0] * levels < seen.high + 20


def test_functions_too_wide_for_a_fine_table_keep_int8():
    """Swish comes back to 0 far below what was seen: in fine steps that is too far for a table."""
    x = image()
    w = np.random.default_rng(1).standard_normal((8, 8, 3, 3)).astype(np.float32)
    near = ops.conv(x, constant(w / 40), **SAME)
    made = calibrate(graph(x, conv(ops.swish(near), seed=2)), SAMPLES)
    (name,) = [n.inputs[0].name for n in made.float_graph.nodes() if n.op == "swish"]
    assert made.scheme.tensors[name].dtype == "i8"
    assert not any(n.op == "swish" for n in intaglio.optimize(made.graph).nodes())


def test_huge_pages_are_restored_after_calibration():
    switch = np._core.multiarray._set_madvise_hugepage
    for before in (True, False):
        usual = switch(before)
        try:
            with without_huge_pages(), without_huge_pages():
                assert switch(False) is False
            assert switch(before) is before
        finally:
            switch(usual)
