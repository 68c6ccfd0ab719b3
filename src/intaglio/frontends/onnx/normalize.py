"""ONNX normalisation and softmax."""

from __future__ import annotations

import math

from intaglio import ops
from intaglio.frontends.onnx.importer import OnnxNode, importer
from intaglio.ir import Value, constant
from intaglio.ops.registry import Op, normalize_axis


def as_dtype(x: Value, dtype: str) -> Value:
    """`x`, cast if it has another element type."""
    return x if x.dtype == dtype else ops.cast(x, dtype=dtype)


def widest(*values: Value) -> str:
    """The widest float type of these values, in which their arithmetic happens."""
    kinds = {v.dtype for v in values}
    return kinds.pop() if len(kinds) == 1 else "f64" if "f64" in kinds else "f32"


# ---- batch, instance, group --------------------------------------------------------------------
@importer("BatchNormalization")
def batch_norm(n: OnnxNode) -> list[Value | None]:
    x, *params = [n.required(i) for i in range(5)]
    if not n.attr("spatial", 1):
        return [_batch_norm_per_element(n, x, params)]
    if n.opset < 14 and any(n.wants(i) for i in range(1, 5)):
        n.unsupported(
            "it has statistics outputs, which are for training; re-export the model for inference"
        )
    wide = widest(x, *params)
    scale, bias, mean, var = (as_dtype(p, wide) for p in params)
    data = as_dtype(x, wide)
    running: list[Value | None] = []
    if n.attr("training_mode", 0):
        axes = (0, *range(2, x.type.rank))
        old = (mean, var)
        mean = ops.reduce_mean(data, axes=axes, keepdims=False)
        centred = ops.sub(data, ops.column(mean, data))
        var = ops.reduce_mean(ops.mul(centred, centred), axes=axes, keepdims=False)
        keep = constant(n.attr("momentum", 0.9), dtype=wide)
        take = constant(1 - n.attr("momentum", 0.9), dtype=wide)
        for before, now, p in zip(old, (mean, var), params[2:], strict=True):
            mixed = ops.add(ops.mul(before, keep), ops.mul(now, take))
            running.append(as_dtype(mixed, p.dtype))
    y = ops.batch_norm(data, scale, bias, mean, var, epsilon=n.attr("epsilon", 1e-5))
    return [as_dtype(y, x.dtype), *running]


def _batch_norm_per_element(n: OnnxNode, x: Value, params: list[Value]) -> Value:
    """spatial=0 of opsets 7 and 8: every element of a sample has its own statistics."""
    size = math.prod(x.shape[1:])
    flat = ops.reshape(x, shape=(x.shape[0], size))
    columns = [ops.reshape(p, shape=(size,)) for p in params]
    y = ops.batch_norm(flat, *columns, epsilon=n.attr("epsilon", 1e-5))
    return ops.reshape(y, shape=x.shape)


@importer("GroupNormalization", since=18)
def group_norm_by_group(n: OnnxNode) -> Value:
    """Opset 18 has one scale and bias per group; repeat them for the channels."""
    x, groups = n.required(0), n.attr("num_groups")
    each = x.shape[1] // groups

    def spread(p: Value) -> Value:
        wide = ops.expand(ops.reshape(p, shape=(groups, 1)), shape=(groups, each))
        return ops.reshape(wide, shape=(groups * each,))

    return _group_norm(n, spread(n.required(1)), spread(n.required(2)))


@importer("GroupNormalization", since=21)
def group_norm(n: OnnxNode) -> Value:
    return _group_norm(n, n.required(1), n.required(2))


def _group_norm(n: OnnxNode, scale: Value, bias: Value) -> Value:
    epsilon, groups = n.attr("epsilon", 1e-5), n.attr("num_groups")
    return ops.group_norm(n.required(0), scale, bias, groups=groups, epsilon=epsilon)


# ---- over the last axes ------------------------------------------------------------------------
@importer("LayerNormalization", since=1)
def layer_norm(n: OnnxNode) -> list[Value | None]:
    x = n.required(0)
    axis = normalize_axis(n.attr("axis", -1), x.type.rank)
    epsilon = n.attr("epsilon", 1e-5)
    y = scaled_layer_norm(x, n.input(1), n.input(2), axis, epsilon)
    if not n.wants(1) and not n.wants(2):
        return [y]
    axes = tuple(range(axis, x.type.rank))
    wide = as_dtype(x, "f32")
    mean = ops.reduce_mean(wide, axes=axes)
    centred = ops.sub(wide, mean)
    var = ops.reduce_mean(ops.mul(centred, centred), axes=axes)
    inverse = ops.reciprocal(ops.sqrt(ops.add(var, constant(epsilon, dtype="f32"))))
    stash = "bf16" if n.attr("stash_type", 1) == 16 else "f32"
    return [y, as_dtype(mean, stash), as_dtype(inverse, stash)]


def scaled_layer_norm(
    x: Value, scale: Value | None, bias: Value | None, axis: int, epsilon: float
) -> Value:
    """Layer norm whose scale and bias may need broadcasting to the normalised axes."""
    shape = x.shape[axis:]
    if all(p is None or (p.shape == shape and p.dtype == x.dtype) for p in (scale, bias)):
        return ops.layer_norm(x, scale, bias, axis=axis, epsilon=epsilon)
    y = ops.layer_norm(x, axis=axis, epsilon=epsilon)
    y = y if scale is None else ops.mul(y, as_dtype(scale, x.dtype))
    return y if bias is None else ops.add(y, as_dtype(bias, x.dtype))


@importer("RMSNormalization")
def rms_norm(n: OnnxNode) -> Value:
    axis, epsilon = n.attr("axis", -1), n.attr("epsilon", 1e-5)
    return scaled_rms_norm(n.required(0), n.required(1), axis, epsilon)


def scaled_rms_norm(x: Value, scale: Value, axis: int, epsilon: float) -> Value:
    """RMS norm whose scale may need broadcasting, or have another element type (the result's)."""
    axis = normalize_axis(axis, x.type.rank)
    if scale.shape == x.shape[axis:] and scale.dtype == x.dtype:
        return ops.rms_norm(x, scale, axis=axis, epsilon=epsilon)
    y = ops.rms_norm(x, axis=axis, epsilon=epsilon)
    return ops.mul(as_dtype(y, scale.dtype), scale)


# ---- softmax -----------------------------------------------------------------------------------
_SOFT = {"Softmax": ops.softmax, "LogSoftmax": ops.log_softmax, "Hardmax": ops.hardmax}


@importer(*_SOFT)
def flattened_softmax(n: OnnxNode) -> Value:
    return softmax_rows(_SOFT[n.op_type], n.required(0), n.attr("axis", 1))


def softmax_rows(op: Op, x: Value, axis: int) -> Value:
    """Before opset 13, softmax is over all axes from `axis` on."""
    axis = normalize_axis(axis, x.type.rank)
    rows, columns = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    if columns == x.shape[axis]:  # the other axes are 1: no reshape is needed
        return op(x, axis=axis)
    return ops.reshape(op(ops.reshape(x, shape=(rows, columns)), axis=1), shape=x.shape)


@importer(*_SOFT, since=13)
def softmax(n: OnnxNode) -> Value:
    return _SOFT[n.op_type](n.required(0), axis=n.attr("axis", -1))
