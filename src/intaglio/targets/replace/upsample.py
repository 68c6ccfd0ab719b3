"""Replace transposed convolutions and resizes by each other and by convolutions."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Array, Node, Value
from intaglio.ops.resize import resize_tables
from intaglio.rewrite import P, Rule, no
from intaglio.targets.replace.builder import (
    Ints,
    data_of,
    folded,
    like,
    pad_or_crop,
    replacement,
    reshaped,
    sliced,
    transposed,
)

x, w, b = P["x w b?"]
CONV_TRANSPOSE = P.conv_transpose(x, w, b)


# ---- transposed convolution ----------------------------------------------------------------------
def _spread(x: Value, axis: int, step: int) -> Value:
    """Insert `step` - 1 zeros after every element along an axis."""
    if step == 1:
        return x
    before, after = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    column = reshaped(x, before, x.shape[axis], 1, after)
    wide = ops.pad(column, before=(0,) * 4, after=(0, 0, step - 1, 0))
    return reshaped(wide, *x.shape[:axis], x.shape[axis] * step, *x.shape[axis + 1 :])


@replacement(CONV_TRANSPOSE)
def conv_transpose_as_conv(node: Node, x: Value, w: Value, b: Value | None) -> Any:
    """Insert zeros between the pixels and convolve with flipped weights."""
    n, groups = x.type.rank - 2, node.attrs["groups"]
    read, result = w.shape[0] // groups, w.shape[1]
    window = range(3, n + 3)
    by_output = transposed(reshaped(w, groups, read, result, *w.shape[2:]), 0, 2, 1, *window)
    flat = reshaped(by_output, groups * result, read, *w.shape[2:])
    spans = [(0, groups * result), (0, read), *[(-1, -(2**62))] * n]
    weights = folded(sliced(flat, spans, (1, 1, *[-1] * n)))
    return with_flipped(node, x, weights, b)


def flipped(w: Array, groups: int) -> Array:
    """The weights of a transposed convolution as those of the convolution of the spread image."""
    (read, result), kernel = (w.shape[0] // groups, w.shape[1]), w.shape[2:]
    by_output = np.swapaxes(w.reshape(groups, read, result, *kernel), 1, 2)
    flat = by_output.reshape(groups * result, read, *kernel)
    return np.flip(flat, tuple(range(2, flat.ndim)))


def with_flipped(node: Node, x: Value, weights: Value, bias: Value | None) -> Value:
    """The transposed convolution's result, by the convolution with flipped weights."""
    a, n = node.attrs, x.type.rank - 2
    for i, step in enumerate(a["stride"]):
        x = _spread(x, 2 + i, step)
    reach = [d * (k - 1) for d, k in zip(a["dilation"], weights.shape[2:], strict=True)]
    front = [reach[i] - a["pad"][i] for i in range(n)]
    back = [
        reach[i] - a["pad"][n + i] + a["output_pad"][i] - (a["stride"][i] - 1) for i in range(n)
    ]
    image = pad_or_crop(x, (0, 0, *(min(p, 0) for p in front)), (0, 0, *(min(p, 0) for p in back)))
    pad = tuple(max(p, 0) for p in (*front, *back))
    window = {"stride": (1,) * n, "pad": pad, "dilation": a["dilation"], "groups": a["groups"]}
    made: Value = ops.conv(image, weights, bias, **window)
    return made


def why_no_phases(node: Node, x: Value, w: Value) -> str | None:
    """Why a transposed convolution cannot become a convolution and depth_to_space, or None."""
    a, s = node.attrs, node.attrs["stride"][0]
    if x.type.rank != 4 or set(a["stride"]) != {s} or s == 1:
        return f"stride is {a['stride']} for {x.type}; equal strides above 1 in two axes are needed"
    if any(d > 1 and k > 1 for d, k in zip(a["dilation"], w.shape[2:], strict=True)):
        return f"dilation is {a['dilation']}; 1 is needed"
    return None


def phases_of(w: Array, groups: int, s: int) -> Array:
    """The weights of the convolution that makes all s x s output phases as channels.

    Without groups, all channels of one phase come first, then those of the next. With groups, the
    phases of a channel are adjacent.
    """
    (read, result), kernel = (w.shape[0] // groups, w.shape[1]), w.shape[2:]
    taps = [-(-k // s) for k in kernel]
    full = np.zeros((groups, read, result, taps[0] * s, taps[1] * s), w.dtype)
    full[..., : kernel[0], : kernel[1]] = w.reshape(groups, read, *w.shape[1:])
    phases = full.reshape(groups, read, result, taps[0], s, taps[1], s)[:, :, :, ::-1, :, ::-1]
    phases = phases.transpose((0, 4, 6, 2, 1, 3, 5) if groups == 1 else (0, 2, 4, 6, 1, 3, 5))
    return phases.reshape(groups * result * s * s, read, *taps)


def per_phase(each: Array, groups: int, s: int) -> Array:
    """One number per output channel as one per channel of that convolution."""
    return np.tile(each, s * s) if groups == 1 else np.repeat(each, s * s)


def from_phases(node: Node, x: Value, weights: Value, bias: Value | None) -> Value:
    """The transposed convolution's result, by the convolution with these weights."""
    s, taps = node.attrs["stride"][0], weights.shape[2:]
    out, pad = node.outputs[0].shape, node.attrs["pad"]
    rows = [-(-(p + o) // s) for p, o in zip(pad, out[2:], strict=False)]
    after = [r - d for r, d in zip(rows, x.shape[2:], strict=True)]
    image = pad_or_crop(x, (0,) * 4, (0, 0, *(min(e, 0) for e in after)))
    border = (taps[0] - 1, taps[1] - 1, *(max(e, 0) for e in after))
    deep = ops.conv(
        image,
        weights,
        bias,
        stride=(1, 1),
        pad=border,
        dilation=(1, 1),
        groups=node.attrs["groups"],
    )
    mode = "DCR" if node.attrs["groups"] == 1 else "CRD"
    wide = ops.depth_to_space(deep, blocksize=s, mode=mode)
    spans = [(p, p + o) for p, o in zip(pad, out[2:], strict=False)]
    return sliced(wide, [(0, out[0]), (0, out[1]), *spans])


@replacement(CONV_TRANSPOSE)
def conv_transpose_as_depth_to_space(node: Node, x: Value, w: Value, b: Value | None) -> Any:
    """Replace a transposed convolution by a convolution and depth_to_space."""
    if why := why_no_phases(node, x, w):
        return no(why)
    if w.data is None or (b is not None and b.data is None):
        return no("the weights are not constant")
    s, groups = node.attrs["stride"][0], node.attrs["groups"]
    weights = like(w, phases_of(w.data, groups, s))
    bias = None if b is None else like(b, per_phase(data_of(b), groups, s))
    return from_phases(node, x, weights, bias)


@replacement(CONV_TRANSPOSE)
def conv_transpose_as_resize(node: Node, x: Value, w: Value, b: Value | None) -> Any:
    """Replace a depthwise transposed convolution with equal weights by a nearest resize."""
    a, kernel, n = node.attrs, w.shape[2:], x.type.rank - 2
    if a["groups"] != x.shape[1] or w.shape[1] != 1 or w.data is None:
        return None
    if kernel != a["stride"] or any(a["pad"]) or any(a["output_pad"]):
        return no(
            f"kernel {kernel} with stride {a['stride']}: windows overlap or results are cropped"
        )
    flat = data_of(w).reshape(w.shape[0], -1)
    if np.any(flat != flat[:, :1]):
        return no("the weights of a channel are not equal")
    y = ops.resize(
        x,
        axes=tuple(range(2, n + 2)),
        shape=node.outputs[0].shape[2:],
        scales=tuple(float(s) for s in a["stride"]),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    column = (-1, *[1] * n)
    y = y if np.all(flat == 1) else ops.mul(y, like(x, flat[:, 0].reshape(column)))
    return y if b is None else ops.add(y, folded(reshaped(b, b.shape[0], *[1] * n)))


# ---- resizing ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Filter:
    """A resize by an integer factor along one axis, as a transposed convolution."""

    step: int
    taps: Array
    border: int  # edge pixels to repeat at both ends first
    crop: Ints  # results to drop at both ends


def interpolation_matrix(index: Array, weight: Array, extent: int) -> Array:
    """outputs × inputs of an interpolation table."""
    full = np.zeros((len(index), extent))
    np.add.at(full, (np.arange(len(index))[:, None], index), weight)
    return full


def _filter(want: Array, wide: Array, step: int) -> _Filter | None:
    """The filter whose matrix is `want`, with taps from the same resize of a wide row; else
    None.
    """
    out, extent = want.shape
    middle = wide.shape[1] // 2
    rows = np.flatnonzero(wide[:, middle])
    taps, first = wide[rows[0] : rows[-1] + 1, middle], int(rows[0]) - middle * step
    left = (
        first + len(taps) - 1
    ) // step  # inputs before the first one that the first output reads
    right = (out - 1 - first) // step - (extent - 1)
    border = max(left, right, 0)
    begin = border * step - first
    end = step * (extent + 2 * border - 1) + len(taps) - out - begin
    if begin < 0 or end < 0:
        return None
    result = np.zeros((begin + out + end, extent))
    for at in range(extent + 2 * border):
        source = min(max(at - border, 0), extent - 1)
        result[at * step : at * step + len(taps), source] += taps
    fits = np.allclose(result[begin : begin + out], want, atol=1e-6)
    return _Filter(step, taps, border, (begin, end)) if fits else None


WIDE_ROW = 9  # pixels of a row whose middle no edge influences


@replacement(P.resize(x))
def resize_as_conv_transpose(node: Node, x: Value) -> Any:
    """Replace an enlargement by integer factors by a depthwise transposed convolution."""
    a, out, n = node.attrs, node.outputs[0].shape, x.type.rank - 2
    if x.dtype not in ("f16", "bf16", "f32") or n < 1 or out[:2] != x.shape[:2]:
        return no(f"{x.type} to {out}: only spatial axes of f16, bf16 and f32 are supported")
    steps = [o // d if d and o % d == 0 else 0 for o, d in zip(out[2:], x.shape[2:], strict=True)]
    if 0 in steps or a["coordinate_transformation_mode"] == "tf_crop_and_resize":
        return no(f"{x.shape[2:]} to {out[2:]} is not an enlargement by integer factors")
    filters = [_Filter(1, np.ones(1), 0, (0, 0))] * n
    axes = [axis % x.type.rank for axis in a["axes"]]
    tables = resize_tables([x.shape[i] for i in axes], **a)
    shape = tuple(
        WIDE_ROW * steps[i - 2] if i > 1 else d for i, d in zip(axes, a["shape"], strict=True)
    )
    wider = resize_tables(
        [WIDE_ROW if i > 1 else x.shape[i] for i in axes], **{**a, "shape": shape}
    )
    for i, table, wide in zip(axes, tables, wider, strict=True):
        if i > 1 and steps[i - 2] > 1:
            found = _filter(
                interpolation_matrix(table.index, table.weight, x.shape[i]),
                interpolation_matrix(wide.index, wide.weight, WIDE_ROW),
                steps[i - 2],
            )
            if found is None:
                return no(f"mode {a['coordinate_transformation_mode']} differs between pixels")
            filters[i - 2] = found
    border = (0, 0, *(f.border for f in filters))
    image = ops.pad(x, before=border, after=border, mode="edge") if any(border) else x
    window = functools.reduce(np.multiply.outer, [f.taps for f in filters])
    weights = like(x, np.broadcast_to(window, (x.shape[1], 1, *window.shape)))
    pad = (*(f.crop[0] for f in filters), *(f.crop[1] for f in filters))
    return ops.conv_transpose(
        image,
        weights,
        stride=tuple(f.step for f in filters),
        pad=pad,
        output_pad=(0,) * n,
        dilation=(1,) * n,
        groups=x.shape[1],
    )


UPSAMPLING: list[Rule] = [
    conv_transpose_as_conv,
    conv_transpose_as_depth_to_space,
    conv_transpose_as_resize,
    resize_as_conv_transpose,
]
