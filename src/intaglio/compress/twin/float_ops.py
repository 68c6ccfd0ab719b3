"""The float operations of a graph as differentiable PyTorch functions.

A function takes the tensors of a node's operands (None: absent) and its attributes. Operations
without one are expanded into simpler ones by their own `lower`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from intaglio.compress.twin.rounding import sign

Ints = Sequence[int]
INF = math.inf


def padded(x: Tensor, pad: Ints, value: float = 0.0) -> Tensor:
    """`x` with its last axes padded by `pad`: begin of each axis, then end of each."""
    n = len(pad) // 2
    if not any(pad):
        return x
    return F.pad(x, [p for i in reversed(range(n)) for p in (pad[i], pad[n + i])], value=value)


CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
MEAN = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def conv(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, stride: Ints, pad: Ints, dilation: Ints,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    n = len(stride)
    even = pad[:n] == pad[n:]
    x, at = (x, tuple(pad[:n])) if even else (padded(x, pad), 0)
    return CONV[n](x, w, b, tuple(stride), at, tuple(dilation), groups)


def conv_transpose(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, stride: Ints, pad: Ints, output_pad: Ints,
    dilation: Ints, groups: int = 1,
) -> Tensor:  # fmt: skip
    n = len(stride)
    whole = TRANSPOSED[n](x, w, b, tuple(stride), 0, 0, groups, tuple(dilation))
    whole = padded(whole, [0] * n + list(output_pad))
    cut = [slice(pad[i], whole.shape[2 + i] - pad[n + i]) for i in range(n)]
    return whole[(slice(None), slice(None), *cut)]


def max_pool(
    x: Tensor, *, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints, storage_order: int = 0,
    with_indices: bool = False,
) -> Tensor:  # fmt: skip
    if with_indices:
        raise NotImplementedError
    x = padded(x, pad, -INF)
    return MAX[len(kernel)](x, tuple(kernel), tuple(stride), 0, tuple(dilation))


def window_sums(x: Tensor, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints) -> Tensor:
    """The sum of every window, per channel."""
    n, channels = len(kernel), x.shape[1]
    x = padded(x, pad)
    if set(dilation) == {1}:
        return MEAN[n](x, tuple(kernel), tuple(stride)) * float(math.prod(kernel))
    ones = x.new_ones(channels, 1, *kernel)
    return CONV[n](x, ones, None, tuple(stride), 0, tuple(dilation), channels)


def avg_pool(
    x: Tensor, *, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints,
    count_include_pad: bool = False,
) -> Tensor:  # fmt: skip
    total = window_sums(x, kernel, stride, pad, dilation)
    if count_include_pad or not any(pad):
        return total / float(math.prod(kernel))
    ones = x.new_ones(1, 1, *x.shape[2:])
    return total / window_sums(ones, kernel, stride, pad, dilation).round().clamp_min(1.0)


def gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 1.0,
    trans_a: bool = False, trans_b: bool = False,
) -> Tensor:  # fmt: skip
    y = (a.T if trans_a else a) @ (b.T if trans_b else b)
    y = y if alpha == 1 else y * alpha
    return y if c is None else y + (c if beta == 1 else c * beta)


def column(p: Tensor, x: Tensor) -> Tensor:
    return p.reshape(-1, *[1] * (x.dim() - 2))


def batch_norm(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, *, epsilon: float = 1e-5
) -> Tensor:
    factor = scale / torch.sqrt(var + epsilon)
    return (x - column(mean, x)) * column(factor, x) + column(bias, x)


def layer_norm(
    x: Tensor, scale: Tensor | None = None, bias: Tensor | None = None, *, axis: int = -1,
    epsilon: float = 1e-5,
) -> Tensor:  # fmt: skip
    shape = x.shape[axis:] if axis < 0 else x.shape[axis % x.dim() :]
    y = F.layer_norm(x, shape, eps=epsilon)
    y = y if scale is None else y * scale
    return y if bias is None else y + bias


def pad(x: Tensor, *, before: Ints, after: Ints, mode: str = "constant", value: float = 0.0) -> Any:
    if mode == "constant":
        return padded(x, [*before, *after], value)
    for axis, (a, b) in enumerate(zip(before, after, strict=True)):
        if a or b:
            n = x.shape[axis]
            at = torch.arange(-a, n + b, device=x.device)
            at = at.clamp(0, n - 1) if mode == "edge" else _mirrored(at, n, mode)
            x = x.index_select(axis, at)
    return x


def _mirrored(at: Tensor, n: int, mode: str) -> Tensor:
    if mode == "wrap":
        return at % n
    if mode != "reflect":
        raise NotImplementedError
    around = 2 * max(n - 1, 1)
    at = at % around
    return torch.where(at < n, at, around - at)


def slice_(x: Tensor, *, start: Ints, stop: Ints, step: Ints) -> Tensor:
    for axis, (a, b, s) in enumerate(zip(start, stop, step, strict=True)):
        at = range(x.shape[axis])[slice(a, b, s)]
        if len(at) != x.shape[axis] or s < 0:
            plain = s > 0
            x = (
                x[(*[slice(None)] * axis, slice(at.start, at.stop, s))]
                if plain
                else x.index_select(axis, torch.tensor(list(at), device=x.device))
            )
    return x


def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis %= x.dim()
    at = indices.long()
    at = torch.where(at < 0, at + x.shape[axis], at)
    picked = x.index_select(axis, at.reshape(-1))
    return picked.reshape(*x.shape[:axis], *at.shape, *x.shape[axis + 1 :])


def interpolate(x: Tensor, index: Tensor, weight: Tensor, *, axis: int) -> Tensor:
    axis %= x.dim()
    column = [-1, *[1] * (x.dim() - 1 - axis)]
    taps = range(index.shape[1])
    parts = [x.index_select(axis, index[:, k].long()) for k in taps]
    if len(parts) == 1:
        return parts[0]
    return sum(p * weight[:, k].reshape(column) for k, p in enumerate(parts))


def channel_shuffle(x: Tensor, *, groups: int) -> Tensor:
    n, c, *rest = x.shape
    return x.reshape(n, groups, c // groups, *rest).transpose(1, 2).reshape(x.shape)


def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b, few = blocksize, c // blocksize**2
    if mode == "DCR":
        return x.reshape(n, b, b, few, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, few, h * b, w * b)
    return x.reshape(n, few, b, b, h, w).permute(0, 1, 4, 2, 5, 3).reshape(n, few, h * b, w * b)


def _reduced(name: str) -> Callable[..., Tensor]:
    def reduce(x: Tensor, *, axes: Ints, keepdims: bool = True) -> Tensor:
        if not axes:
            return x
        return getattr(torch, name)(x, tuple(axes), keepdim=bool(keepdims))

    return reduce


def clip(x: Tensor, *, lo: float = -INF, hi: float = INF) -> Tensor:
    return x.clamp(lo, hi)


def hardswish(x: Tensor) -> Tensor:
    return x * (x + 3).clamp(0, 6) / 6


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * torch.sigmoid(x if alpha == 1 else x * alpha)


def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return (x * alpha + beta).clamp(0, 1)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "conv": conv,
    "conv_transpose": conv_transpose,
    "matmul": torch.matmul,
    "gemm": gemm,
    "batch_norm": batch_norm,
    "layer_norm": layer_norm,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "reduce_mean": _reduced("mean"),
    "reduce_sum": _reduced("sum"),
    "reduce_max": _reduced("amax"),
    "reduce_min": _reduced("amin"),
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "neg": torch.neg,
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "exp": torch.exp,
    "log": torch.log,
    "erf": torch.erf,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "reciprocal": torch.reciprocal,
    "sign": sign,
    "softplus": F.softplus,
    "hardswish": hardswish,
    "hard_sigmoid": hard_sigmoid,
    "swish": swish,
    "gelu": gelu,
    "mish": F.mish,
    "elu": lambda x, *, alpha=1.0: F.elu(x, alpha),
    "leaky_relu": lambda x, *, alpha=0.01: F.leaky_relu(x, alpha),
    "prelu": lambda x, slope: torch.where(x < 0, slope * x, x),
    "clip": clip,
    "softmax": lambda x, *, axis=-1: torch.softmax(x, axis),
    "log_softmax": lambda x, *, axis=-1: torch.log_softmax(x, axis),
    "reshape": lambda x, *, shape: x.reshape(tuple(shape)),
    "transpose": lambda x, *, perm: x.permute(tuple(perm)),
    "expand": lambda x, *, shape: x.expand(torch.broadcast_shapes(x.shape, tuple(shape))),
    "tile": lambda x, *, repeats: x.tile(tuple(repeats)),
    "concat": lambda *xs, axis: torch.cat(xs, axis),
    "slice": slice_,
    "pad": pad,
    "gather": gather,
    "interpolate": interpolate,
    "channel_shuffle": channel_shuffle,
    "depth_to_space": depth_to_space,
}
