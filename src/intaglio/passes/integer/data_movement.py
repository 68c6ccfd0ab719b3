"""Move int8 tensors instead of floats, and clamp integers instead of floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes, native, ops
from intaglio.ir import Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.passes.integer.operands import BITS8, source, x, xs, xz, ys, yz
from intaglio.rewrite import ANY, P, no, rule

CLAMPS = ("relu", "clip")
# Ops that have an integer form: a clamp moves behind the quantisation for them.
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
def clamp_into_saturation(x: Value, act: Node, ys: Value, yz: Value | None, node: Node) -> Any:
    """Remove a clamp whose bounds the quantised type's saturation already enforces."""
    low, high = dtypes.limits(node.attrs["dtype"]) if node.attrs["dtype"] in BITS8 else (1, 0)
    if low > high or ys.type.size != 1:
        return no(
            f"{node.attrs['dtype']} with {ys.type.size} scales has no single saturation bound"
        )
    zero = 0 if yz is None else int(yz.data.item())  # type: ignore[union-attr]
    lo, hi = _bounds(act)
    scale = float(ys.data.item())  # type: ignore[union-attr]
    if lo / scale + zero > low or hi / scale + zero < high:
        return no(
            f"{act.op} clamps tighter than {node.attrs['dtype']} saturates with zero point {zero}"
        )
    return ops.quantize_linear(x, ys, yz, **node.attrs)


@rule(P.quantize_linear(P.op(CLAMPS, P.any(*COMPUTES) @ "made") @ "act", ys, yz))
def clamp_in_int8(made: Node, act: Node, ys: Value, yz: Value | None, node: Node) -> Any:
    """Clamp behind the quantisation, so that the op before it can become integer. Rounding is
    monotonic, so this is exact.
    """
    if node.attrs["dtype"] not in BITS8 or ys.type.size != 1 or ys.data.item() <= 0:  # type: ignore[union-attr]
        return no(
            f"{node.attrs['dtype']} with {ys.type.size} scales; one above 0 and 8 bits are needed"
        )
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
def quantize_before_movement(x: Value, move: Node, ys: Value, yz: Value | None, node: Node) -> Any:
    """Quantise before a reshape, transpose or the like, so that it moves bytes."""
    if ys.type.size != 1:
        return no(f"there are {ys.type.size} scales along an axis that moves; one is needed")
    if 2 * node.outputs[0].type.size < x.type.size:
        return no(
            f"{x.type.size - node.outputs[0].type.size} elements would be rounded and discarded"
        )
    return REGISTRY[move.op](ops.quantize_linear(x, ys, yz, **node.attrs), **move.attrs)


@rule(P.quantize_linear(P.op(CLAMPS, P.op(MOVING, x) @ "move") @ "act", ys, yz))
def clamp_before_movement(
    x: Value, move: Node, act: Node, ys: Value, yz: Value | None, node: Node
) -> Any:
    """Clamp before a reshape, transpose or the like, next to the op that can become integer."""
    if ys.type.size != 1:
        return no(f"there are {ys.type.size} scales along an axis that moves; one is needed")
    clamped = REGISTRY[act.op](x, **act.attrs)
    return ops.quantize_linear(REGISTRY[move.op](clamped, **move.attrs), ys, yz, **node.attrs)


@rule(P.quantize_linear(P.pad(x) @ "pad", ys, yz))
def quantize_before_pad(x: Value, pad: Node, ys: Value, yz: Value | None, node: Node) -> Any:
    """Quantise before a pad, and quantise the pad value at compile time."""
    if ys.type.size != 1 or node.attrs["dtype"] not in BITS8:
        return no(
            f"{node.attrs['dtype']} with {ys.type.size} scales; one scale and 8 bits are needed"
        )
    body, value = ops.quantize_linear.body, np.float32(pad.attrs["value"])
    around = body(value, ys.data, yz and yz.data, **node.attrs).item()
    stored = ops.quantize_linear(x, ys, yz, **node.attrs)
    return ops.pad(stored, **{**pad.attrs, "value": float(around)})


@rule(P.op((*MOVING, "slice"), (P.dequantize_linear(x, xs, xz) @ "real").shared()))
def dequantize_after_movement(x: Value, xs: Value, xz: Value | None, real: Node, node: Node) -> Any:
    """Dequantise after a reshape, transpose or the like, so that it moves bytes."""
    if xs.type.size != 1 or real.attrs["block_size"]:
        return no(f"there are {xs.type.size} scales along an axis that moves; one is needed")
    return ops.dequantize_linear(REGISTRY[node.op](x, **node.attrs), xs, xz, **real.attrs)


# ---- ops that select elements: quantising before them is exact ---------------------------------
SELECTING = ("max_pool", "resize")


def _why_not_selected(node: Node, scale: Value) -> str | None:
    """Why `node`, a max pooling or resize, cannot select from quantised elements."""
    a = node.attrs
    if scale.type.size != 1 or scale.data.item() <= 0:  # type: ignore[union-attr]
        return f"there are {scale.type.size} scales; one positive scale is needed"
    if node.op == "resize":
        mixes = a["mode"] != "nearest" or a["antialias"]
        beyond = a["coordinate_transformation_mode"] == "tf_crop_and_resize"
        return (
            f"mode {a['mode']} interpolates, or it samples outside the image"
            if mixes or beyond
            else None
        )
    if a["with_indices"] or set(a["dilation"]) != {1}:
        return "it returns indices or has dilation"
    if any(p >= k for p, k in zip(a["pad"], a["kernel"] * 2, strict=True)):
        return "a window may contain only padding"
    return None


@rule(P.quantize_linear(P.op(SELECTING, P.any(*COMPUTES) @ "made") @ "selects", ys, yz))
def quantize_before_max_pool(
    made: Node, selects: Node, ys: Value, yz: Value | None, node: Node
) -> Any:
    """Quantise before a max pooling or nearest resize: it only selects elements."""
    if why := _why_not_selected(selects, ys):
        return no(why)
    if node.attrs["dtype"] not in BITS8 or not any(source(v) for v in made.inputs):
        return no(f"{made.op} does not read quantised tensors")
    stored = ops.quantize_linear(made.outputs[0], ys, yz, **node.attrs)
    return REGISTRY[selects.op](stored, **selects.attrs)


@rule(P.op(SELECTING, (P.dequantize_linear(x, xs, xz) @ "real").shared()))
def dequantize_after_max_pool(x: Value, xs: Value, xz: Value | None, real: Node, node: Node) -> Any:
    """Dequantise after a max pooling or nearest resize: it only selects elements."""
    if why := _why_not_selected(node, xs) or (
        x.dtype not in BITS8 and f"{x.dtype} is not 8 bits wide"
    ):
        return no(why)
    return ops.dequantize_linear(REGISTRY[node.op](x, **node.attrs), xs, xz, **real.attrs)


@rule(ANY)
def dequantize_after_custom_selection(node: Node) -> Any:
    """Dequantise after a custom operator that only selects values of its input."""
    op, real = REGISTRY[node.op], source(node.inputs[0]) if node.inputs else None
    if not op.keeps_scale or real is None or len(node.outputs) != 1:
        return None
    x, xs, xz = real.inputs
    assert x is not None
    if xs is None or xs.type.size != 1 or real.attrs["block_size"]:
        return no("there are several scales; one is needed")
    if node.op in native.ops() and not native.find_kernel(node.op, x.dtype, native.machine()):
        return no(f"its plug-in has no kernel for {x.dtype}")
    result = op.node(x, *node.inputs[1:], **node.attrs).outputs[0]
    if result.type != node.outputs[0].type.but(dtype=x.dtype):
        return no(f"of {x.type} it makes {result.type}")
    return ops.dequantize_linear(result, xs, xz, **real.attrs)


# ---- concat --------------------------------------------------------------------------------------
@rule(P.quantize_linear(P.any("concat") @ "concat", ys, yz))
def quantize_before_concat(concat: Node, ys: Value, yz: Value | None, node: Node) -> Any:
    """Quantise every operand of a concat instead of its result."""
    if ys.type.size != 1:
        return no(f"there are {ys.type.size} scales; one is needed")
    parts = [ops.quantize_linear(v, ys, yz, **node.attrs) for v in concat.inputs]
    return ops.concat(*parts, **concat.attrs)


@rule(P.any("concat"))
def dequantize_after_concat(node: Node) -> Any:
    """Concatenate bytes if all operands have equal scales and zero points."""
    found = [source(v) for v in node.inputs]
    first = found[0]
    if first is None or first.inputs[1].type.size != 1:  # type: ignore[union-attr]
        return None
    of_first = _stored_as(first)
    if any(n is None or _stored_as(n) != of_first for n in found[1:]):
        return no("the operands have different scales or zero points")
    parts = [n.inputs[0] for n in found if n is not None]
    return ops.dequantize_linear(ops.concat(*parts, **node.attrs), *first.inputs[1:], **first.attrs)


def _stored_as(n: Node) -> tuple[Any, ...]:
    """A key for the type, scale, zero point and attributes of a dequantisation."""
    scale, zero = (None if v is None else v.data.tobytes() for v in n.inputs[1:])  # type: ignore[union-attr]
    return n.inputs[0].dtype, scale, zero, tuple(sorted(n.attrs.items()))  # type: ignore[union-attr]


MOVES = [
    clamp_before_movement,
    quantize_before_pad,
    quantize_before_movement,
    dequantize_after_movement,
    quantize_before_max_pool,
    dequantize_after_max_pool,
    dequantize_after_custom_selection,
    quantize_before_concat,
    dequantize_after_concat,
    clamp_into_saturation,
    clamp_in_int8,
]
