"""Layers of the rebuilt networks as NPU ops; only shapes matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio import ops as neutral
from intaglio.ir import Graph, Type, Value
from intaglio.npu import ops
from intaglio.ops.shape import channels_last

BYTES: dict[str, Any] = {"low": -128, "high": 127, "dtype": "i8"}
ZERO: dict[str, Any] = {"x_zero": 0, "y_zero": 0}


class Net:
    """Makes layers; `act` is the activation of convolutions: "relu" is free, others use a table."""

    def __init__(self, act: str = "relu") -> None:
        self.act = act

    def image(self, channels: int, height: int, width: int, batch: int = 1) -> Value:
        return Value(Type("i8", (batch, channels, height, width)), "x")

    def conv(
        self,
        x: Value,
        channels: int,
        kernel: int | tuple[int, int] = 1,
        stride: int | tuple[int, int] = 1,
        *,
        act: str | None = None,
        add: Value | None = None,
        deep: bool = True,
        pad: tuple[int, ...] | None = None,
    ) -> Value:
        k = (kernel, kernel) if isinstance(kernel, int) else kernel
        s = (stride, stride) if isinstance(stride, int) else stride
        p = (k[0] // 2, k[1] // 2) if pad is None else pad
        p = p if len(p) == 4 else (*p, *p)  # top, left, bottom, right
        w = np.zeros((channels, x.shape[1] if deep else 1, *k), np.int8)
        act = self.act if act is None else act
        table = None if act in ("relu", "none") else np.zeros(256, np.int8)
        rest = {"base": -128} if table is not None else {}
        op = ops.conv if deep else ops.depthwise
        return op(
            x,
            w,
            1e-4 * np.arange(1, channels + 1, dtype=np.float32),  # one scale per channel
            np.zeros(channels, np.int32),
            add,
            table,
            stride=s,
            pad=p,
            dilation=(1, 1),
            r_factor=1.0 if add is not None else 0.0,
            **ZERO,
            **BYTES,
            **rest,
        )

    def depthwise(self, x: Value, kernel: int, stride: int = 1) -> Value:
        return self.conv(x, x.shape[1], kernel, stride, deep=False)

    def pool(
        self,
        x: Value,
        kernel: int | tuple[int, int],
        stride: int | tuple[int, int],
        pad: int = 0,
        kind: str = "max",
    ) -> Value:
        k = (kernel, kernel) if isinstance(kernel, int) else kernel
        s = (stride, stride) if isinstance(stride, int) else stride
        return ops.pool(
            x,
            kind=kind,
            kernel=k,
            stride=s,
            pad=(pad,) * 4,
            dilation=(1, 1),
            x_scale=1.0,
            y_scale=1.0,
            **ZERO,
            **BYTES,
        )

    def mean(self, x: Value) -> Value:
        return self.pool(x, (x.shape[2], x.shape[3]), 1, kind="avg")

    def join(self, a: Value, b: Value, kind: str = "add") -> Value:
        return ops.eltwise(
            a, b, kind=kind, a_zero=0, b_zero=0, a_factor=1.0, b_factor=1.0, y_zero=0, **BYTES
        )

    def reordered(self, x: Value) -> Value:
        """A layout conversion of an output, which the layers of the units leave over."""
        return channels_last(x)

    def every(self, x: Value, step: int) -> Value:
        """Every step-th channel, as of a pooling over channels."""
        n, channels, height, width = x.shape
        span = {"start": (0, 0, 0, 0), "stop": (n, channels, height, width)}
        made: Value = neutral.slice_(x, **span, step=(1, step, 1, 1))
        return made

    def softmax(self, x: Value) -> Value:
        """An approximation: exponentials by a lookup table, then a product."""
        return ops.eltwise(
            x,
            x,
            np.zeros(256, np.int8),
            kind="mul",
            a_zero=0,
            b_zero=0,
            y_zero=0,
            a_factor=1.0,
            b_factor=1.0,
            base=-128,
            **BYTES,
        )

    def up(self, x: Value, factor: int = 2) -> Value:
        return ops.resize(x, factor=(factor, factor))

    def deconv(self, x: Value, channels: int, kernel: int = 2) -> Value:
        """A transposed convolution of stride 2: four phases, each with a quarter of the taps."""
        wide = self.conv(x, 4 * channels, kernel // 2, pad=(0, 0) if kernel == 2 else (1, 1))
        wide = self.crop(wide, x.shape[2]) if kernel > 2 else wide
        return self.up(ops.slice_(wide, first=0, count=channels))

    def crop(self, x: Value, size: int) -> Value:
        return x if x.shape[2] == size else self.pool(x, 2, 1)


def graph(x: Value, *outputs: Value) -> Graph:
    return Graph([x], named(outputs), name="net")


def named(outputs: Sequence[Value]) -> list[Value]:
    for i, y in enumerate(outputs):
        y.name = f"y{i}"
    return list(outputs)
