"""Which separable blocks are fused, and that the results keep every bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.compiler import Compiled, trace
from intaglio.ir import Graph, Type, Value, constant
from intaglio.targets.cpu.separable_choice import BLOCK, PAIR, UNFUSED
from intaglio.tune import Tuning

rng = np.random.default_rng(6)


def conv(x: Value, channels: int, k: int = 1, act: bool = True, **attrs: Any) -> Value:
    groups = attrs.get("groups", 1)
    w = rng.standard_normal((channels, x.shape[1] // groups, k, k)) / k
    window = {"stride": (1, 1), "pad": (k // 2,) * 4, "dilation": (1, 1), **attrs}
    bias = constant(rng.standard_normal(channels).astype(np.float32))
    y = ops.conv(x, constant(w.astype(np.float32)), bias, **window)
    return ops.clip(y, lo=0.0, hi=6.0) if act else y


def depthwise(x: Value, **attrs: Any) -> Value:
    return conv(x, x.shape[1], 3, groups=x.shape[1], **attrs)


def block(x: Value, middle: int, channels: int, **attrs: Any) -> Value:
    y = conv(depthwise(conv(x, middle), **attrs), channels, act=False)
    return ops.add(y, x) if y.shape == x.shape else y


def image(*shape: int) -> Value:
    return Value(Type("f32", shape), "x")


def built(x: Value, y: Value, **options: Any) -> Compiled:
    """The compiled net, whose outputs are those of single layers bit for bit."""
    graph = Graph([x], [y], ["y"])
    data = {"x": rng.standard_normal(x.shape).astype(np.float32)}
    made, plain = trace(graph, **options), trace(graph, disable=["fuse_separable"])
    for threads in (1, 2):
        with (
            intaglio.open(made.package, threads=threads) as one,
            intaglio.open(plain.package, threads=threads) as other,
        ):
            np.testing.assert_array_equal(one.run(data)["y"], other.run(data)["y"])
    return made


def fused_blocks(made: Compiled) -> list[Any]:
    return [s for s in made.plan.steps if s.op == "cpu.separable"]


def test_large_blocks_are_one_step_and_take_less_memory() -> None:
    x = image(1, 8, 96, 96)
    made = built(x, block(x, 48, 8))
    (step,) = fused_blocks(made)
    assert len([s for s in made.plan.steps if s.op.startswith("cpu.")]) == 1
    assert step.inputs[3] is not None  # the residual
    assert step.attrs["taps_act"] == step.attrs["expand_act"] == "clip"
    assert [(d.rule, d.choice) for d in made.decisions] == [("fuse_separable", BLOCK)]
    assert made.plan.arena < 96 * 96 * 48 * 4


def test_small_blocks_and_large_weights_stay_as_they_are() -> None:
    x = image(1, 8, 24, 24)
    assert not fused_blocks(built(x, block(x, 48, 8)))
    x = image(1, 64, 24, 24)
    made = built(x, block(x, 512, 64))
    assert not fused_blocks(made)
    assert [d.choice for d in made.decisions] == [UNFUSED]


def test_block_without_a_fusable_expansion() -> None:
    x = image(1, 32, 96, 96)
    assert len(fused_blocks(built(x, conv(depthwise(x), 16)))) == 1
    wide = conv(x, 48)  # read twice
    made = built(x, ops.add(conv(depthwise(wide), 48), wide))
    assert [d.choice for d in made.decisions] == [PAIR]
    assert [s.op for s in made.plan.steps if s.op.startswith("cpu.")] == [
        "cpu.conv",
        "cpu.separable",
    ]


def test_larger_block_gets_the_shared_conv() -> None:
    x = image(1, 24, 112, 112)
    y = conv(depthwise(conv(depthwise(x), 48), stride=(2, 2)), 48)
    made = built(x, y)
    ops_left = [s.op for s in made.plan.steps if s.op.startswith("cpu.")]
    assert ops_left == ["cpu.depthwise", "cpu.separable"]


@pytest.mark.parametrize(
    "build",
    [
        lambda x: conv(depthwise(conv(x, 48), dilation=(2, 2), pad=(2, 2, 2, 2)), 8),
        lambda x: conv(depthwise(conv(x, 48)), 8, 3),
        lambda x: conv(depthwise(conv(x, 48)), 8, stride=(2, 2)),
        lambda x: conv(depthwise(conv(x, 48)), 64, groups=2),
    ],
)
def test_unsupported_blocks_are_refused(build: Any) -> None:
    x = image(1, 8, 96, 96)
    assert not fused_blocks(built(x, build(x)))


def test_levels_and_precisions_without_fusion() -> None:
    x = image(1, 8, 96, 96)
    graph = Graph([x], [block(x, 48, 8)], ["y"])
    assert not fused_blocks(trace(graph, level=2))
    assert not fused_blocks(trace(graph, precision="fp16"))


@pytest.mark.parametrize("fastest", [UNFUSED, PAIR, BLOCK])
def test_measuring_decides(fastest: str, tmp_path: Any) -> None:
    titles = []

    def timer(ways: Any, threads: int, cold: int, seconds: float) -> dict[str, float]:
        titles.append(sorted(ways))
        return {way: 10.0 if way == fastest else 50.0 for way in ways}

    x = image(1, 8, 40, 40)
    y = block(block(x, 48, 8), 48, 8)  # alike: measured once
    made = built(x, y, tune=Tuning(cache=tmp_path, timer=timer))
    assert titles == [sorted([UNFUSED, PAIR, BLOCK])]
    assert [d.choice for d in made.decisions] == [fastest, fastest]
    assert len(fused_blocks(made)) == (0 if fastest == UNFUSED else 2)
