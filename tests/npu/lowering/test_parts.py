"""Windows over more rows than a core's memory holds: the NPU computes them in parts of channels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.npu.lowering.test_volumes import net, partitioned
from tests.npu.quantized_networks import Net

import intaglio
from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.lowering.target import npu_target
from intaglio.targets import chip as chips


def target(name: str):
    """A chip whose CPU is so slow that everything is faster on the NPU."""
    chip = chips.load(name)
    slow = replace(chip.host, products=1e-6, arithmetic=1e-6, moves=1e-6)
    return npu_target(replace(chip, host=slow), "scalar")


def mean(n: Net, x):
    return ops.qlinear_mean(*n.of(x), *n.result("i8"), axes=(2, 3))


@pytest.mark.parametrize(("chip", "channels"), [("rk3588", 96), ("rk3566", 40)])
def test_a_mean_over_a_large_map_is_on_the_npu(chip: str, channels: int):
    n, x = net(1, channels, 120, 120)
    assert partitioned(mean(n, x), target(chip)) == (set(), 1)


def test_a_large_pool_into_a_concat_reads_its_own_map():
    """As of spatial pyramids: three pools of one map, joined with it."""
    _, x = net(1, 288, 20, 20)
    pools = [
        ops.max_pool(x, kernel=(k, k), stride=(1, 1), pad=(k // 2,) * 4, dilation=(1, 1))
        for k in (5, 9, 13)
    ]
    assert partitioned(ops.concat(x, *pools, axis=1), target("rk3566")) == (set(), 1)


def test_one_channel_block_that_is_too_large_stays_on_the_cpu():
    n, x = net(1, 16, 400, 400)
    assert partitioned(mean(n, x), target("rk3566")) == ({"qlinear_mean"}, 0)


def test_parts_have_the_bits_of_the_whole():
    n, x = net(1, 72, 100, 100)
    y = mean(n, x)
    assert partitioned(y, target("rk3566")) == (set(), 1)
    assert y.shape[1] == 72


def test_a_batch_norm_behind_a_sum_is_a_convolution_of_the_npu():
    """As in ResNet-v2: no convolution can take its factors, and the CPU must not."""
    rng = np.random.default_rng(2)
    x = Value(Type("f32", (1, 8, 12, 12)), "x")

    def conv(v: Value) -> Value:
        w = rng.standard_normal((8, 8, 3, 3)).astype(np.float32)
        same = {"stride": (1, 1), "pad": (1,) * 4, "dilation": (1, 1), "groups": 1}
        return ops.conv(v, constant(w), None, **same)

    y = ops.add(conv(x), conv(ops.relu(conv(x))))
    factors, offsets = (constant(rng.random((8, 1, 1), np.float32) + 0.5) for _ in range(2))
    y = conv(ops.relu(ops.add(ops.mul(y, factors), offsets)))
    graph = Graph([x], [y], ["y"])
    samples = [{"x": rng.standard_normal(x.shape).astype(np.float32)}]
    made = intaglio.quantize(graph, samples, target="rk3588")
    steps = [step.op for step in intaglio.compile(made, target="rk3588", npu_code="own").plan.steps]
    assert steps == ["quantize_linear", "npu.run"]
