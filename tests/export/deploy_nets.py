"""Small 8-bit networks for `intaglio.deploy`, and builds of the projects that it writes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant

FLAGS = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-I.", "-Iitg")


class Net:
    """Builds layers with random weights and scales that use the whole range."""

    def __init__(self, dtype: str = "i8", weights: str = "i8"):
        self.random, self.dtype, self.weights = np.random.default_rng(5), dtype, weights

    def zero(self, at: int) -> Value:
        return constant(np.array(at + 128 if self.dtype == "u8" else at, self.kind))

    @property
    def kind(self) -> type:
        return np.uint8 if self.dtype == "u8" else np.int8

    def conv(
        self, x: Value, m: int, kernel: int, groups: int = 1, floats: bool = False, **window: Any
    ) -> Value:
        """A convolution; by default with stride 2 in one direction and uneven padding."""
        k = x.shape[1] // groups * kernel * kernel
        low, high = (0, 256) if self.weights == "u8" else (-127, 128)
        shape = (m, x.shape[1] // groups, kernel, kernel)
        w = self.random.integers(low, high, shape).astype(
            np.uint8 if self.weights == "u8" else np.int8
        )
        w_zero = np.full(m, 117 if self.weights == "u8" else 0, w.dtype)
        scale = self.random.uniform(0.5, 1.5, m).astype(np.float32) / np.float32(70 * k**0.5)
        ends = (None, None) if floats else (constant(np.float32(1)), self.zero(7))
        big, thin = kernel // 2, min(kernel - 1, 1)
        result: Value = ops.qlinear_conv(
            x,
            constant(np.float32(1)),
            self.zero(-3),
            constant(w),
            constant(scale),
            constant(w_zero),
            *ends,
            constant(self.random.integers(-4000, 4000, m).astype(np.int32)),
            **({"stride": (1, 2), "pad": (thin, big, big, 0)} | window),
            dilation=(1, 1),
            groups=groups,
        )
        return result

    def pair(self, op: str, a: Value, b: Value) -> Value:
        one, two = constant(np.float32(0.7)), constant(np.float32(0.9))
        ends = constant(np.float32(1.1 if op == "qlinear_add" else 40)), self.zero(4)
        result: Value = getattr(ops, op)(a, one, self.zero(-3), b, two, self.zero(5), *ends)
        return result


def every_kernel(dtype: str = "i8", weights: str = "i8") -> Graph:
    """A network with all exported kernels, in shapes that leave a rest everywhere."""
    net = Net(dtype, weights)
    x = Value(Type(dtype, (1, 3, 9, 14)), "x")
    a = net.conv(x, 7, 3)
    b = net.conv(a, 7, 3, groups=7)
    c = net.conv(b, 21, 1)
    d = net.conv(c, 9, 2, groups=3)
    window = {"kernel": (2, 2), "stride": (1, 1), "pad": (0, 1, 1, 0), "dilation": (1, 1)}
    e = ops.max_pool(d, **window)
    s = constant(np.float32(0.8)), net.zero(-3), constant(np.float32(0.9)), net.zero(2)
    f = ops.qlinear_avg_pool(d, *s, **window)
    g = net.pair("qlinear_add", e, f)
    m = ops.qlinear_mean(g, *s, axes=(2, 3), keepdims=True)
    h = net.pair("qlinear_mul", g, m)
    table = net.random.integers(-128, 128, 256).astype(np.int8).view(net.kind)
    t = ops.lookup(h, constant(table))
    wide = ops.pad(ops.concat(g, t, axis=1), before=(0, 0, 1, 0), after=(0, 1, 0, 2), value=5.0)
    part = ops.slice_(wide, start=(0, 1, 1, 3), stop=(1, 17, 9, 0), step=(1, 2, 1, -1))
    power = np.rint(np.exp(-0.05 * np.arange(256)) * 2**22).astype(np.int32)
    y_zero = constant(np.array(0 if dtype == "u8" else -128, net.kind))
    soft = ops.qlinear_softmax(part, constant(power), constant(np.float32(1 / 256)), y_zero, axis=1)
    flat = ops.reshape(m, shape=(1, 9, 1, 1))
    dense = net.conv(flat, 6, 1)
    real = net.conv(flat, 5, 1, floats=True)
    names = ["soft", "dense", "real"]
    return Graph([x], [soft, dense, real], names, "every kernel")


def epilogues() -> Graph:
    """A table of 16-bit sums, a quantised and a float residual, and a clip of floats."""
    net, x = Net(), Value(Type("i8", (1, 5, 6, 7)), "x")
    one, zero = constant(np.float32(1)), constant(np.int8(3))

    def conv(x: Value, *more: Value | None) -> Value:
        w = net.random.integers(-127, 128, (5, 5, 1, 1)).astype(np.int8)
        bias = constant(net.random.integers(-900, 900, 5).astype(np.int32))
        scale = constant(net.random.uniform(0.01, 0.02, 5).astype(np.float32))
        y, residual = more[:2], more[2:]
        square = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1)}
        zeros = constant(np.zeros(5, np.int8))
        result: Value = ops.qlinear_conv(
            x, one, zero, constant(w), scale, zeros, *y, bias, *residual, **square
        )
        return result

    wide = conv(x, constant(np.float32(0.05)), constant(np.int16(-11)))
    table = net.random.integers(-128, 128, 700).astype(np.int8)
    a = ops.lookup_wide(wide, constant(table), base=-400)
    b = conv(a, one, zero, x, constant(np.float32(0.6)), zero)
    c = conv(b, None, None)
    d = conv(b, None, None, c)
    return Graph([x], [b, ops.clip(d, lo=-20.0, hi=50.0), ops.relu(c)], ["b", "d", "c"])


def floats() -> Graph:
    """Arithmetic of f32 that broadcasts, and functions of results from -90 to 90."""
    net, x = Net(), Value(Type("i8", (1, 5, 6, 7)), "x")
    wide = ops.dequantize_linear(x, constant(np.float32(0.7)), constant(np.int8(2)))
    row = constant(net.random.normal(size=(1, 5, 1, 7)).astype(np.float32))
    column = constant(net.random.uniform(1, 2, (6, 1)).astype(np.float32))
    mixed = ops.mul(ops.div(ops.sub(wide, row), ops.add(row, column)), column)
    gates = ops.sigmoid(mixed), ops.swish(mixed, alpha=1.5), ops.hardswish(mixed)
    soft = [ops.softmax(v, axis=a) for v, a in ((mixed, 1), (gates[1], -1), (wide, 0))]
    names = ["sigmoid", "swish", "hardswish", "channels", "last", "one"]
    return Graph([x], [*gates, *soft], names, "floats")


PLANES = (  # height, width, stride, padding: odd and even, at every side, lines in several parts
    (5, 8, (1, 1), (1, 1, 1, 1)),
    (4, 9, (1, 1), (0, 2, 1, 0)),
    (9, 7, (2, 2), (0, 0, 1, 1)),
    (3, 3, (1, 1), (0, 0, 0, 0)),
    (7, 6, (3, 2), (1, 1, 1, 1)),
    (6, 5, (2, 1), (1, 1, 1, 1)),
    (1, 1, (1, 1), (1, 1, 1, 1)),
    (17, 150, (1, 1), (1, 1, 1, 1)),
    (21, 160, (2, 2), (2, 2, 2, 2)),
)


def planes(dtype: str = "i8", weights: str = "i8") -> Graph:
    """Depthwise 3x3 layers, and products of one to nine pixels of 4 to 60 channels."""
    net, inputs, outs = Net(dtype, weights), [], []
    for h, w, stride, pad in PLANES:
        inputs.append(Value(Type(dtype, (2, 5, h, w)), f"x{len(inputs)}"))
        outs.append(net.conv(inputs[-1], 5, 3, groups=5, stride=stride, pad=pad))
    for channels, pixels in ((4, 1), (8, 2), (12, 3), (16, 9), (60, 4)):
        inputs.append(Value(Type(dtype, (1, channels, 1, pixels)), f"x{len(inputs)}"))
        outs.append(net.conv(inputs[-1], 5, 1, stride=(1, 1), pad=(0, 0, 0, 0)))
    return Graph(inputs, outs, [f"y{i}" for i in range(len(outs))], "planes")


def build(folder: Path, *defines: str, compiler: Sequence[str] = ("gcc",)) -> Path:
    """Compile all C files of a project for Linux in one go."""
    sources = [*folder.glob("*.c"), *folder.glob("itg/*.c")]
    program = folder / "run"
    done = subprocess.run(
        [*compiler, *FLAGS, *defines, "-o", str(program), *map(str, sources)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return program
