"""Build networks layer by layer. Weights are zeros that take no memory, or random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from intaglio import ops
from intaglio.ir import Array, Graph, Type, Value, constant

Pair = int | tuple[int, int]
Act = str | None
ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "relu": lambda x: ops.relu(x),
    "relu6": lambda x: ops.clip(x, lo=0.0, hi=6.0),
    "hswish": lambda x: ops.hardswish(x),
    "hsigmoid": lambda x: ops.hard_sigmoid(x, alpha=1 / 6, beta=0.5),
    "swish": lambda x: ops.swish(x),
    "sigmoid": lambda x: ops.sigmoid(x),
    "gelu": lambda x: ops.gelu(x),
}


def divisible(channels: float, by: int = 8, least: int | None = None) -> int:
    """Channels rounded to a multiple, never more than 10 % lower."""
    result = max(least or by, int(channels + by / 2) // by * by)
    return result + by if result < 0.9 * channels else result


class Builder:
    """Makes the layers of one network."""

    def __init__(self, weights: str = "zeros", seed: int = 0):
        self.random = None if weights == "zeros" else np.random.default_rng(seed)
        self.layers = 0

    def input(self, size: int, channels: int = 3) -> Value:
        return Value(Type("f32", (1, channels, size, size)), "input")

    def weight(self, *shape: int, name: str = "") -> Value:
        """A parameter; random ones keep the variance of their layer's input."""
        if self.random is None:
            data: Array = np.broadcast_to(np.float32(0), shape)
        else:
            fan = math.prod(shape[1:]) or 1
            data = self.random.standard_normal(shape, np.float32) * np.float32((2 / fan) ** 0.5)
        return Value(Type("f32", shape), name, data)

    def _channel(self, count: int, value: float) -> Value:
        data: Array = np.full((count, 1, 1), value, np.float32)
        return constant(data)

    def conv(
        self,
        x: Value,
        out: int,
        kernel: Pair = 1,
        stride: int = 1,
        act: Act = "relu",
        groups: int = 1,
        pad: int | None = None,
        norm: bool = True,
        bias: bool = False,
        dilation: int = 1,
    ) -> Value:
        """Convolution, batch normalisation as a scale and a shift, activation."""
        kh, kw = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        ph, pw = ((kh - 1) // 2 * dilation, (kw - 1) // 2 * dilation) if pad is None else (pad, pad)
        w = self.weight(out, x.shape[1] // groups, kh, kw)
        b = self.weight(out) if bias else None
        self.layers += 1
        y: Value = ops.conv(
            x,
            w,
            b,
            stride=(stride, stride),
            pad=(ph, pw, ph, pw),
            dilation=(dilation, dilation),
            groups=groups,
            origin=f"conv{self.layers}",
        )
        if norm:
            y = self.norm(y)
        return self.act(y, act)

    def norm(self, x: Value) -> Value:
        """Batch normalisation: a scale and a shift by channel."""
        y: Value = ops.mul(x, self._channel(x.shape[1], 1.0))
        result: Value = ops.add(y, self._channel(x.shape[1], 0.0))
        return result

    def scale(self, x: Value) -> Value:
        """A learnt scale of each channel."""
        result: Value = ops.mul(x, self._channel(x.shape[1], 1.0))
        return result

    def depthwise(
        self, x: Value, kernel: int = 3, stride: int = 1, act: Act = "relu", dilation: int = 1
    ) -> Value:
        return self.conv(x, x.shape[1], kernel, stride, act, x.shape[1], dilation=dilation)

    def act(self, x: Value, name: Act) -> Value:
        if name == "prelu":
            slopes: Value = ops.prelu(x, self._channel(x.shape[1], 0.25))
            return slopes
        return x if name is None else ACTIVATIONS[name](x)

    def add(self, a: Value, b: Value) -> Value:
        result: Value = ops.add(a, b)
        return result

    def concat(self, *parts: Value) -> Value:
        result: Value = ops.concat(*parts, axis=1)
        return result

    def channels(self, x: Value, start: int, stop: int) -> Value:
        """Some channels of a feature map."""
        n, _, h, w = x.shape
        result: Value = ops.slice_(
            x, start=(0, start, 0, 0), stop=(n, stop, h, w), step=(1, 1, 1, 1)
        )
        return result

    def double(self, x: Value, out: int) -> Value:
        """A transposed convolution to twice the height and width."""
        result: Value = ops.conv_transpose(
            x, self.weight(x.shape[1], out, 2, 2), stride=(2, 2), pad=(0, 0, 0, 0),
            dilation=(1, 1), groups=1, output_pad=(0, 0),
        )  # fmt: skip
        return result

    def max_pool(
        self, x: Value, kernel: int, stride: int, pad: int = 0, ceil: bool = False
    ) -> Value:
        """Max pooling; `ceil` keeps a last window that is not full."""
        more = 0
        if ceil:
            over = (x.shape[2] + 2 * pad - kernel) % stride
            more = stride - over if over else 0
        result: Value = ops.max_pool(
            x, kernel=(kernel, kernel), stride=(stride, stride),
            pad=(pad, pad, pad + more, pad + more), dilation=(1, 1),
        )  # fmt: skip
        return result

    def avg_pool(self, x: Value, kernel: int, stride: int, pad: int = 0) -> Value:
        result: Value = ops.avg_pool(
            x, kernel=(kernel, kernel), stride=(stride, stride), pad=(pad,) * 4, dilation=(1, 1)
        )
        return result

    def mean(self, x: Value) -> Value:
        """Global average pooling."""
        result: Value = ops.reduce_mean(x, axes=(2, 3), keepdims=True)
        return result

    def squeeze_excite(
        self, x: Value, inner: int, act: Act = "relu", gate: Act = "hsigmoid"
    ) -> Value:
        s = self.conv(self.mean(x), inner, act=act, norm=False, bias=True)
        s = self.conv(s, x.shape[1], act=gate, norm=False, bias=True)
        result: Value = ops.mul(x, s)
        return result

    def shuffle(self, x: Value, groups: int) -> Value:
        """Channel shuffle."""
        n, c, h, w = x.shape
        y = ops.reshape(x, shape=(n, groups, c // groups, h, w))
        y = ops.transpose(y, perm=(0, 2, 1, 3, 4))
        result: Value = ops.reshape(y, shape=(n, c, h, w))
        return result

    def flat(self, x: Value) -> Value:
        result: Value = ops.reshape(x, shape=(x.shape[0], math.prod(x.shape[1:])))
        return result

    def linear(self, x: Value, out: int, act: Act = None, bias: bool = True) -> Value:
        w = self.weight(x.shape[-1], out)
        self.layers += 1
        y: Value = ops.matmul(x, w, origin=f"linear{self.layers}")
        if bias:
            y = ops.add(y, constant(np.zeros(out, np.float32)))
        return self.act(y, act)

    def classifier(self, x: Value, classes: int = 1000) -> Value:
        """Global average pooling and one linear layer."""
        return self.linear(self.flat(self.mean(x)), classes)

    def graph(self, x: Value, y: Value, name: str) -> Graph:
        y.name = "logits"
        return Graph([x], [y], ["logits"], name)
