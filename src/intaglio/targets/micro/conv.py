"""micro.conv: int8 convolution of channels-last images, with weights as the model has them."""

from __future__ import annotations

import math

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.registry import op
from intaglio.ops.windows import Ints

RESULTS = ("i8", "u8", "f32")


def _type(
    x: Value,
    w: Value,
    bias: Value,
    scale: Value,
    w_zero: Value | None,
    residual: Value | None,
    table: Value | None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int,
    x_zero: int,
    y_zero: int,
    dtype: str,
    lo: int,
    r_zero: int,
    r_scale: float,
) -> Type:
    if x.type.rank != 4 or w.type.rank != 4 or x.dtype not in ("i8", "u8") or dtype not in RESULTS:
        raise BadInput(f"micro.conv of {x.type} and {w.type} to {dtype}; 8-bit images are needed")
    m = w.shape[0]
    want = (Type("i32", (m,)), Type("f32", (m,)))
    if w.dtype != "i8" or (bias.type, scale.type) != want:
        raise BadInput(f"weights {w.type}, bias {bias.type}, scale {scale.type} do not fit")
    if w_zero is not None and w_zero.type != Type("i16", (m,)):
        raise BadInput(f"one i16 zero point per channel is needed, not {w_zero.type}")
    first = Value(x.type.but(shape=tuple(x.shape[a] for a in (0, 3, 1, 2)), quant=None))
    kernel = Value(Type(x.dtype, (m, w.shape[3], *w.shape[1:3])))
    made = ops.conv_integer.infer(
        first, kernel, None, None, stride=stride, pad=pad, dilation=dilation, groups=groups
    )
    assert isinstance(made, Type)
    result = Type(dtype, tuple(made.shape[a] for a in (0, 2, 3, 1)))
    if residual is not None and residual.shape != result.shape:
        raise BadInput(f"the residual is {residual.type}; its shape must be that of {result}")
    if table is not None and (table.dtype != dtype or table.type.rank != 1 or dtype == "f32"):
        raise BadInput(f"the table is {table.type}; a vector of {dtype} is needed")
    return result


def _macs(node: Node) -> int:
    return node.outputs[0].type.size * math.prod(node.inputs[1].shape[1:])  # type: ignore[union-attr]


@op(_type, name="micro.conv", macs=_macs)
def micro_conv(
    x: Array,
    w: Array,
    bias: Array,
    scale: Array,
    w_zero: Array | None = None,
    residual: Array | None = None,
    table: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int = 1,
    x_zero: int,
    y_zero: int = 0,
    dtype: str,
    lo: int = 0,
    r_zero: int = 0,
    r_scale: float = 0.0,
) -> Array:
    """qlinear_conv of [n, h, w, c] by weights [m, kh, kw, c]; f32 results are not rounded.

    With a `table` the result is table[clamp(rounded, lo, lo + entries - 1) - lo].
    """
    one = np.float32(1)
    zeros = np.zeros(len(w), np.int16) if w_zero is None else w_zero
    wide = w.astype(np.int16) - zeros.reshape(-1, 1, 1, 1)
    first = ops.qlinear_conv.body(
        x.transpose(0, 3, 1, 2),
        one,
        np.array(x_zero, x.dtype),
        wide.transpose(0, 3, 1, 2),
        scale,
        np.zeros((), np.int16),
        b=bias,
        stride=stride,
        pad=pad,
        dilation=dilation,
        groups=groups,
    )
    real = np.ascontiguousarray(first.transpose(0, 2, 3, 1))
    if residual is not None and dtype == "f32":
        real = real + residual
    elif residual is not None:
        real = real + (residual.astype(np.int32) - r_zero).astype(np.float32) * np.float32(r_scale)
    if dtype == "f32":
        return real
    whole = np.rint(real) + np.float32(y_zero)
    if table is not None:
        found: Array = table[np.clip(whole, lo, lo + len(table) - 1).astype(np.int32) - lo]
        return found
    low, high = dtypes.limits(dtype)
    result: Array = np.clip(whole, low, high).astype(dtypes.numpy_of(dtype))
    return result
