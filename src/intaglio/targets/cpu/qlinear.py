"""Lower quantised convolutions and matmuls to int8 kernels, and fuse clips and tables into them."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Node, Value, constant
from intaglio.ops import channels_first, channels_last, reshape
from intaglio.ops.quantized import MAX_ENTRIES
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.cpu.depthwise_packing import why_not_packed
from intaglio.targets.cpu.int8_arithmetic import shifted_zero, signed_sums, wrapped
from intaglio.targets.cpu.piecewise_tables import lines_of
from intaglio.targets.cpu.qconv_choice import convolution, packed_qconv
from intaglio.targets.cpu.weight_zeros import HIGHEST, differences

x, w, b = P["x w! b!?"]
xs, xz, ws, wz, ys, yz = P["xs! xz! ws! wz! ys!? yz!?"]
r, rs, rz = P["r? rs!? rz!?"]
(t,) = P["t!"]
PRODUCT = P.qlinear_conv(x, xs, xz, w, ws, wz, ys, yz, b, r, rs, rz)


def _data(v: Value) -> Array:
    assert v.data is not None
    return v.data


def number(v: Value) -> int:
    return int(_data(v).reshape(-1)[0])


def _wide(*values: Value | None) -> str | None:
    """Why the int8 kernels do not support these element types, or None."""
    wide = [v.dtype for v in values if v is not None and v.dtype not in ("i8", "u8")]
    return f"a tensor is {wide[0]}, not 8 bits wide" if wide else None


def why_not_scales(
    xs: Value, xz: Value, ws: Value, ys: Value | None, rs: Value | None
) -> str | None:
    """Why the int8 kernels do not support these scales, or None."""
    scales = [v for v in (xs, ws, ys, rs) if v is not None]
    if not all(np.isfinite(_data(v)).all() and _data(v).all() for v in scales):
        return "a scale is zero or not finite"
    if xz.type.size != 1 or any(v.type.size != 1 for v in (xs, ys, rs) if v is not None):
        return "the activations have more than one scale or zero point"
    return None


def _differences(w: Value, wz: Value | None) -> Array:
    """Weights [m, ..] minus their zero points."""
    return differences(_data(w), None if wz is None else _data(wz))


def _bias(x: Value, xz: Value | None, w: Array, b: Value | None) -> Value:
    """The bias with all terms that do not depend on the image."""
    sums = sum(signed_sums(w)) if w.dtype == np.int8 else w.reshape(len(w), -1).sum(1, np.int64)
    whole = np.asarray(-shifted_zero(0 if xz is None else number(xz), x.dtype) * sums)
    return constant(wrapped(whole if b is None else whole + _data(b)))


def sums_scale(xs: Value, ws: Value, ys: Value | None, channels: int) -> Value:
    """The factor of the sums of each output channel."""
    one = np.float32(1)
    scale = (one * _data(xs).reshape(-1)) * (one * _data(ws).reshape(-1))
    scale = scale if ys is None else scale / (one * _data(ys).reshape(-1))
    scale = np.broadcast_to(scale.astype(np.float32), (channels,))
    return constant(np.ascontiguousarray(scale))


def _operands(
    x: Value,
    xs: Value,
    xz: Value,
    w: Value,
    ws: Value,
    wz: Value,
    ys: Value | None,
    b: Value | None,
) -> tuple[Array, Value, Value]:
    """Weights, bias and scales of the int8 op."""
    weights = _differences(w, wz)
    return weights, _bias(x, xz, weights, b), sums_scale(xs, ws, ys, w.shape[0])


def requantization(
    ys: Value | None, yz: Value | None, rs: Value | None, rz: Value | None
) -> dict[str, Any]:
    """The requantisation attributes of the int8 op."""
    if ys is None or yz is None:
        return {"dtype": "f32"}
    lo, hi = dtypes.limits(yz.dtype)
    attrs = {"y_zero": number(yz), "lo": lo, "hi": hi, "dtype": yz.dtype}
    if rs is None or rz is None:
        return attrs
    one = np.float32(1)
    factor = (one * _data(rs).reshape(())) / (one * _data(ys).reshape(()))
    return {**attrs, "r_zero": number(rz), "r_scale": float(factor)}


def _is_depthwise(node: Node, x: Value, w: Value) -> bool:
    single = node.attrs["groups"] == x.shape[1] == w.shape[0] > 1
    return single and not why_not_packed(w.shape[2:], node.attrs["stride"], node.attrs["dilation"])


def _packed(
    node: Node,
    x: Value,
    xs: Value,
    xz: Value,
    w: Value,
    ws: Value,
    wz: Value,
    ys: Value | None,
    yz: Value | None,
    b: Value | None,
    r: Value | None,
    rs: Value | None,
    rz: Value | None,
    table: Value | None = None,
    **changes: Any,
) -> Value | No:
    """A qlinear_conv as an int8 op between transposes."""
    if why := _wide(x, w, rz) or why_not_scales(xs, xz, ws, ys, rs):
        return no(why)
    if x.type.rank > 5:
        return no(f"{x.type.rank - 2} spatial axes; the kernels support one to three")
    weights, bias, scale = _operands(x, xs, xz, w, ws, wz, ys, b)
    attrs = {"x_zero": number(xz), **requantization(ys, yz, rs, rz), **changes, **node.attrs}
    if _is_depthwise(node, x, w):
        if r is not None or table is not None or attrs["dtype"] == "f32":
            return no("the depthwise kernel needs an 8-bit result and has no residual")
        if weights.max(initial=0) > HIGHEST:
            return no(f"the depthwise kernel needs weights of at most {HIGHEST} above zero")
    residual = None if r is None else channels_last(r)
    return channels_first(
        convolution(channels_last(x), weights, bias, scale, residual, table, **attrs)
    )


# ---- lowering ------------------------------------------------------------------------------------
@rule(PRODUCT)
def qlinear_conv_packed(
    node: Node,
    x: Value,
    xs: Value,
    xz: Value,
    w: Value,
    ws: Value,
    wz: Value,
    ys: Value | None,
    yz: Value | None,
    b: Value | None,
    r: Value | None,
    rs: Value | None,
    rz: Value | None,
) -> Value | No:
    """Lower qlinear_conv to transpose, cpu.qconv or cpu.qdepthwise, transpose."""
    if yz is not None and yz.dtype not in ("i8", "u8"):
        return no(f"a {yz.dtype} result is supported only before a table that makes 8 bits")
    return _packed(node, x, xs, xz, w, ws, wz, ys, yz, b, r, rs, rz)


@rule(P.lookup_wide(PRODUCT @ "product", t))
def int16_table_into_qconv(
    node: Node,
    product: Node,
    x: Value,
    xs: Value,
    xz: Value,
    w: Value,
    ws: Value,
    wz: Value,
    ys: Value | None,
    yz: Value | None,
    b: Value | None,
    r: Value | None,
    rs: Value | None,
    rz: Value | None,
    t: Value,
) -> Value | No:
    """Lower a 16-bit qlinear_conv and its lookup table to one cpu.qconv."""
    if t.dtype not in ("i8", "u8"):
        return no(f"the table makes {t.dtype}; 8 bits are needed")
    base = node.attrs["base"]
    return _packed(
        product,
        x,
        xs,
        xz,
        w,
        ws,
        wz,
        ys,
        yz,
        b,
        r,
        rs,
        rz,
        t,
        lo=base,
        hi=base + t.type.size - 1,
        dtype=t.dtype,
    )


def _line(x: Value, k: int) -> Value:
    line: Value = reshape(x, shape=(1, x.type.size // k, k))
    return line


def _as_line(x: Value, w: Array, bias: Value, scale: Value | None, **attrs: Any) -> Value:
    """A product with columns `w` [n, k] as a 1x1 convolution of an image of one line."""
    n, k = w.shape
    return packed_qconv(
        _line(x, k),
        w.reshape(1, n, k, 1),
        bias,
        scale,
        channels=n,
        kernel=(1,),
        stride=(1,),
        pad=(0, 0),
        dilation=(1,),
        run="tap",
        **attrs,
    )


@rule(P.qlinear_matmul(x, xs, xz, w, ws, wz, ys, yz))
def qlinear_matmul_packed(
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
    """Lower qlinear_matmul with constant weights to cpu.qconv on an image of one line."""
    if why := _wide(x, w, yz) or why_not_scales(xs, xz, ws, ys, None):
        return no(why)
    if w.type.rank != 2 or x.type.dynamic or x.type.size == 0:
        return no(f"{x.type} @ {w.type} is not one matmul of static size")
    n = w.shape[1]
    if ws.type.size not in (1, n) or wz.type.size not in (1, n):
        return no(f"there are {ws.type.size} scales and {wz.type.size} zero points for {n} columns")
    columns = constant(np.ascontiguousarray(_data(w).T))
    weights, bias, scale = _operands(x, xs, xz, columns, ws, wz, ys, None)
    result = _as_line(
        x, weights, bias, scale, x_zero=number(xz), **requantization(ys, yz, None, None)
    )
    out: Value = reshape(result, shape=node.outputs[0].shape)
    return out


iz, jz = P["iz!? jz!?"]


@rule(P.conv_integer(x, w, iz, jz))
def conv_integer_packed(
    node: Node, x: Value, w: Value, iz: Value | None, jz: Value | None
) -> Value | No:
    """Lower conv_integer with constant weights and zero points to transpose, cpu.qconv,
    transpose.
    """
    if why := _wide(x, w):
        return no(why)
    if x.type.rank > 5 or (iz is not None and iz.type.size != 1):
        return no("the kernels support one zero point and one to three spatial axes")
    if _is_depthwise(node, x, w):
        return no("the depthwise kernel needs an 8-bit result")
    weights = _differences(w, jz)
    result = convolution(
        channels_last(x),
        weights,
        _bias(x, iz, weights, None),
        None,
        dtype="i32",
        x_zero=0 if iz is None else number(iz),
        **node.attrs,
    )
    return channels_first(result)


@rule(P.matmul_integer(x, w, iz, jz))
def matmul_integer_packed(
    node: Node, x: Value, w: Value, iz: Value | None, jz: Value | None
) -> Value | No:
    """Lower matmul_integer with constant weights and zero points to cpu.qconv on an image of one
    line.
    """
    if why := _wide(x, w):
        return no(why)
    if w.type.rank != 2 or x.type.dynamic or x.type.size == 0:
        return no(f"{x.type} @ {w.type} is not one matmul of static size")
    if any(
        v is not None and v.type.size not in sizes
        for v, sizes in ((iz, (1,)), (jz, (1, w.shape[1])))
    ):
        return no("the rows have their own zero points")
    columns = constant(np.ascontiguousarray(_data(w).T))
    weights = _differences(columns, jz)
    bias = _bias(x, iz, weights, None)
    result = _as_line(x, weights, bias, None, x_zero=0 if iz is None else number(iz), dtype="i32")
    out: Value = reshape(result, shape=node.outputs[0].shape)
    return out


CHOOSE_INT8: tuple[Rule, ...] = (int16_table_into_qconv,)  # before the sums are rounded to 16 bits
INT8: tuple[Rule, ...] = (
    qlinear_conv_packed,
    qlinear_matmul_packed,
    conv_integer_packed,
    matmul_integer_packed,
)


# ---- fusions -------------------------------------------------------------------------------------
BEFORE = P.any("cpu.qconv", "cpu.qwinograd", "cpu.xnor_conv") @ "before"


def _rebuilt(before: Node, table: Value | None = None, **changes: Any) -> Value:
    ins = list(before.inputs)
    ins[5] = table
    result: Value = REGISTRY[before.op](*ins, origin=before.origin, **{**before.attrs, **changes})
    return result


@rule(P.clip(BEFORE))
def clip_into_qconv(node: Node, before: Node) -> Value | No | None:
    """Turn a clip of the int8 result into the convolution's bounds."""
    if before.outputs[0].dtype not in ("i8", "u8"):
        return None
    if before.inputs[5] is not None:
        return no("the convolution already applies a table")
    a = before.attrs
    low, high = dtypes.limits(before.outputs[0].dtype)
    first, last = (min(max(v, low), high) for v in (node.attrs["lo"], node.attrs["hi"]))
    lo, hi = max(a["lo"], int(np.ceil(first))), min(a["hi"], int(np.floor(last)))
    if lo > hi:
        return no(f"the range from {node.attrs['lo']} to {node.attrs['hi']} is empty")
    return _rebuilt(before, lo=lo, hi=hi)


@rule(P.lookup(BEFORE, t))
def table_into_qconv(before: Node, t: Value) -> Value | No | None:
    """Apply a lookup table inside the convolution that makes its operand."""
    if before.outputs[0].dtype not in ("i8", "u8") or t.dtype not in ("i8", "u8"):
        return None
    if before.inputs[5] is not None:
        return no("the convolution already applies a table")
    a = before.attrs
    numbers = np.arange(a["lo"], a["hi"] + 1)
    table = constant(np.ascontiguousarray(_data(t)[numbers & 255]))
    assert table.type.size <= MAX_ENTRIES
    return _rebuilt(before, table, dtype=t.dtype)


@rule(P.any("cpu.qconv", "cpu.qwinograd", "cpu.xnor_conv"))
def table_as_piecewise_lines(node: Node) -> Value | No | None:
    """Store a convolution's large table as straight lines with the same entries."""
    table = node.inputs[5]
    if table is None or table.type.rank != 1 or table.type.size <= 256:
        return None
    lines = lines_of(_data(table))
    if lines is None:
        return no(f"no lines reproduce the {table.type.size} entries")
    return _rebuilt(node, constant(lines))


FUSE_INT8: tuple[Rule, ...] = (clip_into_qconv, table_into_qconv)
PIECEWISE_TABLES: tuple[Rule, ...] = (
    table_as_piecewise_lines,
)  # where one instruction looks up 128 bytes
