"""Attention in f16 on the NPU: one program, the same bits, near the interpreter's numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import intaglio
from intaglio import ops, passes
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.lowering.target import npu_target
from intaglio.ops.shape import part
from intaglio.targets import chip as chips

CHIP = chips.load("rk3588")
SLOW = replace(CHIP.host, products=1e-6, arithmetic=1e-6, functions=1e-6)
TARGET = npu_target(replace(CHIP, host=SLOW), "scalar", "f16")
WIDE, TOKENS, HEADS = 32, 10, 2


def linear(rng, x, many):
    w = rng.standard_normal((x.shape[-1], many)).astype(np.float32) / x.shape[-1] ** 0.5
    return ops.add(ops.matmul(x, constant(w)), constant(rng.standard_normal(many, np.float32)))


def split(x, heads):
    """Rows as heads."""
    batch, tokens, wide = x.shape
    y = ops.reshape(x, shape=(batch, tokens, heads, wide // heads))
    return ops.transpose(y, perm=(0, 2, 1, 3))


def attended(rng, x, mask=None, shared=1, other=None, **attrs):
    """An attention with its linear layers."""
    other = x if other is None else other
    few = HEADS // shared
    q = split(linear(rng, x, WIDE), HEADS)
    k, v = (split(linear(rng, other, WIDE // shared), few) for _ in range(2))
    y = ops.attention(q, k, v, mask, scale=0.25, **attrs)
    rows = ops.reshape(ops.transpose(y, perm=(0, 2, 1, 3)), shape=(*x.shape[:2], WIDE))
    return linear(rng, rows, WIDE)


def _checked(graph, feed, atol=0.02, target=TARGET):
    """Compile it; the simulated program has the interpreter's bits, and nearly the float result."""
    made = graph.copy()
    report = passes.run(made, [*passes.neutral(target.cost), *passes.offload(target)])
    found = report.found["partition"]
    assert sum(m.kind == "npu" for m in found.modules) == 1
    got = intaglio.interpret(made, feed)["y"]
    np.testing.assert_allclose(got, intaglio.interpret(graph, feed)["y"], atol=atol)
    with intaglio.open(intaglio.compile(graph, target=target)) as session:
        np.testing.assert_array_equal(session.run(feed)["y"], got)
    return {row.op for row in found.on_cpu}


def _tokens(rng, tokens=TOKENS, batch=1, name="x"):
    x = Value(Type("f32", (batch, tokens, WIDE)), name)
    return x, rng.standard_normal(x.shape).astype(np.float32)


@pytest.mark.parametrize("tokens", [TOKENS, 13])
@pytest.mark.parametrize("shared", [1, 2])
def test_attention_is_one_program(tokens, shared):
    rng = np.random.default_rng(1)
    x, feed = _tokens(rng, tokens)
    on_cpu = _checked(Graph([x], [attended(rng, x, shared=shared)], ["y"]), {"x": feed})
    assert on_cpu <= {"cast", "transpose"}


def test_queries_and_keys_of_different_lengths():
    rng = np.random.default_rng(2)
    (x, a), (z, b) = _tokens(rng), _tokens(rng, 17, name="z")
    _checked(Graph([x, z], [attended(rng, x, other=z)], ["y"]), {"x": a, "z": b})


@pytest.mark.parametrize("kind", ["causal", "bool", "heads"])
def test_masks_that_are_constant(kind):
    rng = np.random.default_rng(3)
    x, feed = _tokens(rng)
    open_ = np.tri(TOKENS, dtype=bool)
    bias = {
        "causal": np.where(open_, 0, -np.inf).astype(np.float32),
        "bool": open_,
        "heads": rng.standard_normal((1, HEADS, TOKENS, TOKENS)).astype(np.float32),
    }[kind]
    bias = bias.reshape((1,) * (4 - bias.ndim) + bias.shape)
    _checked(Graph([x], [attended(rng, x, constant(bias))], ["y"]), {"x": feed})


@pytest.mark.parametrize("dtype", ["bool", "f32"])
@pytest.mark.parametrize("rows", [1, TOKENS])
def test_masks_of_the_run(dtype, rows):
    """A token that attends to no key gets zeros."""
    rng = np.random.default_rng(4)
    x, feed = _tokens(rng)
    mask = Value(Type(dtype, (1, 1, rows, TOKENS)), "mask")
    open_ = rng.random(mask.shape) < 0.6
    open_[:, :, 0] = rows == 1
    given = open_ if dtype == "bool" else np.where(open_, 0, -np.inf).astype(np.float32)
    graph = Graph([x, mask], [attended(rng, x, mask)], ["y"])
    _checked(graph, {"x": feed, "mask": given})


def test_scores_far_apart():
    """The largest score is subtracted, so no exponential overflows."""
    rng = np.random.default_rng(5)
    x, feed = _tokens(rng)
    _checked(Graph([x], [attended(rng, x)], ["y"]), {"x": feed * 6}, atol=0.2)


def test_some_tokens_go_on():
    rng = np.random.default_rng(6)
    x, feed = _tokens(rng)
    y = part(ops.layer_norm(ops.add(attended(rng, x), linear(rng, x, WIDE))), 2, 4, axis=1)
    on_cpu = _checked(Graph([x], [linear(rng, y, WIDE)], ["y"]), {"x": feed})
    assert on_cpu <= {"cast", "transpose", "slice"}  # a slice of the input


@pytest.mark.parametrize(("batch", "attrs"), [(2, {}), (1, {"softcap": 5.0})])
def test_what_units_cannot_do_stays_on_the_cpu(batch, attrs):
    rng = np.random.default_rng(7)
    x, _ = _tokens(rng, batch=batch)
    graph = Graph([x], [attended(rng, x, **attrs)], ["y"])
    passes.run(graph, [*passes.neutral(TARGET.cost), *passes.offload(TARGET)])
    assert "attention" in [n.op for n in graph.nodes()]


@pytest.mark.parametrize(("channels", "step"), [(1, 4), (3, 2), (2, 1)])
def test_pools_within_slices_of_volumes(channels, step):
    rng = np.random.default_rng(8)
    x = Value(Type("f32", (1, 5, 6, 7)), "x")
    plain = {"stride": (1, 1), "pad": (0,) * 4, "dilation": (1, 1)}

    def point(x, many):
        w = rng.standard_normal((many, x.shape[1], 1, 1)).astype(np.float32)
        return ops.conv(x, constant(w), **plain)

    window = {"kernel": (1, 3, 3), "stride": (step, 1, 2), "pad": (0, 1, 1) * 2}
    volume = ops.reshape(point(x, 16 * channels), shape=(1, channels, 16, 6, 7))
    pooled = ops.max_pool(volume, **window, dilation=(1, 1, 1))
    flat = ops.reshape(pooled, shape=(1, -1, *pooled.shape[3:]))
    feed = rng.standard_normal(x.shape).astype(np.float32)
    assert _checked(Graph([x], [point(flat, 4)], ["y"]), {"x": feed}, atol=0.1) <= {"cast"}


def test_depthwise_windows_and_means_larger_than_a_core_are_parts():
    rng = np.random.default_rng(9)
    small = replace(CHIP, host=SLOW, sram=8192)
    x = Value(Type("f32", (1, 48, 8, 16)), "x")
    w = constant(rng.standard_normal((48, 1, 5, 5)).astype(np.float32) / 5)
    window = {"stride": (1, 1), "pad": (2,) * 4, "dilation": (1, 1)}
    y = ops.reduce_mean(ops.conv(x, w, groups=48, **window), axes=(2, 3), keepdims=True)
    feed = rng.standard_normal(x.shape).astype(np.float32)
    target = npu_target(small, "scalar", "f16")
    assert _checked(Graph([x], [y], ["y"]), {"x": feed}, target=target) <= {"cast"}
