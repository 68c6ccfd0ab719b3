"""Random graphs for hypothesis, and the comparison of their results."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from intaglio import dtypes, ops
from intaglio.ir import Graph, Type, Value, constant

UNARY = ("relu", "sigmoid", "tanh", "abs", "neg", "sin", "hardswish", "softplus", "erf")
BINARY = ("add", "sub", "mul", "maximum", "minimum")
SIZES = (1, 2, 3, 4, 5, 8)
OFTEN = ("conv", "conv", "conv", "pool", "binary", "binary", "unary", "concat", "reshape")


class Builder:
    """Grows a graph node by node; `draw` makes every choice, so hypothesis can shrink them."""

    def __init__(self, draw: Any):
        self.draw = draw
        self.values: list[Value] = []
        self.seed = draw(st.integers(0, 1 << 16))

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def value(self, *, rank: int | None = None, most: int = 4096) -> Value | None:
        fitting = [
            v for v in self.values if (rank is None or v.type.rank == rank) and v.type.size <= most
        ]
        return self.pick(fitting) if fitting else None

    def array(self, *shape: int) -> Value:
        self.seed += 1
        grown = np.random.default_rng(self.seed).uniform(-1, 1, shape)
        return constant(grown.astype(np.float32))

    # ---- one kind of node each; None where it does not apply -----------------------------------
    def unary(self, x: Value) -> Any:
        return ops.REGISTRY[self.pick(UNARY)](x)

    def clip(self, x: Value) -> Any:
        return ops.clip(x, lo=self.pick([0.0, -0.5, -math.inf]), hi=self.pick([0.5, math.inf]))

    def binary(self, x: Value) -> Any:
        others = [v for v in self.values if _broadcasts(v, x)]
        shape = tuple(self.pick([1, d]) for d in x.shape[self.number(0, x.type.rank) :])
        other = self.pick([*others, self.array(*shape)])
        pair = (x, other) if self.draw(st.booleans()) else (other, x)
        return ops.REGISTRY[self.pick(BINARY)](*pair)

    def batch_norm(self, x: Value) -> Any:
        if x.type.rank < 2:
            return None
        params = [self.array(x.shape[1]) for _ in range(3)]
        spread = constant(np.abs(self.array(x.shape[1]).data) + 0.5)
        return ops.batch_norm(x, *params, spread, epsilon=1e-3)

    def matmul(self, x: Value) -> Any:
        if x.type.rank < 2:
            return None
        others = [v for v in self.values if v.type.rank == 2 and v.shape[0] == x.shape[-1]]
        y = ops.matmul(x, self.pick([*others, self.array(x.shape[-1], self.pick(SIZES))]))
        return ops.add(y, self.array(y.shape[-1])) if self.draw(st.booleans()) else y

    def conv(self, x: Value) -> Any:
        if x.type.rank not in (3, 4):
            return None
        axes, c = x.type.rank - 2, x.shape[1]
        groups = self.pick([1, c] + ([2] if c % 2 == 0 else []))
        per = self.pick([1, 2, 3]) if groups != c else self.pick([1, 1, 2])
        kernel = tuple(self.pick([1, 2, 3]) for _ in range(axes))
        pad = tuple(self.pick([0, 1]) for _ in range(2 * axes))
        if any(d + pad[i] + pad[axes + i] < kernel[i] for i, d in enumerate(x.shape[2:])):
            return None
        stride = tuple(self.pick([1, 2]) for _ in range(axes))
        m = groups * per
        bias = self.array(m) if self.draw(st.booleans()) else None
        return ops.conv(
            x,
            self.array(m, c // groups, *kernel),
            bias,
            stride=stride,
            pad=pad,
            dilation=(1,) * axes,
            groups=groups,
        )

    def pool(self, x: Value) -> Any:
        if x.type.rank != 4 or min(x.shape[2:]) < 2:
            return None
        attrs = {
            "kernel": (2, 2),
            "stride": self.pick([(1, 1), (2, 2)]),
            "pad": self.pick([(0, 0, 0, 0), (0, 1, 1, 0)]),
            "dilation": (1, 1),
        }
        if self.draw(st.booleans()):
            return ops.max_pool(x, **attrs)
        return ops.avg_pool(x, **attrs, count_include_pad=self.draw(st.booleans()))

    def reshape(self, x: Value) -> Any:
        n = x.type.size
        shapes = [(n,), (1, n), (n, 1), (-1, 1, n), (1, 1, n, 1)]
        if x.type.rank > 1:
            shapes += [(x.shape[0], -1), (-1, x.shape[-1]), (*x.shape[:-2], -1), (1, *x.shape)]
        if x.type.rank and x.shape[-1] % 2 == 0:
            shapes += [(*x.shape[:-1], 2, x.shape[-1] // 2), (*x.shape[:-1], x.shape[-1] // 2, 2)]
        shape = self.pick([s for s in shapes if len(s) < 7])
        return ops.reshape(x, shape=shape) if n else None

    def transpose(self, x: Value) -> Any:
        return ops.transpose(x, perm=tuple(self.draw(st.permutations(range(x.type.rank)))))

    def concat(self, x: Value) -> Any:
        if not x.type.rank:
            return None
        axis = self.number(0, x.type.rank - 1)
        fitting = [v for v in self.values if _can_concat(v, x, axis)]
        others = [self.pick(fitting) for _ in range(self.number(0, 2))]
        if self.draw(st.booleans()):
            others.append(self.array(*x.shape))
        return ops.concat(x, *others, axis=axis)

    def slice(self, x: Value) -> Any:
        start = tuple(self.number(0, d // 2) for d in x.shape)
        stop = tuple(self.pick([2**62, d, -(-d // 2)]) for d in x.shape)
        step = tuple(self.pick([1, 1, 1, 2]) for _ in x.shape)
        if any(min(b, d) <= a for a, b, d in zip(start, stop, x.shape, strict=True)):
            return None
        return ops.slice_(x, start=start, stop=stop, step=step)

    def split(self, x: Value) -> Any:
        axes = [i for i, d in enumerate(x.shape) if d > 1]
        if not axes:
            return None
        axis = self.pick(axes)
        cut = self.number(1, x.shape[axis] - 1)
        one, everything = (1,) * x.type.rank, (2**62,) * x.type.rank
        at = tuple(cut if i == axis else 0 for i in range(x.type.rank))
        until = tuple(cut if i == axis else 2**62 for i in range(x.type.rank))
        return [
            ops.slice_(x, start=(0,) * x.type.rank, stop=until, step=one),
            ops.slice_(x, start=at, stop=everything, step=one),
        ]

    def pad(self, x: Value) -> Any:
        before, after = (tuple(self.pick([0, 0, 1]) for _ in x.shape) for _ in range(2))
        return ops.pad(x, before=before, after=after, value=self.pick([0.0, 0.25]))

    def expand(self, x: Value) -> Any:
        shape = tuple(self.pick([2, 3]) if d == 1 else d for d in x.shape)
        return ops.expand(x, shape=self.pick([shape, (2, *shape)]))

    def reduce(self, x: Value) -> Any:
        if not x.type.rank:
            return None
        axes = self.draw(st.sets(st.integers(0, x.type.rank - 1), min_size=1))
        grown = ops.REGISTRY[self.pick(["reduce_mean", "reduce_max", "reduce_sum"])]
        return grown(x, axes=tuple(sorted(axes)), keepdims=self.draw(st.booleans()))

    def softmax(self, x: Value) -> Any:
        return ops.softmax(x, axis=self.number(-1, x.type.rank - 1)) if x.type.rank else None

    def layer_norm(self, x: Value) -> Any:
        if not x.type.rank:
            return None
        return ops.layer_norm(x, self.array(x.shape[-1]), axis=-1)

    def gather(self, x: Value) -> Any:
        axes = [i for i, d in enumerate(x.shape) if d > 0]
        if not axes:
            return None
        axis = self.pick(axes)
        at = [self.number(-x.shape[axis], x.shape[axis] - 1) for _ in range(self.number(1, 3))]
        return ops.gather(x, constant(at if self.draw(st.booleans()) else at[0]), axis=axis)

    def where(self, x: Value) -> Any:
        return ops.where(x, self.array(*x.shape), ops.less(x, constant(0.1)))

    def topk(self, x: Value) -> Any:
        if not x.type.rank or not x.shape[-1]:
            return None
        flat = ops.round(ops.mul(x, constant(64.0)))  # ties are broken alike on both sides
        values, at = ops.topk(
            flat, k=self.number(1, x.shape[-1]), axis=-1, largest=True, sorted=True
        )
        return [values, ops.cast(at, dtype="f32")] if self.draw(st.booleans()) else values

    def half(self, x: Value) -> Any:
        return ops.cast(ops.cast(x, dtype="f16"), dtype="f32")

    def resize(self, x: Value) -> Any:
        if x.type.rank != 4:
            return None
        n = 2 * x.shape[2]
        at = (np.arange(n) // 2).astype(np.int32).reshape(n, 1)
        return ops.interpolate(x, constant(at), constant(np.ones((n, 1), np.float32)), axis=2)


KINDS = [
    k
    for k, f in vars(Builder).items()
    if callable(f) and k not in ("__init__", "pick", "number", "value", "array")
]


def _can_concat(v: Value, x: Value, axis: int) -> bool:
    pairs = enumerate(zip(v.shape, x.shape, strict=False))
    return v.type.rank == x.type.rank and all(a == b or i == axis for i, (a, b) in pairs)


def _broadcasts(v: Value, x: Value) -> bool:
    try:
        return len(np.broadcast_shapes(v.shape, x.shape)) < 7
    except ValueError:
        return False


@st.composite
def graphs(draw: Any, most: int = 14) -> Graph:
    """A graph of up to `most` nodes with one or two inputs and one to three outputs."""
    b = Builder(draw)
    inputs = []
    for i in range(draw(st.integers(1, 2))):
        rank = draw(st.sampled_from([4, 4, 4, 3, 2]))
        shape = [b.pick(SIZES) for _ in range(2)] + [b.pick([5, 8, 4, 1]) for _ in range(rank - 2)]
        inputs.append(Value(Type("f32", tuple(shape)), f"in{i}"))
    b.values += inputs
    for _ in range(draw(st.integers(most // 3, most))):
        # Mostly the newest value, so that graphs are deep; sometimes any, so that they branch.
        x = b.values[-1] if draw(st.booleans()) else b.value()
        assert x is not None
        grown = getattr(b, b.pick([*KINDS, *OFTEN]))(x)
        for v in grown if isinstance(grown, list) else [grown]:
            if v is not None and v.type.size <= 4096 and v.type.rank < 7:
                b.values.append(v)
    outputs = [b.values[-1]]
    outputs += [b.pick(b.values) for _ in range(draw(st.integers(0, 2)))]
    return Graph(inputs, outputs, [f"out{i}" for i in range(len(outputs))], "random")


def feeds(graph: Graph, seed: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        v.name: rng.uniform(-1, 1, v.shape).astype(dtypes.numpy_of(v.dtype)) for v in graph.inputs
    }


def assert_same(
    got: dict[str, Any], want: dict[str, Any], graph: Graph, exact: bool = False
) -> None:
    """Equal up to rounding errors, which are bounded relative to the largest number."""
    for name, w in want.items():
        g = got[name]
        assert g.dtype == w.dtype, f"{name}: {g.dtype}, not {w.dtype}\n{graph}"
        assert g.shape == w.shape, f"{name}: {g.shape}, not {w.shape}\n{graph}"
        if exact:
            assert np.array_equal(g, w, equal_nan=True), f"{name} differs\n{graph}"
        tolerance = 2e-3 * max(1.0, float(np.abs(w).max(initial=0)))
        assert np.allclose(g, w, rtol=0, atol=tolerance), (
            f"{name} is off by {np.abs(g - w).max()}\n{graph}"
        )
