"""Random products of two computed matrices, with zero points of any value."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Graph, Type, Value, constant


def random_matmul(seed: int) -> Graph:
    """One product of two inputs, or of an input and such a product; some of a batch of matrices."""
    rng = np.random.default_rng(seed)
    images = () if rng.random() < 0.6 else (int(rng.integers(1, 4)),)
    m, k, c = (int(2 ** rng.uniform(0, 7)) for _ in range(3))
    m = int(m * rng.uniform(8, 20)) if seed % 7 == 3 else m  # several bands
    k = max(k // 16 * 16, 16) if rng.random() < 0.4 else k  # weights without gaps
    a, b = (
        Value(Type(str(rng.choice(["i8", "i8", "u8"])), (*images, *shape)), name)
        for name, shape in (("a", (m, k)), ("b", (k, c)))
    )
    inputs, y = [a, b], _product(rng, a, b)
    if rng.random() < 0.4:
        other = Value(Type("i8", (*images, c, int(2 ** rng.uniform(0, 6)))), "other")
        inputs.append(other)
        y = _product(rng, y, other)
    return Graph(inputs, [y], ["y"])


def _zero(rng: np.random.Generator, dtype: str) -> Value:
    low, high = dtypes.limits(dtype)
    high = min(high, 128)
    zero = rng.choice([low, 0, 0, int(rng.integers(low, high + 1))])
    return constant(np.array(zero, dtypes.numpy_of(dtype)))


def _product(rng: np.random.Generator, a: Value, b: Value) -> Value:
    one = constant(np.float32(1))
    spread = 73 * 73 * np.sqrt(a.shape[-1]) / rng.uniform(20, 90)
    if rng.random() < 0.3:
        spread = 2.0 ** np.round(np.log2(spread))  # half of the results lie between two numbers
    dtype = str(rng.choice(["i8", "i8", "u8"]))
    end = constant(np.float32(max(spread, 1.01))), _zero(rng, dtype)
    return ops.qlinear_matmul(a, one, _zero(rng, a.dtype), b, one, _zero(rng, b.dtype), *end)
