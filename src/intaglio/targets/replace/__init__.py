"""A library of replacements: from it a target picks what turns ops it lacks into ops it has.

A rule is a name here, or what a function of that name makes for the limits of a unit. A target puts
those it wants into its `lower`: before its own rules to prefer another form, after them to cut up
what they decline. Rules that say "exact" keep every bit (but for the sign of a zero), the others
reorder sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from intaglio.ir import Node
from intaglio.rewrite import Rule
from intaglio.targets.replace.activation import (
    clip_as_bounds,
    difference_as_sum,
    elu_as_exponential,
    gelu_as_product,
    hard_sigmoid_as_clip,
    hardswish_as_product,
    layer_norm_as_reductions,
    leaky_relu_as_maximum,
    log_softmax_as_logarithm,
    mish_as_product,
    negation_as_product,
    power_as_products,
    prelu_as_relus,
    quotient_as_product,
    rms_norm_as_reductions,
    sigmoid_as_tanh,
    softmax_as_exponentials,
    softplus_as_logarithm,
    swish_as_product,
    tanh_as_sigmoid,
)
from intaglio.targets.replace.conv import (
    batch_norm_as_depthwise_conv,
    depthwise_without_multiplier,
    dilation_as_batch,
    fill_dilation,
    pad_apart,
    split_groups,
    split_kernel,
    split_stride,
    stride_as_depth,
    widen_groups,
)
from intaglio.targets.replace.linear import (
    conv_for_linear,
    conv_for_matmul,
    linear_for_conv,
    matmul_for_conv,
)
from intaglio.targets.replace.pool import (
    avg_pool_as_depthwise_conv,
    cascade_avg_pool,
    cascade_max_pool,
    count_padding,
    global_pool_in_steps,
    lp_pool_as_avg_pool,
    reduction_as_pool,
    split_avg_pool,
)
from intaglio.targets.replace.rank import (
    fewer_axes,
    fewer_batches,
    image_as_line,
    line_as_image,
    volume_as_images,
)
from intaglio.targets.replace.shape import (
    gather_as_slices,
    pad_as_concat,
    repeat_as_concat,
    strided_slice_as_gather,
    strided_slice_as_pool,
    strided_slice_as_reshape,
    transpose_in_steps,
)
from intaglio.targets.replace.upsample import (
    conv_transpose_as_conv,
    conv_transpose_as_depth_to_space,
    conv_transpose_as_resize,
    resize_as_conv_transpose,
)


def where_refused(why_not: Callable[[Node], str | None], rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The same rules, tried only at nodes that the target does not run as they are."""
    return tuple(_WhereRefused(r, why_not) for r in rules)


class _WhereRefused(Rule):
    def __init__(self, rule: Rule, why_not: Callable[[Node], str | None]):
        self.__dict__.update(vars(rule))
        self.why_not = why_not

    def apply(self, graph: Any, node: Node) -> Any:
        return None if self.why_not(node) is None else super().apply(graph, node)


REPLACE: list[Rule] = [
    conv_for_linear,
    conv_for_matmul,
    linear_for_conv,
    matmul_for_conv,
    split_groups(depthwise=True),
    widen_groups(),
    depthwise_without_multiplier,
    split_kernel(),
    stride_as_depth(),
    split_stride(),
    fill_dilation(),
    dilation_as_batch(),
    pad_apart(),
    batch_norm_as_depthwise_conv,
    cascade_max_pool(),
    cascade_avg_pool(),
    global_pool_in_steps(),
    split_avg_pool(),
    count_padding,
    avg_pool_as_depthwise_conv,
    lp_pool_as_avg_pool,
    reduction_as_pool,
    conv_transpose_as_conv,
    conv_transpose_as_depth_to_space,
    conv_transpose_as_resize,
    resize_as_conv_transpose,
    line_as_image,
    image_as_line,
    volume_as_images,
    fewer_axes(),
    fewer_batches(),
    transpose_in_steps(),
    gather_as_slices(),
    pad_as_concat(),
    strided_slice_as_reshape,
    strided_slice_as_gather,
    strided_slice_as_pool,
    repeat_as_concat(),
    hardswish_as_product,
    hard_sigmoid_as_clip,
    swish_as_product,
    mish_as_product,
    softplus_as_logarithm,
    gelu_as_product,
    sigmoid_as_tanh,
    tanh_as_sigmoid,
    elu_as_exponential,
    leaky_relu_as_maximum,
    prelu_as_relus,
    clip_as_bounds,
    softmax_as_exponentials,
    log_softmax_as_logarithm,
    layer_norm_as_reductions,
    rms_norm_as_reductions,
    difference_as_sum,
    negation_as_product,
    quotient_as_product,
    power_as_products,
]  # with limits of the most usual units; some undo each other, so no target takes all
