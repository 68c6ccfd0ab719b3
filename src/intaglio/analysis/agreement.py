"""Compare two graphs: run both on the same inputs and compare their outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, RunError, option
from intaglio.interpret import interpret
from intaglio.ir import Array, Graph, Type

# Limits by optimisation level, relative to the range of an output.
LIMITS = (0.0, 0.0, 1e-4, 1e-4)
ULP = 2.0**-24  # half a unit in the last place of f32
NOISE = 10  # times the effect of `nudged` inputs that a difference may reach
ROUNDED = 0.5  # RMS limit if integers replace float arithmetic


@dataclass(frozen=True)
class Difference:
    """The difference of one output, and its limit."""

    output: str
    error: float  # maximum, relative to the range; infinite if shapes or types differ
    rms: float  # relative to the standard deviation
    limit: float

    @property
    def ok(self) -> bool:
        return self.error <= self.limit


def sample(t: Type, seed: int = 0, fill: str = "random") -> Array:
    """An array of type `t`: zeros, or seeded random numbers of a sensible range."""
    kind, numpy = dtypes.TABLE[t.dtype].kind, dtypes.numpy_of(t.dtype)
    if fill == "zeros":
        return np.zeros(t.shape, numpy)
    result: Array
    rng = np.random.default_rng(seed)
    if kind == "f":
        result = rng.standard_normal(t.shape, np.float32)
    elif kind == "b":
        result = rng.integers(0, 2, t.shape)
    else:
        low, high = dtypes.limits(t.dtype)
        result = rng.integers(max(low, 0), min(high, 100) + 1, t.shape)
    return result.astype(numpy)


def usable_inputs(graph: Graph, seed: int = 0) -> tuple[dict[str, Array], dict[str, Array]]:
    """Random inputs that the graph accepts, and its outputs for them.

    Integer inputs may be indices, for which random values are too large; zeros are tried next.
    """
    for fill in ("random", "zeros"):
        feeds = {
            v.name: sample(v.type, seed, "random" if dtypes.is_float(v.dtype) else fill)
            for v in graph.inputs
        }
        try:
            return feeds, interpret(graph, feeds)
        except RunError as e:
            why = str(e)
    raise BadInput(
        f"the model cannot run on random inputs: {why}; give real ones with {option('data')}, or "
        f"skip the comparison with {option('check', False)}"
    )


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Random inputs that the graph accepts. It runs only if it has integer inputs."""
    if all(dtypes.is_float(v.dtype) for v in graph.inputs):
        return {v.name: sample(v.type, seed, "random") for v in graph.inputs}
    return usable_inputs(graph, seed)[0]


def run_native(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of the graph compiled at level 0."""
    import intaglio

    with intaglio.open(intaglio.compile(graph, level=0)) as session:
        return {name: np.array(a) for name, a in session.run(dict(feeds)).items()}


def nudged(feeds: Mapping[str, Array], seed: int = 0) -> dict[str, Array]:
    """The same inputs with every f32 changed by about its last bit, to measure how a model
    amplifies rounding.
    """
    rng = np.random.default_rng(seed)
    return {
        name: (a * (1 + rng.choice([-ULP, 0, ULP], a.shape))).astype(a.dtype)
        if a.dtype == np.float32
        else a
        for name, a in feeds.items()
    }


def differences(
    before: Mapping[str, Array], after: Mapping[str, Array], limit: float
) -> list[Difference]:
    """Compare output by output. Half-precision outputs get a larger limit, for their own
    rounding.
    """
    return [_difference(name, a, after.get(name), limit) for name, a in before.items()]


def _difference(name: str, a: Array, b: Array | None, limit: float) -> Difference:
    if b is None or a.shape != b.shape or a.dtype != b.dtype:
        return Difference(name, np.inf, np.inf, limit)
    dtype = dtypes.TABLE[dtypes.name_of(a.dtype)]
    if dtype.kind == "f" and dtype.bits < 32 and limit:
        limit = max(limit, 16 * _epsilon(a.dtype))
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x)
    if (
        not np.array_equal(x[~finite], y[~finite], equal_nan=True)
        or not np.isfinite(y[finite]).all()
    ):
        return Difference(name, np.inf, np.inf, limit)
    x, y = x[finite], y[finite]
    if not x.size or np.array_equal(x, y):
        return Difference(name, 0.0, 0.0, limit)
    span, deviation = float(np.ptp(x)) or float(np.abs(x).max()) or 1.0, float(x.std()) or 1.0
    error, rms = float(np.abs(x - y).max()), float(np.sqrt(((x - y) ** 2).mean()))
    return Difference(name, error / span, rms / deviation, limit)


def _epsilon(dtype: Any) -> float:
    one = np.array(1).astype(dtype)
    steps = (np.array(1 + 2.0**-k).astype(dtype) for k in range(12))
    return min(float(s.astype(np.float64)) - 1 for s in steps if s != one)
