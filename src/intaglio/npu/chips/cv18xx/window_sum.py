"""Sums of two maps as a depthwise convolution: one command, three times as fast as products.

Two maps of the same size are the two rows of one tensor: the distance from one map to the other is
its stride. A window of two rows multiplies them by two weights. Bias and shift are 16-bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from intaglio.ir import Array
from intaglio.npu.chips.cv18xx.arithmetic import Sum, of_sum
from intaglio.npu.chips.cv18xx.tensors import Fields, Local
from intaglio.npu.layers import Layer
from intaglio.npu.own.isa import Instruction

UNITS = 16  # bytes of a lane's row
MOST_BLOCKS = 8  # blocks of channels of one command: their weights and biases are in the table
MOST_PIXELS = 4080  # of one command: extents have 12 bits


def is_window_sum(layer: Layer) -> bool:
    """Whether a layer adds two different maps of one size and type."""
    if layer.op != "eltwise" or layer.attrs["kind"] != "add":
        return False
    a, b = (r.map for r in layer.reads)
    same = (a.dtype, a.height, a.width) == (b.dtype, b.height, b.width)
    return a is not b and same


def _blocks(channels: int, lanes: int) -> int:
    return min(-(-channels // lanes), MOST_BLOCKS)


def table(layer: Layer, lanes: int) -> Array:
    """Weights and biases of a sum: u8 [lanes, bytes].

    The weights of as many blocks as a command has, in both orders, 16 bytes for each block. Then,
    for one block, two blocks and so on, in 16 bytes: low bytes of the bias, high bytes.
    """
    assert layer.node is not None
    s, blocks = of_sum(layer.node), _blocks(layer.dst.channels, lanes)
    made = np.zeros((3, blocks, UNITS), np.uint8)
    made[0, :, :2] = np.array([s.left, s.right]).astype(np.uint8)
    made[1, :, :2] = np.array([s.right, s.left]).astype(np.uint8)
    for k in range(blocks):
        made[2, k, : k + 1] = s.offset & 0xFF
        made[2, k, k + 1 : 2 * k + 2] = s.offset >> 8 & 0xFF
    return np.repeat(made.reshape(1, -1), lanes, 0)


def window_sum(i: Instruction, layer: Layer, relu: int, lanes: int) -> Iterator[Fields]:
    """The commands of a sum; several for many channels or pixels."""
    assert layer.node is not None
    a, b, y = (Local.of(i.fields[k], lanes) for k in ("src", "other", "dst"))
    s, start = of_sum(layer.node), i.fields["table"] // lanes
    most = _blocks(y.channels, lanes)
    weights = start
    if a.address > b.address:
        a, b, weights = b, a, start + most * UNITS
    step = most if a.channel == b.channel else 1  # one stride serves both
    pixels = y.height * y.width
    for first in range(0, -(-y.channels // lanes), step):
        channels = min(step * lanes, y.channels - first * lanes)
        blocks = -(-channels // lanes)
        for at in range(0, pixels, MOST_PIXELS):
            many = min(MOST_PIXELS, pixels - at)
            x, other, to = (
                replace(
                    t,
                    address=t.address + first * t.channel + at,
                    channels=channels,
                    height=1,
                    width=many,
                    row=many,
                )
                for t in (a, b, y)
            )
            yield {
                **_command(s, relu),
                **replace(x, height=2).place("opd0"),
                "opd0_h_str": other.address - x.address,
                **to.place("res0"),
                "opd1_addr": weights,
                "opd1_c": channels,
                "opd2_addr": start + (2 * most + blocks - 1) * UNITS,
                "opd2_c": channels,
                "opd2_b_str": blocks,
            }


def _command(s: Sum, relu: int) -> Fields:
    return {
        "tsk_typ": 1,
        "tsk_eu_typ": 2,
        "tsk_opd_num": 3,
        "opt_relu_typ": relu,
        "opt_res_shift": s.shift,
        "opd1_h": 2,
        "opd1_w": 1,
        "opd2_h": 1,
        "opd2_w": 1,
        "opt_opd2_seg": 0,
        "opt_opd2_sign": 1,
        "short_opd2_str": 2,
    }
