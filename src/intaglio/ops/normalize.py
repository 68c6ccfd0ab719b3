"""Normalisation (layer, RMS, batch, group, instance, LRN, Lp, mean-variance) and softmax."""

from __future__ import annotations

import math

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value, constant
from intaglio.ops.activation import clip
from intaglio.ops.cast import cast
from intaglio.ops.compare import equal, where
from intaglio.ops.elementwise import add, div, floats, mul, sqrt, sub
from intaglio.ops.index import argmax
from intaglio.ops.precision import widen
from intaglio.ops.reduce import reduce_l1, reduce_l2, reduce_mean
from intaglio.ops.registry import normalize_axis, op
from intaglio.ops.shape import reshape


# ---- over the last axes ------------------------------------------------------------------------
def _last_axes(x: Value, *params: Value | None, axis: int = -1, epsilon: float = 1e-5) -> Type:
    shape = x.shape[normalize_axis(axis, x.type.rank) :]
    for p in params:
        if p is not None and (p.shape != shape or p.dtype != x.dtype):
            raise BadInput(f"scale or bias is {p.type}, the normalised axes are {x.dtype}{shape}")
    return floats(x)


def _from(axis: int, rank: int) -> tuple[int, ...]:
    return tuple(range(normalize_axis(axis, rank), rank))


@op(_last_axes)
@widen
def layer_norm(
    x: Array,
    scale: Array | None = None,
    bias: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> Array:
    """Normalise to mean 0 and variance 1 over `axis` and all later axes, then scale and shift."""
    axes = _from(axis, x.ndim)
    centred = x - x.mean(axes, keepdims=True)
    y = centred / np.sqrt((centred * centred).mean(axes, keepdims=True) + x.dtype.type(epsilon))
    y = y if scale is None else y * scale
    return y if bias is None else y + bias


@op(_last_axes)
@widen
def rms_norm(
    x: Array, scale: Array | None = None, *, axis: int = -1, epsilon: float = 1e-5
) -> Array:
    """Divide by the root mean square over `axis` and all later axes, then scale."""
    axes = _from(axis, x.ndim)
    y = x / np.sqrt((x * x).mean(axes, keepdims=True) + x.dtype.type(epsilon))
    return y if scale is None else y * scale


# ---- per channel -------------------------------------------------------------------------------
def _per_channel(x: Value, *params: Value, epsilon: float = 1e-5, groups: int = 1) -> Type:
    if x.type.rank < 2:
        raise BadInput(f"the tensor has shape {x.shape}; a batch and a channel axis are needed")
    for p in params:
        if p.shape != (x.shape[1],) or p.dtype != x.dtype:
            raise BadInput(f"a parameter is {p.type}; {x.dtype}[{x.shape[1]}] is needed")
    if groups < 1 or x.shape[1] % groups:
        raise BadInput(f"{x.shape[1]} channels cannot be split into {groups} groups")
    return floats(x)


def _column(p: Array, x: Array) -> Array:
    return p.reshape(-1, *[1] * (x.ndim - 2))


def column(p: Value, x: Value) -> Value:
    """A parameter per channel, shaped to broadcast against `x`."""
    return reshape(p, shape=(p.type.size, *[1] * (x.type.rank - 2)))


@op(_per_channel)
@widen
def batch_norm(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, *, epsilon: float = 1e-5
) -> Array:
    factor = scale / np.sqrt(var + x.dtype.type(epsilon))
    return (x - _column(mean, x)) * _column(factor, x) + _column(bias, x)


@batch_norm.lowers
def _(
    x: Value, scale: Value, bias: Value, mean: Value, var: Value, *, epsilon: float = 1e-5
) -> Value:
    factor = div(scale, sqrt(add(var, constant(epsilon, dtype=x.dtype))))
    shift = sub(bias, mul(mean, factor))
    return add(mul(x, column(factor, x)), column(shift, x))


@op(_per_channel)
@widen
def group_norm(x: Array, scale: Array, bias: Array, *, groups: int, epsilon: float = 1e-5) -> Array:
    """Normalise each group of channels to mean 0 and variance 1; scale and bias per channel."""
    flat = x.reshape(x.shape[0], groups, -1)
    y: Array = layer_norm.body(flat, axis=2, epsilon=epsilon).reshape(x.shape)
    return y * _column(scale, x) + _column(bias, x)


@group_norm.lowers
def _(x: Value, scale: Value, bias: Value, *, groups: int, epsilon: float = 1e-5) -> Value:
    inside = math.prod(x.shape[1:]) // groups
    flat = reshape(x, shape=(x.shape[0], groups, inside))
    y = reshape(layer_norm(flat, axis=2, epsilon=epsilon), shape=x.shape)
    return add(mul(y, column(scale, x)), column(bias, x))


@op(_per_channel, onnx="InstanceNormalization")
@widen
def instance_norm(x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5) -> Array:
    return group_norm.body(x, scale, bias, groups=x.shape[1], epsilon=epsilon)


@instance_norm.lowers
def _(x: Value, scale: Value, bias: Value, *, epsilon: float = 1e-5) -> Value:
    return group_norm(x, scale, bias, groups=x.shape[1], epsilon=epsilon)


# ---- softmax -----------------------------------------------------------------------------------
def _along(x: Value, *, axis: int = -1) -> Type:
    normalize_axis(axis, x.type.rank)
    return floats(x)


def _shifted(x: Array, axis: int) -> Array:
    """`x` minus its largest element, so that no exponential overflows."""
    return x - x.max(axis, keepdims=True, initial=-np.inf)


@op(_along, onnx="Softmax", torch="softmax")
@widen
def softmax(x: Array, *, axis: int = -1) -> Array:
    e = np.exp(_shifted(x, axis))
    return e / e.sum(axis, keepdims=True)


@op(_along, onnx="LogSoftmax", torch="log_softmax")
@widen
def log_softmax(x: Array, *, axis: int = -1) -> Array:
    shifted = _shifted(x, axis)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


@op(_along, onnx="Hardmax")
def hardmax(x: Array, *, axis: int = -1) -> Array:
    """1 at the first largest element along `axis`, else 0."""
    y = np.zeros_like(x)
    if x.size:
        top = np.argmax(x, axis, keepdims=True)
        np.put_along_axis(y, top, x.dtype.type(1), axis)
    return y


@hardmax.lowers
def _(x: Value, *, axis: int = -1) -> Value:
    axis = normalize_axis(axis, x.type.rank)
    top = argmax(x, axis=axis, keepdims=True)
    places = np.arange(x.shape[axis]).reshape(-1, *[1] * (x.type.rank - axis - 1))
    return cast(equal(constant(places), top), dtype=x.dtype)


# ---- LRN, Lp norm, mean-variance ---------------------------------------------------------------
def _lrn(x: Value, *, size: int, alpha: float, beta: float, bias: float) -> Type:
    if x.type.rank < 2 or size < 1:
        raise BadInput(
            f"lrn of shape {x.shape} over {size} channels; a channel axis and size ≥ 1 are needed"
        )
    return floats(x)


@op(_lrn, onnx="LRN", torch="local_response_norm")
@widen
def lrn(
    x: Array, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Array:
    """Divide by (bias + alpha / size * sum of squares of `size` neighbouring channels) ** beta."""
    channels = x.shape[1]
    sides = ((size - 1) // 2, size // 2)
    squares = np.pad(x * x, [(0, 0), sides, *[(0, 0)] * (x.ndim - 2)])
    total = sum(squares[:, i : i + channels] for i in range(size))
    return x / (bias + (alpha / size) * total) ** beta


def _lp(x: Value, *, axis: int, p: int, epsilon: float) -> Type:
    if p not in (1, 2) or epsilon < 0:
        raise BadInput(f"lp_norm with p={p}, epsilon={epsilon}; p is 1 or 2, epsilon not negative")
    return _along(x, axis=axis)


@op(_lp, onnx="LpNormalization", torch="normalize")
@widen
def lp_norm(x: Array, *, axis: int = -1, p: int = 2, epsilon: float = 0.0) -> Array:
    """Divide by max(norm along `axis`, epsilon); by 1 where both are 0."""
    norm = np.linalg.norm(x, p, axis, keepdims=True).astype(x.dtype)
    norm = np.maximum(norm, x.dtype.type(epsilon))
    return np.where(norm == 0, x.dtype.type(0), x / norm)


@lp_norm.lowers
def _(x: Value, *, axis: int = -1, p: int = 2, epsilon: float = 0.0) -> Value:
    axes = (normalize_axis(axis, x.type.rank),)
    norm = (reduce_l1 if p == 1 else reduce_l2)(x, axes=axes, keepdims=True)
    if epsilon > 0:
        return div(x, clip(norm, lo=epsilon))
    zero = constant(0, dtype=x.dtype)
    return where(zero, div(x, norm), equal(norm, zero))


def _mvn(x: Value, *, axes: tuple[int, ...]) -> Type:
    for axis in axes:
        normalize_axis(axis, x.type.rank)
    return floats(x)


@op(_mvn, onnx="MeanVarianceNormalization")
@widen
def mvn(x: Array, *, axes: tuple[int, ...] = (0, 2, 3)) -> Array:
    """(x - mean) / (standard deviation + 1e-9) over `axes`."""
    centred = x - x.mean(axes, keepdims=True)
    return centred / (np.sqrt((centred * centred).mean(axes, keepdims=True)) + x.dtype.type(1e-9))


@mvn.lowers
def _(x: Value, *, axes: tuple[int, ...] = (0, 2, 3)) -> Value:
    where_ = tuple(sorted({normalize_axis(a, x.type.rank) for a in axes}))
    wide = x if x.dtype in ("f32", "f64") else cast(x, dtype="f32")  # 1e-9 is 0 in f16
    centred = sub(wide, reduce_mean(wide, axes=where_))
    spread = sqrt(reduce_mean(mul(centred, centred), axes=where_))
    return cast(div(centred, add(spread, constant(1e-9, dtype=wide.dtype))), dtype=x.dtype)
