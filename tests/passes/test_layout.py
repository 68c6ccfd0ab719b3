"""The transposes that remain after the layout pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.check import compare
from tests.passes.cases.build import conv, f32, graph_of, num

from intaglio import ops
from intaglio.compiler import trace
from intaglio.interpret import interpret
from intaglio.ir import Value

WIDE = f32(1, 8, 6, 6)


def ops_of(build: Callable[[Value], Value]) -> list[str]:
    """The ops that the CPU runs, in order; their numbers are those of the model."""
    graph = graph_of(build, [WIDE])
    x = np.random.default_rng(0).standard_normal(WIDE.shape).astype(np.float32)
    want = interpret(graph, {"x0": x})["y0"]
    made = trace(graph).graph
    compare(interpret(made, {"x0": x})["y0"], want, "layout")
    return [n.op for n in made.nodes()]


@pytest.mark.parametrize("act", [ops.swish, ops.relu, lambda v: ops.prelu(v, num(6, 1, 1))])
def test_activation_stays_next_to_its_matmul(act: Callable[[Value], Value]) -> None:
    assert ops_of(lambda x: act(conv(x))) == ["transpose", "cpu.conv", "transpose"]


@pytest.mark.parametrize(
    "shuffle",
    [
        lambda v: ops.channel_shuffle(v, groups=2),
        lambda v: ops.depth_to_space(v, blocksize=2, mode="CRD"),
    ],
)
def test_a_shuffle_between_convolutions_moves_once(shuffle: Callable[[Value], Value]) -> None:
    def net(x: Value) -> Value:
        y = shuffle(conv(x, 16))
        return conv(y, y.shape[1], groups=y.shape[1])  # of one channel each: no order to fold into

    found = ops_of(net)
    assert found[0] == found[-1] == "transpose"
    assert found.count("transpose") + found.count("cpu.deal") == 3
