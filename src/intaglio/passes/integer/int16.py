"""Tensors of 16 bits that a model dequantises, computes with and quantises, in integers.

CPUs compute such layers in floats, which is faster there; units of 16 bits take integers. The rules
are those of bytes, for chips that have such units.
"""

from __future__ import annotations

import math
from typing import Any

from intaglio import ops
from intaglio.ir import Node, Value
from intaglio.ops.quantized import INTEGERS
from intaglio.ops.registry import REGISTRY
from intaglio.passes.integer.elementwise import DR, DX, pair, result
from intaglio.passes.integer.linear import ANY_OF_THEM, Linear, linear
from intaglio.passes.integer.operands import parameters, source, why_not_one, ys, yz, zero_of
from intaglio.rewrite import P, Rule, no, rule

COMPUTES = ("conv", "gemm", "matmul", "add", "mul", "avg_pool", "reduce_mean")
x, xs, xz = P["x xs! xz!?"]


def _of_words(*nodes: Node) -> bool:
    """Is one of the tensors that these quantise or dequantise of i16?"""
    stored = [n.outputs[0] if n.op == "quantize_linear" else n.inputs[0] for n in nodes]
    return any(v is not None and v.dtype == "i16" for v in stored)


def _reads_words(made: Node) -> bool:
    """Does it, or the product that it adds a bias to, read such?"""
    every = [v for v in made.inputs if v is not None]
    every += [
        u
        for v in every
        if v.producer is not None and v.producer.op == "matmul"
        for u in v.producer.inputs
        if u is not None
    ]
    return any(
        found is not None and _of_words(found) for v in every if (found := source(v, INTEGERS))
    )


@rule(P.quantize_linear(P.op(("relu", "clip"), P.any(*COMPUTES) @ "made") @ "act", ys, yz))
def clamp_words(made: Node, act: Node, ys: Value, yz: Value | None, node: Node) -> Any:
    """rounding keeps the order, so a clamp may follow it"""
    if node.attrs["dtype"] not in INTEGERS or not (_of_words(node) or _reads_words(made)):
        return None
    if ys.type.size != 1 or ys.data.item() <= 0:  # type: ignore[union-attr]
        return no(f"there are {ys.type.size} scales, one above 0 is needed")
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


@rule(P.quantize_linear(ANY_OF_THEM, ys, yz))
def product_of_words(product: Node, node: Node) -> Any:
    """a product between quantised tensors of which some have 16 bits"""
    return _stored(product, node) if _reads_words(product) else None


@rule(P.quantize_linear(P.add(ANY_OF_THEM, DR), ys, yz))
def residual_of_words(product: Node, dr: Node, node: Node) -> Any:
    """the same, to which a quantised tensor is added before the result is rounded"""
    if not _reads_words(product):
        return None
    if product.outputs[0].shape != dr.outputs[0].shape or why_not_one(dr, kinds=INTEGERS):
        return no(f"{dr.outputs[0].type} is not a tensor of the product's shape with one scale")
    return _stored(product, node, *parameters(dr))


def _ends(node: Node) -> bool:
    """Is what it reads quantised in the end?"""
    on = node.op in ("add", "relu", "clip") and any(map(_ends, node.outputs[0].uses))
    return on or node.op == "quantize_linear"


@rule(P.any("conv", "gemm", "matmul", "add"))
def words_to_floats(node: Node) -> Any:
    """a product of quantised tensors of 16 bits whose sums stay real"""
    if node.outputs[0].dtype != "f32" or not _reads_words(node):
        return None
    found = linear(node, INTEGERS)
    for n in node.outputs[0].uses:
        if _ends(n) or (n.op == "add" and isinstance(linear(n, INTEGERS), Linear)):
            return None  # goes with that, or with its bias
    return found() if isinstance(found, Linear) else found


@rule(P.quantize_linear(P.op(("add", "mul"), DX, DR) @ "made", ys, yz))
def pair_of_words(dx: Node, dr: Node, made: Node, node: Node) -> Any:
    """a sum or product of quantised tensors of which some have 16 bits"""
    if not _of_words(dx, dr, node):
        return None
    return pair(REGISTRY[f"qlinear_{made.op}"], dx, dr, node, INTEGERS)


@rule(P.quantize_linear(P.op(("avg_pool", "reduce_mean"), DX) @ "made", ys, yz))
def mean_of_words(dx: Node, made: Node, node: Node) -> Any:
    """means of a quantised tensor of 16 bits"""
    if not _of_words(dx, node):
        return None
    if why := why_not_one(dx, node, kinds=INTEGERS):
        return no(why)
    if made.op == "avg_pool":
        return ops.qlinear_avg_pool(*parameters(dx), *result(node), **made.attrs)
    axes = tuple(sorted(a % dx.outputs[0].type.rank for a in made.attrs["axes"]))
    if not axes or axes != tuple(range(axes[0], axes[0] + len(axes))):
        return no(f"axes {axes} do not follow each other")
    return ops.qlinear_mean(
        *parameters(dx), *result(node), axes=axes, keepdims=made.attrs["keepdims"]
    )


@rule(P.op(("max_pool", "resize"), (P.dequantize_linear(x, xs, xz) @ "real").shared()))
def choose_words(x: Value, xs: Value, xz: Value | None, real: Node, node: Node) -> Any:
    """the largest or nearest of numbers of 16 bits is one of them"""
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


WORDS: list[Rule] = [
    clamp_words,
    residual_of_words,
    product_of_words,
    words_to_floats,
    pair_of_words,
    mean_of_words,
    choose_words,
]
