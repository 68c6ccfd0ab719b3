"""ONNX forms of normalisation, attention and quantisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.export.onnx.elementwise import only
from intaglio.export.onnx.expression import Forms, Onnx, make, writes
from intaglio.frontends.onnx.tensors import element_code
from intaglio.ir import Node, Value


def _ones(n: Node) -> Any:
    x = only(n)
    return np.ones(x.shape[n.attrs["axis"] % x.type.rank :], dtypes.numpy_of(x.dtype))


@writes("layer_norm")
def layer_norm(n: Node) -> Onnx:
    x, scale, bias = n.inputs
    scale_ = _ones(n) if scale is None else scale
    return make("LayerNormalization", x, scale_, bias, **n.attrs)


@writes("rms_norm")
def rms_norm(n: Node) -> Forms:
    x, scale = only(n), n.inputs[1]
    first = n.attrs["axis"] % x.type.rank
    axes = tuple(range(first, x.type.rank))
    epsilon = np.array(n.attrs["epsilon"]).astype(dtypes.numpy_of(x.dtype))
    squares = make("Mul", x, x)
    means = (make("ReduceMean", squares, axes), make("ReduceMean", squares, axes=axes))
    plain = (make("Div", x, make("Sqrt", make("Add", mean, epsilon))) for mean in means)
    spelled = (y if scale is None else make("Mul", y, scale) for y in plain)
    return make("RMSNormalization", x, _ones(n) if scale is None else scale, **n.attrs), *spelled


@writes("batch_norm")
def batch_norm(n: Node) -> Onnx:
    return make("BatchNormalization", *n.inputs, epsilon=n.attrs["epsilon"])


@writes("group_norm")
def group_norm(n: Node) -> Onnx:
    """Before opset 21, scale and bias are per group."""
    a = n.attrs
    result = make("GroupNormalization", *n.inputs, num_groups=a["groups"], epsilon=a["epsilon"])
    return result.between(21)


@writes("lp_norm")
def lp_norm(n: Node) -> Forms:
    """ONNX has no epsilon here: with one, the op is lowered."""
    a = n.attrs
    return () if a["epsilon"] else make("LpNormalization", only(n), axis=a["axis"], p=a["p"])


# ---- attention -----------------------------------------------------------------------------------
@writes("attention")
def attention(n: Node) -> Onnx:
    q, k, v, mask = n.inputs
    if mask is not None and mask.type.rank < 2:
        shape = (1,) * (2 - mask.type.rank) + mask.shape
        wide: Any = make("Reshape", mask, shape) if mask.data is None else mask.data.reshape(shape)
    else:
        wide = mask
    softcap = n.attrs["softcap"] or None
    return make("Attention", q, k, v, wide, scale=n.attrs["scale"], softcap=softcap)


@writes("rotary_embedding")
def rotary_embedding(n: Node) -> Forms:
    """ONNX takes [batch, heads, length, size] and angles [batch, length, size / 2]."""
    x, cos, sin = n.inputs
    assert x is not None
    assert cos is not None
    assert sin is not None
    if x.type.rank != 4 or cos.shape[-3:-1] not in ((1, x.shape[2]), (1, 1)):
        return ()
    want = (x.shape[0], x.shape[2], cos.shape[-1])
    angles = [_angles(v, want) for v in (cos, sin)]
    if any(a is None for a in angles):
        return ()
    turned = 2 * cos.shape[-1]
    return make(
        "RotaryEmbedding",
        x,
        *angles,
        interleaved=n.attrs["interleaved"],
        rotary_embedding_dim=turned if turned < x.shape[3] else None,
    )


def _angles(v: Value, want: tuple[int, ...]) -> Any:
    """Angles as [batch, length, size / 2]; None if they would have to be expanded first."""
    if v.data is not None:
        heads_last = v.data.reshape((1,) * (4 - v.type.rank) + v.shape)[:, 0]
        return np.ascontiguousarray(np.broadcast_to(heads_last, want))
    source = v.producer.inputs[0] if v.producer and v.producer.op == "reshape" else None
    if source is not None and source.shape == want and v.type.size == source.type.size:
        return source
    return make("Reshape", v, want) if v.type.size == np.prod(want) else None


# ---- quantisation --------------------------------------------------------------------------------
@writes("quantize_linear")
def quantize_linear(n: Node) -> Forms:
    x, scale, zero = n.inputs
    a = n.attrs
    assert x is not None
    assert scale is not None
    scale_ = _in_onnx_shape(scale, a["block_size"], x.dtype)
    zero_: Any = None if zero is None else _in_onnx_shape(zero, a["block_size"])
    if zero is None and a["dtype"] != "u8":
        shape = scale.shape if scale.type.size > 1 else ()
        zero_ = np.zeros(shape, dtypes.numpy_of(a["dtype"]))
    return make(
        "QuantizeLinear",
        x,
        scale_,
        zero_,
        **_axis_and_block(n),
        saturate=None if a["saturate"] else 0,
    )


@writes("dequantize_linear")
def dequantize_linear(n: Node) -> Forms:
    x, scale, zero = n.inputs
    assert scale is not None
    block, dtype = n.attrs["block_size"], n.attrs["dtype"]
    zero_ = None if zero is None else _in_onnx_shape(zero, block)
    return (
        make(
            "DequantizeLinear", x, _in_onnx_shape(scale, block, dtype), zero_, **_axis_and_block(n)
        ),
        make(
            "DequantizeLinear",
            x,
            scale,
            zero_,
            **_axis_and_block(n),
            output_dtype=element_code(dtype),
        ),
    )


def _axis_and_block(n: Node) -> dict[str, Any]:
    """The axis and block_size attributes, if there is more than one scale."""
    many = n.inputs[1].type.size > 1  # type: ignore[union-attr]
    block = n.attrs["block_size"]
    return {"axis": n.attrs["axis"] if many or block else None, "block_size": block or None}


def _in_onnx_shape(v: Value, block_size: int, dtype: str = "") -> Any:
    """A scale or zero in the shape that ONNX needs, cast to `dtype`."""
    dtype = dtype or v.dtype
    alone = v.type.size == 1 and v.type.rank > 1 and not block_size
    if v.data is not None and (dtype != v.dtype or alone):
        data = v.data.astype(dtypes.numpy_of(dtype))
        return data.reshape(()) if alone else data
    result: Any = make("Reshape", v, []) if alone else v
    return result if dtype == v.dtype else make("Cast", result, to=element_code(dtype))
