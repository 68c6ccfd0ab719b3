"""Bytes move instead of floats, and clamps become bounds of bytes."""

from __future__ import annotations

import math
from typing import Any

from intaglio import dtypes, ops
from intaglio.ir import Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.passes.integer.quantized import BITS8, source, x, xs, xz, ys, yz
from intaglio.rewrite import P, no, rule

CLAMPS = ("relu", "clip")
# What has an integer form between dequantised operands: its clamp is worth moving behind it.
COMPUTES = ("conv", "conv_transpose", "gemm", "matmul", "add")


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


@rule(P.op((*MOVING, "slice"), (P.dequantize_linear(x, xs, xz) @ "real").shared()))
def dequantize_after_moving(x: Value, xs: Value, xz: Value | None, real: Node, node: Node) -> Any:
    """moving bytes is cheaper than moving floats, and the numbers meet what computes with them"""
    if xs.type.size != 1 or real.attrs["block_size"]:
        return no(f"there are {xs.type.size} scales, along an axis that moves")
    return ops.dequantize_linear(REGISTRY[node.op](x, **node.attrs), xs, xz, **real.attrs)


MOVES = [quantize_before_moving, dequantize_after_moving, clamp_by_saturation, clamp_bytes]
