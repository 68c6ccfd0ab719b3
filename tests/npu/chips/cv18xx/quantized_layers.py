"""Random quantised layers and networks that CV18xx computes, as the integer pass leaves them."""

from __future__ import annotations

import math

import numpy as np
from tests.npu.chips.k210.quantized_cnn import Cnn

from intaglio import ops
from intaglio.ir import Graph, Value, constant
from intaglio.ops.shape import part

LEAST_MEAN = 8  # pixels with which the factor of a mean is below 1
MOST_MEAN = 40_000  # elements: a window of the whole map has to fit in the memory of cv180x
KERNELS = (1, 1, 2, 3, 3, 3, 5, 7)


class Layers(Cnn):
    """A network under construction, with every layer of the chip."""

    def window(self, x: Value, kernel: int) -> dict[str, tuple[int, ...]]:
        rng = self.rng
        dilation = [int(d) for d in rng.integers(1, 3, 2)] if rng.random() < 0.2 else [1, 1]
        pad = [int(p) for p in rng.integers(0, kernel + 1, 4)]
        if rng.random() < 0.6:
            dilation, pad = [1, 1], [kernel // 2] * 4
        for axis in (0, 1):
            reach = (kernel - 1) * dilation[axis] + 1
            missing = reach - x.shape[2 + axis] - pad[axis] - pad[2 + axis]
            pad[axis] += max(missing, 0)
        return {
            "stride": tuple(int(s) for s in rng.choice([1, 1, 1, 2, 2, 3], 2)),
            "dilation": tuple(dilation),
            "pad": tuple(pad),
        }

    def convolution(self, x: Value, outputs: int, kernel: int, depthwise: bool) -> Value:
        """A convolution of any stride, padding and dilation, with ties in its rounding."""
        rng = self.rng
        outputs, deep = (x.shape[1], 1) if depthwise else (outputs, x.shape[1])
        w = rng.integers(-127, 128, (outputs, deep, kernel, kernel)).astype(np.int8)
        spread = 1 / (73 * np.sqrt(w[0].size) * rng.uniform(0.5, 2, outputs))
        if rng.random() < 0.3:  # powers of two: half of the results lie between two numbers
            spread = 2.0 ** np.round(np.log2(spread))
        y = self._out()
        if rng.random() < 0.3:
            y = constant(np.float32(0.0625)), y[1]
        made = ops.qlinear_conv(
            x,
            *self.of(x),
            constant(w),
            constant(spread.astype(np.float32)),
            constant(np.zeros(outputs, np.int8)),
            *y,
            constant(rng.integers(-3000, 3000, outputs).astype(np.int32)),
            **self.window(x, kernel),
            groups=outputs if depthwise else 1,
        )
        self.quant[made] = y
        return made

    def rectified(self, x: Value) -> Value:
        """A ReLU: results below the zero point are the zero point."""
        zero = int(self.of(x)[1].data)
        low, high = (-128, 127) if x.dtype == "i8" else (0, 255)
        made = ops.clip(x, lo=float(max(zero, low)), hi=float(high))
        self.quant[made] = self.quant[x]
        return made

    def table(self, x: Value) -> Value:
        values = self.rng.integers(-128, 128, 256).astype(np.int8)
        made = ops.lookup(x, constant(values))
        self.quant[made] = self._out()
        return made

    def max_pool(self, x: Value, kernel: int) -> Value:
        pad = tuple(int(p) for p in self.rng.integers(0, max(kernel // 2, 1), 4))
        stride = tuple(int(s) for s in self.rng.integers(1, 3, 2))
        made = ops.max_pool(x, kernel=(kernel, kernel), stride=stride, pad=pad, dilation=(1, 1))
        self.quant[made] = self.quant[x]
        return made

    def halved(self, x: Value) -> Value:
        made = ops.max_pool(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1, 1, 1), dilation=(1, 1))
        self.quant[made] = self.quant[x]
        return made

    def mean(self, x: Value) -> Value:
        y = self._out()
        made = ops.qlinear_mean(x, *self.of(x), *y, axes=(2, 3), keepdims=True)
        self.quant[made] = y
        return made

    def upsample(self, x: Value) -> Value:
        factor = [int(f) for f in self.rng.integers(1, 4, 2)]
        sizes = tuple(f * n for f, n in zip(factor, x.shape[2:], strict=True))
        made = ops.resize(
            x,
            axes=(2, 3),
            shape=sizes,
            scales=tuple(map(float, factor)),
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
        self.quant[made] = self.quant[x]
        return made

    def joined(self, parts: list[Value]) -> Value:
        made = ops.concat(*parts, axis=1)
        self.quant[made] = self.quant[parts[0]]
        return made

    def part(self, x: Value) -> Value:
        first = int(self.rng.integers(0, x.shape[1]))
        last = int(self.rng.integers(first + 1, x.shape[1] + 1))
        made = part(x, first, last, axis=1)
        self.quant[made] = self.quant[x]
        return made

    def graph(self, *outputs: Value) -> Graph:
        return Graph([self.input], outputs, [f"y{i}" for i in range(len(outputs))])


def random_layer(seed: int) -> Graph:
    """One layer, or one behind a convolution, with many or few channels and odd sizes."""
    rng = np.random.default_rng(seed)
    shape = 1, int(2 ** rng.uniform(0, 8)), *(int(2 ** rng.uniform(0, 6.2)) for _ in range(2))
    net = Layers(seed, shape, str(rng.choice(["i8", "i8", "u8"])))
    net.dtype = "i8"  # of all results
    x, kernel = net.input, int(rng.choice(KERNELS))
    outputs = int(2 ** rng.uniform(0, 8))
    kind = str(
        rng.choice(["conv", "conv", "conv", "depthwise", "depthwise", "max", "table", "mean"])
    )
    if kind == "depthwise":
        y = net.convolution(x, outputs, kernel, True)
    elif kind == "max" and min(kernel, *shape[2:]) > 1:
        y = net.max_pool(x, min(kernel, *shape[2:]))
    elif kind == "table":
        y = net.table(x)
    elif kind == "mean" and shape[2] * shape[3] >= LEAST_MEAN and math.prod(shape) < MOST_MEAN:
        y = net.mean(x)
    else:
        y = net.convolution(x, outputs, kernel, False)
    return net.graph(y)


def random_network(seed: int) -> Graph:
    """A network of up to a dozen layers, with sums, concats, slices and several outputs."""
    rng = np.random.default_rng(seed)
    shape = 1, int(rng.integers(1, 20)), *(int(n) for n in rng.integers(6, 49, 2))
    net = Layers(seed, shape, str(rng.choice(["i8", "i8", "u8"])))
    net.dtype = "i8"  # of all results
    live = [net.convolution(net.input, int(rng.integers(1, 40)), 3, False)]
    for _ in range(int(rng.integers(3, 12))):
        x = live[int(rng.integers(max(0, len(live) - 3), len(live)))]
        kind = str(rng.choice(KINDS))
        kernel = int(rng.choice([1, 3, 3, 5]))
        same = [v for v in live if v.shape == x.shape and v is not x]
        alike = [v for v in live if v.shape[2:] == x.shape[2:] and v is not x]
        if kind == "conv":
            y = net.convolution(x, int(rng.integers(1, 48)), kernel, False)
        elif kind == "depthwise":
            y = net.convolution(x, 0, kernel, True)
        elif kind == "relu":
            y = net.rectified(net.convolution(x, int(rng.integers(1, 32)), 1, False))
        elif kind == "add" and same:
            y = net.add(x, same[0])
        elif kind == "concat" and alike:
            y = net.joined([x, alike[0]])
        elif kind == "slice":
            y = net.part(x)
        elif kind == "max":
            y = net.max_pool(x, min(2, *x.shape[2:]))
        elif kind == "upsample" and max(x.shape[2:]) < 30:
            y = net.upsample(x)
        else:
            y = net.table(x)
        live.append(y)
    used = {v for v in live if v.uses}
    return net.graph(*[v for v in live if v not in used])


KINDS = ["conv"] * 2 + ["depthwise", "relu", "concat", "slice", "max", "upsample", "table"]
KINDS += ["add"] * 2
