"""Arithmetic on quantised tensors: real = scale * (stored - zero), results rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value, constant
from intaglio.ops.conv import conv_integer, qlinear_conv
from intaglio.ops.elementwise import add, cast, div, mul, sub
from intaglio.ops.linear import matmul_integer, qlinear_matmul
from intaglio.ops.quantize import quantize_linear
from intaglio.ops.registry import op
from intaglio.ops.shape import reshape

BITS8 = ("i8", "u8")


def _entries(x: Value, table: Value) -> Type:
    if x.dtype not in BITS8:
        raise BadInput(f"lookup by {x.dtype}; i8 and u8 are numbers of entries")
    if table.shape != (256,):
        raise BadInput(f"the table has shape {table.shape}, 256 entries are needed")
    return Type(table.dtype, x.shape)


@op(_entries)
def lookup(x: Array, table: Array) -> Array:
    """table[x], where the bytes of x count as unsigned: any function of one quantised tensor."""
    return table[x.view(np.uint8)]


# ---- products in simpler ops: for formats that cannot say f32 results and residuals --------------
def _one(v: Value) -> Value:
    made: Value = reshape(v, shape=())
    return made


def _per_channel(v: Value, rank: int) -> Value:
    made: Value = _one(v) if v.type.size == 1 else reshape(v, shape=(-1, *[1] * (rank - 2)))
    return made


def _rounded(real: Value, zero: Value) -> Value:
    """clamp(rint(real) + zero)"""
    made: Value = quantize_linear(real, constant(1.0, dtype="f32"), zero, dtype=zero.dtype)
    return made


@qlinear_conv.lowers
def _(x: Value, x_scale: Value, x_zero: Value, w: Value, w_scale: Value, w_zero: Value,
      y_scale: Value | None, y_zero: Value | None, b: Value | None, residual: Value | None,
      r_scale: Value | None, r_zero: Value | None, **window: Any) -> Value:  # fmt: skip
    acc, rank = conv_integer(x, w, _one(x_zero), w_zero, **window), x.type.rank
    acc = acc if b is None else add(acc, _per_channel(b, rank))
    scale = mul(_one(x_scale), _per_channel(w_scale, rank))
    scale = scale if y_scale is None else div(scale, _one(y_scale))
    real: Value = mul(cast(acc, dtype="f32"), scale)
    if y_scale is None or y_zero is None:
        return real if residual is None else add(real, residual)
    if residual is not None and r_scale is not None and r_zero is not None:
        apart = sub(cast(residual, dtype="f32"), cast(_one(r_zero), dtype="f32"))
        real = add(real, mul(apart, div(_one(r_scale), _one(y_scale))))
    return _rounded(real, _one(y_zero))


@qlinear_matmul.lowers
def _(a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value, b_zero: Value,
      y_scale: Value | None, y_zero: Value | None) -> Value | None:  # fmt: skip
    if y_scale is not None or a_scale.type.size != 1:
        return None
    acc = cast(matmul_integer(a, b, a_zero, b_zero), dtype="f32")
    made: Value = mul(acc, mul(_one(a_scale), _one(b_scale) if b_scale.type.size == 1 else b_scale))
    return made
