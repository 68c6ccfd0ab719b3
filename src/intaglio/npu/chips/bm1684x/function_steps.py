"""Functions of one number as steps of the tensor unit, each of which rounds to f32.

A function is written once, over a `Trace`. Its steps are run by numpy (the meaning of
npu.function) and become commands (float_functions.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intaglio.ir import Array
from intaglio.npu.chips.bm1684x.division import divide, rsqrt
from intaglio.npu.chips.bm1684x.float_ops import (
    EXP_SERIES,
    EXPONENT,
    LN2_HIGH,
    LN2_LOW,
    LOG2E,
    STEPS,
)

MOST_EXPONENT = 80.0  # exp of larger numbers is not larger, that of smaller ones not smaller
# erf(z) = 1 - q(t) * exp(-z * z) with t = 1 / (1 + p * z), to 1.5e-7: Abramowitz, Stegun 7.1.26
ERF_P = 0.3275911
ERF_SERIES = np.array(
    [0, 0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429], np.float32
)
SERIES = {"exp": EXP_SERIES, "erf": ERF_SERIES}
HUGE = 1e30


@dataclass(frozen=True, slots=True)
class Number:
    """The result of a step, by its place; 0 is the operand."""

    at: int


@dataclass(frozen=True, slots=True)
class Step:
    """One command: two operands, of which the second may be missing or a constant."""

    kind: str
    a: Number
    b: Number | float | str | None = None


@dataclass(slots=True)
class Trace:
    """The steps of a function."""

    steps: list[Step] = field(default_factory=list)

    def __call__(self, kind: str, a: Number, b: Number | float | str | None = None) -> Number:
        self.steps.append(Step(kind, a, b))
        return Number(len(self.steps))

    def exp(self, x: Number, low: float = -MOST_EXPONENT, high: float = MOST_EXPONENT) -> Number:
        """exp of x between two bounds: a series of the remainder, times a power of 2."""
        t = self("max", self("min", x, high), low)
        whole = self("round", self("mul", t, float(LOG2E)))
        rest = self("sub", t, self("mul", whole, float(LN2_HIGH)))
        rest = self("sub", rest, self("mul", whole, float(LN2_LOW)))
        power = self("integer", self("mul", whole, float(EXPONENT)))
        return self("add_bits", self("series", rest, "exp"), power)

    def inverse(self, x: Number) -> Number:
        return self("inverse", x)

    def sigmoid(self, x: Number) -> Number:
        """1 / (1 + exp(-x))."""
        return self.inverse(self("add", self.exp(self("mul", x, -1.0)), 1.0))

    def erf_rest(self, z: Number) -> Number:
        """1 - erf(z) for z from 0 up."""
        t = self.inverse(self("add", self("mul", z, ERF_P), 1.0))
        return self("mul", self("series", t, "erf"), self.exp(self.minus_square(z)))

    def minus_square(self, z: Number) -> Number:
        return self("mul", self("mul", z, z), -1.0)

    def tanh(self, x: Number) -> Number:
        """1 - 2 / (1 + exp(2 * x))."""
        part = self.inverse(self("add", self.exp(self("mul", x, 2.0)), 1.0))
        return self("add", self("mul", part, -2.0), 1.0)

    def expm1(self, x: Number) -> Number:
        """exp(x) - 1 for x up to 0, else 0."""
        return self("sub", self.exp(self("min", x, 0.0)), 1.0)


Make = Callable[..., Number]
FUNCTIONS: dict[str, Make] = {}


def _function(make: Make) -> Make:
    FUNCTIONS[make.__name__.removesuffix("_")] = make
    return make


@_function
def sigmoid(t: Trace, x: Number) -> Number:
    return t.sigmoid(x)


@_function
def tanh(t: Trace, x: Number) -> Number:
    return t.tanh(x)


@_function
def swish(t: Trace, x: Number, alpha: float = 1.0) -> Number:
    return t("mul", x, t.sigmoid(x if alpha == 1 else t("mul", x, alpha)))


@_function
def gelu(t: Trace, x: Number, approximate: str = "none") -> Number:
    """relu(x) - |x| / 2 * (1 - erf(|x| / sqrt(2))), or its approximation by a sigmoid."""
    if approximate == "tanh":
        cube = t("mul", t("mul", x, x), x)
        inside = t("add", x, t("mul", cube, 0.044715))
        return t("mul", x, t.sigmoid(t("mul", inside, 2 * math.sqrt(2 / math.pi))))
    size = t("abs", x)
    half = t("mul", t("mul", size, 0.5), t.erf_rest(t("mul", size, math.sqrt(0.5))))
    return t("sub", t("max", x, 0.0), half)


@_function
def erf(t: Trace, x: Number) -> Number:
    sign = t("max", t("min", t("mul", x, HUGE), 1.0), -1.0)
    rest = t.erf_rest(t("abs", x))
    return t("mul", sign, t("add", t("mul", rest, -1.0), 1.0))


@_function
def hardswish(t: Trace, x: Number) -> Number:
    bounded = t("min", t("max", t("add", x, 3.0), 0.0), 6.0)
    return t("mul", t("mul", x, bounded), 1 / 6)


@_function
def hard_sigmoid(t: Trace, x: Number, alpha: float = 0.2, beta: float = 0.5) -> Number:
    return t("min", t("max", t("add", t("mul", x, alpha), beta), 0.0), 1.0)


@_function
def leaky_relu(t: Trace, x: Number, alpha: float = 0.01) -> Number:
    return t("add", t("max", x, 0.0), t("mul", t("min", x, 0.0), alpha))


@_function
def elu(t: Trace, x: Number, alpha: float = 1.0) -> Number:
    return t("add", t("max", x, 0.0), t("mul", t.expm1(x), alpha))


@_function
def selu(
    t: Trace, x: Number, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323
) -> Number:
    return t("mul", elu(t, x, alpha), gamma)


@_function
def celu(t: Trace, x: Number, alpha: float = 1.0) -> Number:
    return t("add", t("max", x, 0.0), t("mul", t.expm1(t("mul", x, 1 / alpha)), alpha))


@_function
def mish(t: Trace, x: Number) -> Number:
    """x * n / (n + 2) with n = exp(x) * (exp(x) + 2)."""
    e = t.exp(x, high=MOST_EXPONENT / 4)
    n = t("mul", e, t("add", e, 2.0))
    return t("mul", x, t("mul", n, t.inverse(t("add", n, 2.0))))


@_function
def exp(t: Trace, x: Number) -> Number:
    return t.exp(x)


@_function
def sqrt(t: Trace, x: Number) -> Number:
    return t("mul", x, t("root", x))


@_function
def reciprocal(t: Trace, x: Number) -> Number:
    return t.inverse(x)


@_function
def abs_(t: Trace, x: Number) -> Number:
    return t("abs", x)


@_function
def neg(t: Trace, x: Number) -> Number:
    return t("mul", x, -1.0)


@_function
def softsign(t: Trace, x: Number) -> Number:
    return t("mul", x, t.inverse(t("add", t("abs", x), 1.0)))


def steps_of(name: str, given: dict[str, Any]) -> tuple[Step, ...]:
    """The steps of a function; the result is that of the last one."""
    trace = Trace()
    FUNCTIONS[name](trace, Number(0), **given)
    return tuple(trace.steps)


def evaluate(steps: Sequence[Step], x: Array) -> Array:
    """The function at numbers of f32, by its steps."""
    found: list[Array] = [x.astype(np.float32)]
    with np.errstate(all="ignore"):
        for s in steps:
            b = found[s.b.at] if isinstance(s.b, Number) else s.b
            found.append(_one(s.kind, found[s.a.at], b))
    return found[-1]


def _one(kind: str, a: Array, b: Any) -> Array:
    pairs = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
    pairs |= {"max": np.maximum, "min": np.minimum}
    if kind in pairs:
        return np.asarray(pairs[kind](a, np.float32(b)))
    match kind:
        case "abs":
            return np.abs(a)
        case "round":
            return np.rint(a)
        case "integer":
            return a.astype(np.int32)
        case "add_bits":
            return np.asarray((np.ascontiguousarray(a).view(np.int32) + b).view(np.float32))
        case "inverse":
            return divide(np.ones_like(a), a, STEPS)
        case "root":
            return rsqrt(a, STEPS)
    y = np.broadcast_to(SERIES[b][-1], a.shape)
    for c in SERIES[b][-2::-1]:
        y = y * a + c
    return y


def registers(steps: Sequence[Step]) -> list[int]:
    """The place of each step's result in scratch memory, where results that are read lie apart."""
    last: dict[int, int] = {}
    for k, s in enumerate(steps):
        for v in (s.a, s.b):
            if isinstance(v, Number):
                last[v.at] = k
    found: list[int] = []
    busy: dict[int, int] = {0: 0}  # the operand is at place 0
    for k in range(len(steps)):
        free = {place for place, number in busy.items() if last.get(number, -1) < k}
        for place in free:
            del busy[place]
        place = next(p for p in range(len(steps) + 2) if p not in busy)
        busy[place] = k + 1
        found.append(place)
    return found
