"""Half precision between the CPU's ops: the rules that bf16 and f16 share.

They run last, on cpu.* ops. Each gemm or convolution computes between two casts. Casts then move
over data movement until they cancel or are fused into an op.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Node, Value, constant
from intaglio.ops import cast
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import ANY, P, Rule, no, rule
from intaglio.targets.cpu.epilogue import HALVES

x, w, bias, residual, slope = P["x w! bias? residual? slope?"]
MIXED = ("cpu.gemm", "cpu.conv", "cpu.conv_transpose", "cpu.depthwise")  # may mix f32 and 16 bits
MOVES = ("reshape", "transpose", "slice", "expand", "tile")


def in_16_bits(
    node: Node, dtype: str, x: Value, w: Value, residual: Value | None, **made: str
) -> Value:
    """The same op with a 16-bit result, then a cast if its result was f32; sums stay f32."""
    rest = None if residual is None else cast(residual, dtype=dtype)
    ins = (x, w, node.inputs[2], rest, *node.inputs[4:])
    small: Value = REGISTRY[node.op](*ins, **{**node.attrs, "made": "same", **made})
    wide: Value = cast(small, dtype="f32")
    return small if node.outputs[0].dtype == dtype else wide


def _takes_f16(reader: Node) -> bool:
    """Does the reader take f16, or will it after these rules?"""
    narrow = reader.op == "cast" and reader.attrs["dtype"] == "f16"
    return narrow or reader.op in (*MIXED, *MOVES, "concat", "cpu.pool")


@rule(P.cast(P.op(MIXED, x, w, bias, residual, slope) @ "before"))
def cast_into_epilogue(node: Node, residual: Value | None, before: Node) -> Any:
    """Let a gemm or convolution make the type that its result is cast to."""
    to, now = node.attrs["dtype"], before.outputs[0].dtype
    if {to, now} not in ({"f32", "bf16"}, {"f32", "f16"}):
        return None
    if (now, to) == ("f16", "f32") and any(map(_takes_f16, node.outputs[0].uses)):
        return no("its readers take f16 too")
    if residual is not None:
        cast_before = residual.producer
        if cast_before is None or cast_before.op != "cast" or len(residual.uses) > 1:
            return no("the residual would need a cast instead")
        residual = cast_before.inputs[0]
        if residual is None or residual.dtype != to:
            return no("the residual would need a cast instead")
    ins = (*before.inputs[:3], residual, *before.inputs[4:])
    same = before.inputs[0] is not None and before.inputs[0].dtype == to
    if same and to == "f32":
        return no("it was chosen to make 16 bits")
    return REGISTRY[before.op](*ins, **{**before.attrs, "made": "same" if same else to})


WIDE = P.cast(x, dtype="f32").shared()


@rule(P.op(MOVES, WIDE))
def movement_in_16_bits(x: Value, node: Node) -> Any:
    """Move or select elements in 16 bits, and cast afterwards."""
    if x.dtype not in HALVES:
        return None
    return cast(REGISTRY[node.op](x, **node.attrs), dtype="f32")


@rule(P.op("cpu.pool", WIDE))
def max_pool_in_16_bits(x: Value, node: Node) -> Any:
    """Max pool in 16 bits: it only selects elements."""
    if x.dtype not in HALVES:
        return None
    if node.attrs["kind"] != "max":
        return no(f"{node.attrs['kind']} pooling would add a rounding")
    return cast(REGISTRY[node.op](x, **node.attrs), dtype="f32")


@rule(ANY)
def concat_in_16_bits(node: Node) -> Any:
    """Concatenate in 16 bits if all operands were cast from one 16-bit type."""
    if node.op != "concat":
        return None
    before = [v.producer for v in node.inputs if v is not None]
    parts = [n.inputs[0] for n in before if n is not None and n.op == "cast"]
    types = {v.dtype for v in parts if v is not None}
    if len(parts) < len(node.inputs) or len(types) != 1 or not types <= set(HALVES):
        return None
    return cast(REGISTRY["concat"](*parts, **node.attrs), dtype="f32")


@rule(P.cast(P.op("cpu.pool", P.op(MIXED, x, w, bias, residual, slope)) @ "before"))
def cast_before_max_pool(node: Node, before: Node) -> Any:
    """Cast to 16 bits before a max pooling instead of after it."""
    image, to = before.inputs[0], node.attrs["dtype"]
    if to not in HALVES:
        return None
    if before.attrs["kind"] != "max" or image is None or image.dtype != "f32":
        return None
    return REGISTRY[before.op](cast(image, dtype=to), **before.attrs)


@rule(P.cast(ANY))
def cast_before_concat(node: Node) -> Any:
    """Cast to 16 bits before a concat, so that it moves fewer bytes."""
    whole, to = node.inputs[0], node.attrs["dtype"]
    if to not in HALVES:
        return None
    before = None if whole is None else whole.producer
    if whole is None or before is None or before.op != "concat" or len(whole.uses) > 1:
        return None
    if whole.dtype != "f32":
        return None
    return REGISTRY["concat"](*(cast(v, dtype=to) for v in before.inputs), **before.attrs)


@rule(P.cast(x))
def share_cast(node: Node, x: Value) -> Any:
    """Share one cast between several readers of a tensor."""
    for reader in x.uses:
        if reader is node:
            return None
        if reader.op == "cast" and reader.attrs == node.attrs:
            return reader.outputs[0]
    return None


def _paired(w: Array) -> Array:
    """`in_pairs` of a constant."""
    *lead, k, tile = w.shape
    transposed = w.reshape(*lead, k // 2, 2, tile).swapaxes(-1, -2)
    return np.ascontiguousarray(transposed).reshape(*lead, k // 2, 2 * tile)


def layer_of(dtype: str) -> Rule:
    """The rule for layers whose operands the model itself rounds to `dtype`."""

    @rule(P.op(("cpu.gemm", "cpu.conv", "cpu.conv_transpose"), WIDE, w, bias, residual, slope))
    def layer_in_16_bits(x: Value, w: Value, node: Node) -> Any:
        """Read 16-bit operands directly if the model rounds activations and weights to them."""
        if x.dtype != dtype or w.dtype != "f32" or w.data is None:
            return None
        deep = x.shape[-1] // node.attrs.get("groups", 1)
        if deep % 2:
            return no(f"16-bit numbers are multiplied in pairs of channels; a group has {deep}")
        with np.errstate(over="ignore"):
            small = w.data.astype(dtypes.numpy_of(dtype))
        if not np.array_equal(small.astype(np.float32), w.data):
            return no(f"the weights are not exact in {dtype}")
        weights = constant(_paired(small) if dtype == "bf16" else small)
        return REGISTRY[node.op](x, weights, *node.inputs[2:], **{**node.attrs, "made": "f32"})

    layer_in_16_bits.name = f"layer_in_{dtype}"
    return layer_in_16_bits


LAYER_F16, LAYER_BF16 = layer_of("f16"), layer_of("bf16")
CAST_RULES: tuple[Rule, ...] = (
    share_cast,
    cast_into_epilogue,
    movement_in_16_bits,
    max_pool_in_16_bits,
    concat_in_16_bits,
    cast_before_max_pool,
    cast_before_concat,
)
