"""Contrib operators of onnxruntime (domain com.microsoft) on floats, and rules that use them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.export.onnx.expression import Onnx, make, writes
from intaglio.export.onnx.onnx_ops import onnx_op
from intaglio.export.onnx.windows import window
from intaglio.ir import Node, Value, constant
from intaglio.ops.registry import REGISTRY, named
from intaglio.rewrite import ANY, P, no, rule

DOMAIN = "com.microsoft"
x, y, z, w, b, s, c = P["x y z w b? s? c!"]
Ints = tuple[int, ...]

ACTIVATIONS = named("ort_fused")  # of FusedConv, by onnxruntime's names
GEMM_ACTIVATIONS = ("relu", "tanh", "sigmoid", "leaky_relu", "hard_sigmoid")  # of FusedGemm
_LARGEST = float(np.finfo(np.float32).max)  # replaces an infinite bound


def _activated(v: Value, activation: str, params: tuple[float, ...]) -> Value:
    if not activation:
        return v
    op = ACTIVATIONS[activation]
    attrs: dict[str, Any] = dict(zip(op.attr_names, params, strict=True))
    result: Value = op(v, **attrs)
    return result


def _activation(node: Node) -> dict[str, Any]:
    op = REGISTRY[node.op]
    values = tuple(float(np.clip(node.attrs[p], -_LARGEST, _LARGEST)) for p in op.attr_names)
    return {"activation": op.names["ort_fused"], "activation_params": values}


# ---- FusedConv and FusedGemm ---------------------------------------------------------------------
@onnx_op("FusedConv")
def fused_conv(
    x: Value,
    w: Value,
    b: Value | None = None,
    z: Value | None = None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
) -> Value:
    """act(conv(x, w, b) + z)"""
    v = ops.conv(x, w, b, stride=stride, pad=pad, dilation=dilation, groups=groups)
    return _activated(v if z is None else ops.add(v, z), activation, activation_params)


@writes("onnx.FusedConv")
def write_fused_conv(n: Node) -> Onnx:
    shape = n.inputs[1].shape[2:]  # type: ignore[union-attr]
    more = {"kernel_shape": shape, "group": n.attrs["groups"], **_fused(n)}
    return make("FusedConv", *n.inputs, domain=DOMAIN, **window(n, **more))


def _fused(n: Node) -> dict[str, Any]:
    params = list(n.attrs["activation_params"])
    return {"activation": n.attrs["activation"] or None, "activation_params": params or None}


@rule(P.add(P.conv(x, w, b) @ "conv", y))
def sum_into_conv(x: Value, w: Value, b: Value | None, y: Value, conv: Node) -> Any:
    """fuse an addition into a convolution"""
    if x.dtype != "f32" or y.type != conv.outputs[0].type or y.data is not None:
        return no(f"the addend is {y.type}, the convolution's result {conv.outputs[0].type}")
    return fused_conv(x, w, b, y, **conv.attrs)


ACTIVATION_OPS = tuple(op.name for op in ACTIVATIONS.values())


@rule(P.op(ACTIVATION_OPS, P.conv(x, w, b) @ "conv"))
def activation_into_conv(x: Value, w: Value, b: Value | None, conv: Node, node: Node) -> Any:
    """fuse an activation into a convolution"""
    if x.dtype != "f32":
        return no(f"the convolution is of {x.dtype}, f32 is needed")
    return fused_conv(x, w, b, None, **conv.attrs, **_activation(node))


@rule(P.op(ACTIVATION_OPS, P.op("onnx.FusedConv", x, w, b, z, activation="") @ "conv"))
def activation_into_fused_conv(
    x: Value, w: Value, b: Value | None, z: Value, conv: Node, node: Node
) -> Any:
    """fuse an activation into a convolution with addition"""
    return fused_conv(x, w, b, z, **{**conv.attrs, **_activation(node)})


@onnx_op("FusedGemm")
def fused_gemm(
    x: Value,
    y: Value,
    z: Value | None = None,
    *,
    alpha: float,
    beta: float,
    trans_a: bool,
    trans_b: bool,
    activation: str,
    activation_params: tuple[float, ...],
) -> Value:
    """act(alpha * x @ y + beta * z)"""
    v = ops.gemm(x, y, z, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b)
    return _activated(v, activation, activation_params)


@writes("onnx.FusedGemm")
def write_fused_gemm(n: Node) -> Onnx:
    a = n.attrs
    params = dict(zip(("activation_alpha", "activation_beta"), a["activation_params"]))  # noqa: B905
    return make(
        "FusedGemm",
        *n.inputs,
        domain=DOMAIN,
        alpha=a["alpha"],
        beta=a["beta"],
        transA=a["trans_a"],
        transB=a["trans_b"],
        activation=a["activation"],
        **params,
    )


@rule(P.op(GEMM_ACTIVATIONS, P.gemm(x, y, b) @ "gemm"))
def activation_into_gemm(x: Value, y: Value, b: Value | None, gemm: Node, node: Node) -> Any:
    """fuse an activation into a Gemm"""
    if x.dtype != "f32":
        return no(f"the product is of {x.dtype}, f32 is needed")
    return fused_gemm(x, y, b, **gemm.attrs, **_activation(node))


# ---- FusedMatMul ---------------------------------------------------------------------------------
@onnx_op("FusedMatMul")
def fused_matmul(
    x: Value, y: Value, *, alpha: float = 1.0, trans_a: bool = False, trans_b: bool = False
) -> Value:
    """alpha * x @ y; `trans_a` and `trans_b` swap the last two axes first"""
    v: Value = ops.matmul(_swapped(x) if trans_a else x, _swapped(y) if trans_b else y)
    return v if alpha == 1 else ops.mul(v, constant(alpha, dtype=x.dtype))


def _swapped(v: Value) -> Value:
    rank = v.type.rank
    result: Value = ops.transpose(v, perm=(*range(rank - 2), rank - 1, rank - 2))
    return result


@writes("onnx.FusedMatMul")
def write_fused_matmul(n: Node) -> Onnx:
    a = n.attrs
    return make(
        "FusedMatMul",
        *n.inputs,
        domain=DOMAIN,
        alpha=a["alpha"],
        transA=a["trans_a"],
        transB=a["trans_b"],
    )


PRODUCT = ("matmul", "onnx.FusedMatMul")


@rule(P.op(PRODUCT, x, y))
def transpose_into_matmul(x: Value, y: Value, node: Node) -> Any:
    """fuse a transpose of the last two axes into a matmul"""
    attrs = dict(node.attrs) or {"alpha": 1.0, "trans_a": False, "trans_b": False}
    if (
        x.dtype != "f32"
        or x.type.rank < 2
        or y.type.rank < 2
        or not (x.type.rank > 2 or y.type.rank > 2)
    ):
        return None
    sources = []
    for v, flag in ((x, "trans_a"), (y, "trans_b")):
        inner = v.producer
        rank = v.type.rank
        swap = (*range(rank - 2), rank - 1, rank - 2)
        if inner and inner.op == "transpose" and inner.attrs["perm"] == swap and len(v.uses) == 1:
            attrs[flag] = not attrs[flag]
            sources.append(inner.inputs[0])
        else:
            sources.append(v)
    return fused_matmul(*sources, **attrs) if sources != [x, y] else None


@rule(P.mul(P.op(PRODUCT, x, y) @ "product", c))
def scale_into_fused_matmul(x: Value, y: Value, c: Value, product: Node, node: Node) -> Any:
    """fuse a constant factor into a matmul"""
    if x.dtype != "f32" or c.type.size != 1 or c.type.rank > node.outputs[0].type.rank:
        return no(f"the factor is {c.type}; a scalar f32 is needed")
    attrs = dict(product.attrs) or {"alpha": 1.0}
    return fused_matmul(x, y, **{**attrs, "alpha": attrs["alpha"] * float(c.data.item())})  # type: ignore[union-attr]


# ---- activations ---------------------------------------------------------------------------------
@onnx_op("QuickGelu")
def quick_gelu(x: Value, *, alpha: float) -> Value:
    """x * sigmoid(alpha * x)"""
    result: Value = ops.swish(x, alpha=alpha)
    return result


@writes("onnx.QuickGelu")
def write_quick_gelu(n: Node) -> Onnx:
    return make("QuickGelu", *n.inputs, domain=DOMAIN, alpha=float(n.attrs["alpha"]))


@rule(P.swish(x))
def swish_as_quick_gelu(x: Value, node: Node) -> Any:
    """onnxruntime's name of swish"""
    return quick_gelu(x, alpha=node.attrs["alpha"]) if x.dtype == "f32" else None


@onnx_op("BiasGelu")
def bias_gelu(x: Value, c: Value) -> Value:
    """gelu(x + c)"""
    return ops.gelu(ops.add(x, c))  # type: ignore[no-any-return]


@onnx_op("FastGelu")
def fast_gelu(x: Value, c: Value) -> Value:
    """gelu(x + c), tanh approximation"""
    return ops.gelu(ops.add(x, c), approximate="tanh")  # type: ignore[no-any-return]


@writes("onnx.BiasGelu", "onnx.FastGelu")
def write_biased(n: Node) -> Onnx:
    return make(n.op.removeprefix("onnx."), *n.inputs, domain=DOMAIN)


@rule(P.gelu(P.add(x, c)))
def bias_into_gelu(x: Value, c: Value, node: Node) -> Any:
    """fuse a bias along the last axis into gelu"""
    if x.dtype != "f32" or c.shape != x.shape[-1:]:
        return no(f"the bias is {c.type}, one f32 per index of the last axis of {x.type} is needed")
    return (fast_gelu if node.attrs["approximate"] == "tanh" else bias_gelu)(x, c)


# ---- normalisation of a sum ----------------------------------------------------------------------
@onnx_op("SkipLayerNormalization")
def skip_layer_norm(
    x: Value,
    skip: Value,
    scale: Value,
    shift: Value | None = None,
    bias: Value | None = None,
    *,
    epsilon: float,
) -> list[Value]:
    """layer_norm(x + skip + bias), and the sum"""
    total = ops.add(x, skip)
    total = total if bias is None else ops.add(total, bias)
    return [ops.layer_norm(total, scale, shift, axis=-1, epsilon=epsilon), total]


@onnx_op("SkipSimplifiedLayerNormalization")
def skip_rms_norm(
    x: Value, skip: Value, scale: Value, bias: Value | None = None, *, epsilon: float
) -> list[Value]:
    """rms_norm(x + skip + bias), and the sum"""
    total = ops.add(x, skip)
    total = total if bias is None else ops.add(total, bias)
    return [ops.rms_norm(total, scale, axis=-1, epsilon=epsilon), total]


@writes("onnx.SkipLayerNormalization", "onnx.SkipSimplifiedLayerNormalization")
def write_skip(n: Node) -> Onnx:
    op_type = n.op.removeprefix("onnx.")
    result = make(op_type, *n.inputs, domain=DOMAIN, epsilon=float(n.attrs["epsilon"]))
    return replace(result, places=(0, 3))


SKIP = ("onnx.SkipLayerNormalization", "onnx.SkipSimplifiedLayerNormalization")


@rule(ANY)
def sum_into_norm(node: Node) -> Any:
    """fuse an addition into the normalisation after it; the sum stays available"""
    total = node.outputs[0]
    found = _summands(node)
    if found is None or total.dtype != "f32" or total.type.rank not in (2, 3):
        return None
    for norm in total.uses:
        scale = norm.inputs[1] if norm.op in ("layer_norm", "rms_norm") else None
        if scale is None or norm.attrs["axis"] % total.type.rank != total.type.rank - 1:
            continue
        epsilon, (first, second, bias) = norm.attrs["epsilon"], found
        if norm.op == "rms_norm":
            return skip_rms_norm(first, second, scale, bias, epsilon=epsilon)[1]
        return skip_layer_norm(first, second, scale, norm.inputs[2], bias, epsilon=epsilon)[1]
    return None


@rule(P.op(("layer_norm", "rms_norm"), x, *P["s"]))
def norm_of_sum_without_shift(x: Value, node: Node) -> Any:
    """use the normalisation that is computed with the sum"""
    return _with_sum(x, node)


@rule(P.layer_norm(x, *P["s t"]))
def norm_of_sum(x: Value, node: Node) -> Any:
    """use the normalisation that is computed with the sum"""
    return _with_sum(x, node)


def _with_sum(x: Value, node: Node) -> Any:
    result = x.producer
    if result is None or result.op not in SKIP or x.index != 1:
        return None
    kind = "rms_norm" if "Simplified" in result.op else "layer_norm"
    same = result.inputs[2 : 3 + (kind == "layer_norm")] == node.inputs[1:]
    alike = node.op == kind and result.attrs["epsilon"] == node.attrs["epsilon"] and same
    last = node.attrs["axis"] % x.type.rank == x.type.rank - 1
    return (
        result.outputs[0]
        if alike and last
        else no("its parameters differ from those of the fused normalisation")
    )


def _summands(node: Node) -> tuple[Value, Value, Value | None] | None:
    """The addends of a sum: two tensors of one type, and maybe a bias along the last axis."""
    if node.op not in ("add", "onnx.Sum") or len(node.inputs) > 3:
        return None
    total = node.outputs[0]
    whole = [v for v in node.inputs if v is not None and v.type == total.type]
    rest = [v for v in node.inputs if v is not None and v.type != total.type]
    if len(whole) != 2 or any(v.shape != total.shape[-1:] or v.data is None for v in rest):
        return None
    return whole[0], whole[1], rest[0] if rest else None


CONTRIB_RULES = (
    activation_into_conv,
    activation_into_fused_conv,
    sum_into_conv,
    activation_into_gemm,
    transpose_into_matmul,
    scale_into_fused_matmul,
    swish_as_quick_gelu,
    bias_into_gelu,
    sum_into_norm,
    norm_of_sum_without_shift,
    norm_of_sum,
)
