"""Importers of normalisation, softmax, cosine_similarity and weight_norm."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import Unsupported
from intaglio.frontends.torch.importer import axis_of, cast_to, floating, importer, ints, reshaped
from intaglio.ir import Value, constant


def per_channel(x: Value, value: float) -> Value:
    return constant(np.full(x.shape[1], value, dtypes.numpy_of(x.dtype)))


@importer("batch_norm", "cudnn_batch_norm")
def batch_norm(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = False,
) -> Value:
    if training or running_mean is None or running_var is None:
        raise Unsupported(
            "batch_norm is in training mode, or keeps no running statistics; call "
            "model.eval() before saving"
        )
    x = input
    result: Value = ops.batch_norm(
        x,
        per_channel(x, 1) if weight is None else weight,
        per_channel(x, 0) if bias is None else bias,
        running_mean,
        running_var,
        epsilon=float(eps),
    )
    return result


@importer("_native_batch_norm_legit_no_training", "native_batch_norm")
def native_batch_norm(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    *rest: Any,
) -> Any:
    training = rest[0] if rest and isinstance(rest[0], bool) else False
    return (
        batch_norm(input, weight, bias, running_mean, running_var, training, eps=rest[-1]),
        None,
        None,
    )


@importer("_native_batch_norm_legit")
def native_batch_norm_legit(
    input: Value, weight: Value | None, bias: Value | None, *rest: Any
) -> Any:
    """With running statistics, or with those of the batch if there are none."""
    *stats, training, _, eps = rest
    if not training:
        return batch_norm(input, weight, bias, *stats, eps=eps), None, None
    if stats:
        raise Unsupported("batch_norm is in training mode; call model.eval() before saving")
    x = input
    axes = (0, *range(2, x.type.rank))
    mean = ops.reduce_mean(x, axes=axes, keepdims=False)
    off = ops.sub(x, ops.reduce_mean(x, axes=axes, keepdims=True))
    var = ops.reduce_mean(ops.mul(off, off), axes=axes, keepdims=False)
    return batch_norm(x, weight, bias, mean, var, eps=eps), None, None


@importer("layer_norm")
def layer_norm(
    input: Value,
    normalized_shape: Any,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Value:
    shape = ints(normalized_shape)
    if bias is not None and weight is None:
        weight = constant(np.ones(shape, dtypes.numpy_of(input.dtype)))
    result: Value = ops.layer_norm(input, weight, bias, axis=-len(shape), epsilon=float(eps))
    return result


@importer("native_layer_norm")
def native_layer_norm(
    input: Value, normalized_shape: Any, weight: Value | None, bias: Value | None, eps: float
) -> Any:
    return layer_norm(input, normalized_shape, weight, bias, eps), None, None


@importer("rms_norm", "_fused_rms_norm")
def rms_norm(
    input: Value, normalized_shape: Any, weight: Value | None = None, eps: float | None = None
) -> Value:
    small = float(np.finfo(np.float32).eps) if eps is None else float(eps)
    rank = len(ints(normalized_shape))
    result: Value = ops.rms_norm(input, weight, axis=-rank, epsilon=small)
    return result


@importer("group_norm")
def group_norm(
    input: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Value:
    x = input
    result: Value = ops.group_norm(
        x,
        per_channel(x, 1) if weight is None else weight,
        per_channel(x, 0) if bias is None else bias,
        groups=int(num_groups),
        epsilon=float(eps),
    )
    return result


@importer("native_group_norm")
def native_group_norm(input: Value, weight: Value | None, bias: Value | None, *sizes: Any) -> Any:
    """`sizes` are batch, channels, the other extents, groups and eps."""
    group, eps = sizes[-2:]
    return group_norm(input, group, weight, bias, eps), None, None


@importer("instance_norm")
def instance_norm(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Value:
    if not use_input_stats:
        return batch_norm(input, weight, bias, running_mean, running_var, eps=eps)
    x = input
    result: Value = ops.instance_norm(
        x,
        per_channel(x, 1) if weight is None else weight,
        per_channel(x, 0) if bias is None else bias,
        epsilon=float(eps),
    )
    return result


@importer("softmax", "_softmax", "_safe_softmax")
def softmax(self: Value, dim: int, dtype: Any = None) -> Value:
    x = floating(self if isinstance(dtype, bool) else cast_to(self, dtype))
    result: Value = ops.softmax(x, axis=axis_of(dim, x))
    return result


@importer("log_softmax", "_log_softmax")
def log_softmax(self: Value, dim: int, dtype: Any = None) -> Value:
    x = floating(self if isinstance(dtype, bool) else cast_to(self, dtype))
    result: Value = ops.log_softmax(x, axis=axis_of(dim, x))
    return result


@importer("cosine_similarity")
def cosine_similarity(x1: Value, x2: Value, dim: int = 1, eps: float = 1e-8) -> Value:
    axis = axis_of(dim, x1)
    dot = ops.reduce_sum(ops.mul(x1, x2), axes=(axis,), keepdims=False)
    small = np.float32(eps)
    norms = [ops.maximum(ops.reduce_l2(x, axes=(axis,), keepdims=False), small) for x in (x1, x2)]
    result: Value = ops.div(dot, ops.mul(*norms))
    return result


@importer("local_response_norm")
def local_response_norm(
    self: Value, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Value:
    result: Value = ops.lrn(
        self, size=int(size), alpha=float(alpha), beta=float(beta), bias=float(k)
    )
    return result


@importer("_weight_norm", "_weight_norm_interface")
def weight_norm(v: Value, g: Value, dim: int = 0) -> Value:
    """v * g / |v|, with the norm over all axes but one."""
    axes = tuple(i for i in range(v.type.rank) if i != dim % v.type.rank)
    norm = ops.reduce_l2(v, axes=axes, keepdims=True)
    result: Value = ops.mul(v, ops.div(reshaped(g, norm.shape), norm))
    return result
