"""Do two graphs compute the same? Run both on the same inputs and compare what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, RunError, option
from intaglio.interpret import interpret
from intaglio.ir import Array, Graph, Type

# what a level of optimisation may change, as a share of an output's range
LIMITS = (0.0, 0.0, 1e-4, 1e-4)
ULP = 2.0**-24  # half of the last bit of an f32, relative
NOISE = 10  # a model that amplifies rounding by itself may differ this many times more than that
ROUNDED = 0.5  # root mean square, where integers compute what the model says in floats


@dataclass(frozen=True)
class Difference:
    """How much one output differs, and how much it may."""

    output: str
    error: float  # the largest, as a share of the range; infinite where shapes or types differ
    rms: float  # the root mean square, as a share of the deviation
    limit: float

    @property
    def ok(self) -> bool:
        return self.error <= self.limit


def sample(t: Type, seed: int = 0, fill: str = "random") -> Array:
    """An array of type `t`: zeros, or seeded random numbers of a sensible range."""
    kind, numpy = dtypes.TABLE[t.dtype].kind, dtypes.numpy_of(t.dtype)
    if fill == "zeros":
        return np.zeros(t.shape, numpy)
    made: Array
    rng = np.random.default_rng(seed)
    if kind == "f":
        made = rng.standard_normal(t.shape, np.float32)
    elif kind == "b":
        made = rng.integers(0, 2, t.shape)
    else:
        low, high = dtypes.limits(t.dtype)
        made = rng.integers(max(low, 0), min(high, 100) + 1, t.shape)
    return made.astype(numpy)


def usable_inputs(graph: Graph, seed: int = 0) -> tuple[dict[str, Array], dict[str, Array]]:
    """Random inputs that the graph can compute with, and what it makes of them.

    Integers may be indices, for which random ones are too large: zero is the second guess.
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


def run_native(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """What the compiled graph makes of the inputs, nothing optimised on the way."""
    import intaglio

    with intaglio.open(intaglio.compile(graph, level=0)) as session:
        return {name: np.array(a) for name, a in session.run(dict(feeds)).items()}


def nudged(feeds: Mapping[str, Array], seed: int = 0) -> dict[str, Array]:
    """The same inputs, every float moved by about the last bit: what rounding does to a model."""
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
    """Output by output. Small floats get the room that their own rounding takes."""
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
