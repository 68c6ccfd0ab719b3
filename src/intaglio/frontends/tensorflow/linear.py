"""Importers of MatMul, BatchMatMul, Einsum and Cross."""

from __future__ import annotations

from intaglio import ops
from intaglio.frontends.tensorflow.conv import transposed
from intaglio.frontends.tensorflow.node import TfNode, importer
from intaglio.ir import Value


def _swapped(v: Value) -> Value:
    rank = v.type.rank
    return transposed(v, (*range(rank - 2), rank - 1, rank - 2))


@importer("MatMul")
def matmul(n: TfNode) -> Value:
    a, b = n.value(0), n.value(1)
    if a.type.rank != 2 or b.type.rank != 2:
        n.unsupported(f"its operands are {a.type} and {b.type}; matrices are needed")
    if n.attr("transpose_a", False):
        a = _swapped(a)
    if n.attr("transpose_b", False):
        result: Value = ops.gemm(a, b, trans_b=True)
    else:
        result = ops.matmul(a, b)
    return result


@importer("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(n: TfNode) -> Value:
    a, b = n.value(0), n.value(1)
    if a.type.rank < 2 or b.type.rank < 2:
        n.unsupported(f"its operands are {a.type} and {b.type}; matrices are needed")
    a = _swapped(a) if n.attr("adj_x", False) else a
    b = _swapped(b) if n.attr("adj_y", False) else b
    result: Value = ops.matmul(a, b)
    return result


@importer("Einsum")
def einsum(n: TfNode) -> Value:
    result: Value = ops.einsum(*n.values(), equation=n.attr("equation", ""))
    return result


@importer("Cross")
def cross(n: TfNode) -> Value:
    """Cross product of vectors of length 3."""
    a, b = n.value(0), n.value(1)
    if not a.type.rank or a.shape[-1] != 3 or a.type != b.type:
        n.unsupported(f"its operands are {a.type} and {b.type}; vectors of length 3 are needed")

    def at(v: Value, i: int) -> Value:
        return ops.part(v, i, i + 1, axis=-1)

    parts = [
        ops.sub(ops.mul(at(a, i), at(b, j)), ops.mul(at(a, j), at(b, i)))
        for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    result: Value = ops.concat(*parts, axis=-1)
    return result
