"""Integer weights in a file, with float activations, are quantised like others."""

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant.pipeline import calibrate
from intaglio.quant.weight_only.datafree import without_data
from intaglio.quant.weights.unpacking import unpack_weights

SAME = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
RNG = np.random.default_rng(0)
STORED = RNG.integers(-126, 127, (8, 8, 3, 3)).astype(np.int8)
STORED[:, 0, 0, 0] = 127
SCALE = RNG.uniform(0.001, 0.02, 8).astype(np.float32)


def whole(moved: bool = True) -> Graph:
    """A convolution that is quantised in the file, with a transpose before it as in TFLite."""
    x = Value(Type("f32", (1, 8, 8, 8)), "x")
    one = (constant(np.float32(0.1)), constant(np.int8(0)))
    y = ops.dequantize_linear(ops.quantize_linear(x, *one, dtype="i8"), *one)
    if moved:
        y = ops.transpose(y, perm=(0, 3, 1, 2))
    zeros = constant(np.zeros(8, np.int8))
    w = ops.dequantize_linear(constant(STORED), constant(SCALE), zeros, axis=0)
    bias = (constant(np.arange(8, dtype=np.int32)), constant(SCALE), None)
    y = ops.conv(y, w, ops.dequantize_linear(*bias, axis=0), **SAME)
    y.name = "y"
    return Graph([x], [y], ["y"])


@pytest.mark.parametrize("moved", [False, True])
def test_a_quantised_model_is_refused(moved: bool):
    words = "nothing to quantise.*the model is quantised already"
    with pytest.raises(BadInput, match=words):
        calibrate(whole(moved), [np.ones((1, 8, 8, 8), np.float32)])
    for mode in ("weights", "dynamic"):
        with pytest.raises(BadInput, match=words):
            without_data(whole(moved), mode)


def test_a_computed_bias_is_not_corrected():
    x = Value(Type("f32", (1, 8, 8, 8)), "x")
    w = constant(RNG.standard_normal((8, 8, 3, 3)).astype(np.float32))
    bias = ops.reduce_mean(x, axes=(0, 2, 3), keepdims=False)
    y = ops.conv(x, w, bias, **SAME)
    y.name = "y"
    data = [RNG.standard_normal((1, 8, 8, 8)).astype(np.float32) for _ in range(4)]
    graph = Graph([x], [y], ["y"])
    made = calibrate(graph, data)
    assert made.scheme.layers["y"] == "int8"
    want, got = (
        intaglio.open(intaglio.compile(g)).run({"x": data[0]})["y"] for g in (graph, made.graph)
    )
    assert np.linalg.norm(got - want) < 0.03 * np.linalg.norm(want)


def hybrid(quantised_input: bool = False) -> Graph:
    """Two convolutions of stored weights, between floats or after a dequantised tensor."""
    x = Value(Type("f32", (1, 8, 8, 8)), "x")
    one = (constant(np.float32(0.1)), constant(np.int8(0)))
    y = (
        ops.dequantize_linear(ops.quantize_linear(x, *one, dtype="i8"), *one)
        if quantised_input
        else x
    )
    for _ in range(2):
        zeros = constant(np.zeros(8, np.int8))
        w = ops.dequantize_linear(constant(STORED), constant(SCALE), zeros, axis=0)
        y = ops.relu(ops.conv(y, w, constant(np.ones(8, np.float32)), **SAME))
    return Graph([x], [y], ["y"])


def test_stored_weights_keep_their_integers():
    data = [RNG.standard_normal((1, 8, 8, 8)).astype(np.float32) for _ in range(4)]
    made = calibrate(hybrid(), data)
    assert [p for n, p in made.scheme.layers.items() if "conv" in n] == ["int8", "int8"]
    kept = [v.data for v in made.graph.values() if v.data is not None and v.shape == STORED.shape]
    assert len(kept) == 2
    assert all(np.array_equal(k, STORED) for k in kept)


def test_inputs_that_the_file_rounds_at_run_time_are_quantised_once():
    x = Value(Type("f32", (1, 8, 8, 8)), "x")
    w = ops.dequantize_linear(constant(STORED), constant(SCALE), None, axis=0)
    y = ops.conv(ops.dynamic_fake_quantize(x, axis=1), w, None, **SAME)
    graph = Graph([x], [y], ["y"])
    unpack_weights(graph)
    assert [n.op for n in graph.nodes()] == ["conv"]


def test_weights_of_quantised_layers_are_not_unpacked():
    graph = hybrid(quantised_input=True)
    unpack_weights(graph)
    left = [
        n for n in graph.nodes() if n.op == "dequantize_linear" and n.inputs[0].data is not None
    ]
    assert len(left) == 1  # the first convolution, which is quantised in the file


def test_a_quantised_tensor_keeps_the_scale_of_its_file():
    x = Value(Type("f32", (1, 8, 8, 8)), "x")
    one = (constant(np.float32(0.125)), constant(np.int8(-7)))
    t = ops.dequantize_linear(ops.quantize_linear(x, *one, dtype="i8"), *one)
    t = ops.transpose(
        ops.max_pool(t, kernel=(2, 2), stride=(2, 2), pad=(0, 0, 0, 0), dilation=(1, 1)),
        perm=(0, 1, 3, 2),
    )
    t.name = "t"
    w = constant(RNG.standard_normal((8, 8, 3, 3)).astype(np.float32), "w")
    y = ops.conv(t, w, None, **SAME)
    y.name = "y"
    data = [RNG.standard_normal((1, 8, 8, 8)).astype(np.float32) for _ in range(4)]
    made = calibrate(Graph([x], [y], ["y"]), data)
    kept = made.scheme.tensors["t"]
    assert (kept.dtype, kept.scale, kept.zero) == ("i8", (0.125,), (-7,))
    lowered = [n.op for n in intaglio.optimize(made.graph, level=3).nodes()]
    assert not {"lookup", "requantize"} & {*lowered}, "it is rounded once"
    assert lowered.count("quantize_linear") == 1
