"""Importers of linear, matmul, addmm, einsum, bilinear and cross."""

from __future__ import annotations

from typing import Any

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.frontends.torch.importer import (
    axes_of,
    importer,
    ints,
    permuted,
    promoted,
    reshaped,
    tensors,
)
from intaglio.frontends.torch.tensors import number
from intaglio.ir import Value


def transposed(x: Value) -> Value:
    """The last two axes swapped."""
    r = x.type.rank
    return permuted(x, (*range(r - 2), r - 1, r - 2)) if r > 1 else x


@importer("linear")
def linear(input: Value, weight: Value, bias: Value | None = None) -> Value:
    if weight.type.rank == 2 and input.type.rank == 2:
        result: Value = ops.gemm(input, weight, bias, trans_b=True)
        return result
    result = ops.matmul(input, transposed(weight))
    return result if bias is None else ops.add(result, bias)


@importer("matmul", "mm", "bmm", "mv", "dot", "__matmul__", "inner")
def matmul(self: Value, other: Value) -> Value:
    result: Value = ops.matmul(*promoted(self, other))
    return result


def _scaled(x: Value, by: Any) -> Value:
    result: Value = x if by == 1 else ops.mul(x, number(by, x.dtype))
    return result


@importer("addmm")
def addmm(self: Value, mat1: Value, mat2: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    result: Value = ops.gemm(mat1, mat2, self, alpha=float(alpha), beta=float(beta))
    return result


@importer("addmv", "addbmm", "baddbmm")
def baddbmm(self: Value, batch1: Value, batch2: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    product = _scaled(ops.matmul(batch1, batch2), alpha)
    result: Value = product if beta == 0 else ops.add(_scaled(self, beta), product)
    return result


@importer("einsum")
def einsum(equation: str, operands: Any, path: Any = None) -> Value:
    result: Value = ops.einsum(*promoted(*tensors(operands)), equation=equation)
    return result


@importer("outer", "ger")
def outer(self: Value, vec2: Value) -> Value:
    result: Value = ops.mul(
        reshaped(self, (self.type.size, 1)), reshaped(vec2, (1, vec2.type.size))
    )
    return result


@importer("bilinear")
def bilinear(input1: Value, input2: Value, weight: Value, bias: Value | None = None) -> Value:
    result: Value = ops.einsum(input1, weight, input2, equation="...i,oij,...j->...o")
    return result if bias is None else ops.add(result, bias)


@importer("_trilinear")
def trilinear(
    i1: Value,
    i2: Value,
    i3: Value,
    expand1: Any,
    expand2: Any,
    expand3: Any,
    sumdim: Any,
    unroll_dim: int = 1,
) -> Value:
    """_trilinear, into which nn.Bilinear decomposes: the sum of the product of three tensors."""
    factors = []
    for x, axes in ((i1, expand1), (i2, expand2), (i3, expand3)):
        shape = list(x.shape)
        for a in sorted(ints(axes)):
            shape.insert(a, 1)
        factors.append(reshaped(x, shape))
    product = ops.mul(ops.mul(factors[0], factors[1]), factors[2])
    result: Value = ops.reduce_sum(product, axes=axes_of(list(sumdim), product), keepdims=False)
    return result


@importer("tensordot")
def tensordot(self: Value, other: Value, dims_self: Any, dims_other: Any) -> Value:
    a, b = ints(dims_self), ints(dims_other)
    if len(a) != len(b):
        raise BadInput(f"tensordot over axes {a} and {b}; their extents must be equal")
    left = [i for i in range(self.type.rank) if i not in axes_of(list(a), self)]
    right = [i for i in range(other.type.rank) if i not in axes_of(list(b), other)]
    x = permuted(self, (*left, *(d % self.type.rank for d in a)))
    y = permuted(other, (*(d % other.type.rank for d in b), *right))
    inner = 1
    for d in x.shape[len(left) :]:
        inner *= d
    result = ops.matmul(
        ops.reshape(x, shape=(x.type.size // max(inner, 1), inner)),
        ops.reshape(y, shape=(inner, y.type.size // max(inner, 1))),
    )
    return reshaped(result, (*x.shape[: len(left)], *y.shape[len(b) :]))


@importer("cross", "linalg_cross")
def cross(self: Value, other: Value, dim: int | None = -1) -> Value:
    a, b = promoted(self, other)
    axis = next(i for i, d in enumerate(a.shape) if d == 3) if dim is None else dim % a.type.rank

    def turned(x: Value, by: int) -> Value:
        parts = [ops.part(x, i, i + 1, axis=axis) for i in range(3)]
        result: Value = ops.concat(*(parts[(i + by) % 3] for i in range(3)), axis=axis)
        return result

    result: Value = ops.sub(
        ops.mul(turned(a, 1), turned(b, 2)), ops.mul(turned(a, 2), turned(b, 1))
    )
    return result
