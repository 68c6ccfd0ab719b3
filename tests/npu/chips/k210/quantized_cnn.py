"""Random quantised networks of layers that the KPU can do, as the integer pass leaves them."""

from __future__ import annotations

import numpy as np

from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant

SCALE = np.float32(0.05)


class Cnn:
    """A network under construction."""

    def __init__(self, seed: int, shape: tuple[int, ...], dtype: str = "i8"):
        self.rng = np.random.default_rng(seed)
        self.input = Value(Type(dtype, shape), "x")
        self.dtype = dtype
        self.quant: dict[Value, tuple[Value, Value]] = {}
        self.weight_zero: int | None = None  # of weights of u8; None: they are i8
        self.signs = False  # whether scales of weights may be negative
        self.of(self.input)

    def of(self, v: Value) -> tuple[Value, Value]:
        """Scale and zero point of a tensor."""
        if v not in self.quant:
            low = -128 if v.dtype == "i8" else 0
            zero = np.array(self.rng.integers(low, low + 256)).astype(np.dtype(v.dtype[0] + "1"))
            scale = np.float32(self.rng.uniform(0.5, 2)) * SCALE
            self.quant[v] = constant(scale), constant(zero)
        return self.quant[v]

    def _out(self) -> tuple[Value, Value]:
        return self.of(Value(Type(self.dtype, ())))

    def conv(
        self, x: Value, outputs: int, kernel=3, stride=1, depthwise=False, pad=None, groups=1
    ) -> Value:
        groups = outputs if depthwise else groups
        deep = x.shape[1] // groups
        shape = (outputs, deep, kernel, kernel)
        if self.weight_zero is None:
            w, zero = self.rng.integers(-127, 128, shape).astype(np.int8), np.int8(0)
        else:  # as files of TFLite from before int8
            w, zero = self.rng.integers(0, 256, shape).astype(np.uint8), np.uint8(self.weight_zero)
        spread = 1 / (73 * np.sqrt(w[0].size) * self.rng.uniform(0.5, 2, outputs))
        if self.signs:
            spread *= self.rng.choice([-1, 1], outputs)
        y = self._out()
        made = ops.qlinear_conv(
            x,
            *self.of(x),
            constant(w),
            constant(spread.astype(np.float32)),
            constant(np.full(outputs, zero)),
            *y,
            constant(self.rng.integers(-3000, 3000, outputs).astype(np.int32)),
            stride=(stride, stride),
            pad=(kernel // 2,) * 4 if pad is None else pad,
            dilation=(1, 1),
            groups=groups,
        )
        self.quant[made] = y
        return made

    def add(self, a: Value, b: Value) -> Value:
        y = self._out()
        made = ops.qlinear_add(a, *self.of(a), b, *self.of(b), *y)
        self.quant[made] = y
        return made

    def mean(self, x: Value) -> Value:
        y = self._out()
        made = ops.qlinear_mean(x, *self.of(x), *y, axes=(2, 3), keepdims=True)
        self.quant[made] = y
        return made

    def table(self, x: Value) -> Value:
        """A smooth function by a table."""
        steps = np.linspace(-4, 4, 256)
        values = np.rint(250 / (1 + np.exp(-steps)))
        if x.dtype == "i8":
            values = np.roll(values - 128, -128)
        dtype = np.dtype(x.dtype[0] + "1")
        return ops.lookup(x, constant(values.astype(dtype)))

    def max_pool(self, x: Value, size=2, stride=2, pad=(0, 0, 0, 0)) -> Value:
        window = {"kernel": (size, size), "stride": (stride, stride), "dilation": (1, 1)}
        made = ops.max_pool(x, **window, pad=pad)
        self.quant[made] = self.of(x)
        return made

    def upsample(self, x: Value, times=2) -> Value:
        """Every pixel several times in both directions."""
        shape = tuple(times * d for d in x.shape[2:])
        how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        made = ops.resize(x, axes=(2, 3), shape=shape, scales=(float(times),) * 2, **how)
        self.quant[made] = self.of(x)
        return made

    def graph(self, *outputs: Value) -> Graph:
        return Graph([self.input], list(outputs), [f"y{i}" for i in range(len(outputs))])


def random_cnn(seed: int) -> Graph:
    """A few layers in a random order; the shapes cover all layouts of the KPU's RAM."""
    rng = np.random.default_rng(seed)
    size = int(rng.choice([8, 12, 16, 24, 32, 40, 64, 72]))
    high = int(rng.choice([8, 12, 20]))
    net = Cnn(seed, (1, int(rng.integers(1, 9)), high, size), str(rng.choice(["i8", "u8"])))
    x = net.input
    for _ in range(int(rng.integers(2, 6))):
        halves = min(x.shape[2:]) >= 8 and not (x.shape[2] % 2 or x.shape[3] % 2)
        kind = rng.choice(["1x1", "3x3", "depthwise", "add", "pool", "table", "half", "tf", "dw2"])
        many = int(rng.integers(1, 24))
        if kind in ("half", "dw2", "tf") and not halves:
            kind = "3x3"
        if kind == "add":
            same = net.conv(x, x.shape[1], 1)
            x = net.add(x, same) if x is not net.input else same
        elif kind == "pool":
            x = net.conv(x, many, 1)
            x = net.max_pool(x) if halves else net.max_pool(x, 2, 1, (0, 0, 1, 1))
        elif kind == "table":
            x = net.table(net.conv(x, many, 1))
        elif kind == "depthwise" and x.shape[1] > 1:
            x = net.conv(x, x.shape[1], 3, depthwise=True)
        elif kind == "dw2" and x.shape[1] > 1:
            pad = (0, 0, 1, 1) if rng.random() < 0.5 else None
            x = net.conv(net.conv(x, x.shape[1], 3, 2, True, pad), many, 1)
        elif kind == "tf":
            x = net.conv(x, many, 3, 2, pad=(0, 0, 1, 1))
        else:
            x = net.conv(x, many, 1 if kind == "1x1" else 3, 2 if kind == "half" else 1)
    if rng.random() < 0.4:
        x = net.mean(net.conv(x, 16 * int(rng.integers(1, 5)), 1))
        x = net.conv(x, int(rng.integers(2, 30)), 1, pad=(0, 0, 0, 0))
    return net.graph(x)


def joined_outputs() -> Graph:
    """Outputs that share bytes, and a map that lies in two concats."""
    net = Cnn(5, (1, 3, 12, 20))
    a, b = net.conv(net.input, 6), net.conv(net.input, 5, 1)
    joined = ops.concat(a, b, axis=1)
    net.quant[joined] = net.of(a)
    again = ops.concat(b, a, axis=1)
    net.quant[again] = net.of(a)
    deep = net.conv(joined, 11, 3, depthwise=True)
    return net.graph(a, joined, net.conv(again, 4, 1), deep)


def large_linear(numbers: int) -> Graph:
    """A linear layer that reads so many numbers."""
    high = next(h for h in (16, 8, 7, 5, 4) if numbers % h == 0 and numbers // h >= 4)
    wide = next((w for w in (64, 32, 16, 8, 4) if numbers // high % w == 0), numbers // high)
    net = Cnn(numbers, (1, 3, high, wide))
    x = net.conv(net.input, numbers // high // wide)
    flat = ops.reshape(x, shape=(1, numbers, 1, 1))
    net.quant[flat] = net.of(x)
    return net.graph(net.conv(flat, 37, 1, pad=(0, 0, 0, 0)))


def grouped(channels: int, outputs: int, groups: int, kernel: int) -> Graph:
    """A convolution in groups, with a stride of 2 after it."""
    net = Cnn(groups, (1, channels, 12, 20))
    x = net.conv(net.conv(net.input, channels), outputs, kernel, groups=groups)
    return net.graph(net.conv(x, outputs, 3, 2, groups=1 if outputs % 2 else outputs // 2))


def odd_sizes(seed: int) -> Graph:
    """Convolutions with a stride of 2 over maps of odd sizes, and a residual beside them."""
    rng = np.random.default_rng(seed)
    high, wide = (int(2 * n + rng.integers(2)) for n in rng.integers(4, 40, 2))
    net = Cnn(seed, (1, int(rng.integers(1, 9)), high | 1, wide))
    x = net.conv(net.input, int(rng.integers(2, 20)), 3, 2 if seed % 2 and high > 16 else 1)
    if seed % 3 == 0:
        halved = net.conv(x, x.shape[1], 3, 2, depthwise=True)
        return net.graph(net.conv(halved, 7, 1))
    left, right = net.conv(x, 9, 3, 2), net.conv(x, 9, 1, 2, pad=(0, 0, 0, 0))
    return net.graph(net.add(left, right), x)


def small_maps(seed: int) -> Graph:
    """Layers on maps below 4x4: the end of a network for small pictures."""
    rng = np.random.default_rng(seed)
    high, wide = (int(n) for n in rng.integers(4, 14, 2))
    net = Cnn(seed, (1, int(rng.integers(1, 5)), high, wide))
    x = net.conv(net.input, int(rng.integers(2, 9)))
    outputs: list[Value] = []
    for step in range(int(rng.integers(2, 6))):
        size, channels = x.shape[2:], int(rng.integers(2, 24))
        deep = bool(rng.random() < 0.4)
        stride = 2 if max(size) > 1 and (step < 2 or rng.random() < 0.4) else 1
        even = stride == 2 and not any(n % 2 for n in size) and rng.random() < 0.5
        pad = (0, 0, 1, 1) if even else (1, 1, 1, 1)
        kernel = 3 if deep or rng.random() < 0.6 else 1
        pad = pad if kernel == 3 else (0, 0, 0, 0)
        y = net.conv(x, x.shape[1] if deep else channels, kernel, stride, depthwise=deep, pad=pad)
        kind = rng.random()
        if kind < 0.25:
            y = net.add(y, net.conv(y, y.shape[1], 1))
        elif kind < 0.4:
            y = net.table(y)
        elif kind < 0.55:
            joined = ops.concat(y, net.table(y), axis=1)
            net.quant[joined] = net.of(y)
            y = joined
        elif kind < 0.65:
            outputs.append(y)
        x = y
    if rng.random() < 0.3:
        return net.graph(*dict.fromkeys((x, *outputs)))
    return net.graph(net.mean(net.conv(x, 16, 1)), *dict.fromkeys(outputs))


def max_around(seed: int) -> Graph:
    """Maximum pools with odd windows, as detectors (SPP) and ResNet have them."""
    rng = np.random.default_rng(seed)
    high, wide = (int(n) for n in rng.integers(3, 24, 2))
    net = Cnn(seed, (1, int(rng.integers(1, 5)), max(high, 4), max(wide, 4)))
    x = net.conv(net.input, int(rng.integers(2, 14)))
    size = int(rng.choice([3, 5, 7, 9]))
    pools = [net.max_pool(x, k, 1, (k // 2,) * 4) for k in {3, size}]
    joined = ops.concat(*pools, x, axis=1)
    net.quant[joined] = net.of(x)
    y = net.conv(joined, 8, int(rng.choice([1, 3])))
    y = net.max_pool(y, 3, 2, (1, 1, 1, 1))
    return net.graph(net.conv(y, 6, int(rng.choice([1, 3]))), *([y] if seed % 4 == 0 else []))


def upsampling(seed: int) -> Graph:
    """A map that grows 2 or 4 times, joined with a larger one, as in detectors."""
    rng = np.random.default_rng(seed)
    times = 2 if seed % 2 else 4
    high, wide = (4 * times * int(n) for n in rng.integers(1, 5, 2))
    net = Cnn(seed, (1, 3, high, wide))
    first = small = net.conv(net.input, int(rng.integers(1, 9)))
    for _ in range(times // 2):
        small = net.max_pool(small)
    grown = net.upsample(net.conv(small, int(rng.integers(1, 12))), times)
    joined = ops.concat(grown, first, axis=1)
    net.quant[joined] = net.of(grown)
    more = net.upsample(joined)
    return net.graph(net.conv(more, 5), more) if seed % 3 == 0 else net.graph(net.conv(more, 5))


def byte_weights(zero: int) -> Graph:
    """Weights of u8 with a zero point: dense, in groups, depthwise, and a linear layer."""
    net = Cnn(zero, (1, 3, 16, 16), "u8")
    net.weight_zero = zero
    x = net.conv(net.input, 8, 3, 2, pad=(0, 0, 1, 1))
    x = net.conv(net.conv(x, 8, 3, depthwise=True), 12, 3, groups=4)
    x = net.conv(net.conv(x, 12, 3, 2, depthwise=True, pad=(0, 0, 1, 1)), 6, 1)
    flat = ops.reshape(x, shape=(1, x.type.size, 1, 1))
    net.quant[flat] = net.of(x)
    return net.graph(net.conv(flat, 10, 1, pad=(0, 0, 0, 0)))


def negative_scales(seed: int) -> Graph:
    """Weights with negative scales, as some files of TFLite have them."""
    net = Cnn(seed, (1, 3, 16, 16))
    net.signs = True
    x = net.conv(net.conv(net.input, 8, 3, 2, pad=(0, 0, 1, 1)), 8, 3, depthwise=True)
    x = net.add(net.table(net.conv(x, 12, 3, groups=4)), net.conv(x, 12, 1))
    return net.graph(net.conv(net.max_pool(x), 6, 1))


def wide_expansion() -> Graph:
    """An expansion and a depthwise layer with TensorFlow's padding, too large for the KPU's RAM."""
    net = Cnn(0, (1, 16, 112, 112))
    x = net.conv(net.conv(net.input, 96, 1), 96, 3, 2, depthwise=True, pad=(0, 0, 1, 1))
    return net.graph(net.conv(x, 24, 1))
