"""Helpers to declare cases and build their graphs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant

INF = math.inf
RNG = np.random.default_rng(7)
FRESH = RNG.bit_generator.state
CASES: list[tuple[str, Callable[..., Any], list[Type]]] = []


def case(name: str, build: Callable[..., Any], *types: Type) -> None:
    """`build` takes one Value per type and returns what a rule called `name` must rewrite."""
    CASES.append((name, build, list(types)))


def graph_of(build: Callable[..., Any], types: list[Type]) -> Graph:
    RNG.bit_generator.state = FRESH  # the same numbers whatever other cases there are
    inputs = [Value(t, f"x{i}") for i, t in enumerate(types)]
    made = build(*inputs)
    outputs = list(made) if isinstance(made, list | tuple) else [made]
    return Graph(inputs, outputs, [f"y{i}" for i in range(len(outputs))])


def f32(*shape: int) -> Type:
    return Type("f32", shape)


def num(*shape: int) -> Value:
    return constant(RNG.uniform(0.5, 1.5, shape).astype(np.float32))


def scalar(x: float) -> Value:
    return constant(np.float32(x))


def conv(x: Value, m: int = 6, k: int = 3, bias: bool = True, **attrs: Any) -> Value:
    groups = attrs.get("groups", 1)
    rank = x.type.rank - 2
    w = num(m, x.shape[1] // groups, *[k] * rank)
    given = {"stride": (1,) * rank, "pad": (1,) * 2 * rank, "dilation": (1,) * rank, **attrs}
    made: Value = ops.conv(x, w, num(m) if bias else None, **given)
    return made


def pool(op: Any, x: Value, pad: int = 0, **attrs: Any) -> Value:
    rank = x.type.rank - 2
    made: Value = op(
        x,
        kernel=(2,) * rank,
        stride=(2,) * rank,
        pad=(pad,) * 2 * rank,
        dilation=(1,) * rank,
        **attrs,
    )
    return made


def deconv(x: Value, groups: int = 1) -> Value:
    made: Value = ops.conv_transpose(
        x,
        num(x.shape[1], 3, 2, 2),
        num(3 * groups),
        stride=(2, 2),
        pad=(0,) * 4,
        output_pad=(0, 0),
        dilation=(1, 1),
        groups=groups,
    )
    return made


IMAGE = f32(2, 4, 6, 6)
VECTOR = f32(2, 5)
SHIFT = constant(np.linspace(-1, 1, 5, dtype=np.float32))
BN = lambda x, c: ops.batch_norm(x, num(c), num(c), num(c), num(c), epsilon=1e-3)  # noqa: E731
