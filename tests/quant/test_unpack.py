"""Weights that a file keeps in integers are quantised like others, where activations are floats."""

import numpy as np

from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant.quantize import calibrate
from intaglio.quant.unpack import unpack_weights

SAME = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
RNG = np.random.default_rng(0)
STORED = RNG.integers(-126, 127, (8, 8, 3, 3)).astype(np.int8)
STORED[:, 0, 0, 0] = 127
SCALE = RNG.uniform(0.001, 0.02, 8).astype(np.float32)


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


def test_stored_weights_of_floats_come_to_the_same_integers():
    data = [RNG.standard_normal((1, 8, 8, 8)).astype(np.float32) for _ in range(4)]
    made = calibrate(hybrid(), data)
    assert [p for n, p in made.scheme.layers.items() if "conv" in n] == ["int8", "int8"]
    kept = [v.data for v in made.graph.values() if v.data is not None and v.shape == STORED.shape]
    assert len(kept) == 2
    assert all(np.array_equal(k, STORED) for k in kept)


def test_weights_beside_dequantised_activations_stay_as_they_are():
    graph = hybrid(quantised_input=True)
    unpack_weights(graph)
    left = [
        n for n in graph.nodes() if n.op == "dequantize_linear" and n.inputs[0].data is not None
    ]
    assert len(left) == 1  # of the first convolution, whose file means integers
