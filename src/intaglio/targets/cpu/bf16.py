"""bf16 on CPUs with AVX512-BF16: a multiplication reads half the bytes and works on pairs.

A product with constant weights computes in bf16 between two casts; its sums and biases stay f32.
The rules of half_precision.py then move and cancel these casts. Two tensors stay f32: the input of
a depthwise convolution (it causes half of all rounding error in depthwise-separable networks), and
the first depthwise convolution with the product behind it (a few channels carry the whole image
there, and every later layer amplifies their errors).
"""

from __future__ import annotations

from typing import Any

from intaglio.ir import Node, Value, constant
from intaglio.ops import cast
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import P, Rule, no, rule
from intaglio.targets.cpu.bf16_rounding import balanced
from intaglio.targets.cpu.half_precision import LAYER_BF16, MIXED, MOVING, in_16_bits
from intaglio.targets.cpu.packing import in_pairs

x, w, bias, residual, slope = P["x w! bias? residual? slope?"]
PRODUCTS = (*MIXED, "cpu.winograd")
WALK = 64  # values to look at


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
    return in_16_bits(node, "bf16", cast(x, dtype="bf16"), weights, residual)


@rule(P.op("cpu.depthwise", x, w, bias, residual, slope))
def depthwise_makes_bf16(x: Value, w: Value, residual: Value | None, node: Node) -> Any:
    """a depthwise convolution makes bf16, which is what products read, but itself reads f32"""
    if x.dtype != "f32" or node.attrs["made"] != "same":
        return None
    if _products_before(x, 2) <= 1:
        return no("it is the first one, where rounding costs most")
    return in_16_bits(node, "bf16", x, w, residual, made="bf16")


@rule(P.op("cpu.depthwise", P.cast(x, dtype="f32").shared(), w, bias, residual, slope))
def depthwise_reads_bf16(x: Value, w: Value, residual: Value | None, node: Node) -> Any:
    """a depthwise convolution reads bf16 where f32 would have to be made of it"""
    if x.dtype != "bf16" or node.outputs[0].dtype != "bf16":
        return None
    if x.producer is not None and x.producer.op in MIXED and len(x.uses) == 1:
        return no("the product before it can make f32, which is more exact")
    return in_16_bits(node, "bf16", x, w, residual)


@rule(P.op(("cpu.lstm_steps", "cpu.gru_steps"), x, P["r!"][0], *P["h? last?"]))
def steps_in_bf16(node: Node, x: Value, r: Value, h: Value | None, last: Value | None) -> Any:
    """recurrent weights, which every step reads anew, are bf16; all else stays f32"""
    if r.dtype != "f32":
        return None
    if r.shape[2] % 2:
        return no(f"pairs of units lie side by side, there are {r.shape[2]}")
    assert r.data is not None
    return (
        REGISTRY[node.op]
        .node(x, in_pairs(constant(balanced(r.data))), h, last, **node.attrs)
        .outputs
    )


BF16: tuple[Rule, ...] = (
    LAYER_BF16,
    product_in_bf16,
    depthwise_makes_bf16,
    depthwise_reads_bf16,
    steps_in_bf16,
    *MOVING,
)
