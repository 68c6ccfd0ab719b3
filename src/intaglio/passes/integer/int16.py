"""Integer arithmetic for 16-bit quantised tensors, on chips that have 16-bit units.

The rules are those for int8. CPUs compute these layers in floats, which is faster there.
"""

from __future__ import annotations

import math
from typing import Any

from intaglio import ops
from intaglio.ir import Node, Value
from intaglio.ops.quantized import INTEGERS
from intaglio.ops.registry import REGISTRY
from intaglio.passes.integer.elementwise import DR, DX, pair, result
from intaglio.passes.integer.linear import ANY_LINEAR, Linear, linear
from intaglio.passes.integer.operands import parameters, source, why_not_one, ys, yz, zero_of
from intaglio.rewrite import P, Rule, no, rule

COMPUTES = ("conv", "gemm", "matmul", "add", "mul", "avg_pool", "reduce_mean")
x, xs, xz = P["x xs! xz!?"]


def _has_int16(*nodes: Node) -> bool:
    """Does one of these quantize or dequantize nodes have an i16 tensor?"""
    stored = [n.outputs[0] if n.op == "quantize_linear" else n.inputs[0] for n in nodes]
    return any(v is not None and v.dtype == "i16" for v in stored)


def _reads_int16(made: Node) -> bool:
    """Does the node, or the matmul whose bias it adds, read an i16 tensor?"""
    every = [v for v in made.inputs if v is not None]
    every += [
        u
        for v in every
        if v.producer is not None and v.producer.op == "matmul"
        for u in v.producer.inputs
        if u is not None
    ]
    return any(
        found is not None and _has_int16(found) for v in every if (found := source(v, INTEGERS))
    )


@rule(P.quantize_linear(P.op(("relu", "clip"), P.any(*COMPUTES) @ "made") @ "act", ys, yz))
def clamp_in_int16(made: Node, act: Node, ys: Value, yz: Value | None, node: Node) -> Any:
    """Clamp behind the quantisation. Rounding is monotonic, so this is exact."""
    if node.attrs["dtype"] not in INTEGERS or not (_has_int16(node) or _reads_int16(made)):
        return None
    if ys.type.size != 1 or ys.data.item() <= 0:  # type: ignore[union-attr]
        return no(f"there are {ys.type.size} scales; one positive scale is needed")
    ends = (act.attrs["lo"], act.attrs["hi"]) if act.op == "clip" else (0.0, math.inf)
    body = ops.quantize_linear.body
    lo, hi = (
        float(body(ys.data.dtype.type(end), ys.data, yz and yz.data, **node.attrs).item())  # type: ignore[union-attr]
        for end in ends
    )
    return ops.clip(ops.quantize_linear(made.outputs[0], ys, yz, **node.attrs), lo=lo, hi=hi)


def _stored(product: Node, node: Node, *residual: Value) -> Any:
    found = linear(product, INTEGERS)
    if not isinstance(found, Linear):
        return found
    if why := why_not_one(node, kinds=INTEGERS):
        return no(why)
    return found(node.inputs[1], zero_of(node.outputs[0], node.inputs[2]), *residual)


@rule(P.quantize_linear(ANY_LINEAR, ys, yz))
def int16_product(product: Node, node: Node) -> Any:
    """Compute a conv, gemm or matmul in integers if an operand has 16 bits."""
    return _stored(product, node) if _reads_int16(product) else None


@rule(P.quantize_linear(P.add(ANY_LINEAR, DR), ys, yz))
def int16_residual(product: Node, dr: Node, node: Node) -> Any:
    """Add a quantised tensor inside a 16-bit integer conv, gemm or matmul."""
    if not _reads_int16(product):
        return None
    if product.outputs[0].shape != dr.outputs[0].shape or why_not_one(dr, kinds=INTEGERS):
        return no(f"{dr.outputs[0].type} does not have the result's shape and one scale")
    return _stored(product, node, *parameters(dr))


def _is_quantized_later(node: Node) -> bool:
    """Is the tensor that `node` reads quantised later?"""
    on = node.op in ("add", "relu", "clip") and any(map(_is_quantized_later, node.outputs[0].uses))
    return on or node.op == "quantize_linear"


@rule(P.any("conv", "gemm", "matmul", "add"))
def int16_to_floats(node: Node) -> Any:
    """Compute a 16-bit quantised conv, gemm or matmul with a float result in integers."""
    if node.outputs[0].dtype != "f32" or not _reads_int16(node):
        return None
    found = linear(node, INTEGERS)
    for n in node.outputs[0].uses:
        if _is_quantized_later(n) or (n.op == "add" and isinstance(linear(n, INTEGERS), Linear)):
            return None  # computed together with that reader, or with its bias
    return found() if isinstance(found, Linear) else found


@rule(P.quantize_linear(P.op(("add", "mul"), DX, DR) @ "made", ys, yz))
def int16_elementwise(dx: Node, dr: Node, made: Node, node: Node) -> Any:
    """Add or multiply quantised tensors in integers if one has 16 bits."""
    if not _has_int16(dx, dr, node):
        return None
    return pair(REGISTRY[f"qlinear_{made.op}"], dx, dr, node, INTEGERS)


@rule(P.quantize_linear(P.op(("avg_pool", "reduce_mean"), DX) @ "made", ys, yz))
def int16_mean(dx: Node, made: Node, node: Node) -> Any:
    """Mean or average pooling of a 16-bit quantised tensor in integers."""
    if not _has_int16(dx, node):
        return None
    if why := why_not_one(dx, node, kinds=INTEGERS):
        return no(why)
    if made.op == "avg_pool":
        return ops.qlinear_avg_pool(*parameters(dx), *result(node), **made.attrs)
    axes = tuple(sorted(a % dx.outputs[0].type.rank for a in made.attrs["axes"]))
    if not axes or axes != tuple(range(axes[0], axes[0] + len(axes))):
        return no(f"axes {axes} are not consecutive")
    return ops.qlinear_mean(
        *parameters(dx), *result(node), axes=axes, keepdims=made.attrs["keepdims"]
    )


@rule(P.op(("max_pool", "resize"), (P.dequantize_linear(x, xs, xz) @ "real").shared()))
def dequantize_int16_after_max_pool(
    x: Value, xs: Value, xz: Value | None, real: Node, node: Node
) -> Any:
    """Dequantise after a max pooling or nearest resize of an i16 tensor."""
    a = node.attrs
    if x.dtype != "i16" or xs.type.size != 1 or xs.data.item() <= 0:  # type: ignore[union-attr]
        return None
    if (
        a.get("mode", "nearest") != "nearest"
        or a.get("with_indices")
        or (
            node.op == "max_pool"
            and any(p >= k for p, k in zip(a["pad"], a["kernel"] * 2, strict=True))
        )
    ):
        return None
    return ops.dequantize_linear(REGISTRY[node.op](x, **a), xs, xz, **real.attrs)


INT16: list[Rule] = [
    clamp_in_int16,
    int16_residual,
    int16_product,
    int16_to_floats,
    int16_elementwise,
    int16_mean,
    dequantize_int16_after_max_pool,
]
