"""bf16 on CPUs with AVX512-BF16: products read half the bytes and work on pairs.

Runs last, on the CPU's own ops: a product with constant weights computes in bf16 between two casts
(sums and biases stay f32), and casts move over what only moves elements until they meet, cancel, or
become part of a product. Two things stay f32: what a depthwise convolution reads (half
of all roundings, in networks of such pairs), and the first depthwise convolution with the product
behind it (few channels carry the whole image there, and all that follows amplifies their errors).
"""

from __future__ import annotations

from typing import Any

from intaglio.ir import Node, Value, constant
from intaglio.ops import cast
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import ANY, P, Rule, no, rule
from intaglio.targets.cpu.ops import in_pairs
from intaglio.targets.cpu.rounding import balanced

x, w, bias, residual, slope = P["x w! bias? residual? slope?"]
MIXED = ("cpu.gemm", "cpu.conv", "cpu.conv_transpose", "cpu.depthwise")  # of f32 and bf16
PRODUCTS = (*MIXED, "cpu.winograd")
WALK = 64  # values to look at


def _in_bf16(node: Node, x: Value, w: Value, residual: Value | None, **made: str) -> Value:
    """The same product making bf16, then a cast if it made f32; what acts on its sums stays f32."""
    rest = None if residual is None else cast(residual, dtype="bf16")
    ins = (x, w, node.inputs[2], rest, *node.inputs[4:])
    small: Value = REGISTRY[node.op](*ins, **{**node.attrs, "made": "same", **made})
    wide: Value = cast(small, dtype="f32")
    return small if node.outputs[0].dtype == "bf16" else wide


def _products_before(v: Value | None, most: int) -> int:
    """How many products lie on the longest way from an input of the graph to `v`, if few."""
    found, steps, ways = 0, 0, [(v, 0)]
    while ways and found < most:
        v, count = ways.pop()
        found, steps = max(found, count), steps + 1
        if v is None or v.producer is None:
            continue
        if steps > WALK:
            return most
        count += v.producer.op in PRODUCTS
        ways += [(i, count) for i in v.producer.inputs if i is not None and i.data is None]
    return min(found, most)


@rule(P.op(("cpu.gemm", "cpu.conv", "cpu.conv_transpose"), x, w, bias, residual, slope))
def product_in_bf16(x: Value, w: Value, residual: Value | None, node: Node) -> Any:
    """a product of f32 with constant weights becomes one of bf16 between casts"""
    if x.dtype != "f32":
        return None
    deep = x.shape[-1] // node.attrs.get("groups", 1)
    if deep % 2:
        return no(f"pairs of channels are multiplied at once, a group has {deep}")
    before = x.producer
    if before is not None and before.op == "cpu.depthwise" and _products_before(x, 3) <= 2:
        return no("it belongs to the first depthwise convolution, where rounding costs most")
    assert w.data is not None
    weights = in_pairs(constant(balanced(w.data)))
    return _in_bf16(node, cast(x, dtype="bf16"), weights, residual)


@rule(P.op("cpu.depthwise", x, w, bias, residual, slope))
def depthwise_makes_bf16(x: Value, w: Value, residual: Value | None, node: Node) -> Any:
    """a depthwise convolution makes bf16, which is what products read, but itself reads f32"""
    if x.dtype != "f32" or node.attrs["made"] != "same":
        return None
    if _products_before(x, 2) <= 1:
        return no("it is the first one, where rounding costs most")
    return _in_bf16(node, x, w, residual, made="bf16")


@rule(P.op("cpu.depthwise", P.cast(x, dtype="f32").shared(), w, bias, residual, slope))
def depthwise_reads_bf16(x: Value, w: Value, residual: Value | None, node: Node) -> Any:
    """a depthwise convolution reads bf16 where f32 would have to be made of it"""
    if x.dtype != "bf16" or node.outputs[0].dtype != "bf16":
        return None
    if x.producer is not None and x.producer.op in MIXED and len(x.uses) == 1:
        return no("the product before it can make f32, which is more exact")
    return _in_bf16(node, x, w, residual)


@rule(P.cast(P.op(MIXED, x, w, bias, residual, slope) @ "before"))
def cast_into_product(node: Node, residual: Value | None, before: Node) -> Any:
    """a product makes the type that it would be cast to"""
    to, now = node.attrs["dtype"], before.outputs[0].dtype
    if {to, now} != {"f32", "bf16"}:
        return None
    if residual is not None:
        cast_before = residual.producer
        if cast_before is None or cast_before.op != "cast" or len(residual.uses) > 1:
            return no("the residual would have to be cast instead")
        residual = cast_before.inputs[0]
        if residual is None or residual.dtype != to:
            return no("the residual would have to be cast instead")
    ins = (*before.inputs[:3], residual, *before.inputs[4:])
    same = before.inputs[0] is not None and before.inputs[0].dtype == to
    if same and to == "f32":
        return no("it was made to make bf16")
    return REGISTRY[before.op](*ins, **{**before.attrs, "made": "same" if same else to})


WIDE = P.cast(x, dtype="f32").shared()
MOVES = ("reshape", "transpose", "slice", "expand", "tile")


@rule(P.op(MOVES, WIDE))
def move_in_bf16(x: Value, node: Node) -> Any:
    """what only moves or picks elements does so in bf16"""
    if x.dtype != "bf16":
        return None
    return cast(REGISTRY[node.op](x, **node.attrs), dtype="f32")


@rule(P.op("cpu.pool", WIDE))
def maximum_in_bf16(x: Value, node: Node) -> Any:
    """the largest of bf16 numbers is one of them"""
    if x.dtype != "bf16":
        return None
    if node.attrs["kind"] != "max":
        return no(f"{node.attrs['kind']} pooling would round once more")
    return cast(REGISTRY[node.op](x, **node.attrs), dtype="f32")


@rule(ANY)
def concat_in_bf16(node: Node) -> Any:
    """a concat of tensors that were all bf16"""
    if node.op != "concat":
        return None
    before = [v.producer for v in node.inputs if v is not None]
    parts = [n.inputs[0] for n in before if n is not None and n.op == "cast"]
    if len(parts) < len(node.inputs) or any(v is None or v.dtype != "bf16" for v in parts):
        return None
    return cast(REGISTRY["concat"](*parts, **node.attrs), dtype="f32")


@rule(P.cast(P.op("cpu.pool", P.op(MIXED, x, w, bias, residual, slope)) @ "before", dtype="bf16"))
def narrow_before_maximum(before: Node) -> Any:
    """a product makes bf16 already for the maximum before a cast"""
    image = before.inputs[0]
    if before.attrs["kind"] != "max" or image is None or image.dtype != "f32":
        return None
    return REGISTRY[before.op](cast(image, dtype="bf16"), **before.attrs)


@rule(P.cast(ANY, dtype="bf16"))
def narrow_before_concat(node: Node) -> Any:
    """what is concatenated becomes bf16 before it is, so that fewer bytes move"""
    whole = node.inputs[0]
    before = None if whole is None else whole.producer
    if whole is None or before is None or before.op != "concat" or len(whole.uses) > 1:
        return None
    if whole.dtype != "f32":
        return None
    return REGISTRY["concat"](*(cast(v, dtype="bf16") for v in before.inputs), **before.attrs)


BF16: tuple[Rule, ...] = (
    product_in_bf16,
    depthwise_makes_bf16,
    depthwise_reads_bf16,
    cast_into_product,
    move_in_bf16,
    maximum_in_bf16,
    concat_in_bf16,
    narrow_before_maximum,
    narrow_before_concat,
)
