"""Bytes move instead of floats, and clamps become bounds of bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.passes.integer.operands import BITS8, source, x, xs, xz, ys, yz
from intaglio.rewrite import P, no, rule

CLAMPS = ("relu", "clip")
# What has an integer form between dequantised operands: its clamp is worth moving behind it.
COMPUTES = (
    "conv",
    "conv_transpose",
    "gemm",
    "matmul",
    "add",
    "mul",
    "avg_pool",
    "reduce_mean",
    "resize",
)


def _bounds(act: Node) -> tuple[float, float]:
    return (act.attrs["lo"], act.attrs["hi"]) if act.op == "clip" else (0.0, math.inf)


@rule(P.quantize_linear(P.op(CLAMPS, x) @ "act", ys, yz))
def clamp_by_saturation(x: Value, act: Node, ys: Value, yz: Value | None, node: Node) -> Any:
    """a clamp that saturation does anyway"""
    low, high = dtypes.limits(node.attrs["dtype"]) if node.attrs["dtype"] in BITS8 else (1, 0)
    if low > high or ys.type.size != 1:
        return no(
            f"{node.attrs['dtype']} with {ys.type.size} scales does not saturate at one place"
        )
    zero = 0 if yz is None else int(yz.data.item())  # type: ignore[union-attr]
    lo, hi = _bounds(act)
    scale = float(ys.data.item())  # type: ignore[union-attr]
    if lo / scale + zero > low or hi / scale + zero < high:
        return no(f"{act.op} clamps tighter than {node.attrs['dtype']} does with zero {zero}")
    return ops.quantize_linear(x, ys, yz, **node.attrs)


@rule(P.quantize_linear(P.op(CLAMPS, P.any(*COMPUTES) @ "made") @ "act", ys, yz))
def clamp_bytes(made: Node, act: Node, ys: Value, yz: Value | None, node: Node) -> Any:
    """rounding keeps the order, so a clamp may follow it: then what is clamped can be integer"""
    if node.attrs["dtype"] not in BITS8 or ys.type.size != 1 or ys.data.item() <= 0:  # type: ignore[union-attr]
        return no(f"{node.attrs['dtype']} with {ys.type.size} scales has no bounds in common")
    if not any(source(v) for v in made.inputs):
        return no(f"{made.op} does not read quantised tensors")
    body = ops.quantize_linear.body
    lo, hi = (
        float(body(ys.data.dtype.type(end), ys.data, yz and yz.data, **node.attrs).item())  # type: ignore[union-attr]
        for end in _bounds(act)
    )
    return ops.clip(ops.quantize_linear(made.outputs[0], ys, yz, **node.attrs), lo=lo, hi=hi)


MOVING = ("reshape", "transpose", "channel_shuffle", "depth_to_space", "space_to_depth")


@rule(P.quantize_linear(P.op((*MOVING, "expand", "tile", "slice"), x) @ "move", ys, yz))
def quantize_before_moving(x: Value, move: Node, ys: Value, yz: Value | None, node: Node) -> Any:
    """moving bytes is cheaper than moving floats, and what made those may be quantised too"""
    if ys.type.size != 1:
        return no(f"there are {ys.type.size} scales, along an axis that moves")
    if 2 * node.outputs[0].type.size < x.type.size:
        return no(f"{x.type.size - node.outputs[0].type.size} numbers would be rounded in vain")
    return REGISTRY[move.op](ops.quantize_linear(x, ys, yz, **node.attrs), **move.attrs)


@rule(P.quantize_linear(P.op(CLAMPS, P.op(MOVING, x) @ "move") @ "act", ys, yz))
def clamp_before_moving(
    x: Value, move: Node, act: Node, ys: Value, yz: Value | None, node: Node
) -> Any:
    """a clamp of what is moved is one of what made it, which can be integer"""
    if ys.type.size != 1:
        return no(f"there are {ys.type.size} scales, along an axis that moves")
    clamped = REGISTRY[act.op](x, **act.attrs)
    return ops.quantize_linear(REGISTRY[move.op](clamped, **move.attrs), ys, yz, **node.attrs)


@rule(P.quantize_linear(P.pad(x) @ "pad", ys, yz))
def quantize_before_padding(x: Value, pad: Node, ys: Value, yz: Value | None, node: Node) -> Any:
    """what is put around an image is rounded once, now"""
    if ys.type.size != 1 or node.attrs["dtype"] not in BITS8:
        return no(f"{node.attrs['dtype']} with {ys.type.size} scales; bytes with one are needed")
    body, value = ops.quantize_linear.body, np.float32(pad.attrs["value"])
    around = body(value, ys.data, yz and yz.data, **node.attrs).item()
    stored = ops.quantize_linear(x, ys, yz, **node.attrs)
    return ops.pad(stored, **{**pad.attrs, "value": float(around)})


@rule(P.op((*MOVING, "slice"), (P.dequantize_linear(x, xs, xz) @ "real").shared()))
def dequantize_after_moving(x: Value, xs: Value, xz: Value | None, real: Node, node: Node) -> Any:
    """moving bytes is cheaper than moving floats, and the numbers meet what computes with them"""
    if xs.type.size != 1 or real.attrs["block_size"]:
        return no(f"there are {xs.type.size} scales, along an axis that moves")
    return ops.dequantize_linear(REGISTRY[node.op](x, **node.attrs), xs, xz, **real.attrs)


# ---- what takes some of the numbers that it is given: rounding before it changes nothing -------
CHOOSES = ("max_pool", "resize")


def _why_not_chosen(node: Node, scale: Value) -> str | None:
    """Why the bytes of what `node` chooses are not chosen from bytes."""
    a = node.attrs
    if scale.type.size != 1 or scale.data.item() <= 0:  # type: ignore[union-attr]
        return f"there are {scale.type.size} scales, one above 0 is needed"
    if node.op == "resize":
        mixes = a["mode"] != "nearest" or a["antialias"]
        beyond = a["coordinate_transformation_mode"] == "tf_crop_and_resize"
        return f"{a['mode']} mixes numbers, or there are others beyond" if mixes or beyond else None
    if a["with_indices"] or set(a["dilation"]) != {1}:
        return "it has indices or dilation"
    if any(p >= k for p, k in zip(a["pad"], a["kernel"] * 2, strict=True)):
        return "a window may meet nothing but padding"
    return None


@rule(P.quantize_linear(P.op(CHOOSES, P.any(*COMPUTES) @ "made") @ "chooses", ys, yz))
def quantize_before_choosing(
    made: Node, chooses: Node, ys: Value, yz: Value | None, node: Node
) -> Any:
    """largest and nearest bytes are those of the numbers, and what made those can be integer"""
    if why := _why_not_chosen(chooses, ys):
        return no(why)
    if node.attrs["dtype"] not in BITS8 or not any(source(v) for v in made.inputs):
        return no(f"{made.op} does not read quantised tensors")
    stored = ops.quantize_linear(made.outputs[0], ys, yz, **node.attrs)
    return REGISTRY[chooses.op](stored, **chooses.attrs)


@rule(P.op(CHOOSES, (P.dequantize_linear(x, xs, xz) @ "real").shared()))
def dequantize_after_choosing(x: Value, xs: Value, xz: Value | None, real: Node, node: Node) -> Any:
    """the largest or nearest of quantised numbers is the largest or nearest byte"""
    if why := _why_not_chosen(node, xs) or (x.dtype not in BITS8 and f"{x.dtype} is no byte"):
        return no(why)
    return ops.dequantize_linear(REGISTRY[node.op](x, **node.attrs), xs, xz, **real.attrs)


# ---- concat --------------------------------------------------------------------------------------
@rule(P.quantize_linear(P.any("concat") @ "concat", ys, yz))
def quantize_before_concat(concat: Node, ys: Value, yz: Value | None, node: Node) -> Any:
    """each part is rounded where it is made; those of another scale are looked up"""
    if ys.type.size != 1:
        return no(f"there are {ys.type.size} scales, along an axis that grows")
    parts = [ops.quantize_linear(v, ys, yz, **node.attrs) for v in concat.inputs]
    return ops.concat(*parts, **concat.attrs)


@rule(P.any("concat"))
def dequantize_after_concat(node: Node) -> Any:
    """parts of one scale are joined as bytes"""
    found = [source(v) for v in node.inputs]
    first = found[0]
    if first is None or first.inputs[1].type.size != 1:  # type: ignore[union-attr]
        return None
    of_first = _stored_as(first)
    if any(n is None or _stored_as(n) != of_first for n in found[1:]):
        return no("the parts have different scales")
    parts = [n.inputs[0] for n in found if n is not None]
    return ops.dequantize_linear(ops.concat(*parts, **node.attrs), *first.inputs[1:], **first.attrs)


def _stored_as(n: Node) -> tuple[Any, ...]:
    """What tells two dequantisations by constants apart."""
    scale, zero = (None if v is None else v.data.tobytes() for v in n.inputs[1:])  # type: ignore[union-attr]
    return n.inputs[0].dtype, scale, zero, tuple(sorted(n.attrs.items()))  # type: ignore[union-attr]


MOVES = [
    clamp_before_moving,
    quantize_before_padding,
    quantize_before_moving,
    dequantize_after_moving,
    quantize_before_choosing,
    dequantize_after_choosing,
    quantize_before_concat,
    dequantize_after_concat,
    clamp_by_saturation,
    clamp_bytes,
]
