"""Random convolutions with negative scales, as some files of TFLite have, and scales above 1."""

from __future__ import annotations

import numpy as np
from tests.npu.chips.cv18xx.quantized_layers import Layers

from intaglio.ir import Graph, constant

WEIGHTS, SCALES, BIAS = 3, 4, 8  # inputs of qlinear_conv


def random_scales(seed: int) -> Graph:
    """A convolution with few large weights, and one after it."""
    rng = np.random.default_rng(seed)
    shape = 1, int(2 ** rng.uniform(1, 5)), *(int(n) for n in rng.integers(4, 30, 2))
    net = Layers(seed, shape, str(rng.choice(["i8", "u8"])))
    net.dtype = str(rng.choice(["i8", "i8", "u8"]))
    outputs = int(2 ** rng.uniform(1, 6))
    first = net.conv(net.input, outputs)
    graph = net.graph(net.conv(first, 5) if seed % 2 else first)
    node = first.producer
    w, ratio = node.inputs[WEIGHTS], node.inputs[1].data / node.inputs[6].data
    few = rng.integers(-2, 3, w.shape) * (rng.random(w.shape) < 3 / w.data[0].size)
    turned = np.where(rng.random(outputs) < 0.3, -1, 1)
    scales = np.exp(rng.uniform(np.log(0.2), np.log(1.9), outputs)) * turned / ratio
    graph.set_input(node, WEIGHTS, constant(few.astype(w.data.dtype)))
    graph.set_input(node, SCALES, constant(scales.astype(np.float32)))
    graph.set_input(node, BIAS, constant(rng.integers(-40, 40, outputs).astype(np.int32)))
    return graph
