"""Recognise norms over channels: layer, RMS, group and instance norms, L2 normalisation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.passes.fuse import along
from intaglio.passes.permuted_ops import Perm, identity, inverse
from intaglio.passes.recognize.norms import MEAN_SQUARE, SQUARE, fit, is_square, trailing
from intaglio.passes.recognize.rectifiers import number
from intaglio.rewrite import P, Rule, no, rule

x, y, c, s, b = P["x y c! s! b!"]


# ---- norms over axes that are not the last -------------------------------------------------------
def _to_the_end(axes: tuple[int, ...], rank: int) -> Perm:
    return (*(a for a in range(rank) if a not in axes), *axes)


def _centre(x: Value, axes: tuple[int, ...]) -> Value | None:
    """z, if x is z - mean(z) over these axes."""
    sub = x.producer
    middle = sub.inputs[1] if sub is not None and sub.op == "sub" else None
    mean = middle.producer if middle is not None else None
    if (
        sub is None
        or mean is None
        or mean.op != "reduce_mean"
        or mean.inputs[0] is not sub.inputs[0]
    ):
        return None
    same = mean.attrs["axes"] == axes and mean.attrs["keepdims"]
    return sub.inputs[0] if same else None


def _norm_over_channels(x: Value, c: Value, mean: Node, square: Node) -> Any:
    """x / sqrt(mean(x^2) + epsilon) over axes that are not the last; they are transposed to
    the end
    """
    epsilon, axes, rank = number(c), mean.attrs["axes"], x.type.rank
    if trailing(mean) is not None or not mean.attrs["keepdims"] or x.type.dynamic:
        return None
    if epsilon is None or not is_square(square):
        return None
    z = _centre(x, axes)
    perm = _to_the_end(axes, rank)
    moved = ops.transpose(x if z is None else z, perm=perm)
    norm = ops.rms_norm if z is None else ops.layer_norm
    result = norm(moved, axis=rank - len(axes), epsilon=epsilon)
    return ops.transpose(result, perm=inverse(perm))


ROOT = P.sqrt(P.add(MEAN_SQUARE, c))
NORM_OVER_CHANNELS = [
    Rule(P.div(x, ROOT), _norm_over_channels),
    Rule(P.mul(x, P.one_of(P.reciprocal(ROOT), P.div(1.0, ROOT))), _norm_over_channels),
]
LAST = P.op(("layer_norm", "rms_norm"), x) @ "norm"


def _inside(c: Value, turn: Node, norm: Node) -> Value | None:
    """A constant behind a transpose, in the shape of the normalised axes before it."""
    rank = turn.outputs[0].type.rank
    if c.data is None or c.type.rank > rank:
        return None
    full = c.data.reshape((1,) * (rank - c.type.rank) + c.shape)
    return fit(constant(full.transpose(inverse(turn.attrs["perm"]))), norm)


@rule(P.mul(P.transpose(LAST) @ "turn", c))
def scale_into_transposed_norm(x: Value, c: Value, norm: Node, turn: Node) -> Any:
    """Fold a factor per normalised element behind a transpose into the norm."""
    scale = _inside(c, turn, norm)
    if scale is None:
        return no(f"{c.type} varies along axes that are not normalised")
    op = ops.layer_norm if norm.op == "layer_norm" else ops.rms_norm
    return ops.transpose(op(x, scale, **norm.attrs), **turn.attrs)


@rule(P.add(P.transpose(P.layer_norm(x, P["s?"][0]) @ "norm") @ "turn", c))
def shift_into_transposed_norm(x: Value, s: Value | None, c: Value, norm: Node, turn: Node) -> Any:
    """Fold an addend per normalised element behind a transpose into the norm."""
    bias = _inside(c, turn, norm)
    if bias is None:
        return no(f"{c.type} varies along axes that are not normalised")
    return ops.transpose(ops.layer_norm(x, s, bias, **norm.attrs), **turn.attrs)


# ---- groups of channels --------------------------------------------------------------------------
def _constant(like: Value, data: Any, count: int) -> Value:
    full = np.broadcast_to(np.asarray(data), (count,))
    return constant(np.ascontiguousarray(full.astype(dtypes.numpy_of(like.dtype))))


def _groups(x: Value, parts: int, node: Node) -> int | None:
    """The number of channel groups if x is normalised in this many parts; None if they do not
    match.
    """
    if x.type.dynamic or x.type.rank < 3 or node.outputs[0].shape != x.shape or not x.type.size:
        return None
    groups, rest = divmod(parts, x.shape[0])
    return groups if groups and not rest and x.shape[1] % groups == 0 else None


@rule(P.reshape(P.instance_norm(P.reshape(x) @ "flat", s, b) @ "norm"))
def group_norm_of_instance_norm(
    x: Value, s: Value, b: Value, flat: Node, norm: Node, node: Node
) -> Any:
    """instance_norm of an image whose channels are reshaped to groups"""
    batch, parts = flat.outputs[0].shape[:2]
    groups = _groups(x, batch * parts, node) if batch == x.shape[0] else None
    if groups is None:
        return no(f"{flat.outputs[0].type} does not group the channels of {x.type}")
    each = x.shape[1] // groups
    scale, bias = (constant(np.repeat(v.data, each)) for v in (s, b))  # type: ignore[arg-type]
    return ops.group_norm(x, scale, bias, groups=groups, epsilon=norm.attrs["epsilon"])


@rule(P.reshape(P.layer_norm(P.reshape(x) @ "flat") @ "norm"))
def group_norm_of_layer_norm(x: Value, flat: Node, norm: Node, node: Node) -> Any:
    """layer_norm of an image whose channels are reshaped to groups"""
    shape = flat.outputs[0].shape
    groups = _groups(x, math.prod(shape[: norm.attrs["axis"] % len(shape)]), node)
    epsilon = norm.attrs["epsilon"]
    if groups is None:
        return no(f"{flat.outputs[0].type} does not group the channels of {x.type}")
    if groups == x.shape[1]:
        return ops.layer_norm(x, axis=2, epsilon=epsilon)
    one, zero = (_constant(x, v, x.shape[1]) for v in (1, 0))
    return ops.group_norm(x, one, zero, groups=groups, epsilon=epsilon)


@rule(P.mul(P.layer_norm(x) @ "norm", c))
def instance_norm(x: Value, c: Value, norm: Node) -> Any:
    """layer_norm of each channel alone, times a factor per channel"""
    if norm.attrs["axis"] % x.type.rank != 2 or x.type.rank < 3:
        return None
    scale = along(c, x, 1)
    if scale is None:
        return no(f"{c.type} does not have one number per channel of {x.type}")
    count = x.shape[1]
    one, zero = _constant(x, scale, count), _constant(x, 0, count)
    return ops.instance_norm(x, one, zero, epsilon=norm.attrs["epsilon"])


GROUPED = P.op(("group_norm", "instance_norm"), x, s, b) @ "norm"


def _affine(norm: Node, scale: Array, bias: Array) -> Any:
    x = norm.inputs[0]
    assert x is not None
    results = [_constant(x, v, x.shape[1]) for v in (scale, bias)]
    op = ops.group_norm if norm.op == "group_norm" else ops.instance_norm
    return op(x, *results, **norm.attrs)


@rule(P.mul(GROUPED, c))
def scale_into_group_norm(s: Value, b: Value, c: Value, norm: Node) -> Any:
    """Fold a factor per channel into a group or instance norm."""
    by = along(c, norm.outputs[0], 1)
    if by is None or s.data is None or b.data is None:
        return no(f"{c.type} does not have one number per channel of {norm.outputs[0].type}")
    return _affine(norm, s.data * by, b.data * by)


@rule(P.add(GROUPED, c))
def shift_into_group_norm(s: Value, b: Value, c: Value, norm: Node) -> Any:
    """Fold an addend per channel into a group or instance norm."""
    by = along(c, norm.outputs[0], 1)
    if by is None or s.data is None or b.data is None:
        return no(f"{c.type} does not have one number per channel of {norm.outputs[0].type}")
    return _affine(norm, s.data, b.data + by)


# ---- L2 normalisation ----------------------------------------------------------------------------
@rule(P.div(x, P.clip(P.reduce_l2(x) @ "length") @ "bound"))
def l2_normalize(x: Value, length: Node, bound: Node) -> Any:
    """x / max(sqrt(sum(x^2)), epsilon) along one axis"""
    axes, lo = length.attrs["axes"], bound.attrs["lo"]
    if len(axes) != 1 or not length.attrs["keepdims"] or bound.attrs["hi"] != math.inf or lo <= 0:
        return None
    return ops.lp_norm(x, axis=axes[0], p=2, epsilon=lo) if dtypes.is_float(x.dtype) else None


@rule(P.div(x, P.sqrt(P.add(P.reduce_sum(SQUARE) @ "total", c))))
def l2_normalize_as_rms_norm(x: Value, c: Value, total: Node, square: Node) -> Any:
    """x / sqrt(sum(x^2) + epsilon), as an RMS norm with a constant scale"""
    epsilon, axes, rank = number(c), total.attrs["axes"], x.type.rank
    if epsilon is None or epsilon <= 0 or not total.attrs["keepdims"] or x.type.dynamic:
        return None
    if not is_square(square):
        return None
    perm = _to_the_end(axes, rank)
    moved = x if perm == identity(rank) else ops.transpose(x, perm=perm)
    shape = moved.shape[rank - len(axes) :]
    each = np.full(shape, 1 / math.sqrt(math.prod(shape)), dtypes.numpy_of(x.dtype))
    result = ops.rms_norm(
        moved, constant(each), axis=rank - len(axes), epsilon=epsilon / math.prod(shape)
    )
    return result if moved is x else ops.transpose(result, perm=inverse(perm))


CHANNELS = [
    *NORM_OVER_CHANNELS,
    scale_into_transposed_norm,
    shift_into_transposed_norm,
    group_norm_of_instance_norm,
    group_norm_of_layer_norm,
    instance_norm,
    scale_into_group_norm,
    shift_into_group_norm,
    l2_normalize,
    l2_normalize_as_rms_norm,
]
