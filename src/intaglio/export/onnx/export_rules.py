"""Rewrite rules of the ONNX export.

ONNX is a target like a chip: rules rewrite the graph to ops that ONNX has (`onnx.Split`), and ops
that ONNX lacks are lowered to simpler ones.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from intaglio import ops, symint
from intaglio.arguments import whole_number
from intaglio.export.onnx import control, elementwise, index, linear, normalize, shape, windows  # noqa: F401  # each registers its writers
from intaglio.export.onnx.contrib import CONTRIB_RULES
from intaglio.export.onnx.contrib_quantize import QUANTIZED_RULES
from intaglio.export.onnx.expression import NEWEST, OLDEST, best_opset, choose
from intaglio.export.onnx.onnx_ops import attention, split, sum_
from intaglio.export.onnx.quantized import IN_FLOATS
from intaglio.ir import Graph, Node, Value, constant
from intaglio.passes.fuse import along
from intaglio.passes.legalize import legalize
from intaglio.rewrite import ANY, P, no, rule
from intaglio.targets import Target

x, y, z, s, c = P["x y z s! c!"]


def rewrite_for_onnx(graph: Graph, opset: int | None, contrib: bool) -> tuple[Graph, int]:
    """A copy of the graph in which every node has an ONNX form, and the opset of these forms."""
    if opset is not None:
        whole_number("opset", opset, OLDEST, NEWEST)
    graph = graph.copy()
    legalize(target(opset, contrib), graph)
    if opset is None:
        opset = best_opset(list(_nodes(graph)))
        legalize(target(opset, contrib), graph)
    _tidy(graph)
    return graph, opset


def target(opset: int | None, contrib: bool) -> Target:
    """The ONNX target in one opset, or in any; `contrib` adds onnxruntime's contrib ops."""
    opsets = range(OLDEST, NEWEST + 1) if opset is None else (opset,)

    def why_not(node: Node) -> str | None:
        if node.op.partition(".")[0] in ("cpu",):
            return "it is an op of a chip; write the graph before it is lowered for a target"
        if any(choose(node, v) for v in opsets):
            return None
        return f"ONNX {'opset ' + str(opset) if opset else ''} has no form of it with these types"

    return Target("onnx", why_not, lower=(CONTRIB if contrib else ()) + EXPORT_RULES)


def _nodes(graph: Graph) -> list[Node]:
    found = []
    for node in graph.nodes():
        found.append(node)
        for body in node.bodies():
            found += _nodes(body)
    return found


def _tidy(graph: Graph) -> None:
    graph.tidy()
    for node in graph.nodes():
        for body in node.bodies():
            _tidy(body)


# ---- slices as Gather or Split -------------------------------------------------------------------
def _picked_index(reshape: Node) -> tuple[Value, int, int] | None:
    """(x, axis, index) if a slice and this reshape of it are x[..., index, ...]."""
    cut = reshape.inputs[0].producer if reshape.inputs[0] is not None else None
    if reshape.op != "reshape" or cut is None or cut.op != "slice":
        return None
    piece, x = _slice_of_axis(cut), cut.inputs[0]
    if piece is None or x is None or piece[2] - piece[1] != 1:
        return None
    axis, short = piece[0], cut.outputs[0].shape
    gone = reshape.outputs[0].shape == short[:axis] + short[axis + 1 :]
    return (x, axis, piece[1]) if gone and len(cut.outputs[0].uses) == 1 else None


def _slice_of_axis(cut: Node) -> tuple[int, int, int] | None:
    """(axis, start, stop) of a slice along one axis with step 1; None for other slices."""
    x, a = cut.inputs[0], cut.attrs
    assert x is not None
    axes = [i for i, (d, n) in enumerate(zip(x.shape, cut.outputs[0].shape, strict=True)) if d != n]
    if x.type.dynamic or len(axes) != 1 or set(a["step"]) != {1}:
        return None
    at = range(x.shape[axes[0]])[a["start"][axes[0]] : a["stop"][axes[0]]]
    return (axes[0], at[0], at[-1] + 1) if at else None


@rule(P.reshape(P.slice(x)))
def slice_as_gather(node: Node) -> Any:
    """a slice of extent 1 whose axis is dropped, x[:, 0], becomes Gather"""
    found = _picked_index(node)
    if found is None:
        return None
    x, axis, at = found
    return ops.gather(x, constant(np.int64(at)), axis=axis)


@rule(P.slice(x))
def slices_as_split(x: Value, node: Node) -> Any:
    """slices of one tensor along one axis that do not overlap become one Split"""
    piece = _slice_of_axis(node)
    if piece is None:
        return None
    axis, start, stop = piece
    for user in x.uses:
        if user.op == "onnx.Split" and user.attrs["axis"] == axis:
            edges = np.cumsum([0, *user.attrs["parts"]]).tolist()
            if (start, stop) in (pairs := list(itertools.pairwise(edges))):
                return user.outputs[pairs.index((start, stop))]
    pieces = sorted(
        {p[1:] for u in x.uses if (p := _slice_for_split(u)) is not None and p[0] == axis}
    )
    if len(pieces) < 2 or (start, stop) not in pieces:
        return None
    if any(b[0] < a[1] for a, b in itertools.pairwise(pieces)):
        return no(f"the slices {pieces} of axis {axis} overlap")
    edges = sorted({0, x.shape[axis], *itertools.chain.from_iterable(pieces)})
    result = split(x, axis=axis, parts=tuple(b - a for a, b in itertools.pairwise(edges)))
    return result[edges.index(start)]


def _slice_for_split(user: Node) -> tuple[int, int, int] | None:
    """(axis, start, stop) of a slice that does not become a Gather."""
    if user.op != "slice" or any(_picked_index(reader) for reader in user.outputs[0].uses):
        return None
    return _slice_of_axis(user)


# ---- sums and matrix products --------------------------------------------------------------------
@rule(P.add(P.add(x, y), z))
def sum_of_three(x: Value, y: Value, z: Value) -> Any:
    """two additions become one Sum"""
    if x.dtype not in FLOATS:
        return no(f"Sum is for floats, the operands are {x.dtype}")
    return sum_(x, y, z)


@rule(P.add(ANY @ "inner", z))
def sum_of_more(inner: Node, z: Value) -> Any:
    """fuse an addition into a Sum"""
    if inner.op != "onnx.Sum" or len(inner.outputs[0].uses) > 1:
        return None
    return sum_(*inner.inputs, z)


def _matrices(*values: Value) -> bool:
    return all(v.type.rank == 2 and v.dtype in FLOATS and not v.type.dynamic for v in values)


@rule(P.add(P.matmul(x, y), z))
def gemm_of_sum(x: Value, y: Value, z: Value, node: Node) -> Any:
    """x @ y + z becomes Gemm"""
    return _gemm_with_addend(ops.gemm(x, y), z, node) if _matrices(x, y) else None


@rule(P.add(P.gemm(x, y) @ "gemm", z))
def sum_into_gemm(gemm: Node, z: Value, node: Node) -> Any:
    """fuse an addition into a Gemm"""
    return _gemm_with_addend(gemm.outputs[0], z, node)


def _gemm_with_addend(product: Value, z: Value, node: Node) -> Any:
    gemm = product.producer
    assert gemm is not None
    if symint.broadcast(z.shape, product.shape) != product.shape or z.type.rank > 2:
        return no(f"the addend {z.type} does not broadcast to {product.type}")
    return ops.gemm(*gemm.inputs[:2], z, **gemm.attrs)


@rule(P.matmul(P.transpose(x), y))
def gemm_of_transposed(x: Value, y: Value) -> Any:
    """x.T @ y becomes Gemm"""
    return ops.gemm(x, y, trans_a=True) if _matrices(x, y) else None


@rule(P.matmul(x, P.transpose(y)))
def gemm_by_transposed(x: Value, y: Value) -> Any:
    """x @ y.T becomes Gemm"""
    return ops.gemm(x, y, trans_b=True) if _matrices(x, y) else None


@rule(P.gemm(x, P.transpose(y), P["z?"][0]) @ "gemm")
def transpose_into_gemm(x: Value, y: Value, z: Value | None, gemm: Node) -> Any:
    """fuse a transpose into a Gemm"""
    return ops.gemm(x, y, z, **{**gemm.attrs, "trans_b": not gemm.attrs["trans_b"]})


@rule(P.add(P.mul(x, s), c))
def affine_as_batch_norm(x: Value, s: Value, c: Value) -> Any:
    """a factor and an addend per channel become BatchNormalization"""
    if x.dtype not in FLOATS or x.type.rank < 2 or x.type.dynamic:
        return None
    scale, shift = along(s, x, 1), along(c, x, 1)
    if scale is None or shift is None:
        return no(f"{s.type} and {c.type} do not have one number per channel of {x.type}")
    zero, one = np.zeros_like(scale), np.ones_like(scale)
    return ops.batch_norm(x, *map(constant, (scale, shift, zero, one)), epsilon=0.0)


# ---- attention -----------------------------------------------------------------------------------
HEADS = (0, 2, 1, 3)  # [batch, length, heads, size] <-> [batch, heads, length, size]
PACKED = (2, 0, 3, 1, 4)  # [batch, length, 3, heads, size]: query, key, value first


@rule(P.attention(x, y, z, P["mask"][0]))
def mask_for_every_row(x: Value, y: Value, z: Value, mask: Value, node: Node) -> Any:
    """expand a mask with one row: onnxruntime does not broadcast rows"""
    rows = x.shape[2]
    if mask.type.rank < 2 or mask.shape[-2] == rows or mask.type.dynamic:
        return None
    wide_shape = (*mask.shape[:-2], rows, mask.shape[-1])
    if mask.data is not None:
        wide: Value = constant(np.ascontiguousarray(np.broadcast_to(mask.data, wide_shape)))
    else:
        results = [u for u in mask.uses if u.op == "expand" and u.outputs[0].shape == wide_shape]
        wide = results[0].outputs[0] if results else ops.expand(mask, shape=wide_shape)
    return ops.attention(x, y, z, wide, **node.attrs)


@rule(P.reshape(P.transpose(P.attention(x, y, z, P["mask?"][0]) @ "core", perm=HEADS)))
def attention_packed_heads(
    x: Value, y: Value, z: Value, mask: Value | None, core: Node, node: Node
) -> Any:
    """attention reads and writes [batch, length, heads * size] without transposes"""
    heads = x.shape[1]
    flat = [_packed_heads(v) for v in (x, y, z)]
    if any(v is None for v in flat) or node.outputs[0].type.dynamic:
        return no("an operand is not a transpose of [batch, length, heads * size]")
    if mask is not None and mask.type.rank < 2:
        return no(f"the mask is {mask.type}, rank 2 or more is needed")
    result = attention(*flat, mask, heads=heads, kv_heads=y.shape[1], **core.attrs)
    out = node.outputs[0].shape
    return result if result.shape == out else ops.reshape(result, shape=out)


def _packed_heads(v: Value) -> Value | None:
    """The source [batch, length, heads * size] of `v`, which is [batch, heads, length, size]."""
    b, heads, length, size = v.shape
    result = v.producer
    if result is not None and result.op == "transpose" and result.attrs["perm"] == HEADS:
        return _flat(result.inputs[0], (b, length, heads * size))
    source = (
        result.inputs[0].producer if result is not None and result.inputs[0] is not None else None
    )
    if result is None or result.op != "gather" or source is None or source.op != "transpose":
        return None
    at, axis = result.inputs[1], result.attrs["axis"]
    if source.attrs["perm"] != PACKED or axis != 0 or at is None or at.data is None:
        return None
    count, which = source.outputs[0].shape[0], int(at.data.item())
    whole = _flat(source.inputs[0], (b, length, count * heads * size))
    first = which % count * heads * size
    return None if whole is None else ops.part(whole, first, first + heads * size, axis=2)


def _flat(v: Value | None, want: tuple[int, ...]) -> Value | None:
    """The operand of the reshape that makes `v`, if it has the shape `want`."""
    result = v.producer if v is not None else None
    source = result.inputs[0] if result is not None and result.op == "reshape" else None
    return source if source is not None and source.shape == want else None


CONTRIB = CONTRIB_RULES + QUANTIZED_RULES  # rules for onnxruntime's contrib ops
FLOATS = ("f32", "f64", "f16")  # element types that runtimes support here
EXPORT_RULES = (
    slice_as_gather,
    slices_as_split,
    mask_for_every_row,
    attention_packed_heads,
    gemm_of_sum,
    sum_into_gemm,
    gemm_of_transposed,
    gemm_by_transposed,
    transpose_into_gemm,
    affine_as_batch_norm,
    sum_of_three,
    sum_of_more,
    *IN_FLOATS,
)
