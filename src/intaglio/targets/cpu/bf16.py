"""bf16 on CPUs with AVX512-BF16 or ARM's BF16: a multiplication reads half the bytes, in pairs.

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
from intaglio.targets.cpu.half_precision import CAST_RULES, LAYER_BF16, MIXED, in_16_bits
from intaglio.targets.cpu.packing import in_pairs

x, w, bias, residual, slope = P["x w! bias? residual? slope?"]
PRODUCTS = (*MIXED, "cpu.winograd")
MAX_VISITED = 64  # values that the search may visit


def _products_before(v: Value | None, most: int) -> int:
    """The number of products on the longest path from a graph input to `v`, up to `most`."""
    found, steps, paths = 0, 0, [(v, 0)]
    while paths and found < most:
        v, count = paths.pop()
        found, steps = max(found, count), steps + 1
        if v is None or v.producer is None:
            continue
        if steps > MAX_VISITED:
            return most
        count += v.producer.op in PRODUCTS
        paths += [(i, count) for i in v.producer.inputs if i is not None and i.data is None]
    return min(found, most)


@rule(P.op(("cpu.gemm", "cpu.conv", "cpu.conv_transpose"), x, w, bias, residual, slope))
def product_in_bf16(x: Value, w: Value, residual: Value | None, node: Node) -> Any:
    """Compute a gemm or convolution with constant weights in bf16, between casts."""
    if x.dtype != "f32":
        return None
    deep = x.shape[-1] // node.attrs.get("groups", 1)
    if deep % 2:
        return no(f"bf16 is multiplied in pairs of channels; a group has {deep}")
    before = x.producer
    if before is not None and before.op == "cpu.depthwise" and _products_before(x, 3) <= 2:
        return no("it follows the first depthwise convolution, where rounding costs most accuracy")
    assert w.data is not None
    weights = in_pairs(constant(balanced(w.data)))
    return in_16_bits(node, "bf16", cast(x, dtype="bf16"), weights, residual)


@rule(P.op("cpu.depthwise", x, w, bias, residual, slope))
def depthwise_result_in_bf16(x: Value, w: Value, residual: Value | None, node: Node) -> Any:
    """Let a depthwise convolution of f32 make bf16 for the next product."""
    if x.dtype != "f32" or node.attrs["made"] != "same":
        return None
    if _products_before(x, 2) <= 1:
        return no("it is the first depthwise convolution, where rounding costs most accuracy")
    return in_16_bits(node, "bf16", x, w, residual, made="bf16")


@rule(P.op("cpu.depthwise", P.cast(x, dtype="f32").shared(), w, bias, residual, slope))
def depthwise_operand_in_bf16(x: Value, w: Value, residual: Value | None, node: Node) -> Any:
    """Let a depthwise convolution read bf16 directly, if it would be cast to f32 first."""
    if x.dtype != "bf16" or node.outputs[0].dtype != "bf16":
        return None
    if x.producer is not None and x.producer.op in MIXED and len(x.uses) == 1:
        return no("the op before it can make f32, which is more accurate")
    return in_16_bits(node, "bf16", x, w, residual)


@rule(P.op(("cpu.lstm_steps", "cpu.gru_steps"), x, P["r!"][0], *P["h? last?"]))
def recurrent_weights_in_bf16(
    node: Node, x: Value, r: Value, h: Value | None, last: Value | None
) -> Any:
    """Store recurrent weights, which every step reads again, in bf16."""
    if r.dtype != "f32":
        return None
    if r.shape[2] % 2:
        return no(f"bf16 is multiplied in pairs of units; there are {r.shape[2]}")
    assert r.data is not None
    return (
        REGISTRY[node.op]
        .node(x, in_pairs(constant(balanced(r.data))), h, last, **node.attrs)
        .outputs
    )


BF16: tuple[Rule, ...] = (
    LAYER_BF16,
    product_in_bf16,
    depthwise_result_in_bf16,
    depthwise_operand_in_bf16,
    recurrent_weights_in_bf16,
    *CAST_RULES,
)
