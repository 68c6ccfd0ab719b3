"""Replace convolutions whose groups, kernel, stride, dilation or padding a unit does not
support.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Array, Node, Value
from intaglio.rewrite import P, Rule, no
from intaglio.targets.replace.builder import (
    Ints,
    data_of,
    folded,
    like,
    pad_or_crop,
    rebuilt,
    replacement,
    reshaped,
    sliced,
    sliced_axis,
    split_evenly,
    transposed,
    window_part,
)

x, w, b = P["x w b?"]
CONV = P.conv(x, w, b)


# ---- groups --------------------------------------------------------------------------------------
def split_groups(depthwise: bool = False) -> Rule:
    """For units without groups; `depthwise` also splits depthwise convolutions."""

    @replacement(CONV)
    def split_groups(node: Node, x: Value, w: Value, b: Value | None) -> Any:
        """Split a grouped convolution into one convolution per group; exact."""
        groups = node.attrs["groups"]
        if groups == 1 or (groups == x.shape[1] and not depthwise):
            return None
        read, result = x.shape[1] // groups, w.shape[0] // groups
        parts = [
            rebuilt(
                node,
                sliced_axis(x, 1, g * read, (g + 1) * read),
                folded(sliced_axis(w, 0, g * result, (g + 1) * result)),
                None if b is None else folded(sliced_axis(b, 0, g * result, (g + 1) * result)),
                groups=1,
            )
            for g in range(groups)
        ]
        return ops.concat(*parts, axis=1)

    return split_groups


def merge_groups(w: Array, groups: int, count: int) -> Array:
    """Weights [m, c, window..] with `count` groups merged to one, zero between different groups."""
    read, result = w.shape[1], w.shape[0] // groups
    wide = np.zeros((groups // count, count, result, count, *w.shape[1:]), w.dtype)
    split = w.reshape(groups // count, count, result, *w.shape[1:])
    for i in range(count):
        wide[:, i, :, i] = split[:, i]
    return wide.reshape(w.shape[0], count * read, *w.shape[2:])


def groups_per_panel(groups: int, made: int, lanes: int) -> int:
    """The most groups of `made` output channels that fill at most `lanes` lanes together."""
    return max(j for j in range(1, groups + 1) if groups % j == 0 and j * max(made, 1) <= lanes)


def widen_groups(channels: int | None = None) -> Rule:
    """For units that need at least this many channels per group; None: all, so one group."""

    @replacement(CONV)
    def widen_groups(node: Node, x: Value, w: Value, b: Value | None) -> Any:
        """Merge groups into larger ones, with zero weights between them."""
        groups, read = node.attrs["groups"], w.shape[1]
        least = min(channels or x.shape[1], x.shape[1])
        if read >= least:
            return None
        if w.data is None:
            return no("the weights are not constant")
        count = next(j for j in range(1, groups + 1) if groups % j == 0 and j * read >= least)
        dense = like(w, merge_groups(w.data, groups, count))
        return ops.conv(x, dense, b, **{**node.attrs, "groups": groups // count})

    return widen_groups


def join_groups(lanes: int = 16) -> Rule:
    """For units that compute `lanes` output channels at once, so that zeros cost nothing."""

    @replacement(CONV)
    def join_groups(node: Node, x: Value, w: Value, b: Value | None) -> Any:
        """Merge groups that fit into the lanes together, with zero weights between them."""
        groups, result = node.attrs["groups"], w.shape[0] // node.attrs["groups"]
        if groups == 1 or 2 * result > lanes or w.shape[1] == 1:
            return None
        if w.data is None:
            return no("the weights are not constant")
        count = groups_per_panel(groups, result, lanes)
        if count == 1:
            return no(f"{groups} groups of {result} channels do not fit evenly into {lanes} lanes")
        dense = like(w, merge_groups(w.data, groups, count))
        return ops.conv(x, dense, b, **{**node.attrs, "groups": groups // count})

    return join_groups


@replacement(CONV)
def depthwise_without_multiplier(node: Node, x: Value, w: Value, b: Value | None) -> Any:
    """Repeat channels so that a depthwise convolution has multiplier 1; exact."""
    groups, result = node.attrs["groups"], w.shape[0]
    if groups != x.shape[1] or result == groups:
        return None
    times, inside = result // groups, x.type.size // (x.shape[0] * groups)
    column = reshaped(x, x.shape[0], groups, 1, inside)
    wide = ops.expand(column, shape=(x.shape[0], groups, times, inside))
    return ops.conv(
        reshaped(wide, x.shape[0], result, *x.shape[2:]), w, b, **{**node.attrs, "groups": result}
    )


# ---- kernel and stride ---------------------------------------------------------------------------
def split_kernel(limit: int = 11) -> Rule:
    """For units whose kernel is at most `limit` along every axis."""

    @replacement(CONV)
    def split_kernel(node: Node, x: Value, w: Value, b: Value | None) -> Any:
        """Split a large kernel into a sum of convolutions with small kernels, each on a shifted
        image.
        """
        kernel = w.shape[2:]
        if max(kernel) <= limit:
            return None
        total = None
        for window in itertools.product(*(split_evenly(k, limit) for k in kernel)):
            seen = window_part(x, window, kernel, node.attrs)
            if seen is None:  # only padding, which adds 0
                continue
            part = folded(sliced(w, [(0, w.shape[0]), (0, w.shape[1]), *window]))
            y = rebuilt(node, seen[0], part, None if total else b, pad=seen[1])
            total = y if total is None else ops.add(total, y)
        return total

    return split_kernel


def pad_kernel(sizes: Ints = (1, 3)) -> Rule:
    """For units that have square kernels of these sizes only."""

    @replacement(CONV)
    def pad_kernel(node: Node, x: Value, w: Value, b: Value | None) -> Any:
        """Pad the kernel with zeros to a supported size."""
        kernel, n = w.shape[2:], x.type.rank - 2
        size = min((s for s in sizes if s >= max(kernel)), default=None)
        if kernel == (size,) * n:
            return None
        if size is None:
            return no(f"the kernel {kernel} is larger than {max(sizes)}; use split_kernel first")
        more = [size - k for k in kernel]
        reach = [d * g for d, g in zip(node.attrs["dilation"], more, strict=True)]
        pad = (
            *node.attrs["pad"][:n],
            *(p + r for p, r in zip(node.attrs["pad"][n:], reach, strict=True)),
        )
        weights = folded(pad_or_crop(w, (0,) * (n + 2), (0, 0, *more)))
        return ops.conv(x, weights, b, **{**node.attrs, "pad": pad})

    return pad_kernel


def stride_as_space_to_depth(limit: int = 7) -> Rule:
    """For units whose stride is at most `limit`; cheaper than split_stride if strides are equal."""

    @replacement(CONV)
    def stride_as_space_to_depth(node: Node, x: Value, w: Value, b: Value | None) -> Any:
        """Replace a strided convolution by space_to_depth and a convolution with stride 1."""
        stride, kernel, pad = (*node.attrs["stride"],), w.shape[2:], node.attrs["pad"]
        if max(stride) <= limit:
            return None
        if len(stride) != 2 or stride[0] != stride[1]:
            return no(f"strides are {stride}; space_to_depth needs equal ones")
        if any(d > 1 and k > 1 for d, k in zip(node.attrs["dilation"], kernel, strict=True)):
            return no(f"dilation is {node.attrs['dilation']}; 1 is needed")
        s, count = stride[0], [-(-k // stride[0]) for k in kernel]
        needs = [(o - 1 + n) * s for o, n in zip(node.outputs[0].shape[2:], count, strict=True)]
        after = [e - d - p for e, d, p in zip(needs, x.shape[2:], pad, strict=False)]
        image = pad_or_crop(x, (0, 0, *pad[:2]), (0, 0, *after))
        rest = [n * s - k for n, k in zip(count, kernel, strict=True)]
        m, c = w.shape[:2]
        blocks = reshaped(pad_or_crop(w, (0,) * 4, (0, 0, *rest)), m, c, count[0], s, count[1], s)
        weights = folded(reshaped(transposed(blocks, 0, 1, 3, 5, 2, 4), m, c * s * s, *count))
        deep = ops.space_to_depth(image, blocksize=s, mode="CRD")
        return ops.conv(
            deep,
            weights,
            b,
            stride=(1, 1),
            pad=(0,) * 4,
            dilation=(1, 1),
            groups=node.attrs["groups"],
        )

    return stride_as_space_to_depth


def split_stride(limit: int = 7) -> Rule:
    """For units whose stride is at most `limit`; computes results that a slice then drops."""

    @replacement(P.any("conv", "max_pool", "avg_pool", "lp_pool"))
    def split_stride(node: Node) -> Any:
        """Replace a large stride by a smaller one and a strided slice; exact."""
        stride = node.attrs["stride"]
        if max(stride) <= limit:
            return None
        if len(node.outputs) > 1:
            return no("it returns indices")
        less = tuple(max(d for d in range(1, limit + 1) if s % d == 0) for s in stride)
        step = [s // d for s, d in zip(stride, less, strict=True)]
        dense = rebuilt(node, *node.inputs, stride=less)
        ends = [(n - 1) * s + 1 for n, s in zip(node.outputs[0].shape[2:], step, strict=True)]
        spans = [(0, e) for e in (*dense.shape[:2], *ends)]
        return sliced(dense, spans, (1, 1, *step))

    return split_stride


# ---- dilation and padding ------------------------------------------------------------------------
def dilate_weights(limit: int = 1) -> Rule:
    """For units whose dilation is at most `limit`; the kernel grows and contains zeros."""

    @replacement(CONV)
    def dilate_weights(node: Node, x: Value, w: Value, b: Value | None) -> Any:
        """Insert zeros between the weights instead of dilating; exact."""
        dilation, kernel = node.attrs["dilation"], w.shape[2:]
        if not any(d > limit and k > 1 for d, k in zip(dilation, kernel, strict=True)):
            return None
        if w.data is None:
            return no("the weights are not constant")
        wide = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        filled = np.zeros((*w.shape[:2], *wide), w.data.dtype)
        filled[:, :, *(slice(None, None, d) for d in dilation)] = w.data
        return ops.conv(x, like(w, filled), b, **{**node.attrs, "dilation": (1,) * len(kernel)})

    return dilate_weights


def dilation_as_space_to_batch(limit: int = 1) -> Rule:
    """For units whose dilation is at most `limit`; the same work on smaller images."""

    @replacement(CONV)
    def dilation_as_space_to_batch(node: Node, x: Value, w: Value, b: Value | None) -> Any:
        """Move the dilation's phases into the batch, convolve without dilation, and move them back;
        exact.
        """
        far, kernel, pad = node.attrs["dilation"], w.shape[2:], node.attrs["pad"]
        if not any(d > limit and k > 1 for d, k in zip(far, kernel, strict=True)):
            return None
        if len(kernel) != 2 or set(node.attrs["stride"]) != {1}:
            return no(f"stride is {node.attrs['stride']}; two axes with stride 1 are needed")
        n, m, *out = node.outputs[0].shape
        part = [-(-o // d) for o, d in zip(out, far, strict=True)]  # output size of each phase
        inside = [p + k - 1 for p, k in zip(part, kernel, strict=True)]  # input size of each phase
        after = [i * f - d - p for i, f, d, p in zip(inside, far, x.shape[2:], pad, strict=False)]
        image = pad_or_crop(x, (0, 0, *pad[:2]), (0, 0, *after))
        phases = reshaped(image, n, x.shape[1], inside[0], far[0], inside[1], far[1])
        many = reshaped(
            transposed(phases, 3, 5, 0, 1, 2, 4), far[0] * far[1] * n, x.shape[1], *inside
        )
        y = rebuilt(node, many, w, b, dilation=(1, 1), pad=(0,) * 4)
        back = transposed(reshaped(y, *far, n, m, *part), 2, 3, 4, 0, 5, 1)
        whole = reshaped(back, n, m, part[0] * far[0], part[1] * far[1])
        return sliced(whole, [(0, n), (0, m), (0, out[0]), (0, out[1])])

    return dilation_as_space_to_batch


def separate_pad(limit: int = 0, even: bool = False) -> Rule:
    """For units that pad by at most `limit` or, with `even`, equally on all sides."""

    @replacement(P.any("conv", "max_pool", "avg_pool"))
    def separate_pad(node: Node) -> Any:
        """Pad with a separate node; exact."""
        x, *weights = node.inputs
        assert x is not None
        pad = node.attrs["pad"]
        n = len(pad) // 2
        if not any(pad) or (max(pad) <= limit and not (even and len(set(pad)) > 1)):
            return None
        if node.op == "avg_pool" and not node.attrs["count_include_pad"]:
            return no("the average does not count padding")
        if node.op == "max_pool" and (
            x.dtype not in ("f16", "bf16", "f32", "f64") or node.attrs["with_indices"]
        ):
            return no("padding with -inf needs a float max pooling without indices")
        value = -np.inf if node.op == "max_pool" else 0.0
        image = pad_or_crop(x, (0, 0, *pad[:n]), (0, 0, *pad[n:]), value)
        return rebuilt(node, image, *weights, pad=(0,) * (2 * n))

    return separate_pad


# ---- scales --------------------------------------------------------------------------------------
@replacement(P.op("batch_norm", *P["x s! h! m! v!"]))
def batch_norm_as_depthwise_conv(
    node: Node, x: Value, s: Value, h: Value, m: Value, v: Value
) -> Any:
    """Replace a batch norm with constant statistics by a 1x1 depthwise convolution."""
    if x.type.rank < 3:
        return no(f"{x.type} has no spatial axis")
    n, c = x.type.rank - 2, x.shape[1]
    factor = data_of(s) / np.sqrt(data_of(v) + node.attrs["epsilon"])
    weights = like(x, factor.reshape(c, 1, *[1] * n))
    shift = like(x, data_of(h) - data_of(m) * factor)
    return ops.conv(
        x, weights, shift, stride=(1,) * n, pad=(0,) * 2 * n, dilation=(1,) * n, groups=c
    )


CONVOLUTIONS: list[Rule] = [
    split_groups(depthwise=True),
    widen_groups(),
    join_groups(),
    depthwise_without_multiplier,
    split_kernel(),
    pad_kernel(),
    stride_as_space_to_depth(),
    split_stride(),
    dilate_weights(),
    dilation_as_space_to_batch(),
    separate_pad(),
    batch_norm_as_depthwise_conv,
]
