"""Matrix products: matmul, gemm, determinant, integer and quantised matmul."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes, symint
from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Array, Node, Type, Value, constant
from intaglio.ops.elementwise import add, floats, mul, numbers
from intaglio.ops.precision import widen
from intaglio.ops.registry import op
from intaglio.ops.shape import transpose


def _product_shape(a: Value, b: Value) -> tuple[int, ...]:
    if a.type.rank == 0 or b.type.rank == 0:
        raise BadInput(
            f"matmul of {a.shape} and {b.shape}: scalars have no matrix product; use mul"
        )
    rows = a.shape if a.type.rank > 1 else (1, *a.shape)
    cols = b.shape if b.type.rank > 1 else (*b.shape, 1)
    if rows[-1] != cols[-2]:
        raise BadInput(f"matmul of {a.shape} and {b.shape}: {rows[-1]} columns, {cols[-2]} rows")
    try:
        batch = symint.broadcast(rows[:-2], cols[:-2])
    except ValueError:
        raise BadInput(f"matmul of {a.shape} and {b.shape}: the batches differ") from None
    return batch + rows[-2:-1] * (a.type.rank > 1) + cols[-1:] * (b.type.rank > 1)


def _product(a: Value, b: Value) -> Type:
    if a.dtype != b.dtype:
        raise BadInput(f"operands have element types {a.dtype} and {b.dtype}; insert a cast")
    numbers(a)
    return Type(a.dtype, _product_shape(a, b))


def _product_macs(node: Node) -> int:
    a = node.inputs[0]
    assert a is not None
    return node.outputs[0].type.size * a.shape[-1]


@op(_product, macs=_product_macs, onnx="MatMul", torch="matmul")
@widen
def matmul(a: Array, b: Array) -> Array:
    return np.matmul(a, b)


# ---- gemm --------------------------------------------------------------------------------------
def _gemm(
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    trans_a: bool = False,
    trans_b: bool = False,
) -> Type:
    if a.type.rank != 2 or b.type.rank != 2:
        raise BadInput(f"gemm of {a.shape} and {b.shape}: two matrices are needed")
    rows = Value(a.type.but(shape=a.shape[::-1] if trans_a else a.shape))
    out = _product(rows, Value(b.type.but(shape=b.shape[::-1] if trans_b else b.shape)))
    if c is not None and numbers(Value(out), c).shape != out.shape:
        raise BadInput(f"gemm: the addend {c.shape} does not broadcast to {out.shape}")
    return out


def _gemm_macs(node: Node) -> int:
    a = node.inputs[0]
    assert a is not None
    return node.outputs[0].type.size * a.shape[0 if node.attrs["trans_a"] else 1]


@op(_gemm, macs=_gemm_macs)
@widen
def gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    trans_a: bool = False,
    trans_b: bool = False,
) -> Array:
    """alpha * a @ b + beta * c; `trans_a` and `trans_b` transpose first."""
    y = np.matmul(a.T if trans_a else a, b.T if trans_b else b)
    y = y if alpha == 1 else y * y.dtype.type(alpha)
    return y if c is None else y + (c if beta == 1 else c * c.dtype.type(beta))


@gemm.lowers
def _(
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    trans_a: bool = False,
    trans_b: bool = False,
) -> Value:
    y: Value = matmul(
        transpose(a, perm=(1, 0)) if trans_a else a, transpose(b, perm=(1, 0)) if trans_b else b
    )
    y = _scaled(y, alpha)
    return y if c is None else add(y, _scaled(c, beta))


def _scaled(x: Value, factor: float) -> Value:
    if factor == 1:
        return x
    if not dtypes.is_float(x.dtype) and factor != int(factor):
        raise Unsupported(
            f"gemm: factor {factor} on {x.dtype} tensors; integer tensors need an integer factor"
        )
    return mul(x, constant(np.array(factor).astype(dtypes.numpy_of(x.dtype))))


# ---- det ---------------------------------------------------------------------------------------
def _det(x: Value) -> Type:
    if x.type.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise BadInput(f"det of shape {x.shape}: square matrices are needed")
    return floats(x).but(shape=x.shape[:-2])


@op(_det, onnx="Det", torch="det")
@widen
def det(x: Array) -> Array:
    return np.linalg.det(x).astype(x.dtype)


# ---- 8-bit integers ----------------------------------------------------------------------------
def _integer_product(a: Value, b: Value, *zeros: Value | None) -> Type:
    for v in (a, b):
        if v.dtype not in ("i8", "u8"):
            raise BadInput(f"integer matmul of {v.dtype}; i8 or u8 is needed")
    return Type("i32", _product_shape(a, b))


def _wide_product(a: Value, b: Value) -> Type:
    """Type of an integer product whose operands may be i8, u8 or i16."""
    for v in (a, b):
        if v.dtype not in ("i8", "u8", "i16"):
            raise BadInput(f"integer matmul of {v.dtype}; i8, u8 or i16 is needed")
    return Type("i32", _product_shape(a, b))


def _per_row(x: Array, a: Array) -> Array:
    """A scale or zero of `a`, shaped to broadcast: one value, one per row [M], or as given."""
    return x.reshape(-1, 1) if x.ndim == 1 and x.size > 1 and a.ndim > 1 else _scalar(x)


def _scalar(x: Array) -> Array:
    return x.reshape(()) if x.size == 1 else x


def _accumulate(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None) -> Array:
    wide_a, wide_b = a.astype(np.int32), b.astype(np.int32)
    if a_zero is not None:
        wide_a = wide_a - _per_row(a_zero, a).astype(np.int32)
    if b_zero is not None:
        wide_b = wide_b - _scalar(b_zero).astype(np.int32)
    if np.int16 in (a.dtype, b.dtype):  # f64 is exact below 2^53: up to 2^21 products
        exact = np.matmul(wide_a.astype(np.float64), wide_b.astype(np.float64))
        return np.asarray(exact).astype(np.int64)
    if a.shape[-1] * 255 * 255 < 2**53:  # f64 is exact here and has a fast matmul
        product = np.matmul(wide_a.astype(np.float64), wide_b.astype(np.float64))
        return np.asarray(product).astype(np.int64).astype(np.int32)
    return np.matmul(wide_a, wide_b)


@op(_integer_product, macs=_product_macs, onnx="MatMulInteger")
def matmul_integer(
    a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None
) -> Array:
    """(a - a_zero) @ (b - b_zero) in i32; a zero is one number, or one per row or column."""
    return _accumulate(a, b, a_zero, b_zero)


def _qlinear(
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    y_scale: Value | None,
    y_zero: Value | None,
) -> Type:
    if (y_scale is None) != (y_zero is None):
        raise BadInput("y_scale and y_zero must both be given, or neither (then the result is f32)")
    return _wide_product(a, b).but(dtype="f32" if y_zero is None else y_zero.dtype)


def _qlinear_macs(node: Node) -> int:
    a = node.inputs[0]
    assert a is not None
    return node.outputs[0].type.size * a.shape[-1]


@op(_qlinear, macs=_qlinear_macs, onnx="QLinearMatMul")
def qlinear_matmul(
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    y_scale: Array | None = None,
    y_zero: Array | None = None,
) -> Array:
    """clamp(rint(f32(acc) * f32(a_scale * b_scale / y_scale)) + y_zero); scales are f32.

    acc is i32, or i64 where a or b is i16.
    Without y_scale and y_zero the result is f32(acc) * f32(a_scale * b_scale), in f32.
    """
    acc, scale = _accumulate(a, b, a_zero, b_zero), _per_row(a_scale, a) * _scalar(b_scale)
    if y_scale is None or y_zero is None:
        return np.asarray(acc.astype(np.float32) * scale.astype(np.float32))
    return requantized(acc, scale / _per_row(y_scale, a), _per_row(y_zero, a))


def requantized(acc: Array, scale: Array, zero: Array) -> Array:
    """The rounding rule of all 8-bit arithmetic: clamp(rint(f32(acc) * scale) + zero)."""
    low, high = dtypes.limits(dtypes.name_of(zero.dtype))
    y = np.rint(acc.astype(np.float32) * scale.astype(np.float32)) + zero.astype(np.float32)
    return np.clip(y, low, high).astype(zero.dtype)
