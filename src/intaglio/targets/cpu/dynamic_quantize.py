"""Products of tensors that are quantised at run time (TFLite's dynamic range models) in int8.

The model rounds the input of a product to 256 steps and multiplies it with weights that are stored
as i8. Here the steps are bytes, and cpu.qgemm or cpu.qconv multiplies them; only the last bits of
the result differ from products in floats.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value, constant
from intaglio.ops import add, channels_first, channels_last, reshape, transpose
from intaglio.ops.dynamic_matmul import MAX_DEPTH
from intaglio.ops.dynamic_quantize import dynamic_axis, quantized_slices
from intaglio.ops.registry import op
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.cpu.epilogue_fusion import per_channel
from intaglio.targets.cpu.qconv import qconv
from intaglio.targets.cpu.qconv_packing import best_run, packed
from intaglio.targets.cpu.qgemm import product


def _types(x: Value, *, axis: int) -> list[Type]:
    outer = x.shape[: dynamic_axis(x, axis)]
    if x.type.dynamic:
        raise BadInput(f"cpu.quantize_dynamic takes static shapes, not {x.type}")
    return [Type("u8", x.shape), Type("f32", outer), Type("u8", outer)]


@op(_types, name="cpu.quantize_dynamic")
def quantize_dynamic(x: Array, *, axis: int) -> tuple[Array, Array, Array]:
    """Slices from `axis` on as u8, their scales and their zero points."""
    return quantized_slices(x, axis)


def _quantized(rounded: Node) -> list[Value]:
    """Bytes, scales and zero points of what the node rounds; products with one input share them."""
    x, axis = rounded.inputs[0], rounded.attrs["axis"]
    assert x is not None
    for node in x.uses:
        if node.op == "cpu.quantize_dynamic" and node.attrs["axis"] == axis:
            return node.outputs
    results: list[Value] = quantize_dynamic(x, axis=axis)
    return results


def _weights(real: Node, channel: int) -> tuple[Array, Array] | No:
    """Constant weights as i8, and one scale for each index of axis `channel`."""
    stored, scale, zero = [*real.inputs, None][:3]
    if stored is None or stored.dtype != "i8" or real.outputs[0].dtype != "f32":
        return no("the weights are not stored as i8")
    if stored.data is None or scale is None or scale.data is None or not stored.data.size:
        return no("the weights are not constant")
    if zero is not None and (zero.data is None or zero.data.any()):
        return no("the weights have zero points")
    count, one = stored.shape[channel], scale.type.size == 1
    if real.attrs["block_size"] or not (one or real.attrs["axis"] % stored.type.rank == channel):
        return no("there is not one scale per output channel")
    return stored.data, np.broadcast_to(scale.data.reshape(-1).astype(np.float32), (count,))


x, w, ws, wz, c = P["x w! ws! wz!? c?"]
rounded = (P.dynamic_fake_quantize(x) @ "rounded").shared()
real = (P.dequantize_linear(w, ws, wz) @ "real").shared()


turned_weights = (P.transpose(real, perm=(1, 0)) @ "turn").shared()


def _rows_product(rounded: Node, real: Node, turned: bool, bias: Value | None = None) -> Value | No:
    """cpu.qgemm of the rows that a node rounds and a matrix [k, n], or [n, k] if `turned`."""
    x = rounded.outputs[0]
    if rounded.attrs["axis"] != x.type.rank - 1 or x.type.rank < 2 or x.type.dynamic:
        return no("the rows have no ranges of their own, or a dynamic number")
    found = _weights(real, 0 if turned else 1)
    if isinstance(found, No):
        return found
    weights, scales = found
    matrix = weights.T if turned else weights
    if matrix.ndim != 2 or len(matrix) > MAX_DEPTH:
        return no(f"weights of shape {weights.shape} are no matrix whose sums fit i32")
    q, scale, zero = _quantized(rounded)
    return product(q, np.ascontiguousarray(matrix), scales, bias, scale, zero)


@rule(P.matmul(rounded, P.one_of(real, turned_weights)))
def dynamic_range_matmul(rounded: Node, real: Node, turn: Node | None) -> Value | No:
    """Lower matmul of rows rounded at run time and int8 weights to cpu.quantize_dynamic and
    cpu.qgemm.
    """
    return _rows_product(rounded, real, turn is not None)


@rule(P.gemm(rounded, real, c))
def dynamic_range_gemm(rounded: Node, real: Node, c: Value | None, node: Node) -> Value | No:
    """Lower gemm of rows rounded at run time and int8 weights to cpu.quantize_dynamic and
    cpu.qgemm.
    """
    a = node.attrs
    if a["trans_a"] or a["alpha"] != 1 or a["beta"] != 1:
        return no("the gemm scales or transposes its operands")
    bias = None if c is None else per_channel(c, node.outputs[0].shape[1])
    result = _rows_product(rounded, real, bool(a["trans_b"]), bias)
    if isinstance(result, No) or c is None or bias is not None:
        return result
    total: Value = add(result, c)
    return total


turned = (P.transpose(rounded) @ "turned").shared()


def _is_last_to_second(turned: Node) -> bool:
    rank = turned.outputs[0].type.rank
    return bool(turned.attrs["perm"] == (0, rank - 1, *range(1, rank - 1)))


@rule(P.conv(turned, real, c))
def dynamic_range_pixels(
    x: Value, rounded: Node, turned: Node, real: Node, c: Value | None, node: Node
) -> Value | No:
    """Lower a 1x1 convolution of pixels rounded at run time and int8 weights to cpu.qgemm."""
    a, rank = node.attrs, x.type.rank
    found = _weights(real, 0)
    if isinstance(found, No):
        return found
    weights, scales = found
    window = {*weights.shape[2:], *a["stride"], a["groups"]}
    if window != {1} or any(a["pad"]) or not _is_last_to_second(turned):
        return no("it is no 1x1 convolution with stride 1 of a channels-last image")
    if rounded.attrs["axis"] != rank - 1 or x.type.dynamic or weights.shape[1] > MAX_DEPTH:
        return no("the pixels have no ranges of their own")
    matrix = np.ascontiguousarray(weights.reshape(weights.shape[:2]).T)
    q, scale, zero = _quantized(rounded)
    return channels_first(product(q, matrix, scales, c, scale, zero))


@rule(P.conv(turned, real, c))
def dynamic_range_conv(
    x: Value, rounded: Node, turned: Node, real: Node, c: Value | None, node: Node
) -> Value | No:
    """Lower a convolution of an image rounded at run time and int8 weights to cpu.qconv."""
    attrs: dict[str, Any] = dict(node.attrs)
    groups = attrs.pop("groups")
    found = _weights(real, 0)
    if isinstance(found, No):
        return found
    weights, scales = found
    channels, deep, *kernel = weights.shape
    if rounded.attrs["axis"] != 1 or not x.shape[0] or x.type.dynamic or x.type.rank > 5:
        return no("the images have no ranges of their own")
    if deep == 1 or groups != 1:
        return no("grouped and depthwise convolutions compute in floats")
    q, scale, zero = _quantized(rounded)
    run = best_run(deep, tuple(kernel), attrs["dilation"], 1)
    sums = weights.reshape(channels, -1).sum(1, dtype=np.int32)
    y = qconv(
        channels_last(transpose(q, perm=turned.attrs["perm"])),
        constant(packed(weights[None], run)),
        constant(np.zeros(channels, np.int32)),
        constant(np.ascontiguousarray(scales)),
        *[None] * 4,
        zero,
        scale,
        constant(sums),
        channels=channels,
        kernel=tuple(kernel),
        run=run,
        x_zero=0,
        dtype="f32",
        **attrs,
    )
    y = y if c is None else add(y, reshape(c, shape=(channels,)))
    return channels_first(y)


DYNAMIC_PRODUCTS: tuple[Rule, ...] = (
    dynamic_range_matmul,
    dynamic_range_gemm,
    dynamic_range_pixels,
)
DYNAMIC_CONVOLUTIONS: tuple[Rule, ...] = (dynamic_range_conv,)  # if bytes are much faster
