"""No stage recurses along the graph: chains far longer than Python's stack compile and run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from tests.check import compare

import intaglio
from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant

SHAPE = (1, 4, 4, 4)
Step = Callable[[int, Value, Value], Value]
"""Makes a value from its number, the value before it and the one before that."""


def _tensor(*shape: int) -> Value:
    return constant(np.random.default_rng(0).uniform(-0.5, 0.5, shape).astype(np.float32))


def _elementwise(i: int, x: Value, y: Value) -> Value:
    return [ops.relu, ops.sigmoid, ops.tanh, ops.neg, ops.abs][i % 5](x)


def _quantized(i: int, x: Value, y: Value) -> Value:
    """Elementwise ops between one quantised tensor at the start and one at the end."""
    if i % 300:
        return _elementwise(i, x, y)
    scale, zero = constant(np.float32(0.01)), constant(np.int8(0))
    return ops.dequantize_linear(ops.quantize_linear(x, scale, zero, dtype="i8"), scale, zero)


def _scores(i: int, x: Value, y: Value) -> Value:
    """Soft caps of scores that the recogniser of attention looks through."""
    last = i % 300 == 299
    return ops.matmul(ops.softmax(x, axis=-1), _tensor(4, 4)) if last else ops.tanh(x)


def _conv(x: Value) -> Value:
    attrs = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    return ops.conv(x, _tensor(4, 4, 1, 1), None, **attrs)


STEPS: dict[str, Step] = {
    "elementwise": _elementwise,
    "quantized": _quantized,
    "two readers": lambda i, x, y: ops.add(x, y),
    "same operand": lambda i, x, y: ops.maximum(ops.neg(x), x),
    "attention scores": _scores,
    "constant addends": lambda i, x, y: ops.mul(ops.add(x, _tensor(4, 1, 1)), _tensor(4, 1, 1)),
    "residuals": lambda i, x, y: ops.add(ops.relu(_conv(x)), x),
    "transposes": lambda i, x, y: ops.transpose(
        ops.abs(x) if i % 50 == 0 else x, perm=(0, 1, 3, 2)
    ),
    "concats": lambda i, x, y: ops.slice_(
        ops.concat(x, y, axis=1), start=(0, 2, 0, 0), stop=(1, 6, 4, 4), step=(1, 1, 1, 1)
    ),
    "means": lambda i, x, y: ops.sub(x, ops.reduce_mean(x, axes=(1,), keepdims=True)),
    "casts": lambda i, x, y: ops.cast(ops.cast(x, dtype="i32"), dtype="f32"),
}


def _chain(step: Step, length: int) -> Graph:
    x = Value(Type("f32", SHAPE), "x")
    before = now = x
    for i in range(length):
        before, now = now, step(i, now, before)
    return Graph([x], [now], ["y"])


@contextmanager
def _shallow_stack(frames: int) -> Iterator[None]:
    """A stack that holds only this many frames more, so that short chains find a recursion."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("kind", STEPS)
def test_no_stage_recurses_along_a_chain(kind: str):
    feeds = {"x": np.random.default_rng(1).uniform(-1, 1, SHAPE).astype(np.float32)}
    intaglio.compile(_chain(STEPS[kind], 2))  # imports happen here, with the whole stack
    wanted = intaglio.interpret(_chain(STEPS[kind], 300), feeds)["y"]
    with _shallow_stack(140):
        package = intaglio.compile(_chain(STEPS[kind], 300))
        with intaglio.open(package) as session:
            got = session.run(feeds)["y"]
    compare(got, wanted, kind)


def test_a_long_chain_is_quantised():
    chain = _chain(STEPS["residuals"], 100)
    data = [{"x": np.random.default_rng(i).random(SHAPE, np.float32)} for i in range(4)]
    intaglio.quantize(_chain(STEPS["residuals"], 2), data=data)
    with _shallow_stack(160):
        assert intaglio.quantize(chain, data=data).nodes()


@pytest.mark.slow
def test_a_hundred_thousand_nodes_compile():
    package = intaglio.compile(_chain(STEPS["elementwise"], 100_000))
    with intaglio.open(package) as session:
        assert session.run({"x": np.ones(SHAPE, np.float32)})["y"].shape == SHAPE
