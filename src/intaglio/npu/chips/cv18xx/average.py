"""Average pools whose windows at the edges have fewer pixels: one command for each number of them.

The command is a depthwise convolution with one weight for all taps. Padding has the value of the
zero point. Every number of pixels has its own bias, multiplier and shift.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node
from intaglio.npu.chips.cv18xx.arithmetic import I32, multiplier_and_shift
from intaglio.npu.chips.cv18xx.tensors import Fields, Local
from intaglio.npu.layers import Layer
from intaglio.npu.own.isa import Instruction

MAX_WEIGHT = 64
WINDOW = ("kernel", "stride", "pad")
Runs = list[tuple[int, int, int]]  # first, end, pixels of each of their windows


def is_average(layer: Layer) -> bool:
    """Whether a layer is such a pool."""
    return layer.op == "pool" and layer.attrs["kind"] == "avg"


def pixels(extent: int, results: int, kernel: int, stride: int, pad: int) -> list[int]:
    """Pixels of the map in each window along an axis; `pad` are those of padding before it."""
    starts = [i * stride - pad for i in range(results)]
    return [min(s + kernel, extent) - max(s, 0) for s in starts]


def counts(node: Node) -> list[int]:
    """All numbers of pixels that windows of a pool have."""
    x, a = node.inputs[0], node.attrs
    assert x is not None
    found = [
        set(pixels(x.shape[2 + i], node.outputs[0].shape[2 + i], *(a[k][i] for k in WINDOW)))
        for i in (0, 1)
    ]
    return sorted({high * wide for high in found[0] for wide in found[1]})


def weight(node: Node) -> int:
    """The weight of all taps: 1, or more if one pixel is multiplied by more than 1."""
    factor, made = _factor(node) / counts(node)[0], 1
    while factor > made and made < MAX_WEIGHT:
        made *= 2
    return made


def _factor(node: Node) -> float:
    return float(node.attrs["x_scale"] / node.attrs["y_scale"])


def table(node: Node) -> Array:
    """Bias, multiplier and shift for each number of pixels: i64 [3, numbers]."""
    a, one = node.attrs, weight(node)
    scale = _factor(node) / one / np.array(counts(node), np.float64)
    multiplier, shift = multiplier_and_shift(scale)
    bias = np.rint(a["y_zero"] / scale) - a["x_zero"] * one * math.prod(a["kernel"])
    if np.abs(bias).max() > I32[1]:
        raise BadInput(f"a bias is as large as {np.abs(bias).max():g}; 32 bits are added")
    return np.stack([bias, multiplier, shift]).astype(np.int64)


def average(i: Instruction, layer: Layer, lanes: int) -> Iterator[tuple[Local, Local, Fields]]:
    """Source, result and further fields of the depthwise convolutions of a band."""
    assert layer.node is not None
    x, y = (Local.of(i.fields[k], lanes) for k in ("src", "dst"))
    (up, left), kernel, stride = (i.fields[k] for k in ("pad", "kernel", "stride"))
    known, size = counts(layer.node), table_bytes(y.channels, lanes)
    columns = _runs(pixels(x.width, y.width, kernel[1], stride[1], left))
    for top, bottom, high in _runs(pixels(x.height, y.height, kernel[0], stride[0], up)):
        rows = _span(top, bottom, x.height, kernel[0], stride[0], up)
        for first, end, wide in columns:
            seen = _span(first, end, x.width, kernel[1], stride[1], left)
            yield (
                x.box(rows[0], rows[1], seen[0], seen[1]),
                y.box(top, bottom, first, end),
                {
                    "conv_opd0_up_pad": rows[2],
                    "conv_opd0_dn_pad": rows[3],
                    "conv_opd0_lf_pad": seen[2],
                    "conv_opd0_rt_pad": seen[3],
                    "opt_opd1_const": 1,
                    "opd1_addr": weight(layer.node),
                    "opd2_addr": i.fields["table"] // lanes + known.index(high * wide) * size,
                },
            )


def table_bytes(channels: int, lanes: int) -> int:
    """Bytes in a lane of the numbers of all its channels, for one number of pixels."""
    return -(-(9 * -(-channels // lanes)) // 16) * 16


def _runs(each: list[int]) -> Runs:
    """Runs of windows with as many pixels."""
    made: Runs = []
    for many, run in groupby(each):
        first = made[-1][1] if made else 0
        made.append((first, first + len(list(run)), many))
    return made


def _span(
    first: int, end: int, extent: int, kernel: int, stride: int, pad: int
) -> tuple[int, int, int, int]:
    """Pixels that windows first .. end read, and padding before and after these."""
    start, stop = first * stride - pad, (end - 1) * stride - pad + kernel
    return max(start, 0), min(stop, extent), max(-start, 0), max(stop - extent, 0)
