"""Lower quantised convolutions and products to micro.conv between transposes."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Node, Value, constant
from intaglio.ops import channels_first, channels_last, reshape
from intaglio.ops.quantized import lookup
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.micro.conv import micro_conv

x, w, b = P["x w! b!?"]
xs, xz, ws, wz, ys, yz = P["xs! xz! ws! wz! ys!? yz!?"]


def _data(v: Value) -> Array:
    assert v.data is not None
    return v.data


def _why_not(x: Value, w: Value, xs: Value, xz: Value, ws: Value, ys: Value | None) -> str | None:
    for v in (x, w):
        if v.dtype not in ("i8", "u8"):
            return f"a tensor is {v.dtype}, not 8 bits wide"
    for s in (xs, ws, ys):
        if s is not None and not np.isfinite(_data(s)).all():
            return "a scale is not finite"
    if ys is not None and not _data(ys).all():
        return "the scale of the result is zero"
    if xz.type.size != 1 or xs.type.size != 1 or (ys is not None and ys.type.size != 1):
        return "the activations have more than one scale or zero point"
    return None


def _operands(
    w: Array, xs: Value, ws: Value, wz: Value, ys: Value | None, b: Value | None
) -> tuple[Value, Value, Value, Value | None]:
    """Weights [m, h, w, c] of i8, bias, scales, and zero points of weights if any is not zero."""
    m, one = len(w), np.float32(1)
    off = 128 if w.dtype == np.uint8 else 0
    signed = (w.astype(np.int16) - off).astype(np.int8)
    zeros = np.broadcast_to(_data(wz).reshape(-1).astype(np.int16) - off, (m,))
    scale = (one * _data(xs).reshape(-1)) * (one * _data(ws).reshape(-1))
    scale = scale if ys is None else scale / (one * _data(ys).reshape(-1))
    bias = np.zeros(m, np.int32) if b is None else _data(b)
    rows = np.ascontiguousarray(signed.transpose(0, 2, 3, 1))
    scales = np.ascontiguousarray(np.broadcast_to(scale.astype(np.float32), (m,)))
    return (
        constant(rows),
        constant(bias),
        constant(scales),
        constant(np.ascontiguousarray(zeros)) if zeros.any() else None,
    )


def _result(xz: Value, yz: Value | None) -> dict[str, Any]:
    attrs: dict[str, Any] = {"x_zero": int(_data(xz).reshape(-1)[0])}
    if yz is None:
        return {**attrs, "dtype": "f32"}
    return {**attrs, "y_zero": int(_data(yz).reshape(-1)[0]), "dtype": yz.dtype}


r, rs, rz, t = P["r? rs!? rz!? t!"]
PRODUCT = P.qlinear_conv(x, xs, xz, w, ws, wz, ys, yz, b, r, rs, rz)


def _convolved(node: Node, table: Value | None = None, lo: int = 0) -> Value | No:
    """A qlinear_conv, with its table if it has one, as micro.conv between transposes."""
    x, xs, xz, w, ws, wz, ys, yz, b, r, rs, rz = node.inputs
    assert x is not None
    assert xs is not None
    assert xz is not None
    assert w is not None
    assert ws is not None
    assert wz is not None
    if why := _why_not(x, w, xs, xz, ws, ys):
        return no(why)
    if x.type.rank not in (3, 4):
        return no("the kernel supports one or two spatial axes")
    attrs = {**_result(xz, yz), **node.attrs}
    if table is not None:
        attrs |= {"dtype": table.dtype, "lo": lo}
    elif yz is not None and yz.dtype not in ("i8", "u8"):
        return no(f"the result is {yz.dtype}; it is supported only before a table of 8 bits")
    if r is not None and rs is not None and rz is not None and ys is not None:
        if r.dtype not in ("i8", "u8") or rs.type.size != 1:
            return no(f"the residual is {r.dtype}, not 8 bits wide")
        one = np.float32(1)
        factor = (one * _data(rs).reshape(())) / (one * _data(ys).reshape(()))
        attrs |= {"r_zero": int(_data(rz).reshape(-1)[0]), "r_scale": float(factor)}
    kernel = _data(w)
    if x.type.rank == 3:  # one line
        kernel = kernel[:, :, None]
        before, after = attrs["pad"]
        attrs["stride"], attrs["dilation"] = (1, *attrs["stride"]), (1, *attrs["dilation"])
        attrs["pad"] = (0, before, 0, after)
    image, residual = (None if v is None else _image(v) for v in (x, r))
    operands = _operands(kernel, xs, ws, wz, ys, b)
    y = channels_first(micro_conv(image, *operands, residual, table, **attrs))
    out: Value = y if x.type.rank == 4 else reshape(y, shape=node.outputs[0].shape)
    return out


def _image(v: Value) -> Value:
    """A tensor [n, c, ..] as channels-last with two spatial axes."""
    line = v.type.rank == 3
    whole = reshape(v, shape=(v.shape[0], v.shape[1], 1, v.shape[2])) if line else v
    result: Value = channels_last(whole)
    return result


@rule(PRODUCT @ "product")
def qlinear_conv_micro(product: Node) -> Value | No:
    """Lower qlinear_conv to transpose, micro.conv, transpose."""
    return _convolved(product)


@rule(P.lookup_wide(PRODUCT @ "product", t))
def int16_table_into_micro_conv(node: Node, product: Node, t: Value) -> Value | No:
    """Lower a 16-bit qlinear_conv and its lookup table to one micro.conv."""
    if t.dtype not in ("i8", "u8"):
        return no(f"the table makes {t.dtype}; 8 bits are needed")
    return _convolved(product, t, node.attrs["base"])


@rule(P.qlinear_matmul(x, xs, xz, w, ws, wz, ys, yz))
def qlinear_matmul_micro(
    node: Node,
    x: Value,
    xs: Value,
    xz: Value,
    w: Value,
    ws: Value,
    wz: Value,
    ys: Value | None,
    yz: Value | None,
) -> Value | No:
    """Lower qlinear_matmul with constant weights to micro.conv on an image of one line."""
    if why := _why_not(x, w, xs, xz, ws, ys):
        return no(why)
    if w.type.rank != 2 or x.type.dynamic or x.type.size == 0:
        return no(f"{x.type} @ {w.type} is not one matmul of static size")
    k, n = w.shape
    if ws.type.size not in (1, n) or wz.type.size not in (1, n):
        return no(f"there are {ws.type.size} scales and {wz.type.size} zero points for {n} columns")
    columns = _data(w).T.reshape(n, k, 1, 1)
    line = reshape(x, shape=(1, 1, x.type.size // k, k))
    square: dict[str, Any] = {
        "stride": (1, 1),
        "pad": (0, 0, 0, 0),
        "dilation": (1, 1),
        "groups": 1,
    }
    y = micro_conv(line, *_operands(columns, xs, ws, wz, ys, None), **_result(xz, yz), **square)
    out: Value = reshape(y, shape=node.outputs[0].shape)
    return out


@rule(P.clip(x))
def clip_as_lookup(node: Node, x: Value) -> Value | None:
    """Lower a clip of bytes to a lookup table."""
    if x.dtype not in ("i8", "u8"):
        return None
    every = np.arange(256, dtype=np.uint8).view(dtypes.numpy_of(x.dtype))
    table = REGISTRY["clip"].body(every, **node.attrs)
    result: Value = lookup(x, constant(np.ascontiguousarray(table)))
    return result


MICRO: tuple[Rule, ...] = (qlinear_conv_micro, qlinear_matmul_micro, clip_as_lookup)
MICRO_TABLES: tuple[Rule, ...] = (int16_table_into_micro_conv,)  # before sums are rounded
