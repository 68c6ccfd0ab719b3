"""Range methods: minmax, moving average, percentile, KL divergence, mean squared error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array

PERCENTILE = 99.99
TINY = 2.0**-100  # a tensor whose values stay below is treated as 0: no f32 scale could hold it


@dataclass(frozen=True)
class Spread:
    """Extremes and histogram (equal bins from -end to end) of a tensor over all samples."""

    low: float
    high: float
    moving: tuple[float, float]  # moving average of each sample's extremes
    counts: Array  # without exact zeros, which every format holds
    end: float

    @property
    def centers(self) -> Array:
        """The middle of every bin."""
        n = len(self.counts)
        return (np.arange(n) + 0.5) * (2 * self.end / n) - self.end


Method = Callable[[Spread, int, bool], tuple[float, float]]  # by spread, levels, symmetric


def minmax(s: Spread, levels: int, symmetric: bool) -> tuple[float, float]:
    """The observed extremes."""
    return s.low, s.high


def moving(s: Spread, levels: int, symmetric: bool) -> tuple[float, float]:
    """The moving average of the extremes over samples."""
    return s.moving


def percentile(s: Spread, levels: int, symmetric: bool) -> tuple[float, float]:
    """All but the outermost 0.01 % of the values at either end."""
    return percentile_of(s, PERCENTILE)


def percentile_of(s: Spread, percent: float) -> tuple[float, float]:
    """All but (100 - percent) percent of the values at either end."""
    share = s.counts.sum() * (1 - percent / 100)
    n = len(s.counts)
    edges = np.arange(n + 1) * (2 * s.end / n) - s.end
    below, above = np.cumsum(s.counts), np.cumsum(s.counts[::-1])
    lo = float(edges[np.searchsorted(below, share, side="right")]) if share < below[-1] else 0.0
    hi = -float(edges[np.searchsorted(above, share, side="right")]) if share < above[-1] else 0.0
    return max(lo, s.low), min(hi, s.high)


def kl(s: Spread, levels: int, symmetric: bool) -> tuple[float, float]:
    """The clipping threshold with the least KL divergence of |x| before and after."""
    n = len(s.counts) // 2
    one_sided = s.low >= 0 or s.high <= 0
    half = levels if one_sided and not symmetric else levels // 2
    size = s.counts[n:] + s.counts[:n][::-1]  # of |x|
    used = int(np.max(np.nonzero(size)[0], initial=0)) + 1
    if used <= half:
        return s.low, s.high
    cuts = np.unique(np.linspace(half, used, 128).astype(int))
    best = int(cuts[np.argmin([_divergence(size, cut, half) for cut in cuts])])
    end = best * s.end / n if best < used else np.inf
    return max(s.low, -end), min(s.high, end)


def _divergence(size: Array, cut: int, levels: int) -> float:
    """KL divergence of the histogram `size`, clipped at `cut`, from its `levels`-step version."""
    kept = size[:cut].astype(np.float64)
    full = kept.copy()
    full[-1] += size[cut:].sum()
    step = np.arange(cut) * levels // cut
    some = kept > 0
    mass, members = np.bincount(step, kept, levels), np.bincount(step, some, levels)
    held = np.where(some, (mass / np.maximum(members, 1))[step], 0)
    total = kept.sum()
    if not total:
        return np.inf
    p, q = full / full.sum(), np.maximum(held / total, 1e-9)
    at = p > 0
    return float((p[at] * np.log(p[at] / q[at])).sum())


def mse(s: Spread, levels: int, symmetric: bool) -> tuple[float, float]:
    """The range with the least mean squared error of rounding and clipping together."""
    shares = np.linspace(0.02, 1, 197)
    if symmetric:
        end = max(-s.low, s.high)
        hi = shares * end
        lo = -hi
    else:
        lo, hi = (a.ravel() for a in np.meshgrid(min(s.low, 0) * shares, max(s.high, 0) * shares))
    step = (hi - lo) / (levels - 1)
    x, count = s.centers, s.counts.astype(np.float64)
    above = _tail(x[::-1], count[::-1], hi, np.searchsorted(-x[::-1], -hi))
    below = _tail(x, count, lo, np.searchsorted(x, lo))
    inside = count.sum() - above[0] - below[0]
    at = int(np.argmin(step * step / 12 * inside + above[1] + below[1]))
    return float(lo[at]), float(hi[at])


def _tail(x: Array, count: Array, cut: Array, first: Array) -> tuple[Array, Array]:
    """The count of the first `first` values and the sum of their squared distances to `cut`."""
    zero = np.zeros(1)
    n, m, v = (np.concatenate([zero, np.cumsum(count * x**k)]) for k in range(3))
    n, m, v = n[first], m[first], v[first]
    return n, np.maximum(v - 2 * cut * m + cut * cut * n, 0)


METHODS: dict[str, Method] = {f.__name__: f for f in (minmax, moving, percentile, kl, mse)}


def find(s: Spread, method: str, dtype: str, symmetric: bool) -> tuple[float, float]:
    """The range by `method` ("percentile:99.9" for another percentage); 0 is always inside."""
    name, given = parse_method(method)
    if max(-s.low, s.high) < TINY:
        return 0.0, 0.0
    if given:
        lo, hi = percentile_of(s, given)
    else:
        low, high = dtypes.limits(dtype)
        lo, hi = METHODS[name](s, high - low + 1, symmetric)
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    if hi - lo < TINY:  # everything was clipped: few values far from many zeros
        lo, hi = min(s.low, 0.0), max(s.high, 0.0)
    if symmetric:
        hi = max(-lo, hi)
        lo = -hi
    return lo, hi


def parse_method(method: str, known: Iterable[str] = METHODS) -> tuple[str, float | None]:
    """The name of a method and its percentage, if given; BadInput for an unknown method."""
    name, colon, given = str(method).partition(":")
    if name not in known or (colon and name != "percentile"):
        raise BadInput(f"method is '{method}'; known are {', '.join(known)}")
    if not colon:
        return name, None
    try:
        percent = float(given)
    except ValueError:
        percent = -1.0
    if not 50 < percent <= 100:
        raise BadInput(
            f"method is '{method}'; a percentage between 50 and 100 is meant, such as "
            "percentile:99.9"
        )
    return name, percent
