"""Replace poolings whose window a unit does not support, and reductions by poolings."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Node, Value
from intaglio.rewrite import P, Rule, no
from intaglio.targets.replace.builder import (
    Ints,
    like,
    pad_or_crop,
    rebuilt,
    replacement,
    reshaped,
    split_evenly,
    window_part,
)

(x,) = P["x"]
REDUCED = ("reduce_mean", "reduce_sum", "reduce_max", "reduce_min")


# ---- large windows -------------------------------------------------------------------------------
def _two_windows(kernel: int, stride: int, limit: int) -> tuple[int, int, int]:
    """Two windows, and the stride of the first, that together cover a window of `kernel`."""
    if kernel <= limit:
        return kernel, 1, stride
    for step in (d for d in range(min(stride, limit), 0, -1) if stride % d == 0):
        for first in range(
            limit, step - 1, -1
        ):  # no gaps: the first is at least as long as its stride
            if (kernel - first) % step == 0:
                return first, (kernel - first) // step + 1, step
    raise AssertionError("a step of 1 always fits")


def cascade_max_pool(limit: int = 8) -> Rule:
    """For units whose window is at most `limit` along every axis."""

    @replacement(P.max_pool(x))
    def cascade_max_pool(node: Node, x: Value) -> Any:
        """Replace a large max pooling by two smaller ones in a row; exact."""
        kernel, stride, pad = (node.attrs[k] for k in ("kernel", "stride", "pad"))
        if max(kernel) <= limit:
            return None
        if node.attrs["with_indices"] or set(node.attrs["dilation"]) != {1}:
            return no("it returns indices or has dilation")
        both = [_two_windows(k, s, limit) for k, s in zip(kernel, stride, strict=True)]
        first, second, step = (tuple(t) for t in zip(*both, strict=True))
        n, image = len(kernel), x
        if any(p >= k for p, k in zip(pad, first * 2, strict=True)):
            if not dtypes.is_float(x.dtype):
                return no(f"pad {pad} makes windows that contain only padding")
            image = pad_or_crop(x, (0, 0, *pad[:n]), (0, 0, *pad[n:]), -math.inf)
            pad = (0,) * (2 * n)
        inner = rebuilt(node, image, kernel=first, stride=step, pad=pad)
        rest = tuple(s // t for s, t in zip(stride, step, strict=True))
        return rebuilt(node, inner, kernel=second, stride=rest, pad=(0,) * (2 * n))

    return cascade_max_pool


def separate_max_pool(least: int = 10) -> Rule:
    """For units that visit every element of a window; `least`: visits per result that it
    must save.
    """

    @replacement(P.max_pool(x))
    def separate_max_pool(node: Node, x: Value) -> Any:
        """Replace a rectangular max pooling by one over rows and one over columns; exact."""
        kernel, stride, pad = (node.attrs[k] for k in ("kernel", "stride", "pad"))
        if len(kernel) != 2 or node.attrs["with_indices"]:
            return None
        rows, columns = kernel
        if rows * columns - (columns * stride[0] + rows) < least:
            return None
        inner = rebuilt(
            node, x, kernel=(1, columns), stride=(1, stride[1]), pad=(0, pad[1], 0, pad[3])
        )
        return rebuilt(
            node, inner, kernel=(rows, 1), stride=(stride[0], 1), pad=(pad[0], 0, pad[2], 0)
        )

    return separate_max_pool


def cascade_avg_pool(limit: int = 8) -> Rule:
    """For units whose window is at most `limit` along every axis; put it before
    `split_avg_pool`.
    """

    @replacement(P.avg_pool(x))
    def cascade_avg_pool(node: Node, x: Value) -> Any:
        """Replace a large average pooling by two in a row, with adjacent windows first."""
        kernel, stride = node.attrs["kernel"], node.attrs["stride"]
        if max(kernel) <= limit:
            return None
        if set(node.attrs["dilation"]) != {1} or not _counts_all(node):
            return no("it has dilation or excludes padding, so means would not weigh the same")
        first = tuple(_side_by_side(k, s, limit) for k, s in zip(kernel, stride, strict=True))
        if first == (1,) * len(kernel):
            return no(f"window {kernel} with stride {stride} has no common divisor up to the limit")
        whole = {"count_include_pad": True}
        inner = rebuilt(node, x, kernel=first, stride=first, **whole)
        rest = {
            k: tuple(a // f for a, f in zip(node.attrs[k], first, strict=True))
            for k in ("kernel", "stride")
        }
        return rebuilt(node, inner, **rest, **whole, pad=(0,) * len(node.attrs["pad"]))

    return cascade_avg_pool


def _side_by_side(kernel: int, stride: int, limit: int) -> int:
    """The largest window that divides both window and stride; 1 if the window is small enough."""
    if kernel <= limit:
        return 1
    return max(d for d in range(1, limit + 1) if kernel % d == 0 and stride % d == 0)


def split_avg_pool(limit: int = 8) -> Rule:
    """For units whose window is at most `limit` along every axis."""

    @replacement(P.avg_pool(x))
    def split_avg_pool(node: Node, x: Value) -> Any:
        """Replace a large average pooling by a weighted sum of smaller ones."""
        kernel = node.attrs["kernel"]
        if max(kernel) <= limit:
            return None
        if not _counts_all(node):
            return no("it excludes padding; use count_padding first")
        total = None
        for window in itertools.product(*(split_evenly(k, limit) for k in kernel)):
            seen = window_part(x, window, kernel, node.attrs)
            if seen is None:  # only padding, which adds 0
                continue
            part = tuple(hi - lo for lo, hi in window)
            y = rebuilt(node, seen[0], kernel=part, pad=seen[1], count_include_pad=True)
            y = ops.mul(y, like(x, math.prod(part) / math.prod(kernel)))
            total = y if total is None else ops.add(total, y)
        return total

    return split_avg_pool


# ---- averages ------------------------------------------------------------------------------------
def _counts_all(node: Node) -> bool:
    return bool(node.attrs["count_include_pad"]) or not any(node.attrs["pad"])


def _correction(node: Node, x: Value) -> Value:
    """The factor from the mean that counts padding to the one that does not."""
    ones = np.ones((1, 1, *x.shape[2:]))
    share = ops.avg_pool.body(ones, **{**node.attrs, "count_include_pad": True})
    return like(x, 1 / np.maximum(share, 1e-30))


@replacement(P.avg_pool(x))
def count_padding(node: Node, x: Value) -> Any:
    """Replace an average that excludes padding by one that counts it, times a constant."""
    if _counts_all(node):
        return None
    whole = rebuilt(node, x, count_include_pad=True)
    return ops.mul(whole, _correction(node, x))


@replacement(P.avg_pool(x))
def avg_pool_as_depthwise_conv(node: Node, x: Value) -> Any:
    """Replace an average pooling by a depthwise convolution with equal weights."""
    kernel, channels = node.attrs["kernel"], x.shape[1]
    weights = like(x, np.full((channels, 1, *kernel), 1 / math.prod(kernel)))
    window = {k: node.attrs[k] for k in ("stride", "pad", "dilation")}
    y = ops.conv(x, weights, groups=channels, **window)
    return y if _counts_all(node) else ops.mul(y, _correction(node, x))


@replacement(P.lp_pool(x, p=2))
def lp_pool_as_avg_pool(node: Node, x: Value) -> Any:
    """Replace an L2 pooling by the square root of an average of squares, scaled."""
    window = {k: node.attrs[k] for k in ("kernel", "stride", "pad", "dilation")}
    mean = ops.avg_pool(ops.mul(x, x), count_include_pad=True, **window)
    return ops.mul(ops.sqrt(mean), like(x, math.sqrt(math.prod(node.attrs["kernel"]))))


# ---- reductions ----------------------------------------------------------------------------------
def _runs(axes: Ints, shape: Ints) -> list[Ints]:
    """Groups of adjacent axes, ignoring axes of size 1."""
    found: list[list[int]] = []
    for axis in axes:
        if found and all(shape[i] == 1 for i in range(found[-1][-1] + 1, axis)):
            found[-1].append(axis)
        else:
            found.append([axis])
    return [tuple(run) for run in found]


@replacement(P.op(REDUCED, x))
def reduction_as_pool(node: Node, x: Value) -> Any:
    """Replace a reduction over any axes by a pooling and reshapes."""
    axes, out = node.attrs["axes"], node.outputs[0].shape
    if not dtypes.is_float(x.dtype) or not x.type.size:
        return no(f"{x.type}: a pooling needs floats")
    y, spatial = x, axes == (*range(2, x.type.rank),) and x.type.rank in (3, 4)
    for run in [axes] if spatial else _runs(axes, x.shape):
        before, after = math.prod(y.shape[: run[0]]), math.prod(y.shape[run[-1] + 1 :])
        inside = math.prod(y.shape[i] for i in run)
        image = y if spatial else reshaped(y, 1, before, inside, after)
        kernel = x.shape[2:] if spatial else (inside, 1)
        pooled = _pooled(node.op, image, kernel)
        y = reshaped(pooled, *(1 if i in run else d for i, d in enumerate(y.shape)))
    return reshaped(y, *out)


def _pooled(op: str, image: Value, kernel: Ints) -> Value:
    n = len(kernel)
    window: dict[str, Any]
    window = {"kernel": kernel, "stride": (1,) * n, "pad": (0,) * 2 * n, "dilation": (1,) * n}
    if op == "reduce_max":
        top: Value = ops.max_pool(image, **window)
        return top
    if op == "reduce_min":
        low: Value = ops.neg(ops.max_pool(ops.neg(image), **window))
        return low
    mean: Value = ops.avg_pool(image, **window)
    return mean if op == "reduce_mean" else ops.mul(mean, like(image, math.prod(kernel)))


def global_pool_in_steps(limit: int = 8) -> Rule:
    """For units whose window is at most `limit`; for global averages that do not factor."""

    @replacement(P.avg_pool(x))
    def global_pool_in_steps(node: Node, x: Value) -> Any:
        """Replace a global average pooling by one over blocks, padded with zeros, and one over
        their means.
        """
        kernel = node.attrs["kernel"]
        if max(kernel) <= limit:
            return None
        if kernel != x.shape[2:] or any(node.attrs["pad"]):
            return no(f"the window {kernel} does not cover the image {x.shape[2:]}")
        n = len(kernel)
        block = tuple(_fitting_block(k, limit) for k in kernel)
        count = tuple(-(-k // f) for k, f in zip(kernel, block, strict=True))
        after = tuple(c * f - k for c, f, k in zip(count, block, kernel, strict=True))
        inner = rebuilt(
            node,
            x,
            kernel=block,
            stride=block,
            pad=(0,) * n + after,
            dilation=(1,) * n,
            count_include_pad=True,
        )
        y = rebuilt(node, inner, kernel=count, stride=(1,) * n, dilation=(1,) * n)
        filled = math.prod(count) * math.prod(block) / math.prod(kernel)
        return y if filled == 1 else ops.mul(y, like(x, filled))

    return global_pool_in_steps


def _fitting_block(extent: int, limit: int) -> int:
    """The largest block that needs the least padding; 1 for short axes."""
    if extent <= limit:
        return 1
    return min(range(limit, 1, -1), key=lambda f: (-extent % f, -f))


POOLINGS: list[Rule] = [
    cascade_max_pool(),
    separate_max_pool(),
    cascade_avg_pool(),
    global_pool_in_steps(),
    split_avg_pool(),
    count_padding,
    avg_pool_as_depthwise_conv,
    lp_pool_as_avg_pool,
    reduction_as_pool,
]
