"""The graph of a matrix product: for the CPU, or around an NPU program for a chip."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import Unsupported
from intaglio.ir import Array, Graph, Type, Value, constant
from intaglio.matmul.predict import fastest
from intaglio.matmul.spec import Scales, Spec
from intaglio.npu import ops as npu
from intaglio.npu.simulate.run import npu_run

STORED = {"i4": "i8"}  # 4-bit numbers are passed as int8


def graph(s: Spec, m: int, b: Array | None, q: Scales, cores: int = 1) -> Graph:
    """The product of m rows. B is a constant [K, N]; if it is None, a second input."""
    a = Value(Type(STORED.get(s.types[0], s.types[0]), s.a_shape(m)), "A")
    right = Value(Type(STORED.get(s.types[1], s.types[1]), (s.k, s.n)), "B")
    inputs = [a] if b is not None else [a, right]
    rows = a if len(a.shape) == 2 else ops.reshape(ops.transpose(a, perm=(1, 0, 2)), shape=(m, s.k))
    if s.chip is None:
        result = _on_cpu(s, m, rows, right, b, q)
    else:
        result = _on_chip(s, m, rows, right, b, q, cores)
    if s.layouts[2] == "native":
        blocks, _, side = s.c_shape(m)
        result = ops.transpose(ops.reshape(result, shape=(m, blocks, side)), perm=(1, 0, 2))
    result.name = "C"
    return Graph(inputs, [result], ["C"], name="matmul")


# ---- the CPU -------------------------------------------------------------------------------------
def _on_cpu(s: Spec, m: int, rows: Value, right: Value, b: Array | None, q: Scales) -> Value:
    kind, _, result = s.types
    if dtypes.is_float(kind):
        return _cast(ops.matmul(_cast(rows, "f32"), _dequantized_b(s, right, b, q)), result)
    if q.groups:
        return _from_real(_grouped_sums(s, m, rows, right, b, q), result, q)
    a_zero, b_zero = constant(np.int8(q.a_zero)), constant(q.b_zero)
    other = right if b is None else constant(_as_i8(b))
    if result in ("i16", "i32"):
        return _saturate(ops.matmul_integer(rows, other, a_zero, b_zero), result)
    end = (_f32(q.c_scale), constant(np.int8(q.c_zero))) if result == "i8" else (None, None)
    made = ops.qlinear_matmul(
        rows, _f32(q.a_scale), a_zero, other, constant(q.b_scale), b_zero, *end
    )
    return made if result == "i8" else _cast(made, result)


def _dequantized_b(s: Spec, right: Value, b: Array | None, q: Scales) -> Value:
    """B in f32; integer constants are dequantised at run time."""
    other = right if b is None else constant(b)
    if dtypes.is_float(s.types[1]):
        return _cast(other, "f32")
    zero = q.b_zero.astype(dtypes.numpy_of(other.dtype))
    block = s.k // q.groups if q.groups else 0
    grain: dict[str, Any] = {"axis": 0, "block_size": block} if block else {"axis": 1}
    result: Value = ops.dequantize_linear(other, constant(q.b_scale), constant(zero), **grain)
    return result


def _grouped_sums(s: Spec, m: int, rows: Value, right: Value, b: Array | None, q: Scales) -> Value:
    """Exact sums of each group, times its scales, added up in f32."""
    size = s.k // q.groups
    left = ops.transpose(ops.reshape(rows, shape=(m, q.groups, size)), perm=(1, 0, 2))
    centred = right if b is None else constant(_without_zero_point(b, q))
    other = ops.reshape(centred, shape=(q.groups, size, s.n))
    sums = _cast(ops.matmul_integer(left, other, constant(np.int8(q.a_zero))), "f32")
    factor = (np.float32(q.a_scale) * q.b_scale)[:, None]
    result: Value = ops.reduce_sum(ops.mul(sums, constant(factor)), axes=(0,), keepdims=False)
    return result


def _without_zero_point(b: Array, q: Scales) -> Array:
    """B minus its zero points, as i8."""
    centred = _as_i8(b).astype(np.int16) - _rows(q.b_zero.astype(np.int16), b, q)
    if centred.size and (centred.min() < -128 or centred.max() > 127):
        raise Unsupported(
            f"B minus its zero points ranges from {centred.min()} to {centred.max()}; "
            "int8 is needed: quantise it symmetrically"
        )
    return centred.astype(np.int8)


def _as_f16(b: Array, q: Scales) -> Array:
    """B in f16, multiplied by its scales if they are per group; else the epilogue scales."""
    if b.dtype == np.float16:
        return b
    real = b.astype(np.float32) - _rows(q.b_zero.astype(np.float32), b, q)
    return (real * _rows(q.b_scale, b, q) if q.groups else real).astype(np.float16)


def _rows(v: Array, b: Array, q: Scales) -> Array:
    """Scales or zero points; with groups, repeated for each row of B."""
    return np.repeat(v, len(b) // q.groups, 0) if q.groups else v


# ---- a chip --------------------------------------------------------------------------------------
def _on_chip(
    s: Spec, m: int, rows: Value, right: Value, b: Array | None, q: Scales, cores: int
) -> Value:
    """One NPU program; the rows of A are the pixels of a feature map with K channels."""
    assert s.chip is not None
    kind = STORED.get(s.types[0], s.types[0])
    columns = ops.transpose(rows, perm=(1, 0))
    if b is None:
        pixels = m
        x = Value(Type(kind, (1, s.k, m, 1)), "a")
        other = Value(Type(right.dtype, (1, s.k, s.n, 1)), "b")
        inputs, width = [x, other], s.n
        result = fastest([_body(inputs, [_product_of_inputs(s, x, other, q)])], s.chip, cores)[1]
        given = [
            ops.reshape(v, shape=x.shape) for v, x in zip((columns, right), inputs, strict=True)
        ]
    else:
        high, wide = s.image(m)
        pixels = high * wide
        if pixels > m:
            columns = ops.pad(columns, before=(0, 0), after=(0, pixels - m))
        k_parts = s.k_parts(q.groups)
        inputs = [Value(Type(kind, (1, n, high, wide)), f"a{i}") for i, n in k_parts]
        widths = s.widths(m)
        bodies = [_body(inputs, _convolutions(s, inputs, b, q, w)) for w in widths]
        best, result = fastest(bodies, s.chip, cores)
        width = widths[best]
        given = [
            ops.reshape(ops.part(columns, i, i + n, axis=0), shape=x.shape)
            for (i, n), x in zip(k_parts, inputs, strict=True)
        ]
    run = npu_run.node(result.program.encode(), result.weights, *given)
    pieces = [ops.reshape(v, shape=(v.shape[1], pixels)) for v in run.outputs]
    each = -(-s.n // width)  # parts of C side by side
    every = [
        ops.concat(*pieces[i : i + each], axis=0) if each > 1 else pieces[i]
        for i in range(0, len(pieces), each)
    ]
    parts = [ops.transpose(ops.part(v, 0, m, axis=1), perm=(1, 0)) for v in every]
    total = parts[0]
    for part in parts[1:]:
        total = ops.add(total, part)
    if total.dtype == s.types[2] or (q.groups and total.dtype == "f32"):
        return total if total.dtype == s.types[2] else _from_real(total, s.types[2], q)
    if total.dtype == "f32":
        return _cast(total, s.types[2])
    if s.types[2] == "i16":
        return _saturate(total, "i16")
    factor = _factor(q, s.types[2])
    return _rounded(ops.mul(_cast(total, "f32"), constant(factor)), s.types[2], q)


def _body(inputs: list[Value], outputs: list[Value]) -> Graph:
    for i, y in enumerate(outputs):
        y.name = f"y{i}"
    return Graph(inputs, outputs, name="matmul")


def _convolutions(s: Spec, inputs: list[Value], b: Array, q: Scales, width: int) -> list[Value]:
    """1x1 convolutions, each with `width` columns of B and all of K, or a group or part of it."""
    real = dtypes.is_float(s.types[0])
    w, result, first = (
        np.ascontiguousarray((_as_f16 if real else _without_zero_point)(b, q).T),
        [],
        0,
    )
    for x in inputs:
        size = s.k // q.groups if q.groups and not real else x.shape[1]
        for at in range(0, x.shape[1], size):
            seen = x if size == x.shape[1] else npu.slice_(x, first=at, count=size)
            group = first // size if q.groups and not real else None
            factor, end = _epilogue(s, q, group, len(inputs) > 1)
            factor = np.broadcast_to(factor, (s.n,))
            for column in range(0, s.n, width):
                part = w[column : column + width, first : first + size]
                result.append(
                    npu.conv(
                        seen,
                        constant(np.ascontiguousarray(part)[..., None, None]),
                        constant(factor[column : column + width].copy()),
                        constant(np.zeros(len(part), np.float32 if real else np.int32)),
                        stride=(1, 1),
                        pad=(0, 0, 0, 0),
                        dilation=(1, 1),
                        x_zero=q.a_zero,
                        **end,
                    )
                )
            first += size
    return result


def _product_of_inputs(s: Spec, x: Value, other: Value, q: Scales) -> Value:
    """The product of two inputs."""
    if q.b_scale.size > 1:
        raise Unsupported(
            "B is an input and has several scales; an NPU takes one; "
            "give a constant B, or use the CPU"
        )
    factor, end = _epilogue(s, q, None, False)
    result: Value = npu.matmul(
        x, other, turned=True, a_zero=q.a_zero, b_zero=int(q.b_zero), factor=float(factor), **end
    )
    return result


def _epilogue(s: Spec, q: Scales, group: int | None, parts: bool) -> tuple[Array, dict[str, Any]]:
    """The factor from sums to results, and the attributes of the epilogue."""
    result, one = s.types[2], np.ones((), np.float32)
    if dtypes.is_float(s.types[0]):
        of_b = one if q.groups or dtypes.is_float(s.types[1]) else q.b_scale
        return of_b, {"dtype": "f16" if result == "f16" and not parts else "f32"}
    if group is not None:
        return np.float32(q.a_scale) * q.b_scale[group], {"dtype": "f32"}
    if parts or result == "i32":
        return one, {"dtype": "i32"}
    if result not in ("i8", "i16"):
        return _factor(q, result), {"dtype": "f32"}
    low, high = dtypes.limits(result)
    zero = q.c_zero if result == "i8" else 0
    end = {"dtype": result, "low": low, "high": high, "y_zero": zero}
    return _factor(q, result) if result == "i8" else one, end


# ---- epilogues -----------------------------------------------------------------------------------
def _factor(q: Scales, result: str) -> Array:
    """The factor from sums to results, rounded to f32 as qlinear_matmul rounds it."""
    factor = np.asarray(np.float32(q.a_scale) * q.b_scale)
    return np.asarray(factor / np.float32(q.c_scale)) if result == "i8" else factor


def _from_real(real: Value, result: str, q: Scales) -> Value:
    """Real numbers in the type of C."""
    if result != "i8":
        return _cast(real, result)
    return _rounded(ops.div(real, _f32(q.c_scale)), result, q)


def _rounded(t: Value, result: str, q: Scales) -> Value:
    """clamp(rint(t) + zero), or t if C is float"""
    if result != "i8":
        return _cast(t, result)
    made: Value = ops.quantize_linear(t, _f32(1.0), constant(np.int8(q.c_zero)), dtype="i8")
    return made


def _saturate(sums: Value, result: str) -> Value:
    if result == "i32":
        return sums
    low, high = dtypes.limits(result)
    return _cast(ops.clip(sums, lo=float(low), hi=float(high)), result)


def _cast(v: Value, dtype: str) -> Value:
    result: Value = v if v.dtype == dtype else ops.cast(v, dtype=dtype)
    return result


def _as_i8(b: Array) -> Array:
    return b.astype(np.int8)


def _f32(x: float) -> Value:
    return constant(x, dtype="f32")
