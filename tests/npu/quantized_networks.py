"""Random networks of quantised ops, as the integer pass makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from intaglio import dtypes, ops
from intaglio.ir import Graph, Type, Value, constant

BYTES = ("i8", "u8")


def codes(rng, dtype, *shape):
    """Random numbers over the whole range of an element type."""
    low, high = dtypes.limits(dtype)
    return rng.integers(low, high + 1, shape).astype(dtypes.numpy_of(dtype))


@dataclass
class Net:
    """A network under construction; `live` are its feature maps."""

    rng: np.random.Generator
    live: list[Value]

    def scale(self, low: float = 0.01, high: float = 0.2) -> Value:
        return constant(np.float32(self.rng.uniform(low, high)))

    def zero(self, dtype: str) -> Value:
        return constant(codes(self.rng, dtype)[()])

    def of(self, v: Value) -> tuple[Value, Value, Value]:
        return v, self.scale(), self.zero(v.dtype)

    def result(self, dtype: str | None = None) -> tuple[Value, Value]:
        kind = dtype or self.rng.choice(BYTES)
        return self.scale(), self.zero(str(kind))

    def pick(self) -> Value:
        return self.live[int(self.rng.integers(len(self.live)))]

    def weights(self, many: int, deep: int, kernel: tuple[int, ...]) -> tuple[Value, Value, Value]:
        per = constant(self.rng.uniform(0.001, 0.01, many).astype(np.float32))
        w = constant(codes(self.rng, "i8", many, deep, *kernel))
        return w, per, constant(np.zeros(many, np.int8))

    def conv(self) -> Value:
        x = self.pick()
        channels = x.shape[1]
        groups = int(self.rng.choice([g for g in (1, 1, 2, channels) if channels % g == 0]))
        many = groups * int(self.rng.integers(1, 4)) if self.rng.random() < 0.7 else channels
        kernel = tuple(int(min(k, d)) for k, d in zip(self.rng.integers(1, 4, 2), x.shape[2:]))  # noqa: B905
        window = {
            "stride": tuple(map(int, self.rng.integers(1, 3, 2))),
            "dilation": (1, 1),
            "pad": tuple(map(int, self.rng.integers(0, 2, 4))),
            "groups": groups,
        }
        w = self.weights(many, channels // groups, kernel)
        if self.rng.random() < 0.2:  # asymmetric weights, which need nine bits
            u8 = constant(codes(self.rng, "u8", *w[0].shape))
            w = u8, w[1], constant(codes(self.rng, "u8", many))
        b = constant(self.rng.integers(-2000, 2000, many).astype(np.int32))
        kind = self.rng.choice(["plain", "table", "residual", "wide"])
        if kind == "wide":
            y = ops.qlinear_conv(*self.of(x), *w, *self.result("i16"), b, **window)
            table = constant(codes(self.rng, "i8", int(self.rng.integers(1, 900))))
            return ops.lookup_wide(y, table, base=int(self.rng.integers(-500, 500)))
        y = ops.qlinear_conv(*self.of(x), *w, *self.result(), b, **window)
        if kind == "residual":
            alike = [v for v in self.live if v.shape == y.shape]
            if alike:
                r = self.of(alike[-1])
                return ops.qlinear_conv(*self.of(x), *w, *self.result(), b, *r, **window)
        return self.function(y) if kind == "table" else y

    def function(self, x: Value | None = None) -> Value:
        x = x or self.pick()
        if self.rng.random() < 0.5:
            low, high = sorted(map(float, codes(self.rng, x.dtype, 2)))
            return ops.clip(x, lo=low, hi=high)
        return ops.lookup(x, constant(codes(self.rng, str(self.rng.choice(BYTES)), 256)))

    def pair(self) -> Value:
        a = self.pick()
        made = ops.qlinear_add if self.rng.random() < 0.5 else ops.qlinear_mul
        alike = [
            v
            for v in self.live
            if v.type.rank == 4 and all(n in (1, m) for n, m in zip(v.shape, a.shape, strict=True))
        ]
        b = alike[int(self.rng.integers(len(alike)))]
        pair = (self.of(a), self.of(b)) if self.rng.random() < 0.5 else (self.of(b), self.of(a))
        return made(*pair[0], *pair[1], *self.result())

    def pool(self) -> Value:
        x = self.pick()
        kernel = tuple(int(min(k, d)) for k, d in zip(self.rng.integers(1, 4, 2), x.shape[2:]))  # noqa: B905
        window = {
            "kernel": kernel,
            "stride": (int(self.rng.integers(1, 3)), 1),
            "dilation": (1, 1),
            "pad": tuple(int(self.rng.integers(0, k)) for k in kernel * 2),
        }
        kind = self.rng.choice(["max", "avg", "mean"])
        if kind == "max":
            return ops.max_pool(x, **window)
        if kind == "avg":
            counted = bool(self.rng.random() < 0.5)
            return ops.qlinear_avg_pool(
                *self.of(x), *self.result(), **window, count_include_pad=counted
            )
        return ops.qlinear_mean(*self.of(x), *self.result(), axes=(2, 3), keepdims=True)

    def move(self) -> Value:
        x = self.pick()
        kind = self.rng.choice(["concat", "slice", "resize", "shuffle", "pad", "gather"])
        _, c, h, w = x.shape
        if kind == "concat":
            alike = [v for v in self.live if (v.dtype, v.shape[2:]) == (x.dtype, x.shape[2:])]
            return ops.concat(x, *alike[-2:], axis=1)
        if kind == "slice":
            first = int(self.rng.integers(c))
            return ops.part(x, first, int(self.rng.integers(first + 1, c + 1)), axis=1)
        if kind == "resize" and h * w <= 36:
            how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            return ops.resize(x, axes=(2, 3), shape=(2 * h, 3 * w), scales=(2.0, 3.0), **how)
        if kind == "shuffle" and c % 2 == 0:
            return ops.channel_shuffle(x, groups=2)
        if kind == "pad":
            around = tuple(map(int, self.rng.integers(0, 3, 4)))
            value = float(codes(self.rng, x.dtype)[()])
            return ops.pad(x, before=(0, 0, *around[:2]), after=(0, 0, *around[2:]), value=value)
        order = self.rng.integers(0, c, int(self.rng.integers(1, 2 * c)))
        return ops.gather(x, constant(order), axis=1)

    def detour(self) -> Value:
        """What stays on the CPU, and is exact there."""
        x = self.pick()
        if self.rng.random() < 0.5:
            return ops.transpose(x, perm=(0, 1, 3, 2))
        real = ops.reduce_max(ops.dequantize_linear(*self.of(x)), axes=(1,), keepdims=True)
        scale, zero = self.result()
        return ops.quantize_linear(real, scale, zero, dtype=zero.dtype)

    def product(self) -> Value:
        """Of two activations, as in attention."""
        x = self.pick()
        return ops.qlinear_matmul(
            *self.of(x), *self.of(ops.transpose(x, perm=(0, 1, 3, 2))), *self.result()
        )

    def linear(self, x: Value) -> Value:
        k, n = x.type.size // x.shape[0], 5
        w = constant(codes(self.rng, "i8", n, k, 1))
        of_w = constant(np.float32(0.01)), constant(np.int8(0))
        flat = ops.reshape(x, shape=(x.shape[0], k, 1))
        return ops.qlinear_conv(
            *self.of(flat), w, *of_w, stride=(1,), pad=(0, 0), dilation=(1,), groups=1
        )


@st.composite
def networks(draw: Any, most: int = 8) -> tuple[Graph, dict[str, np.ndarray]]:
    """A network, and values for its input."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    extents = (int(rng.integers(1, 7)), int(rng.integers(2, 8)), int(rng.integers(2, 8)))
    x = Value(Type(str(rng.choice(BYTES)), (int(rng.integers(1, 3)), *extents)), "x")
    net = Net(rng, [x])
    steps = [
        net.conv,
        net.conv,
        net.conv,
        net.function,
        net.pair,
        net.pool,
        net.move,
        net.detour,
        net.product,
    ]
    for _ in range(draw(st.integers(1, most))):
        net.live.append(steps[int(rng.integers(len(steps)))]())
    ends = [net.live[-1], *([net.pick()] if rng.random() < 0.3 else [])]
    ends = [v for v in dict.fromkeys(ends) if v is not x] or [net.function(x)]
    if rng.random() < 0.4:
        ends.append(net.linear(ends[0]))
    graph = Graph([x], ends, [f"y{i}" for i in range(len(ends))])
    return graph, {"x": codes(rng, x.dtype, *x.shape)}
