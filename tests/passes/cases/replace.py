"""Cases: the library of replacements."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.passes.cases.build import BN, IMAGE, INF, VECTOR, case, conv, f32, num, scalar

from intaglio import ops
from intaglio.ir import Value, constant

LARGE = f32(2, 4, 17, 19)
LINE = f32(2, 4, 9)
ROW = f32(2, 4, 1, 9)


def window(n: int = 2, **attrs: Any) -> dict[str, Any]:
    return {"stride": (1,) * n, "pad": (0,) * 2 * n, "dilation": (1,) * n, **attrs}


def deconv(x: Value, k: int = 3, groups: int = 1, m: int = 3, **attrs: Any) -> Value:
    n = x.type.rank - 2
    given = window(n, stride=(2,) * n, output_pad=(0,) * n, groups=groups, **attrs)
    w = num(x.shape[1], m, *[k] * n)
    made: Value = ops.conv_transpose(x, w, num(m * groups), **given)
    return made


def resized(x: Value, by: int, **attrs: Any) -> Value:
    axes = tuple(range(2, x.type.rank))
    made: Value = ops.resize(
        x,
        axes=axes,
        shape=tuple(x.shape[a] * by for a in axes),
        scales=(float(by),) * len(axes),
        **attrs,
    )
    return made


# ---- products ------------------------------------------------------------------------------------
case("matmul_as_conv", lambda x: ops.matmul(x, num(5, 3)), VECTOR)
case("matmul_as_conv", lambda x: ops.matmul(x, num(5, 3)), f32(2, 3, 5))
case("matmul_as_conv", lambda x: ops.matmul(x, num(5, 3)), f32(2, 3, 4, 5))
case("matmul_as_conv", lambda x, w: ops.matmul(x, w), f32(2, 2, 3, 4, 5), f32(5, 3))
case("matmul_as_conv", lambda x: ops.add(ops.matmul(x, num(5, 3)), num(2, 3)), VECTOR)
case("linear_as_conv", lambda x: ops.add(ops.matmul(x, num(5, 3)), num(3)), f32(1, 5))
case("linear_as_conv", lambda x: ops.add(num(1), ops.matmul(x, num(5, 3))), f32(2, 3, 5))
case("conv_as_matmul", lambda x: conv(x, k=1, pad=(0,) * 4), IMAGE)
case("conv_as_matmul", lambda x: conv(x, k=1, pad=(0,) * 4, stride=(2, 3)), IMAGE)
case("conv_as_matmul", lambda x: conv(x, k=1, pad=(0,) * 2, bias=False), LINE)
case("conv_as_linear", lambda x: conv(x, k=1, pad=(0,) * 4), f32(2, 4, 1, 1))
case("conv_as_linear", lambda x: conv(x, k=6, pad=(0,) * 4, bias=False), IMAGE)

# ---- convolutions --------------------------------------------------------------------------------
case("split_groups", lambda x: conv(x, groups=2), IMAGE)
case("split_groups", lambda x, w: ops.conv(x, w, groups=4, **window()), IMAGE, f32(8, 1, 3, 3))
case("widen_groups", lambda x: conv(x, m=8, groups=4), IMAGE)
case("widen_groups", lambda x: conv(x, m=6, groups=2), IMAGE)
case("join_groups", lambda x: conv(x, m=12, groups=4), f32(2, 8, 6, 6))
case("depthwise_without_multiplier", lambda x: conv(x, m=12, groups=4), IMAGE)
case("split_kernel", lambda x: conv(x, k=13, pad=(6,) * 4), LARGE)
case(
    "split_kernel",
    lambda x: conv(x, k=12, pad=(0, 3, 2, 7), stride=(2, 3), dilation=(1, 2), groups=2),
    f32(2, 4, 17, 29),
)
case("split_kernel", lambda x: conv(x, k=25, pad=(24,) * 4), IMAGE)
case("pad_kernel", lambda x: conv(x, k=2, pad=(1, 0, 0, 1), stride=(2, 1)), IMAGE)
case("stride_as_space_to_depth", lambda x: conv(x, k=8, pad=(0,) * 4, stride=(8, 8)), LARGE)
case(
    "stride_as_space_to_depth",
    lambda x: conv(x, k=9, pad=(1, 0, 3, 2), stride=(8, 8), groups=2),
    LARGE,
)
case("stride_as_space_to_depth", lambda x: conv(x, k=3, pad=(0,) * 4, stride=(9, 9)), LARGE)
case("split_stride", lambda x: conv(x, k=3, stride=(8, 1)), LARGE)
case("split_stride", lambda x: conv(x, k=5, stride=(11, 9)), LARGE)
case("split_stride", lambda x: ops.max_pool(x, kernel=(2, 3), **window(stride=(8, 9))), LARGE)
case("dilate_weights", lambda x: conv(x, dilation=(2, 3), stride=(2, 1)), LARGE)
case("dilation_as_space_to_batch", lambda x: conv(x, dilation=(2, 2), pad=(2,) * 4), LARGE)
case(
    "dilation_as_space_to_batch",
    lambda x: conv(x, dilation=(3, 1), pad=(0, 1, 2, 3), groups=2),
    LARGE,
)
case("separate_pad", lambda x: conv(x), IMAGE)
case("separate_pad", lambda x: ops.max_pool(x, kernel=(2, 2), **window(pad=(1, 0, 0, 1))), IMAGE)
case(
    "separate_pad",
    lambda x: ops.avg_pool(x, kernel=(2, 2), count_include_pad=True, **window(pad=(1, 0, 0, 1))),
    IMAGE,
)
case("batch_norm_as_depthwise_conv", lambda x: BN(x, 4), IMAGE)

# ---- pools ---------------------------------------------------------------------------------------
case("cascade_max_pool", lambda x: ops.max_pool(x, kernel=(9, 12), **window(stride=(1, 6))), LARGE)
case("cascade_max_pool", lambda x: ops.max_pool(x, kernel=(13, 17), **window(pad=(6,) * 4)), LARGE)
case(
    "cascade_max_pool",
    lambda x: ops.max_pool(x, kernel=(16, 3), **window(pad=(12, 0, 9, 1))),
    LARGE,
)
case(
    "separate_max_pool",
    lambda x: ops.max_pool(x, kernel=(5, 6), **window(pad=(2, 1, 0, 3), stride=(2, 1))),
    IMAGE,
)
case("cascade_avg_pool", lambda x: ops.avg_pool(x, kernel=(12, 16), **window(stride=(4, 4))), LARGE)
case(
    "cascade_avg_pool",
    lambda x: ops.avg_pool(
        x, kernel=(16, 2), count_include_pad=True, **window(stride=(16, 2), pad=(3, 1, 0, 0))
    ),
    LARGE,
)
case("global_pool_in_steps", lambda x: ops.avg_pool(x, kernel=(17, 19), **window()), LARGE)
case(
    "global_pool_in_steps", lambda x: ops.avg_pool(x, kernel=(5, 40), **window()), f32(1, 2, 5, 40)
)
case("split_avg_pool", lambda x: ops.avg_pool(x, kernel=(9, 11), **window()), LARGE)
case(
    "split_avg_pool",
    lambda x: ops.avg_pool(
        x, kernel=(17, 3), count_include_pad=True, **window(pad=(8, 1, 8, 1), stride=(3, 2))
    ),
    LARGE,
)
case("count_padding", lambda x: ops.avg_pool(x, kernel=(3, 2), **window(pad=(1, 1, 2, 0))), IMAGE)
AVERAGE = {"kernel": (3, 2), **window(stride=(2, 1))}
case("avg_pool_as_depthwise_conv", lambda x: ops.avg_pool(x, **AVERAGE), IMAGE)
case(
    "avg_pool_as_depthwise_conv",
    lambda x: ops.avg_pool(x, **{**AVERAGE, "pad": (1, 0, 1, 1)}),
    IMAGE,
)
case(
    "lp_pool_as_avg_pool",
    lambda x: ops.lp_pool(x, kernel=(3, 2), p=2, **window(pad=(1, 0, 1, 1))),
    IMAGE,
)
case("reduction_as_pool", lambda x: ops.reduce_mean(x, axes=(2, 3), keepdims=False), IMAGE)
case("reduction_as_pool", lambda x: ops.reduce_max(x, axes=(1,)), IMAGE)
case("reduction_as_pool", lambda x: ops.reduce_sum(x, axes=(0, 2)), IMAGE)
case(
    "reduction_as_pool",
    lambda x: ops.reduce_min(x, axes=(1, 3), keepdims=False),
    f32(2, 3, 1, 4, 5),
)

# ---- upsampling ----------------------------------------------------------------------------------
for name in ("conv_transpose_as_conv", "conv_transpose_as_depth_to_space"):
    case(name, deconv, IMAGE)
    case(name, lambda x: deconv(x, 2), IMAGE)
    case(name, lambda x: deconv(x, 5, 2, pad=(1, 2, 0, 3)), IMAGE)
    case(name, lambda x: deconv(x, 1, pad=(2, 0, 1, 1)), IMAGE)
case("conv_transpose_as_conv", lambda x: deconv(x, 3, dilation=(2,)), LINE)
case(
    "conv_transpose_as_resize",
    lambda x: ops.conv_transpose(
        x,
        constant(np.ones((4, 1, 2, 3), np.float32)),
        groups=4,
        **window(stride=(2, 3)),
        output_pad=(0, 0),
    ),
    IMAGE,
)
case(
    "conv_transpose_as_resize",
    lambda x: ops.conv_transpose(
        x,
        constant(np.full((4, 1, 2), 0.5, np.float32)),
        num(4),
        groups=4,
        **window(1, stride=(2,)),
        output_pad=(0,),
    ),
    LINE,
)
case("resize_as_conv_transpose", lambda x: resized(x, 2, mode="linear"), IMAGE)
case("resize_as_conv_transpose", lambda x: resized(x, 3, mode="nearest"), IMAGE)
case("resize_as_conv_transpose", lambda x: resized(x, 3, mode="linear"), LINE)
case("resize_as_conv_transpose", lambda x: resized(x, 2, mode="cubic"), IMAGE)
case(
    "resize_as_conv_transpose",
    lambda x: resized(x, 4, mode="linear", coordinate_transformation_mode="asymmetric"),
    f32(1, 2, 2, 1),
)

# ---- axes ----------------------------------------------------------------------------------------
case("add_spatial_axis", lambda x: conv(x, groups=2), LINE)
case("add_spatial_axis", deconv, LINE)
case(
    "add_spatial_axis", lambda x: ops.max_pool(x, kernel=(2,), with_indices=True, **window(1)), LINE
)
case("add_spatial_axis", lambda x: BN(x, 4), LINE)
case("add_spatial_axis", lambda x: resized(x, 2, mode="linear"), LINE)
case("drop_spatial_axis", lambda x: conv(x), ROW)
case("drop_spatial_axis", lambda x: conv(x, k=5, pad=(2,) * 4, groups=2), f32(2, 4, 9, 1))
case("drop_spatial_axis", lambda x: ops.avg_pool(x, kernel=(1, 3), **window()), ROW)
VOLUME = f32(2, 4, 5, 6, 7)
case("conv3d_as_conv2d", lambda x: conv(x, pad=(0,) * 6, bias=False), VOLUME)
case(
    "conv3d_as_conv2d",
    lambda x: conv(x, groups=2, pad=(1, 0, 2, 2, 1, 1), stride=(2, 1, 2), dilation=(1, 2, 1)),
    VOLUME,
)
case("merge_axes", lambda x: ops.mul(x, num(4, 1, 6, 7)), VOLUME)
case("merge_axes", ops.relu, VOLUME)
case("merge_axes", lambda x: ops.softmax(x, axis=-2), VOLUME)
case("merge_axes", lambda x: ops.concat(x, x, axis=2), VOLUME)
case(
    "merge_axes",
    lambda x: ops.slice_(x, start=(0, 1, -3, 0, 0), stop=(2, 3, 99, 6, 7), step=(1, 1, 2, 1, 1)),
    VOLUME,
)
case("merge_axes", lambda x: ops.pad(x, before=(0, 1, 0, 0, 0), after=(0, 0, 0, 2, 0)), VOLUME)
case("merge_axes", lambda x: ops.tile(x, repeats=(1, 1, 2, 1, 1)), VOLUME)
case("merge_axes", lambda x: ops.expand(x, shape=(2, 3, 4, 3, 2)), f32(3, 1, 3, 2))
case("merge_axes", lambda x: ops.reduce_max(x, axes=(1, 2), keepdims=False), VOLUME)
case("merge_batch_axes", lambda x, y: ops.matmul(x, y), VOLUME, f32(2, 4, 5, 7, 3))
case("merge_batch_axes", lambda x: ops.matmul(x, num(7, 3)), VOLUME)
case("merge_batch_axes", lambda x: ops.layer_norm(x, num(6, 7), num(6, 7), axis=-2), VOLUME)
case(
    "merge_batch_axes", lambda x: ops.gather(x, constant(np.array([[2, 0], [1, 1]])), axis=1), IMAGE
)

# ---- data movement -------------------------------------------------------------------------------
case(
    "transpose_in_steps", lambda x: ops.transpose(x, perm=(0, 1, 4, 2, 5, 3)), f32(2, 3, 4, 5, 6, 7)
)
case("transpose_in_steps", lambda x: ops.transpose(x, perm=(4, 3, 2, 1, 0)), VOLUME)
case("transpose_in_steps", lambda x: ops.transpose(x, perm=(0, 2, 1, 3, 4)), VOLUME)
case("gather_as_slices", lambda x: ops.gather(x, constant(np.array([2, 3, 0, -1])), axis=1), IMAGE)
case("gather_as_slices", lambda x: ops.gather(x, constant(np.array(-2)), axis=2), IMAGE)
AROUND = {"before": (0, 0, 2, 1), "after": (0, 1, 0, 3)}
case("pad_as_concat", lambda x: ops.pad(x, **AROUND, mode="reflect"), IMAGE)
case("pad_as_concat", lambda x: ops.pad(x, **AROUND, mode="edge"), IMAGE)
case("pad_as_concat", lambda x: ops.pad(x, **AROUND, mode="wrap"), IMAGE)
case("pad_as_concat", lambda x: ops.pad(x, **AROUND, value=-INF), IMAGE)
STEPS = {"start": (0, 0, 1, 5), "stop": (2, 3, 99, 6), "step": (1, 1, 2, 2)}
for name in ("strided_slice_as_reshape", "strided_slice_as_gather", "strided_slice_as_pool"):
    case(name, lambda x: ops.slice_(x, **{**STEPS, "start": (0, 0, 1, 2)}), IMAGE)
    case(name, lambda x: ops.slice_(x, **{**STEPS, "step": (1, 1, 3, 1)}), IMAGE)
case(
    "strided_slice_as_gather",
    lambda x: ops.slice_(x, start=(0, 0, -1, 4), stop=(2, 4, -99, 0), step=(1, 1, -1, -2)),
    IMAGE,
)
case("repeat_as_concat", lambda x: ops.tile(x, repeats=(2, 1, 3, 1)), IMAGE)
case("repeat_as_concat", lambda x: ops.expand(x, shape=(2, 1, 3, 5)), f32(2, 1, 1))

# ---- activations, norms, arithmetic --------------------------------------------------------------
case("hardswish_as_product", ops.hardswish, VECTOR)
case("hard_sigmoid_as_clip", lambda x: ops.hard_sigmoid(x, alpha=0.3, beta=0.4), VECTOR)
case("swish_as_product", ops.swish, VECTOR)
case("swish_as_product", lambda x: ops.swish(x, alpha=1.7), VECTOR)
case("mish_as_product", ops.mish, VECTOR)
case("softplus_as_logarithm", lambda x: ops.softplus(ops.mul(x, scalar(60))), VECTOR)
case("gelu_as_product", ops.gelu, VECTOR)
case("gelu_as_product", lambda x: ops.gelu(x, approximate="tanh"), VECTOR)
case("sigmoid_as_tanh", ops.sigmoid, VECTOR)
case("tanh_as_sigmoid", ops.tanh, VECTOR)
case("elu_as_exponential", lambda x: ops.elu(x, alpha=0.7), VECTOR)
case("elu_as_exponential", lambda x: ops.celu(x, alpha=0.7), VECTOR)
case("elu_as_exponential", ops.selu, VECTOR)
case("leaky_relu_as_maximum", lambda x: ops.leaky_relu(x, alpha=0.1), VECTOR)
case("leaky_relu_as_maximum", lambda x: ops.leaky_relu(x, alpha=1.5), VECTOR)
case("prelu_as_relus", lambda x: ops.prelu(x, num(5)), VECTOR)
case("clip_as_min_max", lambda x: ops.clip(x, lo=-0.5, hi=0.7), VECTOR)
case("clip_as_min_max", lambda x: ops.clip(x, lo=0.1, hi=INF), VECTOR)
case("softmax_as_exponentials", lambda x: ops.softmax(ops.mul(x, scalar(99)), axis=0), VECTOR)
case("log_softmax_as_logarithm", lambda x: ops.log_softmax(ops.mul(x, scalar(99))), VECTOR)
case("layer_norm_as_reductions", lambda x: ops.layer_norm(x, num(6, 6), num(6, 6), axis=2), IMAGE)
case("layer_norm_as_reductions", ops.layer_norm, IMAGE)
case("rms_norm_as_reductions", lambda x: ops.rms_norm(x, num(6)), IMAGE)
case("sub_as_add", lambda x, y: ops.sub(x, y), VECTOR, f32(5))
case("div_as_mul", lambda x: ops.div(x, num(5)), VECTOR)
case("neg_as_mul", ops.neg, VECTOR)
for power in (2, 3, 4):
    case("pow_as_mul", lambda x, p=power: ops.pow(x, scalar(p)), VECTOR)
case("pow_as_mul", lambda x: ops.pow(ops.abs(x), scalar(0.5)), VECTOR)
