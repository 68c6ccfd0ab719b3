"""Fuse biases, residuals and activations into the CPU's float gemms and convolutions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio.ir import Node, Value, constant
from intaglio.ops import add, expand, reshape
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.cpu.epilogue import FUSABLE, activation_of
from intaglio.targets.cpu.gemm import gemm

x, w, a, y = P["x w a y"]
bias, residual, slope = P["bias? residual? slope?"]
PRODUCTS = (
    "cpu.gemm",
    "cpu.conv",
    "cpu.winograd",
    "cpu.depthwise",
    "cpu.conv_transpose",
    "cpu.qgemm",
    "cpu.wgemm",
    "cpu.separable",
    "cpu.grouped_conv",
)
product = P.any(*PRODUCTS) @ "before"  # inputs 2 to 4 are bias, residual and slope


def per_channel(v: Value, channels: int) -> Value | None:
    """`v` as one number per output channel, if it has one per channel or one in all; else None."""
    one, each = v.type.size == 1, v.type.size == channels and v.shape[-1:] == (channels,)
    if v.type.dynamic or not (one or each):
        return None
    flat = v if v.type.rank == 1 else reshape(v, shape=(v.type.size,))
    return flat if flat.shape == (channels,) else expand(flat, shape=(channels,))


def _rebuilt(
    before: Node,
    *,
    bias: Value | None = None,
    residual: Value | None = None,
    slope: Value | None = None,
    **changes: Any,
) -> Value:
    """The op `before` with more in its epilogue."""
    ins = list(before.inputs)
    ins[2] = ins[2] if bias is None else bias
    ins[3] = ins[3] if residual is None else residual
    ins[4] = ins[4] if slope is None else slope
    result: Value = REGISTRY[before.op](*ins, origin=before.origin, **{**before.attrs, **changes})
    return result


@rule(P.op(tuple(n for n in FUSABLE if n != "gelu_tanh"), product))
def activation_into_epilogue(node: Node, before: Node) -> Value | No | None:
    """Fuse an activation into the gemm or convolution before it."""
    found = activation_of(node)
    if found is None:
        return None
    if before.outputs[0].dtype != "f32":
        return no("only f32 has a fused activation")
    if before.attrs["act"] != "none":
        return no(f"the epilogue already applies {before.attrs['act']}")
    return _rebuilt(before, act=found[0], act_args=found[1])


@rule(P.prelu(product, y))
def prelu_into_epilogue(before: Node, y: Value) -> Value | No:
    """Fuse a PReLU with a slope per output channel into the op before it."""
    out = before.outputs[0]
    if out.dtype != "f32" or before.attrs["act"] != "none":
        return no(f"the op makes {out.dtype} and already applies {before.attrs['act']}")
    vector = per_channel(y, out.shape[-1])
    if vector is None:
        return no(f"the slopes are {y.type}, not one per channel of {out.type}")
    return _rebuilt(before, slope=vector, act="prelu", act_args=())


@rule(P.add(product, y))
def add_into_epilogue(before: Node, y: Value) -> Value | No:
    """Fuse an added vector as bias, or an added tensor as residual, into the op before it."""
    out, ins = before.outputs[0], before.inputs
    plain = before.attrs["act"] == "none"
    if y.type.rank <= out.type.rank and (vector := per_channel(y, out.shape[-1])) is not None:
        if plain and ins[3] is None:
            if ins[2] is not None:
                vector = add(ins[2], vector)
            return _rebuilt(before, bias=vector)
        if y.shape != out.shape:
            return no("a bias cannot be added after the activation or the residual")
    if y.shape != out.shape:
        return no(f"the addend is {y.type}, the result {out.type}")
    if ins[3] is not None:
        return no("the op already has a residual")
    return _rebuilt(before, residual=y, add_last=not plain)


@rule(P.op(tuple(n for n in FUSABLE if n != "gelu_tanh"), P.reshape(product)))
def hoist_activation_over_reshape(node: Node, before: Node) -> Value | No:
    """Apply an activation before a reshape, next to the op that can fuse it."""
    if node.outputs[0].type.dynamic:
        return no("the shape is known only at run time")
    result = REGISTRY[node.op](before.outputs[0], **node.attrs)
    moved: Value = reshape(result, shape=node.outputs[0].shape)
    return moved


@rule(P.add(P.reshape(product), y))
def hoist_add_over_reshape(node: Node, before: Node, y: Value) -> Value | No:
    """Add a residual before a reshape, next to the op that can fuse it."""
    out = node.outputs[0]
    if out.type.dynamic or y.shape != out.shape:
        return no(f"the addend is {y.type}; it must have the result's static shape")
    if before.inputs[3] is not None:
        return no("the op already has a residual")
    result = add(before.outputs[0], reshape(y, shape=before.outputs[0].shape))
    moved: Value = reshape(result, shape=out.shape)
    return moved


@rule(P.op("cpu.gemm", P.reshape(P.transpose(x) @ "turn") @ "flat", w, bias, residual, slope))
def transpose_into_gemm_weights(
    x: Value, w: Value, turn: Node, flat: Node, node: Node
) -> Value | No | None:
    """Permute constant weight rows instead of transposing before a flatten."""
    if w.data is None or x.type.dynamic:
        return None
    perm, k = turn.attrs["perm"], flat.outputs[0].shape[-1]
    lead = next((i for i, p in enumerate(perm) if i != p), len(perm))
    rest, moved = math.prod(x.shape[lead:]), tuple(p - lead for p in perm[lead:])
    if rest != k:
        return no(f"the transpose moves {rest} elements; a row has {k}")
    rows = np.arange(k).reshape([turn.outputs[0].shape[lead + i] for i in range(len(moved))])
    rows = rows.transpose(np.argsort(moved)).reshape(-1)
    weights = constant(np.ascontiguousarray(w.data.take(rows, axis=-2)))
    result: Value = gemm(
        reshape(x, shape=flat.outputs[0].shape), weights, *node.inputs[2:], **node.attrs
    )
    return result


FUSE: list[Rule] = [
    transpose_into_gemm_weights,
    activation_into_epilogue,
    prelu_into_epilogue,
    add_into_epilogue,
    hoist_activation_over_reshape,
    hoist_add_over_reshape,
]
