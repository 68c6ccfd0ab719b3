"""Small networks of NPU ops with random weights, for tests of the NPU compiler."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Graph, Type, Value
from intaglio.npu import ops
from intaglio.npu.ops import f16_arithmetic
from intaglio.targets import chip as chips
from intaglio.targets.chip import Chip, Unit

ENDS: dict[str, dict[str, Any]] = {
    "i8": {"low": -120, "high": 113, "dtype": "i8"},
    "i16": {"low": -32768, "high": 32000, "dtype": "i16"},
    "f16": {"most": 30.0, "dtype": "f16"},
}


@dataclass
class Maker:
    """Makes layers with random weights, on feature maps of one type."""

    seed: int = 0
    kind: str = "i8"
    draw: random.Random = field(init=False)
    numbers: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.draw, self.numbers = random.Random(self.seed), np.random.default_rng(self.seed)

    def image(self, *shape: int) -> Value:
        return Value(Type(self.kind, shape), "x")

    def zero(self, number: int) -> int:
        return 0 if self.kind == "f16" else number

    def conv(
        self,
        x: Value,
        channels: int,
        kernel: int = 1,
        stride: int = 1,
        *,
        pad: int | None = None,
        dilation: int = 1,
        residual: Value | None = None,
        depthwise: bool = False,
        table: bool = False,
        dtype: str | None = None,
    ) -> Value:
        pad = kernel // 2 * dilation if pad is None else pad
        deep = 1 if depthwise else x.shape[1]
        w, near = self.weights((channels, deep, kernel, kernel))
        near = np.float32(near / np.sqrt(deep * kernel * kernel))
        scale = near * self.numbers.uniform(0.5, 1.5, channels).astype(np.float32)
        bias = self.numbers.integers(-1000, 1000, channels).astype(np.int32)
        if self.kind == "f16":
            bias = self.numbers.normal(0, 1, channels).astype(np.float32)
        rest: dict[str, Any] = dict(ENDS[self.kind])
        if dtype is not None:
            rest["dtype"] = dtype
        if residual is not None:
            rest |= {"r_zero": self.zero(3), "r_factor": 0.5}
        if table and self.kind != "f16":
            rest |= {"base": -128}
        entries = self.table() if table else None
        op = ops.depthwise if depthwise else ops.conv
        return op(
            x,
            w,
            scale,
            bias,
            residual,
            entries,
            stride=(stride, stride),
            pad=(pad,) * 4,
            dilation=(dilation, dilation),
            x_zero=self.zero(5),
            y_zero=-3,
            origin=f"conv{channels}",
            **rest,
        )

    def pool(
        self, x: Value, kind: str, kernel: int, stride: int, pad: int = 0, count: bool = False
    ) -> Value:
        return ops.pool(
            x,
            kind=kind,
            kernel=(kernel, kernel),
            stride=(stride, stride),
            pad=(pad,) * 4,
            dilation=(1, 1),
            count_include_pad=count,
            x_zero=self.zero(2),
            y_zero=1,
            x_scale=0.11,
            y_scale=0.07,
            **ENDS[self.kind],
        )

    def mean(self, x: Value) -> Value:
        """Of whole images."""
        return ops.pool(
            x,
            kind="avg",
            kernel=x.shape[2:],
            stride=(1, 1),
            pad=(0,) * 4,
            dilation=(1, 1),
            x_scale=0.1,
            y_scale=0.1,
            **ENDS[self.kind],
        )

    def weights(self, shape: tuple[int, ...]) -> tuple[np.ndarray, float]:
        """Some, and the factor for one product of them."""
        if self.kind == "f16":
            return self.numbers.normal(0, 1, shape).astype(np.float16), 1.0
        if self.kind == "i16" and self.draw.random() < 0.5:
            return self.numbers.integers(-32767, 32768, shape).astype(np.int16), 1 / 18000
        return self.numbers.integers(-127, 128, shape).astype(np.int8), 1 / 70

    def table(self) -> np.ndarray:
        if self.kind == "f16":
            return f16_arithmetic.piecewise_table(np.tanh)[0]
        low, high = dtypes.limits(self.kind)
        numbers = self.numbers.integers(low, high + 1, 256)
        return numbers.astype(dtypes.numpy_of(self.kind))

    def join(self, kind: str, a: Value, b: Value) -> Value:
        factor = 0.01 if kind == "mul" else 0.6
        return ops.eltwise(
            a,
            b,
            kind=kind,
            a_zero=self.zero(1),
            b_zero=self.zero(-2),
            a_factor=factor,
            b_factor=0.4,
            **ENDS[self.kind],
        )

    def lut(self, x: Value) -> Value:
        return ops.lut(x, self.table(), base=0 if self.kind == "f16" else -128)


def graph(x: Value, *outputs: Value) -> Graph:
    for i, y in enumerate(outputs):
        y.name = f"y{i}"
    return Graph([x], list(outputs), name="net")


def mobile(m: Maker, size: int = 32) -> Graph:
    """Inverted residual blocks, then an average pool and a linear layer."""
    x = m.image(1, 3, size, size)
    y = m.conv(m.conv(m.conv(x, 32, 3, 2), 32, 3, depthwise=True), 16)
    for channels, stride in ((24, 2), (24, 1), (40, 2), (40, 1)):
        z = m.conv(m.conv(y, 6 * y.shape[1]), 6 * y.shape[1], 3, stride, depthwise=True)
        y = m.conv(z, channels, residual=y if stride == 1 else None)
    y = m.pool(y, "avg", y.shape[2], 1)
    return graph(x, m.conv(y, 100, dtype="f32"))


def pyramid(m: Maker, size: int = 32) -> Graph:
    """A detector in small: concats of nested pools, upsampling, three outputs."""
    x = m.image(1, 3, size, size)
    a = m.conv(m.conv(x, 32, 3, 2, table=True), 32, 3, 2)
    b = m.conv(a, 64, 3, 2)
    p = m.conv(b, 32)
    q = m.pool(p, "max", 5, 1, 2)
    r = m.pool(q, "max", 5, 1, 2)
    b = m.conv(ops.concat(p, q, r), 48)
    up = ops.resize(b, factor=(2, 2))
    c = m.conv(ops.concat(up, a), 24, 3)
    d = m.conv(c, 48, 3, 2)
    return graph(x, c, m.join("add", d, b), m.lut(d))


def anything(seed: int, kind: str = "i8") -> Graph:
    """A random network of all ops, with odd channels and extents."""
    m = Maker(seed, kind)
    draw = m.draw
    x = m.image(
        draw.choice((1, 1, 2)),
        draw.choice((1, 3, 16, 20)),
        draw.randint(5, 24),
        draw.randint(5, 24),
    )
    made = [m.conv(x, draw.choice((8, 16, 33)), 3)]
    for _ in range(draw.randint(2, 9)):
        made.append(_layer(m, draw.choice(made[-3:]), made))
    outputs = dict.fromkeys([made[-1], draw.choice(made)])
    return graph(x, *outputs)


def _layer(m: Maker, y: Value, made: Sequence[Value]) -> Value:
    draw, (_, channels, height, width) = m.draw, y.shape
    same = [v for v in made if v.shape == y.shape]
    beside = [v for v in made if v.shape[2:] == y.shape[2:]]
    kernel = draw.choice((1, 3, 5)) if min(height, width) >= 5 else 1
    stride = draw.choice((1, 1, 2)) if min(height, width) >= 4 else 1
    kind = draw.choice(
        (
            "conv",
            "conv",
            "residual",
            "depthwise",
            "max",
            "avg",
            "add",
            "mul",
            "spread",
            "lut",
            "resize",
            "concat",
            "slice",
        )
    )
    if kind == "conv":
        dilation = 2 if kernel == 3 and min(height, width) > 6 else 1
        return m.conv(
            y,
            draw.choice((5, 16, 32, 40)),
            kernel,
            stride,
            dilation=dilation,
            table=draw.random() < 0.3,
        )
    if kind == "residual":
        return m.conv(draw.choice(beside), channels, kernel, residual=draw.choice(same))
    if kind == "depthwise":
        return m.conv(y, channels, kernel, stride, depthwise=True)
    if kind in ("max", "avg") and kernel > 1:
        return m.pool(y, kind, kernel, stride, kernel // 2, draw.random() < 0.5)
    if kind in ("add", "mul"):
        return m.join(kind, y, draw.choice(same))
    if kind == "spread":
        return m.join("mul", y, m.mean(y))
    if kind == "resize" and height * width < 400:
        return ops.resize(y, factor=(draw.choice((1, 2)), 2))
    if kind == "concat":
        return ops.concat(y, draw.choice(beside))
    if kind == "slice" and channels > 2:
        first = draw.randrange(channels - 1)
        return ops.slice_(y, first=first, count=draw.randint(1, channels - first))
    return m.lut(y)


def small_chip(
    sram: int, c2: int = 16, in_atom: int = 32, out_atom: int = 32, align: int = 64, shared: int = 0
) -> Chip:
    """A chip with the units of rk3588 and other sizes."""
    like = chips.load("rk3588")
    units = dict(like.units)
    for name, atoms in (("conv", (in_atom, out_atom)), ("depthwise", (out_atom, out_atom))):
        each = (dict.fromkeys(("i8", "i16", "f16"), n) for n in atoms)
        units[name] = replace(units[name], in_atom=next(each), out_atom=next(each))
    assert all(isinstance(u, Unit) for u in units.values())
    kinds = dict.fromkeys(("i8", "u8", "i16", "f16"), c2)
    return replace(like, name="small", sram=sram, c2=kinds, align=align, shared=shared, units=units)
