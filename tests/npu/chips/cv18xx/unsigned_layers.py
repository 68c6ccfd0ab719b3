"""Random networks whose results are u8: convolutions, depthwise ones, sums, products and means."""

from __future__ import annotations

import numpy as np
from tests.npu.chips.cv18xx.paired_layers import Pairs
from tests.npu.chips.k210.quantized_cnn import Cnn

from intaglio import ops
from intaglio.ir import Graph, Value, constant
from intaglio.ops.shape import part


class Unsigned(Pairs):
    """A network under construction, of u8."""

    def _any_zero(self) -> Value:
        return constant(np.uint8(self.rng.choice([0, int(self.rng.integers(0, 129))])))

    def max_pool(self, x: Value, size=2, stride=2, pad=(0, 0, 0, 0)) -> Value:
        return Cnn.max_pool(self, x, size, stride, pad)


def random_unsigned(seed: int) -> Graph:
    """Some layers of u8; results that others read may be i8."""
    rng = np.random.default_rng(seed)
    shape = 1, int(rng.integers(1, 20)), *(int(n) for n in rng.integers(3, 40, 2))
    net = Unsigned(seed, shape, str(rng.choice(["i8", "u8"])))
    net.dtype = "u8"
    x = net.convolution(net.input, int(2 ** rng.uniform(0, 6)), 3, False)
    kinds = ["conv", "depthwise", "sum", "product", "mean", "relu", "moves", "attention", "phases"]
    kind = str(rng.choice(kinds))
    if kind == "conv":
        y = net.convolution(x, 9, 3, False)
    elif kind == "depthwise":
        y = net.convolution(x, 0, 3, True)
    elif kind == "sum":
        y = net.add(x, net.conv(x, x.shape[1]))
    elif kind == "product":
        y = net.multiplied(x, net.computed(x, x.shape[1]))
    elif kind == "mean" and x.shape[2] * x.shape[3] >= 9:
        y = net.mean(x)
    elif kind == "moves":  # of the input, which stays u8
        pooled = net.joined([net.max_pool(net.input, 2), net.max_pool(net.input, 2)])
        y = net.upsample(net.table(pooled) if rng.random() < 0.5 else pooled)
    elif kind == "attention":
        same = net.conv(net.input, int(rng.integers(2, 20)))
        y = net.multiplied(same, part(net.input, 0, 1, axis=1))
    elif kind == "phases":
        y = ops.depth_to_space(net.conv(x, 4 * 5), blocksize=2, mode="CRD")
        net.quant[y] = net.of(x)
    else:
        y = net.rectified(x)
    last = ops.clip(y, lo=float(rng.integers(0, 9)), hi=255.0)
    return net.graph(last if rng.random() < 0.3 else y)
