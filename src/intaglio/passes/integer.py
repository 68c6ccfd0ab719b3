"""Integer arithmetic where a model says it in floats: dequantize, compute, quantize become one op.

The float detour rounds differently on every machine; the integer op has one exact result.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Node, Value, constant
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import P, no, rule

x, w, b = P["x w b?"]
xs, xz, ws, wz, ys, yz = P["xs! xz? ws! wz? ys! yz?"]
BITS8 = ("i8", "u8")


def _real(q: Any, scale: Any, zero: Any, name: str) -> Any:
    """A dequantized operand; others may read it too, it costs nothing to leave it to them."""
    return (P.dequantize_linear(q, scale, zero) @ name).shared()


@rule(P.quantize_linear(P.op(("relu", "clip"), x) @ "act", ys, yz))
def clamp_by_saturation(x: Value, act: Node, ys: Value, yz: Value | None, node: Node) -> Any:
    """a clamp that saturation does anyway"""
    low, high = dtypes.limits(node.attrs["dtype"]) if node.attrs["dtype"] in BITS8 else (1, 0)
    if low > high or ys.type.size != 1:
        return no(
            f"{node.attrs['dtype']} with {ys.type.size} scales does not saturate at one place"
        )
    zero = 0 if yz is None else int(yz.data.item())  # type: ignore[union-attr]
    ends = act.attrs if act.op == "clip" else {"lo": 0.0, "hi": math.inf}
    scale = float(ys.data.item())  # type: ignore[union-attr]
    if ends["lo"] / scale + zero > low or ends["hi"] / scale + zero < high:
        return no(f"{act.op} clamps tighter than {node.attrs['dtype']} does with zero {zero}")
    return ops.quantize_linear(x, ys, yz, **node.attrs)


MOVES = ("reshape", "transpose", "channel_shuffle", "depth_to_space", "space_to_depth")


@rule(P.quantize_linear(P.op((*MOVES, "expand", "tile"), x) @ "move", ys, yz))
def quantize_before_moving(x: Value, move: Node, ys: Value, yz: Value | None, node: Node) -> Any:
    """moving bytes is cheaper than moving floats, and what made those may be quantised too"""
    if ys.type.size != 1:
        return no(f"there are {ys.type.size} scales, along an axis that moves")
    return REGISTRY[move.op](ops.quantize_linear(x, ys, yz, **node.attrs), **move.attrs)


@rule(P.op((*MOVES, "slice"), P.dequantize_linear(x, xs, xz) @ "real"))
def dequantize_after_moving(x: Value, xs: Value, xz: Value | None, real: Node, node: Node) -> Any:
    """moving bytes is cheaper than moving floats, and the numbers meet what computes with them"""
    if xs.type.size != 1 or real.attrs["block_size"]:
        return no(f"there are {xs.type.size} scales, along an axis that moves")
    return ops.dequantize_linear(REGISTRY[node.op](x, **node.attrs), xs, xz, **real.attrs)


@rule(P.quantize_linear(
    P.conv(_real(x, xs, xz, "dx"), _real(w, ws, wz, "dw"), b) @ "conv", ys, yz))  # fmt: skip
def integer_conv(x: Value, xs: Value, xz: Value | None, w: Value, ws: Value, wz: Value | None,
                 b: Value | None, ys: Value, yz: Value | None, dx: Node, dw: Node, conv: Node,
                 node: Node) -> Any:  # fmt: skip
    """a convolution between quantised tensors"""
    if why := _why_not(dx, dw, node, channel_axis=0):
        return no(why)
    bias = None if b is None else _integer_bias(b, xs, ws)
    if b is not None and bias is None:
        return no("the bias is not constant")
    return ops.qlinear_conv(
        x,
        xs,
        _zero(x, xz),
        w,
        ws,
        _zero(w, wz, ws.shape),
        ys,
        _out_zero(yz, node),
        bias,
        **conv.attrs,
    )


@rule(P.quantize_linear(
    P.gemm(_real(x, xs, xz, "dx"), _real(w, ws, wz, "dw"), b) @ "gemm", ys, yz))  # fmt: skip
def integer_gemm(x: Value, xs: Value, xz: Value | None, w: Value, ws: Value, wz: Value | None,
                 b: Value | None, ys: Value, yz: Value | None, dx: Node, dw: Node, gemm: Node,
                 node: Node) -> Any:  # fmt: skip
    """a linear layer between quantised tensors is a 1x1 convolution"""
    a = gemm.attrs
    if a["trans_a"] or a["alpha"] != 1 or a["beta"] != 1:
        return no("it scales or transposes its operands")
    if why := _why_not(dx, dw, node, channel_axis=0 if a["trans_b"] else 1):
        return no(why)
    bias = None if b is None else _integer_bias(b, xs, ws)
    n = node.outputs[0].shape[1]
    if b is not None and (bias is None or bias.shape != (n,)):
        return no("the bias is not one constant per output")
    weight = w if a["trans_b"] else ops.transpose(w, perm=(1, 0))
    y = ops.qlinear_conv(
        ops.reshape(x, shape=(*x.shape, 1)), xs, _zero(x, xz),
        ops.reshape(weight, shape=(*weight.shape, 1)), ws, _zero(w, wz, ws.shape),
        ys, _out_zero(yz, node), bias, stride=(1,), pad=(0, 0), dilation=(1,), groups=1,
    )  # fmt: skip
    return ops.reshape(y, shape=node.outputs[0].shape)


@rule(P.quantize_linear(
    P.matmul(_real(x, xs, xz, "dx"), _real(w, ws, wz, "dw")), ys, yz))  # fmt: skip
def integer_matmul(x: Value, xs: Value, xz: Value | None, w: Value, ws: Value, wz: Value | None,
                   ys: Value, yz: Value | None, dx: Node, dw: Node, node: Node) -> Any:  # fmt: skip
    """a product of quantised tensors"""
    if ws.type.size != 1:
        return no(f"the second operand has {ws.type.size} scales, one is needed")
    if why := _why_not(dx, dw, node, channel_axis=0):
        return no(why)
    return ops.qlinear_matmul(x, xs, _zero(x, xz), w, ws, _zero(w, wz), ys, _out_zero(yz, node))


ROUNDING = [integer_conv, integer_gemm, integer_matmul]  # they round otherwise than floats do
INTEGER = [quantize_before_moving, dequantize_after_moving, clamp_by_saturation, *ROUNDING]


def _why_not(dx: Node, dw: Node, node: Node, channel_axis: int) -> str | None:
    """Why the integer ops cannot take these operands, or None."""
    for v, of in ((dx.inputs[0], "input"), (dw.inputs[0], "weight"), (node.outputs[0], "output")):
        if v is None or v.dtype not in BITS8:
            return f"the {of} is {v.dtype if v else 'absent'}, not 8 bits wide"
    if any(n.attrs["block_size"] for n in (dx, dw, node)):
        return "scales are per block"
    if dx.inputs[1].type.size != 1 or node.inputs[1].type.size != 1:  # type: ignore[union-attr]
        return "activations have more than one scale"
    axis = dw.attrs["axis"] % dw.outputs[0].type.rank
    if dw.inputs[1].type.size != 1 and axis != channel_axis:  # type: ignore[union-attr]
        return f"the weight has scales along axis {axis}, not along its output channels"
    return None


def _zero(q: Value, zero: Value | None, shape: tuple[int, ...] = ()) -> Value:
    return zero if zero is not None else constant(np.zeros(shape, dtypes.numpy_of(q.dtype)))


def _out_zero(zero: Value | None, node: Node) -> Value:
    return _zero(node.outputs[0], zero)


def _integer_bias(b: Value, xs: Value, ws: Value) -> Value | None:
    """The bias as int32 in units of the accumulator; None where it is not constant."""
    made = b.producer
    if b.data is not None:
        real = b.data
    elif (
        made is not None
        and made.op == "dequantize_linear"
        and all(v is None or v.data is not None for v in made.inputs)
    ):
        real = REGISTRY["dequantize_linear"].body(
            *[v and v.data for v in made.inputs], **made.attrs
        )
    else:
        return None
    unit = xs.data.astype(np.float64).reshape(-1) * ws.data.astype(np.float64).reshape(-1)  # type: ignore[union-attr]
    info = np.iinfo(np.int32)
    return constant(
        np.clip(np.rint(real.astype(np.float64) / unit), info.min, info.max).astype(np.int32)
    )
