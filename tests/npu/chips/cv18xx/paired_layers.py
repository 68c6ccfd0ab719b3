"""Random products of two computed maps, squeeze-and-excite blocks and spatial attention."""

from __future__ import annotations

import numpy as np
from tests.npu.chips.cv18xx.quantized_layers import Layers

from intaglio import ops
from intaglio.ir import Graph, Value, constant


class Pairs(Layers):
    """A network under construction, with products of computed maps."""

    def multiplied(self, a: Value, b: Value) -> Value:
        """Their product; the scale of the result lets some results saturate."""
        scale = np.float32(self.of(a)[0].data * self.of(b)[0].data * self.rng.uniform(40, 300))
        y = constant(scale), self._any_zero()
        made = ops.qlinear_mul(a, *self.of(a), b, *self.of(b), *y)
        self.quant[made] = y
        return made

    def _any_zero(self) -> Value:
        """A zero point: any, 0 or the lowest."""
        choices = [0, -128, int(self.rng.integers(-128, 128))]
        return constant(np.int8(self.rng.choice(choices)))

    def computed(self, x: Value, outputs: int, kernel: int = 3) -> Value:
        """A convolution whose result has one of these zero points."""
        before = self._out
        self._out = lambda: (before()[0], self._any_zero())  # type: ignore[method-assign]
        made = self.conv(x, outputs, kernel)
        self._out = before  # type: ignore[method-assign]
        return made


def random_product(seed: int) -> Graph:
    """Two maps, or a map and its mean, row, column or a map of one channel, multiplied."""
    rng = np.random.default_rng(seed)
    shape = 1, int(rng.integers(1, 20)), *(int(n) for n in rng.integers(3, 40, 2))
    net = Pairs(seed, shape, str(rng.choice(["i8", "i8", "u8"])))
    net.dtype = "i8"
    many = int(2 ** rng.uniform(0, 6))
    x = net.computed(net.input, many)
    kind = str(rng.choice(["both", "both", "scale", "scale", "attention", "square", "input"]))
    if kind == "both":
        y = net.multiplied(x, net.computed(net.input, many, 1))
    elif kind == "scale":
        pooled = net.mean(x) if x.shape[2] * x.shape[3] >= 9 else net.halved(x)
        gate = net.computed(net.computed(pooled, max(many // 4, 1), 1), many, 1)
        y = net.multiplied(gate, x) if rng.random() < 0.5 else net.multiplied(x, gate)
    elif kind == "attention":
        y = net.multiplied(x, net.computed(x, 1, 3))
    elif kind == "square":
        y = net.multiplied(x, x)
    else:
        y = net.multiplied(net.input, net.computed(net.input, net.input.shape[1]))
    outputs = [y] if rng.random() < 0.5 else [net.conv(y, 5), y]
    return net.graph(*outputs)
