"""Commands of the tensor unit (TIU): one function per kind, from operands to fields."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio import dtypes
from intaglio.npu.chips.bm1684x.command_window import Window
from intaglio.npu.chips.bm1684x.local import Local

Fields = dict[str, int]
PRECISION = {
    "i8": 0,
    "u8": 0,
    "f16": 1,
    "f32": 2,
    "i16": 3,
    "u16": 3,
    "i32": 4,
    "u32": 4,
    "bf16": 5,
}
SIGNED = ("i8", "i16", "i32", "f16", "f32", "bf16")
BITS = {"i8": 8, "u8": 8, "i16": 16, "u16": 16, "i32": 32}
STRIDED = 3  # layout code of operands that have strides; 0: regular ones
SHARED_TABLE = 4  # layout code of a table that all blocks of channels share
# kinds of sAR
MUL, ADD, SUB, MAX, MIN, DIVIDE, CAST, SATURATING_ADD, COPY, ABS = 0, 2, 3, 4, 5, 12, 14, 15, 19, 26
# kinds of sPorD
DEPTHWISE, AVERAGE, LARGEST = 0, 1, 4
# kinds of sRQ&sDQ
REQUANTIZE, DEQUANTIZE = 0, 3
SERIES, RECIPROCAL_ROOT = 13, 17  # kinds of sSFU
GATHER = 5  # kind of sSG: each element is an index into the table of its lane
LANE_BROADCAST = 3  # kind of the command that copies between lanes


@dataclass(frozen=True, slots=True)
class Const:
    """A constant operand."""

    value: float
    dtype: str

    @property
    def bits(self) -> int:
        if dtypes.is_float(self.dtype):
            return bits_of(self.value, self.dtype)
        return int(self.value) & (1 << BITS[self.dtype]) - 1


def bits_of_f32(value: float) -> int:
    """The bits of a number of f32."""
    return bits_of(value, "f32")


def bits_of(value: float, dtype: str) -> int:
    """The bits of a number of a float type."""
    return int.from_bytes(np.asarray(value, dtypes.numpy_of(dtype)).tobytes(), "little")


def _sign(dtype: str) -> int:
    return int(dtype in SIGNED)


def _result(y: Local) -> Fields:
    return {
        "res0_n": 1,
        "res0_c": y.channels,
        "res0_h": y.height,
        "res0_w": y.width,
        "res0_addr": y.address,
        "res0_prec": PRECISION[y.dtype],
    }


def conv(
    y: Local,
    x: Local,
    weights: int | Const,
    window: Window,
    padding: int,
    dtype: str = "i8",
    zero: int = 0,
) -> tuple[str, Fields]:
    """i32 sums of a convolution; `weights` is their address, or one number for all."""
    assert y.regular
    fields = _result(y) | window.fields()
    fields |= {
        "tsk_eu_typ": 0,
        "opd0_prec": PRECISION[x.dtype],
        "opd0_sign": _sign(x.dtype),
        "opd1_sign": _sign(dtype),
        "opd2_sign": _sign(dtype),
        "opd2_const": 1,  # the zero point of the weights
        "opd2_addr": zero & 0xFF,
        "opd3_const": 1,
        "opd3_addr": padding & 0xFF,
        "opd0_c": x.channels,
        "opd0_h": x.height,
        "opd0_w": x.width,
        "opd0_addr": x.address,
        "opd1_addr": weights.bits if isinstance(weights, Const) else weights,
    }
    if isinstance(weights, Const):
        fields["opd1_const"] = 1
    if y.chip.signs_results:
        fields |= {"res0_sign": 1, "opd4_const": 1, "opd5_const": 1}
    if not x.regular:
        fields["opd0_str"] = STRIDED
        fields |= {f"opd0_{axis}_str": n for axis, n in x.strides().items()}
    return "sCONV", fields


POINT = Window((1, 1), (1, 1), (1, 1), (0, 0, 0, 0))


def float_conv(
    y: Local, x: Local, weights: int | Const, window: Window = POINT, bias: int | None = None
) -> tuple[str, Fields]:
    """A convolution of floats: `weights` and `bias` are addresses, or one number for all."""
    name, fields = conv(y, x, weights, window, 0)
    if bias is not None:
        fields |= {"opd2_const": 0, "opd2_addr": bias}
    if y.chip.weight_types:
        fields |= {"opd1_prec": PRECISION[x.dtype], "opd2_prec": PRECISION["f32"]}
    return name, fields


def series(y: Local, x: Local, coefficients: int, count: int) -> tuple[str, Fields]:
    """c0 + x * (c1 + x * (c2 ...)) of f32; every lane has the coefficients."""
    assert y.regular
    assert x.regular
    fields = _result(y) | {"tsk_eu_typ": SERIES, "opd0_prec": PRECISION[x.dtype]}
    return "sSFU", fields | {"opd0_addr": x.address, "opd1_addr": coefficients, "opd1_n": count}


def reciprocal_root(y: Local, x: Local, steps: int) -> tuple[str, Fields]:
    """1 / sqrt(x) of f32 by some steps of Newton's method."""
    assert y.regular
    assert x.regular
    fields = _result(y) | {"tsk_eu_typ": RECIPROCAL_ROOT, "opd0_prec": PRECISION[x.dtype]}
    return "sSFU", fields | {"opd0_addr": x.address, "opd2_n_str": steps - 1}


def divide(y: Local, a: Const, b: Local, steps: int) -> tuple[str, Fields]:
    """a / b of f32."""
    fields = _result(y) | {"tsk_eu_typ": DIVIDE, "tsk_opd_num": 2, "opd2_n_str": steps - 1}
    for name, one in (("res0", y), ("opd1", b)):
        if not one.regular:
            fields[f"{name}_str"] = STRIDED
            fields |= {f"{name}_{axis}_str": n for axis, n in one.strides().items()}
    fields |= {"opd0_const": 1, "opd0_addr": a.bits, "opd0_prec": PRECISION[a.dtype]}
    fields |= {"opd1_addr": b.address, "opd1_prec": PRECISION[b.dtype]}
    return "sAR", fields | {"opd0_sign": 1, "opd1_sign": 1}


def windowed(
    kind: int,
    y: Local,
    x: Local,
    window: Window,
    padding: int | Const,
    weights: int | Const | None = None,
    bias: int | None = None,
) -> tuple[str, Fields]:
    """A depthwise convolution, sums (kernel of ones) or the largest numbers of windows.

    `bias` is its address, or that of the positions of the largest numbers, where a chip has them.
    """
    assert y.regular
    assert x.regular
    fields = _result(y) | window.fields()
    fields |= {
        "tsk_eu_typ": kind,
        "opd0_prec": PRECISION[x.dtype],
        "opd0_sign": _sign(x.dtype),
        "opd1_sign": 1,
        "opd2_sign": 1,
        "opd3_const": 1,
        "opd3_addr": padding.bits if isinstance(padding, Const) else padding & 0xFF,
        "opd0_h": x.height,
        "opd0_w": x.width,
        "opd0_addr": x.address,
    }
    if y.chip.signs_results:
        fields["res0_sign"] = _sign(y.dtype)
    if kind == LARGEST and y.chip.pool_indices:
        fields["opd2_addr"] = bias or 0
    elif weights is None or isinstance(weights, Const):
        one = 1 if weights is None else weights.bits
        fields |= {"opd1_const": 1, "opd1_addr": one, "opd2_const": 1}
    else:
        fields["opd1_addr"] = weights
        fields |= {"opd2_const": 1} if bias is None else {"opd2_addr": bias}
    return "sPorD", fields


def requantize(y: Local, x: Local, scale: float | int, constant: bool) -> tuple[str, Fields]:
    """y = saturate(rint(f32(x) * scale)); `scale` is a number, or the address of one per lane."""
    assert y.regular
    assert x.regular
    fields = _result(y) | {
        "tsk_eu_typ": REQUANTIZE,
        "opd0_prec": PRECISION[x.dtype],
        "opd0_sign": _sign(x.dtype),
        "opd2_sign": _sign(y.dtype),
        "opd0_addr": x.address,
        "opd1_const": int(constant),
        "opd1_addr": bits_of_f32(scale) if constant else int(scale),
    }
    return "sRQ&sDQ", fields


def dequantize(y: Local, x: Local, scale: float, zero: int) -> tuple[str, Fields]:
    """y = f32(x - zero) * scale."""
    assert y.regular
    assert x.regular
    fields = _result(y) | {
        "tsk_eu_typ": DEQUANTIZE,
        "opd0_prec": PRECISION[x.dtype],
        "opd0_sign": _sign(x.dtype),
        "opd2_sign": 1,
        "opd0_addr": x.address,
        "opd1_const": 1,
    }
    pair = zero & 0xFFFFFFFF, bits_of_f32(scale)
    fields["opd1_addr"], fields["opd2_addr"] = pair if y.chip.zero_first else pair[::-1]
    return "sRQ&sDQ", fields


def arithmetic(kind: int, y: Local, a: Local, b: Local | Const | None = None) -> tuple[str, Fields]:
    """An element-wise command; operands of one pixel are repeated. f32 rounds to nearest even."""
    fields = _result(y) | {"tsk_eu_typ": kind, "tsk_opd_num": 1 if b is None else 2}
    if not y.regular:
        fields["res0_str"] = STRIDED
        fields |= {f"res0_{axis}_str": n for axis, n in y.strides().items()}
    for name, one in (("opd0", a), ("opd1", b)):
        if one is None:
            continue
        fields |= {f"{name}_prec": PRECISION[one.dtype], f"{name}_sign": _sign(one.dtype)}
        if isinstance(one, Const):
            fields |= {f"{name}_const": 1, f"{name}_addr": one.bits}
            continue
        fields[f"{name}_addr"] = one.address
        same = (one.height, one.width) == (y.height, y.width)
        if not (same and one.regular):
            fields[f"{name}_str"] = STRIDED
            strides = one.strides()
            strides["h"] = 0 if one.height == 1 and y.height > 1 else strides["h"]
            strides["w"] = 0 if one.width == 1 and y.width > 1 else strides["w"]
            fields |= {f"{name}_{axis}_str": n for axis, n in strides.items()}
    if kind == CAST:
        fields["opd2_sign"] = _sign(y.dtype)
    return "sAR", fields


def gather(y: Local, index: Local, table: int, entries: int) -> tuple[str, Fields]:
    """y = table[index] of unsigned indices; every lane has the table."""
    assert y.regular
    assert index.regular
    pixels = y.height * y.width
    fields = _result(y) | {
        "tsk_eu_typ": GATHER,
        "res0_h": 1,
        "res0_w": pixels,
        "opd0_prec": PRECISION[y.dtype],
        "opd0_addr": table,
        "opd0_h": 1,
        "opd0_w": entries,
        "opd0_str": SHARED_TABLE,
        "opd1_prec": PRECISION[index.dtype],
        "opd1_addr": index.address,
        "opd1_c": y.channels,
        "opd1_w": pixels,
    }
    return "sSG", fields


def lane_broadcast(y: Local, x: Local) -> tuple[str, Fields]:
    """Copy the one channel of lane 0 to all channels of y."""
    assert y.regular
    assert x.regular
    fields = _result(y) | {"tsk_eu_typ": LANE_BROADCAST, "opd0_addr": x.address}
    return y.chip.broadcast, fields
