"""A chip with narrow limits runs common networks, by rules of the replacement library alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests import shared_models
from tests.check import compare

import intaglio
from intaglio import ops, passes
from intaglio.errors import BadInput, Unsupported
from intaglio.interpret import interpret
from intaglio.ir import Graph, Node, Type, Value, constant
from intaglio.targets import Target, replace

rng = np.random.default_rng(11)
PLAIN = {
    "add",
    "mul",
    "maximum",
    "minimum",
    "relu",
    "sigmoid",
    "exp",
    "log",
    "sqrt",
    "abs",
    "reciprocal",
    "erf",
    "clip",
}
MOVES = {"transpose", "concat", "slice", "pad"}


def why_not(node: Node) -> str | None:
    """What the chip cannot run: groups, windows above 11, strides above 7, ranks other than 4."""
    a, values = node.attrs, [v for v in (*node.inputs, *node.outputs) if v is not None]
    if any(v.dtype != "f32" for v in values):
        return "it computes in f32"
    if node.op == "reshape":
        return None
    if max(v.type.rank for v in values) > 4:
        return "it takes at most 4 axes"
    if node.op in PLAIN or node.op == "matmul":
        return None
    if node.op in MOVES:
        if node.op == "pad" and (a["mode"] != "constant" or a["value"] != 0):
            return f"it pads with zeros, not by {a['mode']} {a['value']}"
        return "it has no steps" if node.op == "slice" and set(a["step"]) != {1} else None
    if node.op not in ("conv", "max_pool", "avg_pool"):
        return f"it has no {node.op}"
    x, *rest = node.inputs
    assert x is not None
    kernel = rest[0].shape[2:] if node.op == "conv" else a["kernel"]  # type: ignore[union-attr]
    if x.type.rank != 4 or max(a["dilation"]) > 1 or max(a["stride"]) > 7:
        return f"stride {a['stride']}, dilation {a['dilation']} on {x.type}"
    if max(kernel) > (11 if node.op == "conv" else 7):
        return f"window {kernel}"
    if node.op == "conv":
        alike = a["groups"] == x.shape[1] == node.outputs[0].shape[1]
        return None if a["groups"] == 1 or alike else f"{a['groups']} groups"
    return None if not any(a["pad"]) or a.get("count_include_pad", True) else "it counts borders"


LOWER = (
    replace.add_spatial_axis,
    replace.conv3d_as_conv2d,
    replace.merge_axes(4),
    replace.merge_batch_axes(4),
    replace.transpose_in_steps(4),
    replace.split_groups(),
    replace.depthwise_without_multiplier,
    replace.dilate_weights(),
    replace.stride_as_space_to_depth(7),
    replace.split_stride(7),
    replace.split_kernel(11),
    replace.conv_transpose_as_depth_to_space,
    replace.conv_transpose_as_conv,
    replace.resize_as_conv_transpose,
    replace.count_padding,
    replace.cascade_max_pool(7),
    replace.cascade_avg_pool(7),
    replace.global_pool_in_steps(7),
    replace.split_avg_pool(7),
    *replace.where_refused(
        why_not,
        replace.pad_as_concat(),
        replace.strided_slice_as_pool,
        replace.strided_slice_as_reshape,
        replace.gather_as_slices(),
        replace.repeat_as_concat(),
        replace.hardswish_as_product,
        replace.hard_sigmoid_as_clip,
        replace.swish_as_product,
        replace.mish_as_product,
        replace.softplus_as_logarithm,
        replace.gelu_as_product,
        replace.tanh_as_sigmoid,
        replace.elu_as_exponential,
        replace.leaky_relu_as_maximum,
        replace.prelu_as_relus,
        replace.softmax_as_exponentials,
        replace.log_softmax_as_logarithm,
        replace.layer_norm_as_reductions,
        replace.rms_norm_as_reductions,
        replace.reduction_as_pool,
        replace.sub_as_add,
        replace.div_as_mul,
        replace.neg_as_mul,
        replace.pow_as_mul,
    ),
)
CHIP = Target("narrow", why_not, LOWER)


def why_not_convolved(node: Node) -> str | None:
    """A chip that is narrow, and has no product with weights either."""
    if node.op == "matmul" and node.inputs[1].data is not None:  # type: ignore[union-attr]
        return "it multiplies by weights in convolutions only"
    return why_not(node)


CONVOLVER = Target(
    "convolver",
    why_not_convolved,
    (
        replace.linear_as_conv,
        *replace.where_refused(why_not_convolved, replace.matmul_as_conv),
        *LOWER,
    ),
)


# ---- networks ------------------------------------------------------------------------------------
def num(*shape: int) -> Value:
    return constant(rng.uniform(-0.3, 0.3, shape).astype(np.float32))


def conv(x: Value, m: int, k: int = 3, s: int = 1, d: int = 1, groups: int = 1) -> Value:
    n, p = x.type.rank - 2, d * (k - 1) // 2
    made: Value = ops.conv(
        x,
        num(m, x.shape[1] // groups, *[k] * n),
        num(m),
        stride=(s,) * n,
        pad=(p,) * 2 * n,
        dilation=(d,) * n,
        groups=groups,
    )
    return made


def norm(x: Value) -> Value:
    c = x.shape[1]
    made: Value = ops.batch_norm(x, num(c), num(c), num(c), constant(np.ones(c, np.float32)))
    return made


def pool(op: Any, x: Value, k: int, s: int, p: int = 0, **attrs: Any) -> Value:
    n = x.type.rank - 2
    made: Value = op(
        x, kernel=(k,) * n, stride=(s,) * n, pad=(p,) * 2 * n, dilation=(1,) * n, **attrs
    )
    return made


def head(x: Value, classes: int = 5) -> Value:
    flat = ops.reduce_mean(x, axes=tuple(range(2, x.type.rank)), keepdims=False)
    return ops.softmax(ops.gemm(flat, num(classes, flat.shape[1]), num(classes), trans_b=True))


def resnext(x: Value) -> Value:
    x = pool(ops.max_pool, ops.relu(norm(conv(x, 8, 7, 2))), 3, 2, 1)
    x = ops.relu(ops.add(x, norm(conv(ops.relu(norm(conv(x, 8, groups=4))), 8, 1))))
    return head(x)


def mobilenet(x: Value) -> Value:
    x = ops.hardswish(norm(conv(x, 8, 3, 2)))
    y = ops.hardswish(norm(conv(x, 16, 5, groups=8)))
    gate = ops.reduce_mean(y, axes=(2, 3))
    gate = ops.hard_sigmoid(conv(ops.relu(conv(gate, 4, 1)), 16, 1), alpha=1 / 6)
    return head(ops.mish(conv(ops.mul(y, gate), 6, 1)))


def shufflenet(x: Value) -> Value:
    x = ops.leaky_relu(conv(x, 12))
    n, c, h, w = x.shape
    apart = ops.reshape(x, shape=(n, 3, c // 3, h, w))
    x = ops.reshape(ops.transpose(apart, perm=(0, 2, 1, 3, 4)), shape=x.shape)
    left, right = (ops.gather(x, constant(np.arange(12)[k::2]), axis=1) for k in (0, 1))
    return head(ops.concat(left, ops.prelu(conv(right, 6, 3, groups=3), num(6, 1, 1)), axis=1))


def vision_transformer(x: Value) -> Value:
    x = ops.conv(x, num(8, 3, 16, 16), num(8), stride=(16, 16), pad=(0,) * 4, dilation=(1, 1))
    x = ops.transpose(ops.reshape(x, shape=(2, 8, 4)), perm=(0, 2, 1))
    x = ops.add(ops.concat(ops.expand(num(1, 1, 8), shape=(2, 1, 8)), x, axis=1), num(1, 5, 8))
    y = ops.matmul(ops.layer_norm(x, num(8), num(8)), num(8, 24))
    split = ops.transpose(ops.reshape(y, shape=(2, 5, 3, 2, 4)), perm=(2, 0, 3, 1, 4))
    q, k, v = (ops.gather(split, constant(np.array(i)), axis=0) for i in range(3))
    score = ops.div(ops.matmul(q, ops.transpose(k, perm=(0, 1, 3, 2))), constant(np.float32(2)))
    seen = ops.transpose(ops.matmul(ops.softmax(score), v), perm=(0, 2, 1, 3))
    x = ops.add(x, ops.matmul(ops.reshape(seen, shape=(2, 5, 8)), num(8, 8)))
    x = ops.add(
        x, ops.matmul(ops.gelu(ops.matmul(ops.rms_norm(x, num(8)), num(8, 16))), num(16, 8))
    )
    return ops.log_softmax(ops.matmul(ops.gather(x, constant(np.array(0)), axis=1), num(8, 5)))


def segmenter(x: Value) -> Value:
    x = ops.swish(conv(x, 6, 3, 2))
    wide = ops.concat(*(ops.elu(conv(x, 4, 3, d=d)) for d in (1, 3, 6)), axis=1)
    half = ops.resize(wide, axes=(2, 3), shape=(32, 32), scales=(2.0, 2.0), mode="linear")
    up = {"output_pad": (1, 1), "stride": (2, 2), "pad": (1,) * 4, "dilation": (1, 1)}
    other = ops.conv_transpose(x, num(6, 4, 3, 3), num(4), **up)
    return ops.sub(conv(half, 4, 1), ops.tanh(other))


def detector(x: Value) -> Value:
    full = {"stop": (2**62,) * 4, "step": (1, 1, 2, 2)}
    parts = [ops.slice_(x, start=(0, 0, i, j), **full) for j in (0, 1) for i in (0, 1)]
    x = ops.softplus(conv(ops.concat(*parts, axis=1), 6))
    spp = [x, *(pool(ops.max_pool, x, k, 1, k // 2) for k in (5, 9, 13))]
    x = pool(ops.avg_pool, ops.concat(*spp, axis=1), 3, 2, 1)
    up = ops.resize(
        x,
        axes=(2, 3),
        shape=(16, 16),
        scales=(2.0, 2.0),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return conv(ops.pow(up, constant(np.float32(2))), 9, 13, 8)


def styler(x: Value) -> Value:
    around = {"before": (0, 0, 2, 2), "after": (0, 0, 2, 2)}
    x = conv(ops.pad(x, **around, mode="reflect"), 6, 5)
    x = ops.relu(ops.instance_norm(x, num(6), num(6)))
    return ops.pad(x, **around, mode="edge")


def wavenet(x: Value) -> Value:
    x = pool(ops.max_pool, conv(x, 6, 15, 2), 3, 2, 1)
    y = ops.mul(ops.tanh(conv(x, 6, 3, d=2)), ops.sigmoid(conv(x, 6, 3, d=2)))
    y = ops.resize(ops.add(x, y), axes=(2,), shape=(32,), scales=(2.0,), mode="linear")
    return pool(ops.avg_pool, ops.tile(norm(y), repeats=(1, 2, 1)), 32, 1)


def video(x: Value) -> Value:
    x = ops.selu(conv(x, 6, 3, 2))
    return ops.relu(ops.reduce_max(ops.mul(x, num(6, 1, 1, 1)), axes=(2, 3, 4)))


IMAGE = (2, 3, 32, 32)
NETS: list[tuple[Callable[[Value], Value], tuple[int, ...]]] = [
    (resnext, (2, 3, 72, 76)),
    (mobilenet, (2, 3, 34, 38)),
    (shufflenet, IMAGE),
    (vision_transformer, IMAGE),
    (segmenter, IMAGE),
    (detector, IMAGE),
    (styler, IMAGE),
    (wavenet, (2, 3, 64)),
    (video, (2, 3, 8, 16, 16)),
]


@pytest.mark.parametrize(("build", "shape"), NETS, ids=[b.__name__ for b, _ in NETS])
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("chip", [CHIP, CONVOLVER], ids=lambda chip: chip.name)
def test_networks(
    build: Callable[[Value], Value], shape: tuple[int, ...], level: int, chip: Target
) -> None:
    x = Value(Type("f32", shape), "x")
    graph = Graph([x], [build(x)], ["y"])
    feed = {"x": rng.standard_normal(shape).astype(np.float32)}
    want = interpret(graph, feed)["y"]
    assert any(chip.why_not(n) for n in graph.nodes()), "the network asks for nothing special"
    passes.run(graph, [*passes.neutral(), *passes.lowering(chip)], level)
    assert [(n.op, why) for n in graph.nodes() if (why := chip.why_not(n))] == []
    compare(interpret(graph, feed)["y"], want, build.__name__, 1e-4)


REAL = ("FastestDet", "vitTracker", "ultraface_RFB-320", "yunet_n_320_320")


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_models(name: str) -> None:
    path = shared_models.SHARED / "models" / "onnx" / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    graph = intaglio.load(path)
    feed = {v.name: rng.random(v.shape, np.float32) for v in graph.inputs}
    want = interpret(graph, feed)
    passes.run(graph, [*passes.neutral(), *passes.lowering(CHIP)])
    assert [(n.op, why) for n in graph.nodes() if (why := why_not(n))] == []
    for key, got in interpret(graph, feed).items():
        assert np.abs(got - want[key]).max() <= 1e-4 * np.abs(want[key]).max(), key


def test_supported_nodes_are_unchanged() -> None:
    refused = replace.where_refused(why_not, replace.split_groups(depthwise=True))
    x = Value(Type("f32", (1, 4, 5, 5)), "x")
    graph = Graph([x], [conv(x, 4, groups=4), conv(x, 4, groups=2)], ["fits", "split"])
    passes.rewrite(graph, refused)
    assert sorted(n.attrs["groups"] for n in graph.nodes() if n.op == "conv") == [1, 1, 4]


def test_rules_of_a_target_can_be_disabled() -> None:
    def graph() -> Graph:
        x = Value(Type("f32", (1, 2, 18, 18)), "x")
        return Graph([x], [conv(x, 4, 9, 9)], ["y"])

    deep, sliced = graph(), graph()
    passes.run(deep, passes.lowering(CHIP))
    passes.run(sliced, passes.lowering(CHIP), disable=["stride_as_space_to_depth"])
    strides = [n.attrs["stride"] for g in (deep, sliced) for n in g.nodes() if n.op == "conv"]
    assert strides == [(1, 1), (3, 3)]
    with pytest.raises(Unsupported, match="stride"):
        passes.run(
            graph(), passes.lowering(CHIP), disable=["stride_as_space_to_depth", "split_stride"]
        )
    with pytest.raises(BadInput, match="did you mean split_stride"):
        passes.run(graph(), passes.lowering(CHIP), disable=["split_strides"])


def test_rules_refuse_empty_and_dynamic_tensors() -> None:
    words: list[str | None] = []
    for shape, dynamic in (((0, 4, 6, 6), ()), ((2, 4, 6, 6), (0,))):
        x = Value(Type("f32", shape, dynamic=dynamic), "x")
        graph = Graph([x], [conv(x, 4, groups=2)], ["y"])
        passes.rewrite(graph, [replace.split_groups()], lambda r, n, no: words.append(no))
    assert words == ["a tensor is empty", "a size is known only at run time"]
