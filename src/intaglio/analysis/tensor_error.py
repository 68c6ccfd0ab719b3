"""The error of a tensor against its golden value, accumulated over samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio.ir import Array
from intaglio.quant.ranges.observe import F16_MOST, Observation

BLOCK = 8192  # values of a tensor that are summed at a time
LEVELS = 255  # steps of 8-bit integers


@dataclass
class TensorError:
    """Sums over all values of all samples."""

    dot: float = 0.0
    own: float = 0.0  # squares of the golden values
    other: float = 0.0
    off: float = 0.0  # squares of the differences
    max_error: float = 0.0
    wrong: int = 0  # values that are no finite numbers where the golden ones are

    def add(self, golden: Array, other: Array) -> None:
        """Add one sample."""
        x, y = golden.ravel(), other.ravel()
        with np.errstate(invalid="ignore", over="ignore"):
            found = _sums(x, y)
        if not all(map(math.isfinite, found)):
            finite = np.isfinite(x) & np.isfinite(y)
            self.wrong += int((np.isfinite(x) & ~np.isfinite(y)).sum())
            found = _sums(x[finite], y[finite])
        dot, own, theirs, off, largest = found
        self.dot += dot
        self.own += own
        self.other += theirs
        self.off += off
        self.max_error = max(self.max_error, largest)

    @property
    def cosine(self) -> float:
        """Cosine similarity; 1 if both are 0."""
        if self.wrong:
            return 0.0
        if self.own == 0 or self.other == 0:
            return 1.0 if self.own == self.other else 0.0
        return min(self.dot / math.sqrt(self.own) / math.sqrt(self.other), 1.0)

    @property
    def euclidean(self) -> float:
        """The Euclidean length of the difference."""
        return math.inf if self.wrong else math.sqrt(self.off)

    @property
    def relative(self) -> float:
        """The Euclidean length of the difference relative to the golden tensor's."""
        if self.wrong:
            return math.inf
        if self.own == 0:
            return 0.0 if self.off == 0 else math.inf
        return math.sqrt(self.off / self.own)

    @property
    def sqnr(self) -> float:
        """Signal to quantisation-noise ratio in dB; infinite without a difference."""
        if self.relative == 0:
            return math.inf
        return -math.inf if math.isinf(self.relative) else -20 * math.log10(self.relative)

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON data; an infinite one is None."""
        figures = {
            "cosine": self.cosine,
            "euclidean": self.euclidean,
            "max_error": self.max_error,
            "relative": self.relative,
            "sqnr_db": self.sqnr,
        }
        plain: dict[str, Any] = {k: v if math.isfinite(v) else None for k, v in figures.items()}
        return plain | ({"not_finite": self.wrong} if self.wrong else {})


def _sums(x: Array, y: Array) -> tuple[float, float, float, float, float]:
    """x @ y, x @ x, y @ y, d @ d and max |d| of d = x - y, in blocks that stay in the cache."""
    dot = own = other = off = largest = 0.0
    for i in range(0, x.size, BLOCK):
        a, b = x[i : i + BLOCK].astype(np.float64), y[i : i + BLOCK].astype(np.float64)
        d = a - b
        dot, own, other = dot + float(a @ b), own + float(a @ a), other + float(b @ b)
        off += float(d @ d)
        largest = max(largest, float(d.max()), -float(d.min()))
    return dot, own, other, off, largest


@dataclass
class Range:
    """The golden range of a tensor, and how its quantised form covers it."""

    low: float = math.inf
    high: float = -math.inf
    limits: tuple[float, float] | None = None  # the real values that the integers reach
    held: tuple[float, float] = (math.inf, -math.inf)  # of the values, times factors of channels
    values: int = 0
    saturated: int = 0  # values outside of the limits
    observed: Observation | None = None  # the histogram, if it is wanted

    def add(self, golden: Array, factors: Array | None = None) -> None:
        """Add one sample; the quantised form holds `factors` times its values."""
        finite = golden
        if golden.size and not (math.isfinite(golden.min()) and math.isfinite(golden.max())):
            finite = golden[np.isfinite(golden)]
        if finite.size:
            self.low = min(self.low, float(finite.min()))
            self.high = max(self.high, float(finite.max()))
        self.values += golden.size
        held = finite if factors is None else golden * factors
        if held.size:
            ends = float(held.min()), float(held.max())
            self.held = min(self.held[0], ends[0]), max(self.held[1], ends[1])
            if self.observed is not None:
                self.observed.add(held.astype(np.float32))
        if self.limits is not None:
            lo, hi = self.limits
            self.saturated += int(((held < lo) | (held > hi)).sum())

    @property
    def saturation(self) -> float:
        """The share of values that the quantised form cuts off."""
        return self.saturated / self.values if self.values else 0.0

    @property
    def width(self) -> float:
        """The range of the integers relative to that of the values; 0 if it is not known."""
        span = self.held[1] - self.held[0]
        if self.limits is None or not 0 < span < math.inf:
            return 0.0
        return (self.limits[1] - self.limits[0]) / span

    @property
    def step(self) -> float:
        """The step of 8-bit integers whose range fits the golden values exactly."""
        span = self.high - self.low
        return span / LEVELS if 0 < span < math.inf else 0.0

    @property
    def f16_overflow(self) -> bool:
        """Whether a value is too large for f16."""
        return self.values > 0 and max(-self.low, self.high) > F16_MOST

    def to_dict(self) -> dict[str, Any]:
        known = self.values and math.isfinite(self.low)
        return {
            "low": self.low if known else None,
            "high": self.high if known else None,
            "limits": None if self.limits is None else list(self.limits),
            "saturation": self.saturation,
            "f16_overflow": self.f16_overflow,
        }
