"""Random windows, strides, borders and axes: replacement rules keep the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.check import compare

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.interpret import interpret
from intaglio.ir import Graph, Type, Value, constant
from intaglio.rewrite import Rule, rewrite
from intaglio.targets import replace
from intaglio.verify import verify

EXAMPLES = settings(max_examples=60, deadline=None)


def keeps(build: Any, shape: Sequence[int], rules: list[Rule]) -> None:
    """Each rule, applied alone, keeps the result."""
    rng = np.random.default_rng(0)
    feed = {"x": rng.integers(-8, 8, shape).astype(np.float32)}
    for rule in rules:
        x = Value(Type("f32", tuple(shape)), "x")
        try:
            graph = Graph([x], [build(x)], ["y"])
        except BadInput:
            assume(False)
        want = interpret(graph, feed)["y"]
        rewrite(graph, [rule])
        verify(graph)
        compare(interpret(graph, feed)["y"], want, rule.name, 1e-4)


def ints(draw: st.DrawFn, n: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(draw(st.integers(low, high)) for _ in range(n))


def weights(*shape: int) -> Value:
    return constant(np.random.default_rng(1).integers(-4, 5, shape).astype(np.float32))


def window(draw: st.DrawFn, n: int) -> dict[str, Any]:
    return {
        "stride": ints(draw, n, 1, 5),
        "pad": ints(draw, 2 * n, 0, 4),
        "dilation": ints(draw, n, 1, 3) if draw(st.booleans()) else (1,) * n,
    }


@EXAMPLES
@given(st.data())
def test_convolutions(data: st.DataObject) -> None:
    draw = data.draw
    n, limit = draw(st.sampled_from([1, 2, 2, 2, 3])), draw(st.integers(1, 3))
    groups, ins, outs = (draw(st.integers(1, 3)) for _ in range(3))
    attrs = {**window(draw, n), "groups": groups}
    if draw(st.booleans()):
        attrs["stride"] = attrs["stride"][:1] * n
    w = weights(groups * outs, ins, *ints(draw, n, 1, 5))
    b = weights(groups * outs) if draw(st.booleans()) else None
    rules = [
        replace.split_groups(depthwise=True),
        replace.widen_groups(draw(st.integers(1, 4))),
        replace.join_groups(draw(st.integers(2, 6))),
        replace.depthwise_without_multiplier,
        replace.split_kernel(limit),
        replace.pad_kernel((1, 3, 4)),
        replace.stride_as_space_to_depth(limit),
        replace.split_stride(limit),
        replace.dilate_weights(),
        replace.dilation_as_space_to_batch(),
        replace.separate_pad(limit, even=True),
        replace.conv_as_matmul,
        replace.conv_as_linear,
        replace.add_spatial_axis,
        replace.drop_spatial_axis,
        replace.conv3d_as_conv2d,
    ]
    shape = (2, groups * ins, *ints(draw, n, 1, 9))
    keeps(lambda x: ops.conv(x, w, b, **attrs), shape, rules)


@EXAMPLES
@given(st.data())
def test_transposed_convolutions(data: st.DataObject) -> None:
    draw = data.draw
    n, groups, ins, outs = draw(st.integers(1, 2)), *(draw(st.integers(1, 2)) for _ in range(3))
    attrs = {**window(draw, n), "groups": groups, "output_pad": ints(draw, n, 0, 2)}
    attrs["stride"] = attrs["stride"][:1] * n if draw(st.booleans()) else attrs["stride"]
    w = weights(groups * ins, outs, *ints(draw, n, 1, 5))
    rules = [
        replace.conv_transpose_as_conv,
        replace.conv_transpose_as_depth_to_space,
        replace.conv_transpose_as_resize,
        replace.add_spatial_axis,
    ]
    shape = (2, groups * ins, *ints(draw, n, 1, 5))
    keeps(lambda x: ops.conv_transpose(x, w, weights(groups * outs), **attrs), shape, rules)


@EXAMPLES
@given(st.data())
def test_pools(data: st.DataObject) -> None:
    draw = data.draw
    n, limit = draw(st.integers(1, 2)), draw(st.integers(2, 4))
    attrs = {**window(draw, n), "kernel": ints(draw, n, 1, 9)}
    shape = (2, 2, *ints(draw, n, 1, 12))
    if draw(st.booleans()):
        attrs.update(kernel=shape[2:], pad=(0,) * 2 * n)
    rules = [
        replace.cascade_max_pool(limit),
        replace.separate_max_pool(limit),
        replace.cascade_avg_pool(limit),
        replace.global_pool_in_steps(limit),
        replace.split_avg_pool(limit),
        replace.count_padding,
        replace.avg_pool_as_depthwise_conv,
        replace.add_spatial_axis,
        replace.separate_pad(),
        replace.split_stride(limit),
    ]
    keeps(lambda x: ops.max_pool(x, **attrs), shape, rules)
    attrs["count_include_pad"] = draw(st.booleans())
    keeps(lambda x: ops.avg_pool(x, **attrs), shape, rules)


@EXAMPLES
@given(st.data())
def test_moves(data: st.DataObject) -> None:
    draw = data.draw
    shape = ints(draw, draw(st.integers(1, 6)), 1, 4)
    rank = len(shape)
    perm = tuple(draw(st.permutations(range(rank))))
    keeps(lambda x: ops.transpose(x, perm=perm), shape, [replace.transpose_in_steps(4)])
    rules = [
        replace.strided_slice_as_gather,
        replace.strided_slice_as_pool,
        replace.strided_slice_as_reshape,
        replace.merge_axes(3),
    ]
    step = tuple(draw(st.sampled_from([1, 1, 2, 3, -1, -2])) for _ in shape)
    cuts = {"start": ints(draw, rank, -5, 4), "stop": ints(draw, rank, -5, 9), "step": step}
    keeps(lambda x: ops.slice_(x, **cuts), shape, rules)
    mode = draw(st.sampled_from(["constant", "reflect", "edge", "wrap"]))
    border = {"before": ints(draw, rank, 0, 3), "after": ints(draw, rank, 0, 3), "mode": mode}
    keeps(lambda x: ops.pad(x, **border), shape, [replace.pad_as_concat(), replace.merge_axes(3)])
    axes = tuple(sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1))))
    reduce = draw(st.sampled_from([ops.reduce_sum, ops.reduce_mean, ops.reduce_max]))
    kept = draw(st.booleans())
    rules = [replace.reduction_as_pool, replace.merge_axes(3)]
    keeps(lambda x: reduce(x, axes=axes, keepdims=kept), shape, rules)
    other = tuple(draw(st.sampled_from([1, d])) for d in shape[draw(st.integers(0, rank - 1)) :])
    keeps(lambda x: ops.mul(x, weights(*other)), shape, [replace.merge_axes(3)])


@EXAMPLES
@given(st.data())
def test_resizing(data: st.DataObject) -> None:
    draw = data.draw
    n = draw(st.integers(1, 2))
    shape, by = (2, 2, *ints(draw, n, 1, 6)), ints(draw, n, 1, 4)
    attrs = {
        "axes": tuple(range(2, n + 2)),
        "shape": tuple(d * f for d, f in zip(shape[2:], by, strict=True)),
        "scales": tuple(map(float, by)),
        "mode": draw(st.sampled_from(["nearest", "linear", "cubic"])),
        "coordinate_transformation_mode": draw(
            st.sampled_from(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
        ),
        "nearest_mode": draw(st.sampled_from(["floor", "ceil", "round_prefer_floor"])),
    }
    rules = [replace.resize_as_conv_transpose, replace.add_spatial_axis]
    keeps(lambda x: ops.resize(x, **attrs), shape, rules)
