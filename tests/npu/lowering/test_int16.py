"""int16 layers on units that have them: close to float, with equal bits in C and numpy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.npu.lowering.test_f16 import conv, image, offloaded

import intaglio
from intaglio import ops
from intaglio.ir import Graph, Value, constant
from intaglio.quant import Options

RNG = np.random.default_rng(6)


def network() -> Graph:
    x = image(1, 8, 40, 40)
    y = ops.relu(conv(x, 32, stride=(2, 2)))
    y = ops.clip(conv(y, 32, groups=32), lo=0.0, hi=6.0)
    y = ops.relu(ops.add(conv(y, 32, 1), y))
    y = ops.max_pool(y, kernel=(3, 3), stride=(2, 2), pad=(1,) * 4, dilation=(1, 1))
    y = conv(y, 48)
    y = ops.reduce_mean(y, axes=(2, 3), keepdims=True)
    flat = ops.reshape(y, shape=(1, 48))
    w = constant(RNG.normal(0, 0.2, (48, 300)).astype(np.float32))
    y = ops.add(ops.matmul(flat, w), constant(RNG.normal(0, 1, 300).astype(np.float32)))
    return Graph([x], [y], ["y"])


@pytest.mark.parametrize(
    ("chip", "weights"), [("rk3588", "int8"), ("k230", "int8"), ("rk3588", "int16")]
)
def test_an_int16_network(chip, weights):
    graph = network()
    feeds = [{"x": RNG.normal(0, 1, (1, 8, 40, 40)).astype(np.float32)} for _ in range(3)]
    how = Options(
        method="minmax",
        accuracy=None,
        rounding="nearest",
        bias_correction=False,
        activations="int16",
        weights=weights,
    )
    quantised = intaglio.quantize(graph, feeds, target=chip, options=how)
    split = offloaded(quantised, chip, "f32")
    programs = [n for n in split.nodes() if n.op == "npu.program"]
    left = {n.op for n in split.nodes()} - {"npu.program", "reshape"}
    assert left <= {"quantize_linear"}, left
    kinds = {v.dtype for n in programs for m in n.attrs["body"].nodes() for v in m.outputs}
    assert kinds == {"i16", "f32"}
    exact = intaglio.interpret(graph, feeds[0])["y"]
    want = intaglio.interpret(split, feeds[0])["y"]
    near = 0.002 if weights == "int16" else 0.05
    assert np.abs(want - exact).max() < near * np.abs(exact).max()
    with intaglio.open(intaglio.compile(quantised, target=chip)) as session:
        np.testing.assert_array_equal(session.run(feeds[0])["y"], want)


def test_a_bias_beyond_32_bits_is_refused():
    from intaglio.targets import find

    x = Value(image(1, 8, 6, 6).type.but(dtype="i16"), "x")
    one, zero = constant(np.float32(1e-4)), constant(np.int16(0))
    w = constant(RNG.integers(-99, 99, (4, 8, 1, 1)).astype(np.int16))
    y = ops.qlinear_conv(
        x,
        one,
        zero,
        w,
        one,
        zero,
        one,
        zero,
        constant(np.full(4, 2**40)),
        stride=(1, 1),
        pad=(0,) * 4,
        dilation=(1, 1),
        groups=1,
    )
    assert "units add 32 bits" in str(find("rk3588").why_not(y.producer))
    y = ops.qlinear_conv(*y.producer.inputs[:8], None, **y.producer.attrs)
    assert "does not work on i16" in str(find("bm1684x").why_not(y.producer))
