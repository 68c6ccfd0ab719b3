"""Symbolic integers: extents that are known only at run time, within a range.

A model with an open dimension `seq` of 1 to 512 is compiled once. Every extent that depends on it
is a SymInt: it knows the formula behind it, and its values at a few sample sizes, the largest
first. Arithmetic on it gives SymInts, so that code that computes shapes needs no change.

Samples decide what is equal: two SymInts are equal if they are equal at every sample, and a SymInt
never equals a plain int. What does not hold for all sizes is refused: a SymInt is no index, and a
comparison whose answer depends on the size raises OpenExtent. `minimum` and `maximum` keep the
formula where the built-in functions would have to compare. Inside of `estimates()`, SymInts are
their upper bounds.
"""

from __future__ import annotations

import functools
import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from intaglio.errors import BadInput, Unsupported
from intaglio.formula import MAX_TERMS, OPERATIONS, Formula, evaluate, names_in, show

P = ParamSpec("P")
R = TypeVar("R")
RANDOM_SAMPLES = 10  # sizes at which the value of every SymInt is known, beside those at the ends
NEAR_THE_ENDS = 4  # steps from the smallest and the largest sizes: slices are cut there
MAX_VALUE = 1 << 62  # of a SymInt: the runtime computes with 64 bits
SHOWN = 60  # characters of a formula in messages


@dataclass(frozen=True, slots=True)
class Symbol:
    """An open dimension: its name and the extents that it may have, all multiples of `multiple`."""

    name: str
    low: int
    high: int
    multiple: int = 1

    def __post_init__(self) -> None:
        if self.multiple < 1 or not 0 <= self.low <= self.high:
            raise BadInput(
                f"dimension '{self.name}' has the range {self.low}..{self.high}:{self.multiple}; "
                "give the smallest and the largest extent, as in 1..512, or 64..640:32 for "
                "multiples of 32"
            )
        low = -(-self.low // self.multiple) * self.multiple
        high = self.high // self.multiple * self.multiple
        if low > high:
            raise BadInput(
                f"dimension '{self.name}': no multiple of {self.multiple} lies in "
                f"{self.low}..{self.high}"
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def __contains__(self, extent: int) -> bool:
        return self.low <= extent <= self.high and extent % self.multiple == 0

    def __str__(self) -> str:
        return f"{self.low}..{self.high}" + (f":{self.multiple}" if self.multiple > 1 else "")


class Symbols:
    """The open dimensions of one graph, the sample sizes, and every SymInt made from them."""

    def __init__(self, symbols: Sequence[Symbol]):
        self.symbols = {s.name: s for s in symbols}
        self.samples = list(_sample_sizes(symbols))
        self._known: dict[tuple[int, ...], SymInt] = {}

    def extent(self, name: str) -> int:
        """The extent of the open dimension `name`: a SymInt, or an int if the range has one."""
        values = tuple(sizes[name] for sizes in self.samples)
        return self.make(values, ("symbol", name))

    def make(self, values: tuple[int, ...], formula: Formula, terms: int = 1) -> int:
        """The number with these values at the samples: a plain int if all are equal.

        The first formula that gives certain values stands for all others that do, so that
        `seq * 12 // 12` is `seq`.
        """
        known = self.known(values)
        if known is not None:
            return known
        if max(map(abs, values)) > MAX_VALUE or terms > MAX_TERMS:
            what = f"exceeds {MAX_VALUE}" if terms <= MAX_TERMS else "has too long a formula"
            raise OpenExtent(f"a number that depends on open dimensions {what}; fix them")
        made = self._known[values] = SymInt(self, values, formula, terms)
        return made  # type: ignore[return-value]

    def known(self, values: tuple[int, ...]) -> int | None:
        """The number with these values at the samples, if a formula for it was met before."""
        if len(set(values)) == 1:
            return values[0]
        return self._known.get(values)  # type: ignore[return-value]


def _sample_sizes(symbols: Sequence[Symbol]) -> Iterator[dict[str, int]]:
    """Sizes of all symbols: the largest, the smallest, those beside them, each alone at its
    smallest, then others.
    """
    yield {s.name: s.high for s in symbols}
    yield {s.name: s.low for s in symbols}
    for k in range(1, NEAR_THE_ENDS + 1):
        yield {s.name: min(s.low + k * s.multiple, s.high) for s in symbols}
        yield {s.name: max(s.high - k * s.multiple, s.low) for s in symbols}
    rng = random.Random(len(symbols))
    for k in range(RANDOM_SAMPLES):
        picked = {
            s.name: s.multiple * rng.randint(s.low // s.multiple, s.high // s.multiple)
            for s in symbols
        }
        if k < len(symbols):
            picked[symbols[k].name] = symbols[k].low
        yield picked


class OpenExtent(Unsupported):
    """A number is needed, but it depends on open dimensions."""


_estimating = ContextVar("estimating", default=False)


@contextmanager
def estimates() -> Iterator[None]:
    """Let SymInts be used as numbers: they have their value at the upper bound.

    For estimates of time and memory. Elsewhere, a number that does not hold for all sizes would
    make a package wrong, and raises OpenExtent.
    """
    token = _estimating.set(True)
    try:
        yield
    finally:
        _estimating.reset(token)


def estimate(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function that estimates time or memory use SymInts as numbers."""

    @functools.wraps(function)
    def inside(*args: P.args, **keywords: P.kwargs) -> R:
        with estimates():
            return function(*args, **keywords)

    return inside


class SymInt:
    """An integer that depends on open dimensions: its formula, and its values at the samples."""

    __slots__ = ("formula", "space", "terms", "values")

    def __init__(self, space: Symbols, values: tuple[int, ...], formula: Formula, terms: int):
        self.space, self.values, self.formula, self.terms = space, values, formula, terms

    # ---- arithmetic ----------------------------------------------------------------------------
    def _with(self, other: Any, operation: str, swapped: bool = False) -> Any:
        if isinstance(other, float):  # an estimate
            pair = (other, float(self)) if swapped else (float(self), other)
            return OPERATIONS[operation](*pair)  # type: ignore[arg-type]
        if not isinstance(other, int | SymInt):
            return NotImplemented
        a, b = (other, self) if swapped else (self, other)
        f = OPERATIONS[operation]
        values = tuple(map(f, values_of(a, self), values_of(b, self)))
        terms = 1 + sum(x.terms if isinstance(x, SymInt) else 1 for x in (a, b))
        return self.space.make(values, (operation, _formula(a), _formula(b)), terms)

    def __add__(self, other: Any) -> Any:
        return self._with(other, "+")

    def __radd__(self, other: Any) -> Any:
        return self._with(other, "+", True)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, "-")

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, "-", True)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, "*")

    def __rmul__(self, other: Any) -> Any:
        return self._with(other, "*", True)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, "//")

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(other, "//", True)

    def __mod__(self, other: Any) -> Any:
        return self._with(other, "%")

    def __rmod__(self, other: Any) -> Any:
        return self._with(other, "%", True)

    def __neg__(self) -> Any:
        return self._with(0, "-", True)

    def __pos__(self) -> Any:
        return self

    # ---- comparison ----------------------------------------------------------------------------
    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymInt) and self.values == other.values

    def __hash__(self) -> int:
        return hash(self.values)

    def _compare(self, other: Any, holds: Callable[[Any, Any], bool]) -> bool:
        if not isinstance(other, int | SymInt):
            return bool(holds(int(self), other))
        answers = set(map(holds, self.values, values_of(other, self)))
        if len(answers) == 1 or _estimating.get():
            return bool(holds(self.values[0], bound(other)))
        raise OpenExtent(
            f"whether {self} or {other} is larger depends on the size; {_remedy(self)}"
        )

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, operator.lt)

    def __le__(self, other: Any) -> bool:
        return self._compare(other, operator.le)

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, operator.gt)

    def __ge__(self, other: Any) -> bool:
        return self._compare(other, operator.ge)

    def __bool__(self) -> bool:
        return self._compare(0, operator.ne)

    # ---- as a number ---------------------------------------------------------------------------
    def __index__(self) -> int:
        if _estimating.get():
            return self.values[0]
        raise OpenExtent(f"the extent {self} must be known here; {_remedy(self)}")

    def __int__(self) -> int:
        return self.__index__()

    def __float__(self) -> float:
        return float(self.__index__())

    def __truediv__(self, other: Any) -> float:
        return float(self.__index__() / other)

    def __rtruediv__(self, other: Any) -> float:
        return float(other / self.__index__())

    def __pow__(self, other: Any) -> Any:
        return self.__index__() ** other

    def __str__(self) -> str:
        words = show(self.formula)
        return words if len(words) <= SHOWN else f"{words[:SHOWN]}..."

    __repr__ = __str__

    def map(self, function: Callable[[int], int]) -> tuple[int, ...]:
        """The results of a function at every sample."""
        return tuple(map(function, self.values))

    def at(self, sizes: Mapping[str, int]) -> int:
        """The value at these sizes of the symbols."""
        return evaluate(self.formula, sizes)


def _remedy(x: SymInt) -> str:
    names = dict.fromkeys(names_in(x.formula))
    sizes = ", ".join(f"{n}={x.space.symbols[n].high}" for n in names)
    return f"fix {'it' if len(names) == 1 else 'them'} ({sizes}), or compile for a list of sizes"


def bound(x: Any) -> int:
    """The value of an int or SymInt at the upper bound."""
    return x.values[0] if isinstance(x, SymInt) else int(x)


def values_of(x: Any, like: SymInt) -> tuple[int, ...]:
    """The values of a number at the samples of another."""
    return x.values if isinstance(x, SymInt) else (int(x),) * len(like.values)


def _formula(x: Any) -> Formula:
    return x.formula if isinstance(x, SymInt) else ("number", int(x))


def lowest(x: Any) -> int:
    """The smallest value of an int or SymInt at the samples."""
    return min(x.values) if isinstance(x, SymInt) else int(x)


def minimum(a: int, b: int) -> int:
    """min(a, b) at every size."""
    return _either(a, b, "min")


def maximum(a: int, b: int) -> int:
    """max(a, b) at every size."""
    return _either(a, b, "max")


def _either(a: int, b: int, operation: str) -> int:
    if isinstance(a, SymInt):
        return a._with(b, operation)
    if isinstance(b, SymInt):
        return b._with(a, operation, True)
    return OPERATIONS[operation](a, b)


def range_of(extent: SymInt) -> Symbol:
    """The open dimension that an extent of an input is."""
    kind, name, *_ = extent.formula
    if kind != "symbol":
        raise ValueError(f"{extent} is not an open dimension")
    return extent.space.symbols[name]


def is_symbolic(x: Any) -> bool:
    """Whether a number, or one in a tuple or list, is a SymInt."""
    if isinstance(x, tuple | list):
        return any(map(is_symbolic, x))
    return isinstance(x, SymInt)


def plain(x: Any) -> Any:
    """A number or nested tuples of numbers at the upper bound."""
    if isinstance(x, tuple):
        return tuple(map(plain, x))
    return x.values[0] if isinstance(x, SymInt) else x


def fixed(x: Any, sizes: Mapping[str, int]) -> Any:
    """A number or nested tuples of numbers at these sizes of the symbols."""
    if isinstance(x, tuple):
        return tuple(fixed(y, sizes) for y in x)
    return x.at(sizes) if isinstance(x, SymInt) else x


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape to which all of them broadcast, by numpy's rules; ValueError if there is none.

    An extent with a formula equals only itself, because it must at every size; 1 stretches to it.
    """
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, rank - len(shape)):
            known = result[axis]
            if known == 1:
                result[axis] = extent
            elif extent != known and extent != 1:
                raise ValueError(f"extents {known} and {extent} differ")
    return tuple(result)


def slice_length(extent: int, start: int, stop: int, step: int) -> int:
    """The number of elements of x[start:stop:step], at every size."""
    if not is_symbolic((extent, start, stop)):
        return len(range(*slice(start, stop, step).indices(extent)))
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    first, last = (minimum(maximum(p + extent if p < 0 else p, low), high) for p in (start, stop))
    span, stride = (last - first, step) if step > 0 else (first - last, -step)
    return maximum((span + stride - 1) // stride, 0)
