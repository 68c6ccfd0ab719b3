"""cpu.wgemm: weight-only quantised matmul of f32 rows with packed 4-bit or 8-bit weights.

Weights are packed in panels of 16 columns like those of cpu.gemm. A 4-bit panel has two rows in the
nibbles of each byte, the first row in the low one, each plus 8. Every block of rows has one scale
per column, and zero points if the weights are not symmetric.
"""

from __future__ import annotations

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value, constant
from intaglio.ops import add, cast, gather, mul, reshape
from intaglio.ops.registry import op
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.cpu.epilogue import Floats, check_epilogue, finish
from intaglio.targets.cpu.packing import PANEL

NIBBLE_OFFSET = 8  # added to a number to store it in a nibble
BITS = {"i8": 8, "u8": 8, "i4": 4, "u4": 4}


def _wgemm_type(
    x: Value,
    w: Value,
    bias: Value | None,
    residual: Value | None,
    slope: Value | None,
    scale: Value | None,
    zero: Value | None,
    *,
    n: int,
    bits: int,
    block: int,
    act: str,
    act_args: Floats,
    add_last: bool,
) -> Type:
    if x.dtype != "f32" or x.type.rank < 2 or x.shape[-1] < 1 or bits not in (4, 8):
        raise BadInput(f"cpu.wgemm takes f32 rows and 4 or 8 bits, not {x.type} and {bits}")
    k, panels = x.shape[-1], -(-n // PANEL)
    if block < 1 or (bits == 4 and block < k and block % 2):
        raise BadInput(
            f"cpu.wgemm: blocks of {block} rows; an even number is needed for {bits} bits"
        )
    packed = (
        Type("i8", (panels, k, PANEL)) if bits == 8 else Type("u8", (panels, -(-k // 2), PANEL))
    )
    if w.type != packed:
        raise BadInput(f"cpu.wgemm: {w.type} does not hold a {k} x {n} matrix of {bits} bits")
    each = Type("f32", (panels, -(-k // block), PANEL))
    if scale is None or scale.type != each or (zero is not None and zero.type != each):
        raise BadInput(f"cpu.wgemm: scales and zero points must be {each}")
    return check_epilogue(Type("f32", (*x.shape[:-1], n)), bias, residual, slope, act)


def _macs(node: Node) -> int:
    return node.outputs[0].type.size * node.inputs[0].shape[-1]  # type: ignore[union-attr]


@op(_wgemm_type, name="cpu.wgemm", macs=_macs)
def wgemm(
    x: Array,
    w: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    slope: Array | None = None,
    scale: Array | None = None,
    zero: Array | None = None,
    *,
    n: int,
    bits: int,
    block: int,
    act: str = "none",
    act_args: Floats = (),
    add_last: bool = False,
) -> Array:
    """Matrix product with n columns of packed integers."""
    assert scale is not None
    k = x.shape[-1]
    q = w.astype(np.float32)
    if bits == 4:
        halves = np.stack([w & 15, w >> 4], 2).reshape(w.shape[0], -1, PANEL)[:, :k]
        q = halves.astype(np.float32) - NIBBLE_OFFSET
    if zero is not None:
        q = q - np.repeat(zero, block, 1)[:, :k]
    real = q * np.repeat(scale, block, 1)[:, :k]
    matrix = real.swapaxes(0, 1).reshape(k, -1)[:, :n]
    return finish(np.matmul(x, matrix), bias, residual, slope, act, act_args, add_last)


# ---- lowering ------------------------------------------------------------------------------------
def _panels(a: Array) -> Array:
    """[rows, n] -> [panels, rows, 16], padded with zeros."""
    rows, n = a.shape
    full = np.zeros((rows, -(-n // PANEL) * PANEL), a.dtype)
    full[:, :n] = a
    return np.ascontiguousarray(full.reshape(rows, -1, PANEL).swapaxes(0, 1))


def _stored(q: Array, bits: int) -> Array:
    """Numbers [k, n] around 0 in the kernel's layout."""
    if bits == 8:
        return _panels(q.astype(np.int8))
    up = np.full((-(-len(q) // 2) * 2, q.shape[1]), NIBBLE_OFFSET, np.uint8)
    up[: len(q)] = q + NIBBLE_OFFSET
    return _panels(up[::2] | up[1::2] << 4)


def _grains(p: Array, real: Node, transposed: bool, k: int, n: int) -> tuple[Array, int] | No:
    """Scales or zero points as [blocks, n], and the rows per block."""
    axis, block = real.attrs["axis"] % 2, real.attrs["block_size"]
    columns = 0 if transposed else 1
    if p.size == 1 and not block:
        return np.broadcast_to(p.reshape(1, 1), (1, n)), k
    if not block:
        return (
            (p.reshape(1, n), k) if axis == columns else no("the scales are along the summed axis")
        )
    if axis == columns:
        return no("the blocks are along the columns")
    return (p.T if transposed else p), block


def packed_product(x: Value, real: Node, transposed: bool, out: tuple[int, ...]) -> Value | No:
    """cpu.wgemm of `x` and the matrix [k, n] (`transposed`: [n, k]) that `real` dequantises."""
    w, scale, zero = (v if v is None else v.data for v in real.inputs[:3])
    value = real.inputs[0]
    if w is None or scale is None or value is None or (real.inputs[2] is not None and zero is None):
        return no("the weights are not constant")
    if value.dtype not in BITS or value.type.rank != 2 or not value.type.size:
        return no(f"weights {value.type} are not one 4-bit or 8-bit matrix")
    if x.dtype != "f32" or x.type.rank < 1 or real.outputs[0].dtype != "f32":
        return no(f"only f32 rows have a kernel, these are {x.type}")
    bits, wide = BITS[value.dtype], w.astype(np.int16)
    matrix = wide.T if transposed else wide
    k, n = matrix.shape
    found = _grains(scale, real, transposed, k, n)
    if isinstance(found, No):
        return found
    scales, block = found
    if bits == 4 and block < k and block % 2:
        return no(f"blocks have {block} rows; an even number is needed")
    # Centre the numbers around 0: subtract half of the range from unsigned types.
    less = dtypes.limits(value.dtype)[0] + (1 << (bits - 1))
    zeros = np.zeros_like(scales)
    if zero is not None:
        moved = _grains(zero.astype(np.float32), real, transposed, k, n)
        assert not isinstance(moved, No)
        zeros = moved[0]
    zeros = zeros - np.float32(less)
    rows = x if x.type.rank > 1 else reshape(x, shape=(1, k))
    result: Value = wgemm(
        rows,
        constant(_stored(matrix - less, bits)),
        None,
        None,
        None,
        constant(_panels(np.ascontiguousarray(scales, np.float32))),
        constant(_panels(np.ascontiguousarray(zeros, np.float32))) if zeros.any() else None,
        n=n,
        bits=bits,
        block=block,
    )
    return result if x.type.rank > 1 else reshape(result, shape=out)


x, w, ws, wz, at, c = P["x w! ws! wz!? at c?"]
real = (P.dequantize_linear(w, ws, wz) @ "real").shared()


transposed = (P.transpose(real, perm=(1, 0)) @ "turn").shared()


@rule(P.matmul(x, P.one_of(real, transposed)))
def weight_only_matmul(x: Value, real: Node, turn: Node | None, node: Node) -> Value | No:
    """Lower matmul with dequantised constant weights to cpu.wgemm, which keeps them packed."""
    return packed_product(x, real, turn is not None, node.outputs[0].shape)


@rule(P.gemm(x, real, c))
def weight_only_gemm(x: Value, real: Node, c: Value | None, node: Node) -> Value | No:
    """Lower gemm with dequantised constant weights to cpu.wgemm and an add."""
    a = node.attrs
    if a["trans_a"] or a["alpha"] != 1 or a["beta"] != 1:
        return no("the gemm scales or transposes its operands")
    result = packed_product(x, real, bool(a["trans_b"]), node.outputs[0].shape)
    if isinstance(result, No) or c is None:
        return result
    total: Value = add(result, c)
    return total


@rule(P.gather(real, at))
def quantized_embedding(
    w: Value, ws: Value, wz: Value | None, at: Value, real: Node, node: Node
) -> Value | No:
    """Gather int8 rows and their scales instead of dequantising the whole table."""
    if node.attrs["axis"] != 0 or real.attrs["axis"] != 0 or real.attrs["block_size"]:
        return no("there is not one scale per row of the table")
    if wz is not None or w.dtype != "i8" or ws.shape != (w.shape[0],) or w.type.rank != 2:
        return no(f"{w.type} with scales {ws.shape} is not a symmetric int8 table")
    if at.type.dynamic:
        return no("the number of gathered rows is known only at run time")
    found = cast(gather(w, at, axis=0), dtype="f32")
    result: Value = mul(found, reshape(gather(ws, at, axis=0), shape=(*at.shape, 1)))
    return result


WGEMM: tuple[Rule, ...] = (weight_only_matmul, weight_only_gemm, quantized_embedding)
