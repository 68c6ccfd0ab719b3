"""cpu.qgemm: int8 matmuls with f32 results, of rows quantised at run time or before.

`y = f32(Σ (x - zero) · w) · (row scale · column scale)`, then the usual epilogue. Sums are i32. `w`
is packed like that of cpu.qconv. The zero point's share is known from the sum of each column.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value, constant
from intaglio.ops import add, pad, reshape
from intaglio.ops.dynamic_matmul import MAX_DEPTH, quantized_rows
from intaglio.ops.registry import op
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.cpu.epilogue import Floats, check_epilogue, finish
from intaglio.targets.cpu.packing import PANEL
from intaglio.targets.cpu.qconv_packing import packed, unpacked

FOUR = 4  # bytes that one instruction multiplies and adds
ZERO = 128  # zero point of rows quantised at run time, which are u8 as the kernel needs


def _rows_types(x: Value) -> list[Type]:
    if x.dtype != "f32" or x.type.rank < 1:
        raise BadInput(f"cpu.quantize_rows takes rows of f32, not {x.type}")
    return [x.type.but(dtype="u8"), Type("f32", x.shape[:-1])]


@op(_rows_types, name="cpu.quantize_rows")
def quantize_rows(x: Array) -> tuple[Array, Array]:
    """Each row as u8 with zero point 128, and its scale."""
    q, scale = quantized_rows(x)
    return (q.astype(np.int16) + ZERO).astype(np.uint8), scale


def _qgemm_type(
    x: Value,
    w: Value,
    bias: Value | None,
    residual: Value | None,
    slope: Value | None,
    scale: Value | None,
    sums: Value | None,
    rows: Value | None,
    zero: Value | None,
    start: Value | None,
    *,
    n: int,
    x_zero: int,
    act: str,
    act_args: Floats,
    add_last: bool,
) -> Type:
    if x.dtype not in ("u8", "i8") or x.type.rank < 2 or x.shape[-1] % FOUR:
        raise BadInput(f"cpu.qgemm takes rows of a multiple of {FOUR} bytes, not {x.type}")
    k, panels = x.shape[-1], -(-n // PANEL)
    if w.type != Type("i8", (panels, k // FOUR, PANEL * FOUR)) or k > MAX_DEPTH:
        raise BadInput(f"cpu.qgemm: {w.type} does not hold a {k} x {n} matrix")
    whole = (panels * PANEL,)
    if scale is None or scale.type != Type("f32", whole) or sums is None:
        raise BadInput(f"cpu.qgemm needs scales and sums of {whole[0]} columns")
    if sums.type != Type("i32", whole):
        raise BadInput(f"cpu.qgemm: the column sums are {sums.type}, not i32 of {whole}")
    if rows is not None and (rows.dtype != "f32" or rows.shape not in ((), (1,), x.shape[:-1])):
        raise BadInput(f"cpu.qgemm: row scales {rows.type} do not fit {x.type}")
    if zero is not None and (
        zero.dtype != x.dtype or not (zero.type.size == 1 or zero.shape == x.shape[:-1])
    ):
        raise BadInput(f"cpu.qgemm: {zero.type} is not one {x.dtype} zero point, or one per row")
    if start is not None and start.type != Type("i32", whole):
        raise BadInput(f"cpu.qgemm: sums start from {start.type}, not i32 of {whole}")
    return check_epilogue(Type("f32", (*x.shape[:-1], n)), bias, residual, slope, act)


def _qgemm_macs(node: Node) -> int:
    return node.outputs[0].type.size * node.inputs[0].shape[-1]  # type: ignore[union-attr]


@op(_qgemm_type, name="cpu.qgemm", macs=_qgemm_macs)
def qgemm(
    x: Array,
    w: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    slope: Array | None = None,
    scale: Array | None = None,
    sums: Array | None = None,
    rows: Array | None = None,
    zero: Array | None = None,
    start: Array | None = None,
    *,
    n: int,
    x_zero: int = 0,
    act: str = "none",
    act_args: Floats = (),
    add_last: bool = False,
) -> Array:
    """int8 matmul; `rows` has one scale or one per row, `zero` one zero point known at run time
    or one per row.
    """
    assert scale is not None
    assert sums is not None
    matrix = unpacked(w[None], x.shape[-1], n, (1,))[..., 0].T
    acc = np.matmul(x.astype(np.float64), matrix.astype(np.float64)).astype(np.int64)
    less = np.array(x_zero) if zero is None else zero.astype(np.int64)
    less = less.reshape(()) if less.size == 1 else less[..., None]
    acc = acc - less * sums[:n].astype(np.int64)
    if start is not None:
        acc = (acc + start[:n]).astype(np.int32)
    by = scale[:n]
    if rows is not None:
        by = (rows.reshape(()) if rows.size == 1 else rows[..., None]) * by
    return finish(acc.astype(np.float32) * by, bias, residual, slope, act, act_args, add_last)


# ---- lowering ------------------------------------------------------------------------------------
def _whole(v: Array, n: int, dtype: Any) -> Value:
    """One number per column, padded to whole panels."""
    full = np.zeros(-(-n // PANEL) * PANEL, dtype)
    full[:n] = v
    return constant(full)


def product(
    q: Value,
    w: Array,
    ws: Array,
    bias: Value | None = None,
    rows: Value | None = None,
    zero: Value | None = None,
    x_zero: int = 0,
    start: Array | None = None,
) -> Value:
    """cpu.qgemm of bytes [.., k] and the matrix `w` [k, n] with scales for its columns."""
    k, n = w.shape
    if k % FOUR:  # padding bytes have no weights
        more = (0,) * (q.type.rank - 1) + (-k % FOUR,)
        q = pad(q, before=(0,) * q.type.rank, after=more)
    columns = np.ascontiguousarray(w.T).reshape(1, n, k, 1)
    result: Value = qgemm(
        q,
        constant(packed(columns)[0]),
        bias,
        None,
        None,
        _whole(ws, n, np.float32),
        _whole(w.sum(0, dtype=np.int64), n, np.int32),
        rows,
        zero,
        None if start is None else _whole(start, n, np.int32),
        n=n,
        x_zero=x_zero,
    )
    return result


x, q, z, s, w, ws, wz, b = P["x q z s w! ws! wz!? b?"]


@rule(P.dynamic_matmul(x, w, ws, b))
def dynamic_matmul_packed(x: Value, w: Value, ws: Value, b: Value | None, node: Node) -> Any:
    """Lower dynamic_matmul to cpu.quantize_rows and cpu.qgemm."""
    assert w.data is not None
    assert ws.data is not None
    rows = x if x.type.rank > 1 else reshape(x, shape=(1, x.shape[0]))
    done = next(
        (n for n in rows.uses if n.op == "cpu.quantize_rows"), None
    )  # shared with another matmul
    q, scale = quantize_rows(rows) if done is None else done.outputs
    result = product(q, w.data, ws.data.reshape(-1), b, scale, x_zero=ZERO)
    return result if x.type.rank > 1 else reshape(result, shape=node.outputs[0].shape)


@rule(P.mul(P.cast(P.matmul_integer(q, w, z, wz), dtype="f32"), P.mul(s, ws)))
def scaled_matmul_integer(
    q: Value, w: Value, z: Value, wz: Value | None, s: Value, ws: Value
) -> Value | No:
    """Lower ONNX's dynamic quantisation (matmul_integer, cast, scale) to cpu.qgemm."""
    assert w.data is not None
    assert ws.data is not None
    if w.dtype != "i8" or w.type.rank != 2 or (wz is not None and np.any(wz.data)):
        return no(f"weights {w.type} are not one symmetric int8 matrix")
    if q.type.rank < 2 or z.type.size != 1 or s.type.size != 1 or s.dtype != "f32":
        return no(
            f"rows {q.type} with zero points {z.type} and scales {s.type}; one of each is needed"
        )
    if ws.type.size not in (1, w.shape[1]) or ws.shape[-1:] not in ((), (1,), (w.shape[1],)):
        return no(f"scales of shape {ws.shape} do not fit {w.shape[1]} columns")
    if w.shape[0] > MAX_DEPTH:
        return no(f"sums of {w.shape[0]} products may exceed i32, where matmul_integer wraps")
    return product(q, w.data, ws.data.reshape(-1), rows=s, zero=z)


xs, xz, zw = P["xs! xz! zw!"]


def _why_not(x: Value, xs: Value, xz: Value, w: Array, ws: Value, zw: Value) -> str | None:
    """Why cpu.qgemm does not support bytes `x` and the matrix `w` [k, n], or None."""
    if w.dtype != np.int8 or np.any(zw.data) or not w.size:
        return f"weights of {w.dtype} are not one symmetric int8 matrix"
    if x.dtype not in ("i8", "u8") or xs.type.size != 1 or xz.type.size != 1:
        return f"rows {x.type} with {xs.type.size} scales; 8 bits and one scale are needed"
    if ws.type.size not in (1, w.shape[1]) or w.shape[0] > MAX_DEPTH:
        return f"scales of shape {ws.shape} do not fit a {w.shape} matrix"
    return None


def _float_product(
    x: Value, xs: Value, xz: Value, w: Array, ws: Value, start: Array | None = None
) -> Value:
    assert ws.data is not None
    assert xs.data is not None
    assert xz.data is not None
    scale = np.float32(xs.data.item()) * ws.data.reshape(-1)
    return product(x, w, scale, x_zero=int(xz.data.item()), start=start)


@rule(P.qlinear_matmul(x, xs, xz, w, ws, zw))
def qlinear_matmul_to_floats(
    x: Value, xs: Value, xz: Value, w: Value, ws: Value, zw: Value
) -> Value | No:
    """Lower qlinear_matmul with constant weights and an f32 result to cpu.qgemm."""
    assert w.data is not None
    if w.type.rank != 2 or x.type.rank < 2:
        return no(f"{x.type} @ {w.type} is not one matrix product")
    if why := _why_not(x, xs, xz, w.data, ws, zw):
        return no(why)
    return _float_product(x, xs, xz, w.data, ws)


none, start, residual = P["none? start!? residual?"]


@rule(P.qlinear_conv(x, xs, xz, w, ws, zw, none, none, start, residual))
def qlinear_conv_to_floats(
    x: Value,
    xs: Value,
    xz: Value,
    w: Value,
    ws: Value,
    zw: Value,
    none: Value | None,
    start: Value | None,
    residual: Value | None,
    node: Node,
) -> Value | No | None:
    """Lower a 1x1 qlinear_conv of single pixels with an f32 result, a linear layer, to
    cpu.qgemm.
    """
    assert w.data is not None
    if none is not None:
        return None
    if any(d != 1 for d in (*x.shape[2:], *w.shape[2:])) or node.attrs["groups"] != 1:
        return no(f"{x.type} has more than one pixel, or the convolution has a window or groups")
    if any(node.attrs["pad"]) or x.type.dynamic:
        return no("it has padding, or a dynamic number of rows")
    matrix = np.ascontiguousarray(w.data.reshape(w.shape[:2]).T)
    if why := _why_not(x, xs, xz, matrix, ws, zw):
        return no(why)
    flat = reshape(x, shape=x.shape[:2])
    result = _float_product(flat, xs, xz, matrix, ws, None if start is None else start.data)
    if residual is not None:
        result = add(result, reshape(residual, shape=result.shape))
    out: Value = reshape(result, shape=node.outputs[0].shape)
    return out


QGEMM: tuple[Rule, ...] = (
    dynamic_matmul_packed,
    scaled_matmul_integer,
    qlinear_matmul_to_floats,
    qlinear_conv_to_floats,
)
