"""bf16 on CPUs with AVX512-BF16: products read half the bytes and work on pairs.

Runs last, on the CPU's own ops: a product with constant weights computes in bf16 between two casts
(sums and biases stay f32), and casts move over what only moves elements until they meet and cancel.
"""

from __future__ import annotations

from typing import Any

from intaglio.ir import Node, Value, constant
from intaglio.ops import cast
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import ANY, P, Rule, no, rule
from intaglio.targets.cpu_ops import in_pairs
from intaglio.targets.rounding import balanced

x, w, bias, residual, slope = P["x w! bias? residual? slope?"]


def _again(node: Node, x: Value, w: Value, residual: Value | None) -> Value:
    """The same product of bf16, between casts; what acts on its sums stays f32."""
    rest = None if residual is None else cast(residual, dtype="bf16")
    ins = (cast(x, dtype="bf16"), w, node.inputs[2], rest, *node.inputs[4:])
    made: Value = cast(REGISTRY[node.op](*ins, **node.attrs), dtype="f32")
    return made


@rule(P.op(("cpu.gemm", "cpu.conv", "cpu.conv_transpose"), x, w, bias, residual, slope))
def product_in_bf16(x: Value, w: Value, residual: Value | None, node: Node) -> Any:
    """a product of f32 with constant weights becomes one of bf16 between casts"""
    if x.dtype != "f32":
        return None
    deep = x.shape[-1] // node.attrs.get("groups", 1)
    if deep % 2:
        return no(f"pairs of channels are multiplied at once, a group has {deep}")
    assert w.data is not None
    weights = in_pairs(constant(balanced(w.data)))
    return _again(node, x, weights, residual)


@rule(P.op("cpu.depthwise", x, w, bias, residual, slope))
def depthwise_in_bf16(x: Value, w: Value, residual: Value | None, node: Node) -> Any:
    """a depthwise convolution reads and writes bf16, which halves its traffic"""
    if x.dtype != "f32":
        return None
    return _again(node, x, w, residual)


WIDE = P.cast(x, dtype="f32").shared()
MOVES = ("reshape", "transpose", "slice", "expand", "tile")


@rule(P.op(MOVES, WIDE))
def move_in_bf16(x: Value, node: Node) -> Any:
    """what only moves or picks elements does so in bf16"""
    if x.dtype != "bf16":
        return None
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


BF16: tuple[Rule, ...] = (product_in_bf16, depthwise_in_bf16, move_in_bf16, concat_in_bf16)
