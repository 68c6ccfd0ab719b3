"""Random nets with filters of zeros: pruning keeps the outputs and removes all dead channels."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.passes.prunable_nets import Net
from tests.properties.graphs import assert_same, feeds, graphs

import intaglio
from intaglio import ops
from intaglio.ir import Graph, Value
from intaglio.passes.prune import prune_channels
from intaglio.verify import verify

quick = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
ACTIVATIONS = (ops.relu, ops.abs, ops.neg, lambda x: ops.clip(x, lo=-2.0, hi=3.0))


class Drawn(Net):
    """A net of blocks that hypothesis draws."""

    def __init__(self, draw):
        super().__init__(1, 4, 5, 5, seed=draw(st.integers(0, 1 << 16)))
        self.draw = draw
        self.zeros_only = draw(st.booleans())  # layers have no bias: dead channels are exactly 0
        self.sure = 0  # dead channels that only the next convolution reads: must be removed

    def pick(self, *options):
        return self.draw(st.sampled_from(options))

    def zeros(self, n: int) -> list[int]:
        return sorted(self.draw(st.sets(st.integers(0, n - 1), max_size=n - 1)))

    def layer(self, x: Value, m: int, **how) -> Value:
        bias = 0 if self.zeros_only else self.pick(0, 0, -1, 2)
        return self.conv(x, m, self.zeros(m), k=self.pick(1, 3), bias=bias, **how)

    def whole(self, *shape: int):
        """Vectors are biases, which are 0 with `zeros_only`."""
        numbers = super().whole(*shape)
        return numbers * 0 if len(shape) == 1 and self.zeros_only else numbers

    def act(self, x: Value) -> Value:
        return self.pick(*ACTIVATIONS)(x)

    def chain(self, x: Value) -> Value:
        m = self.pick(2, 5, 6)
        zero = self.zeros(m)
        self.sure += len(zero)
        return self.layer(ops.relu(self.conv(x, m, zero)), self.pick(4, 6, 8))

    def residual(self, x: Value) -> Value:
        return ops.add(x, self.layer(self.act(x), x.shape[1]))

    def depthwise(self, x: Value) -> Value:
        return self.act(self.layer(x, x.shape[1], groups=x.shape[1]))

    def grouped(self, x: Value) -> Value:
        return self.layer(x, 8, groups=2) if x.shape[1] % 2 == 0 else x

    def joined(self, x: Value) -> Value:
        parts = [self.act(self.layer(x, self.pick(2, 3))), self.pick(x, self.layer(x, 3))]
        return ops.concat(*self.draw(st.permutations(parts)), axis=1)

    def gate(self, x: Value) -> Value:
        small = self.act(self.layer(ops.reduce_max(x, axes=(2, 3)), 3))
        return ops.mul(x, ops.clip(self.layer(small, x.shape[1]), lo=0.0, hi=2.0))

    def split(self, x: Value) -> Value:
        n = x.shape[1]
        if n % 2:
            return x
        a = ops.part(x, 0, n // 2, axis=1)
        b = ops.part(x, self.pick(0, n // 2), n, axis=1)
        return ops.concat(self.layer(a, n // 2), b, axis=1)

    def stepped(self, x: Value) -> Value:
        return ops.part(x, 0, x.shape[1], axis=1, step=2)

    def shuffled(self, x: Value) -> Value:
        n, c, h, w = x.shape
        if c % 2:
            return x
        halves = ops.reshape(x, shape=(n, 2, c // 2, h, w))
        return ops.reshape(ops.transpose(halves, perm=(0, 2, 1, 3, 4)), shape=x.shape)


BLOCKS = (
    "chain",
    "residual",
    "depthwise",
    "grouped",
    "joined",
    "gate",
    "split",
    "stepped",
    "shuffled",
)


@st.composite
def nets(draw):
    net = Drawn(draw)
    x = net.layer(net.x, draw(st.sampled_from([4, 6, 8])))
    for name in draw(st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=4)):
        x = getattr(net, name)(ops.clip(x, lo=-4.0, hi=4.0))  # keeps integers small, so exact
    return net, [net.conv(x, 2), *([x] if draw(st.integers(0, 3)) == 0 else [])]


@quick
@given(nets())
def test_pruned_networks_keep_their_outputs(drawn):
    net, outputs = drawn
    pruned = net.prune(*outputs, exact=net.zeros_only)
    assert pruned.removed >= net.sure
    again = prune_channels(pruned.graph, lambda *_: None)
    assert again is None, "the first run left dead channels"


@quick
@given(graphs(), st.integers(0, 1 << 20), st.sampled_from([0.3, 0.7]))
def test_any_pruned_graph_keeps_its_meaning(graph: Graph, seed, share):
    rng = np.random.default_rng(seed)
    for v in graph.values():
        if v.data is not None and v.dtype == "f32" and v.type.rank and v.type.size:
            v.data = v.data.copy()
            axis = rng.integers(v.type.rank)
            np.moveaxis(v.data, axis, 0)[rng.random(v.shape[axis]) < share] = 0
    inputs = feeds(graph)
    want = intaglio.interpret(graph, inputs)
    assume(all(np.isfinite(a).all() for a in want.values()))
    prune_channels(graph, lambda *_: None)
    verify(graph)
    assert_same(intaglio.interpret(graph, inputs), want, graph)
