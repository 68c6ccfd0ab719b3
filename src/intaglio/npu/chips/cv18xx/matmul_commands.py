"""The TIU commands of a product of two computed maps: convolutions that add to the same sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from intaglio.npu.chips.cv18xx.constants import MIN_DOUBLE_INPUTS
from intaglio.npu.chips.cv18xx.elementwise import copied, relu
from intaglio.npu.chips.cv18xx.matmul import UNITS, of_matmul, ones_at, records
from intaglio.npu.chips.cv18xx.tensors import Fields, Local
from intaglio.npu.layers import Layer
from intaglio.npu.own.isa import Instruction

SUMS_IN, SUMS_OUT = 1, 2  # bits of ps32_md
MOST_PAD = 15
MOST_ROWS = 2 * MOST_PAD + 1  # of a command whose input is one row


def matmul(i: Instruction, layer: Layer, lanes: int) -> Iterator[Fields]:
    """The commands of a product, for one block of channels after the other or for all."""
    assert layer.node is not None
    p, step = of_matmul(layer.node), records(layer, lanes)
    a, b, y = (Local.of(i.fields[k], lanes) for k in ("src", "other", "dst"))
    left, result, start = _row(a), _row(y), i.fields["table"] // lanes
    plane = -(-left.width // UNITS) * UNITS
    ones = replace(left, address=start + ones_at(step), width=UNITS, channel=UNITS, row=UNITS)
    ones = replace(ones, signed=p.a_zero >= 0)
    for first in range(0, -(-y.channels // lanes), step):
        channels = min(step * lanes, y.channels - first * lanes)
        to = replace(result, address=y.address + first * y.channel, channels=channels)
        weights = _weights(b.address + first * b.channel, b.signed)
        end = _rounded(layer, channels, start)
        if not (p.a_zero or p.b_zero):
            yield _product(left, weights, to) | end
            continue
        sums = replace(to, address=i.scratch // lanes, channel=plane, row=plane)
        if p.a_zero:
            yield from _of_ones(ones, -p.a_zero, weights, sums)
        if p.b_zero:
            mode = SUMS_OUT | (SUMS_IN if p.a_zero else 0)
            yield _kept(left, _number(-p.b_zero), sums, mode)
        added = {"ps32_md": SUMS_IN, "res0_b_str": plane}
        yield _product(left, weights, sums) | end | added
        yield copied(sums, to)


def _of_ones(ones: Local, value: int, weights: Fields, sums: Local) -> Iterator[Fields]:
    """Sums of the weights, for all pixels: rows of the same byte, around which is padding of it."""
    for at in range(0, sums.channel, MOST_ROWS * UNITS):
        rows = min(sums.channel - at, MOST_ROWS * UNITS) // UNITS
        part = replace(sums, address=sums.address + at, height=rows, width=UNITS, row=UNITS)
        up = min(rows - 1, MOST_PAD)
        pads = {"conv_opd0_up_pad": up, "conv_opd0_dn_pad": rows - 1 - up}
        pads |= {"opd0_ins_val": value & 0xFFFF}
        yield _kept(ones, weights, part, SUMS_OUT) | pads


def _row(t: Local) -> Local:
    """A map of one column as a map of one row, which is as long."""
    return replace(t, height=1, width=t.height, row=t.channel, pixel=t.row)


def _weights(address: int, signed: bool) -> Fields:
    return {"opd1_addr": address, "opt_opd1_sign": int(signed)}


def _number(value: int) -> Fields:
    return {"opd1_addr": value & 0xFF, "opt_opd1_sign": int(value < 0), "opt_opd1_const": 1}


def _product(x: Local, weights: Fields, y: Local) -> Fields:
    """A convolution of pixels with weights in local memory, or with one number."""
    operand = {k: v for k, v in x.place("opd0").items() if not k.endswith("_str")}
    even = x.channels % 2 == 0 and weights["opd1_addr"] % 2 == 0
    return {
        "tsk_typ": 0,
        "double_conv": int(even and x.channels >= MIN_DOUBLE_INPUTS),
        "opt_res_shift": 0,
        "opd1_n": x.channels,
        "opd1_c": y.channels,
        "opd1_h": 1,
        "opd1_w": 1,
        "short_opd1_str": 1,
        "short_opd0_str": 0,  # strides of the TIU itself
        **weights,
        **operand,
        **y.place("res0"),
    }


def _rounded(layer: Layer, channels: int, parameters: int) -> Fields:
    return {
        "tsk_opd_num": 3,
        "opt_relu_typ": relu(layer),
        "opt_chl_quan": 1,
        "opd2_addr": parameters,
        "opd2_c": channels,
        "opd2_h": 1,
        "opd2_w": 1,
        "opt_opd2_seg": 1,
        "short_opd2_str": 2,
        "opd2_b_str": 0,
    }


def _kept(x: Local, weights: Fields, sums: Local, mode: int) -> Fields:
    """A product whose sums of 32 bits the next command reads: bytes in planes."""
    return {
        **_product(x, weights, sums),
        "tsk_opd_num": 2,
        "opt_relu_typ": 0,
        "opt_chl_quan": 0,
        "opt_res0_sign": int(x.signed or weights["opt_opd1_sign"]),  # of bytes, which it has not
        "opd2_c": sums.channels,
        "opd2_w": 1,
        "opt_opd2_seg": 1,
        "short_opd2_str": 0,
        "opd2_b_str": 0,
        "ps32_md": mode,
        "res0_b_str": sums.channel,
    }
