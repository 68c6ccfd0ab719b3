"""cpu.deal, the channel shuffle of channel-last tensors, with and without full vectors."""

from __future__ import annotations

import numpy as np
import pytest
from tests.check import check

import intaglio
from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.targets.cpu.channel_shuffle import deal

RNG = np.random.default_rng(2)


def numbers(*shape: int, dtype: str) -> np.ndarray:
    return RNG.integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "float32", "int64"])
@pytest.mark.parametrize(("channels", "groups"), [(58, 2), (4, 2), (31, 2), (20, 4), (6, 3)])
def test_groups(channels, groups, dtype):
    parts = [numbers(2, 3, 3, channels, dtype=dtype) for _ in range(groups)]
    whole, all_ = np.concatenate(parts, -1), channels * groups
    for start, stop in ((0, all_), (0, all_ // 2), (all_ // 2, all_), (1, all_ - 2), (3, 3)):
        attrs = {"groups": groups, "start": start, "stop": stop}
        (one,) = check("cpu.deal", whole, **attrs)
        (many,) = check("cpu.deal", *parts, **attrs)
        np.testing.assert_array_equal(one, many)


def test_it_equals_channel_shuffle():
    x = numbers(2, 12, 3, 5, dtype="uint8")
    want = ops.channel_shuffle.body(x, groups=3)
    got = deal.body(np.moveaxis(x, 1, -1), groups=3, start=0, stop=12)
    np.testing.assert_array_equal(np.moveaxis(got, -1, 1), want)


def test_a_shuffle_between_convolutions_needs_no_transpose():
    """A ShuffleNet unit is computed channel-last: only its input and output are transposed."""
    x = Value(Type("f32", (1, 8, 6, 6)), "x")

    def conv(v: Value, m: int) -> Value:
        w = constant(RNG.uniform(-1, 1, (m, v.shape[1], 1, 1)).astype(np.float32))
        y: Value = ops.conv(v, w, None, stride=(1, 1), pad=(0,) * 4, dilation=(1, 1), groups=1)
        return y

    shuffled = ops.channel_shuffle(ops.concat(conv(x, 8), conv(x, 8), axis=1), groups=2)
    left, right = (
        ops.slice_(shuffled, start=(0, c, 0, 0), stop=(1, c + 8, 6, 6), step=(1, 1, 1, 1))
        for c in (0, 8)
    )
    graph = Graph([x], [conv(ops.concat(left, conv(right, 8), axis=1), 4)], ["y"])
    data = {"x": RNG.uniform(-1, 1, x.shape).astype(np.float32)}
    want = intaglio.interpret(graph, data)["y"]
    with intaglio.open(intaglio.compile(graph), profile=True) as session:
        np.testing.assert_allclose(session.run(data)["y"], want, rtol=1e-4, atol=1e-5)
        names = [s.op for s in session.profile()]
    assert names.count("cpu.deal") == 2
    assert "slice" not in names
    assert names.count("transpose") <= 2  # the model's input and output


def test_refusals():
    x = constant(np.zeros((1, 3, 3, 6), np.uint8))
    for attrs in (
        {"groups": 4, "start": 0, "stop": 6},
        {"groups": 2, "start": 0, "stop": 7},
        {"groups": 2, "start": 4, "stop": 3},
    ):
        with pytest.raises(BadInput):
            deal(x, **attrs)
    with pytest.raises(BadInput):
        deal(x, x, groups=3, start=0, stop=6)
