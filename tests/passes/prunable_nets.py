"""Small networks of integers, whose sums are exact in any order, so that results must be equal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from intaglio import ops, passes
from intaglio.interpret import interpret
from intaglio.ir import Array, Graph, Type, Value, constant
from intaglio.passes.prune import Pruned, prune_channels
from intaglio.verify import verify


class Net:
    """Builds layers with seeded weights, none of them zero but those that are asked for."""

    def __init__(self, *shape: int, seed: int = 0):
        self.rng = np.random.default_rng(seed)
        self.x = Value(Type("f32", shape or (1, 4, 6, 6)), "x")

    def whole(self, *shape: int) -> Array:
        made = self.rng.integers(1, 3, shape) * self.rng.choice([-1, 1], shape)
        return made.astype(np.float32)

    def conv(
        self,
        x: Value,
        m: int,
        zero: Iterable[int] = (),
        *,
        k: int = 3,
        pad: int | None = None,
        groups: int = 1,
        bias: Any = 0,
        unread: Iterable[int] = (),
    ) -> Value:
        """`zero`: filters of zeros with that bias; `unread`: inputs that have no weight."""
        w, b = self.whole(m, x.shape[1] // groups, k, k), self.whole(m)
        w[list(zero)], b[list(zero)] = 0, bias
        w[:, list(unread)] = 0
        p = k // 2 if pad is None else pad
        return ops.conv(
            x,
            constant(w),
            constant(b),
            stride=(1, 1),
            pad=(p,) * 4,
            dilation=(1, 1),
            groups=groups,
            origin=f"conv_{m}",
        )

    def up(self, x: Value, m: int, zero: Iterable[int] = ()) -> Value:
        w, b = self.whole(x.shape[1], m, 2, 2), self.whole(m)
        w[:, list(zero)], b[list(zero)] = 0, 0
        return ops.conv_transpose(
            x,
            constant(w),
            constant(b),
            stride=(2, 2),
            pad=(0,) * 4,
            output_pad=(0, 0),
            dilation=(1, 1),
            origin="up",
        )

    def linear(self, x: Value, n: int, zero: Iterable[int] = ()) -> Value:
        w = self.whole(x.shape[-1], n)
        w[:, list(zero)] = 0
        return ops.matmul(x, constant(w), origin=f"linear_{n}")

    def graph(self, *outputs: Value) -> Graph:
        return Graph([self.x], outputs, [f"y{i}" for i in range(len(outputs))])

    def prune(self, *outputs: Value, exact: bool = True) -> Result:
        """Prune the net and check that it still computes the same."""
        graph = self.graph(*outputs)
        feeds = {"x": self.rng.integers(-2, 3, self.x.shape).astype(np.float32)}
        want = interpret(graph, feeds)
        record = passes.Record("prune channels")
        saved = prune_channels(graph, record.trace)
        verify(graph)
        for name, y in interpret(graph, feeds).items():
            if exact:
                np.testing.assert_array_equal(y, want[name])
            else:
                np.testing.assert_allclose(y, want[name], rtol=1e-5, atol=1e-5)
        return Result(graph, saved, record)


class Result:
    """A pruned graph and what was said about it."""

    def __init__(self, graph: Graph, saved: Pruned | None, record: passes.Record):
        self.graph, self.saved = graph, saved
        self.refusals = [e.refusal for e in record.events if e.refusal]
        self.fired = {e.origin for e in record.events if not e.refusal}

    @property
    def removed(self) -> int:
        return 0 if self.saved is None else self.saved.channels[0] - self.saved.channels[1]

    def channels(self, op: str = "conv") -> list[int]:
        """How many channels the nodes of an op make."""
        axis = -1 if op in ("matmul", "gemm") else 1
        return [n.outputs[0].shape[axis] for n in self.graph.nodes() if n.op == op]

    def ops(self) -> list[str]:
        return [n.op for n in self.graph.nodes()]
