"""Commands of the tensor unit (TIU): one function per kind, from operands to fields."""

from __future__ import annotations

from intaglio.npu.chips.bm1684.local import SIGNED, Local
from intaglio.npu.chips.bm1684.variant import BM1684, TABLE
from intaglio.npu.chips.bm1684x.command_window import Window

Fields = dict[str, int]
Made = tuple[str, Fields]
PRECISION = {"i8": 0, "u8": 0, "i16": 3, "u16": 3}
ALIGNED, COMPACT, PER_CHANNEL, STRIDED = range(4)  # layouts of operands
DEPTHWISE, LARGEST = 1, 4  # kinds of PorD
INDEX_BITS, WORDS = 8, 2  # of lookups: bits of the index, and the precision of words
MUL, ADD, MAX, MIN, SHIFT, COPY = 0, 2, 4, 5, 6, 19  # kinds of AR
SIZES = {f"{o}_{a}": 1 for o in ("opd0", "opd1") for a in "nchw"}
STEPS = {f"{o}_{a}_str": 1 for o in ("res0", "opd0", "opd1", "opd2") for a in "nchw"}


def at(address: int) -> int:
    """An address of lane 0 as commands have it."""
    return BM1684.local + address


def _result(y: Local) -> Fields:
    sizes = {"res0_n": 1, "res0_c": y.channels, "res0_h": y.height, "res0_w": y.width}
    rest = {"res0_addr": at(y.address), "res0_prec": PRECISION[y.dtype], "shift_typ": 1}
    return SIZES | STEPS | {"res_op_x_str": 1, "res_op_y_str": 1} | sizes | rest


def _source(x: Local) -> Fields:
    fields = {"opd0_addr": at(x.address), "opd0_prec": PRECISION[x.dtype], "opd0_sign": x.signed}
    return fields | x.strides("opd0") | {"opd0_str": STRIDED}


def conv(
    y: Local, x: Local, weights: int, bias: int, window: Window, groups: int, shift: int
) -> Made:
    """A convolution; weights are words of four inputs, `groups` of them for each tap."""
    assert y.regular
    assert x.aligned
    taps = window.kernel[0] * window.kernel[1]
    fields = _result(y) | _source(x) | window.fields()
    fields |= {"opd0_c": x.channels, "opd0_h": x.height, "opd0_w": x.width}
    fields |= {
        "tsk_opd_num": 3,
        "right_shift": shift,
        "relu": int(y.dtype == "u8"),
        "opd1_sign": 1,
        "opd2_sign": 1,
        "opd2_prec": PRECISION["i16"],
        "opd1_addr": at(weights),
        "opd2_addr": at(bias),
        "opd1_str": STRIDED,
        "opd2_str": COMPACT,
        "opd1_n_str": 1,
        "opd1_c_str": taps * groups,
        "opd1_h_str": window.kernel[1] * groups,
        "opd1_w_str": groups,
    }
    return "CONV", fields


def depthwise(y: Local, x: Local, weights: int, bias: int, window: Window, shift: int) -> Made:
    """A convolution of each channel alone; weights are bytes."""
    name, fields = largest(y, x, window)
    fields |= {
        "tsk_eu_typ": DEPTHWISE,
        "tsk_opd_num": 3,
        "right_shift": shift,
        "relu": int(y.dtype == "u8"),
        "opd1_sign": 1,
        "opd2_sign": 1,
        "opd2_prec": PRECISION["i16"],
        "opd1_addr": at(weights),
        "opd2_addr": at(bias),
        "opd2_str": PER_CHANNEL,
    }
    return name, fields


def largest(y: Local, x: Local, window: Window) -> Made:
    """The largest number of each window."""
    assert y.regular
    assert x.aligned
    fields = _result(y) | _source(x) | window.fields()
    fields |= {"opd0_c": 1, "opd0_h": x.height, "opd0_w": x.width}
    return "PorD", fields | {"tsk_eu_typ": LARGEST, "tsk_opd_num": 1}


def arithmetic(kind: int, y: Local, a: Local, b: Local | int | None = None, shift: int = 0) -> Made:
    """An element-wise command; a number has the type of the first operand, or is of i8 or u8."""
    fields = _result(y) | y.strides("res0") | {"res0_str": STRIDED, "tsk_eu_typ": kind}
    fields |= _source(a) | {"tsk_opd_num": 1 if b is None else 2, "right_shift": shift}
    fields |= {"opd2_str": PER_CHANNEL, "opd1_prec": PRECISION[a.dtype], "opd1_sign": a.signed}
    if isinstance(b, int):
        fields |= {"opd1_const": 1, "opd1_addr": b & 0xFFFFFFFF}
        if b < 0:
            fields["opd1_sign"] = 1
    elif b is not None:
        fields |= {"opd1_addr": at(b.address), "opd1_prec": PRECISION[b.dtype]}
        fields |= b.strides("opd1") | {"opd1_str": STRIDED, "opd1_sign": b.signed}
        fields["opd1_neq1"] = int(b.pixel == 0)  # the same pixel everywhere
    return "AR", fields


def lookup(y: Local, x: Local) -> Made:
    """y = table[x] by the table in L2 memory; entries are words."""
    assert y.regular
    assert x.regular
    fields = _result(y) | {f"{name}_prec": WORDS for name in ("res0", "opd0", "opd1")}
    fields |= {"opd0_addr": at(x.address), "opd1_addr": TABLE, "opd1_h": INDEX_BITS}
    return "LUT", fields | {"tsk_opd_num": 2, "opd2_str": PER_CHANNEL}


def shift_channels(y: Local, x: Local, shifts: int) -> Made:
    """Each channel shifted by its own number, which is negative to the right; rounds down."""
    assert {y.dtype, x.dtype} <= set(SIGNED)
    name, fields = arithmetic(SHIFT, y, x, y)
    fields |= {"opd1_addr": at(shifts), "opd1_neq1": 1}
    return name, fields | {"opd1_n_str": 0, "opd1_c_str": 1, "opd1_h_str": 0, "opd1_w_str": 0}
