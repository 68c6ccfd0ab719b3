"""What a rollout watches: how the canary answers, beside the stable servers at the same time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from intaglio.arguments import whole_number
from intaglio.errors import BadInput, did_you_mean
from intaglio.serve.statistics import quantile

GUARDS = ("p99", "errors", "agreement")
SIGMAS = 3.0  # by which a count may be above its expectation by chance
EARLY = 20  # answers of the canary before a guard may end a step early


@dataclass
class Side:
    """What the stable or the canary servers did in a time."""

    requests: int = 0
    errors: int = 0
    latency: list[int] = field(default_factory=list)  # answers by bucket
    down: list[str] = field(default_factory=list)  # servers that do not answer


@dataclass
class Observed:
    """Both sides, and the answers to copied requests."""

    stable: Side = field(default_factory=Side)
    canary: Side = field(default_factory=Side)
    same: int = 0
    different: int = 0
    bounds: Sequence[float] = ()  # of the buckets, seconds


@dataclass(frozen=True)
class Limits:
    """When a version is taken back."""

    guards: Sequence[str] = GUARDS
    max_slower: float = 1.5  # p99 of the canary, in multiples of the stable servers'
    max_errors: float = 1.0  # percent of requests, above the share of the stable servers
    min_agreement: float = 99.0  # percent of compared answers
    min_requests: int = 100  # of the canary, and compared answers, before a step is passed

    def __post_init__(self) -> None:
        for name in self.guards:
            if name not in GUARDS:
                raise BadInput(
                    f"no guard is called '{name[:40]}'; they are {', '.join(GUARDS)}"
                    f"{did_you_mean(name, GUARDS)}"
                )
        if not self.guards:
            raise BadInput(f"a rollout needs a guard; give some of {', '.join(GUARDS)}")
        whole_number("min_requests", self.min_requests, 1)
        for f, low, high in (("max_slower", 1, 100), ("max_errors", 0, 100)):
            if not low <= getattr(self, f) <= high:
                raise BadInput(f"{f} is {getattr(self, f)}; give {low} to {high}")
        if not 0 <= self.min_agreement <= 100:
            raise BadInput(f"min_agreement is {self.min_agreement}; give 0 to 100")


def judged(now: Observed, limits: Limits) -> str | None:
    """Why the new version is to be taken back; None if nothing speaks against it.

    A share counts as above its limit only if chance alone does not explain it (3 sigmas).
    """
    if now.canary.down:
        return f"canary server {now.canary.down[0]} is down"
    found = {"errors": _errors, "p99": _p99, "agreement": _agreement}
    for name in limits.guards:
        if (why := found[name](now, limits)) is not None:
            return f"{name}: {why}"
    return None


def enough(now: Observed, limits: Limits) -> bool:
    """Whether the canary has answered enough requests for a verdict, by the proxy's count and by
    its own."""
    compared, canary = now.same + now.different, now.canary
    answered = min(canary.requests - canary.errors, sum(canary.latency))
    return answered >= limits.min_requests and (
        "agreement" not in limits.guards or compared >= limits.min_requests
    )


def _exceeds(count: int, n: int, share: float) -> bool:
    """Whether `count` of `n` is more than a share explains."""
    return n >= EARLY and count > n * share + SIGMAS * math.sqrt(n * share * (1 - share)) + 1


def _errors(now: Observed, limits: Limits) -> str | None:
    stable, canary = now.stable, now.canary
    usual = stable.errors / stable.requests if stable.requests else 0.0
    allowed = min(usual + limits.max_errors / 100, 1.0)
    if not _exceeds(canary.errors, max(canary.requests, canary.errors), allowed):
        return None
    share = canary.errors / max(canary.requests, canary.errors)
    return f"{share:.1%} of the canary's requests failed; stable: {usual:.1%}"


def _p99(now: Observed, limits: Limits) -> str | None:
    usual = quantile(now.bounds, now.stable.latency, 0.99)
    if usual is None or not now.canary.latency:
        return None
    slow = above(now.bounds, now.canary.latency, usual * limits.max_slower)
    n = sum(now.canary.latency)
    if not _exceeds(math.floor(slow), n, 0.01):
        return None
    ours = quantile(now.bounds, now.canary.latency, 0.99)
    assert ours is not None
    return (
        f"the canary's is {ours * 1e3:.3g} ms; stable: {usual * 1e3:.3g} ms, times "
        f"{limits.max_slower:g} is the limit"
    )


def _agreement(now: Observed, limits: Limits) -> str | None:
    n = now.same + now.different
    if not _exceeds(now.different, n, 1 - limits.min_agreement / 100):
        return None
    return f"{now.same / n:.1%} of {n} answers agree; the limit is {limits.min_agreement:g} %"


def above(bounds: Sequence[float], counts: Sequence[int], limit: float) -> float:
    """How many of the counted values are above a limit; a bucket's values are spread evenly."""
    found, low = 0.0, 0.0
    for high, n in zip((*bounds, math.inf), counts, strict=True):
        if low >= limit:
            found += n
        elif high > limit and n:
            found += 0.0 if math.isinf(high) else n * (high - limit) / (high - low)
        low = high
    return found


def difference(now: Side, before: Side) -> Side:
    """What a side did since; counts that began anew, because a server did, are taken whole."""
    made = Side(down=now.down)
    for f in fields(Side):
        if f.name == "down":
            continue
        a, b = getattr(now, f.name), getattr(before, f.name)
        if isinstance(a, int):
            made.__setattr__(f.name, a - b if a >= b else a)
        elif len(a) == len(b) and all(x >= y for x, y in zip(a, b, strict=True)):
            made.latency = [x - y for x, y in zip(a, b, strict=True)]
        else:
            made.latency = list(a)
    return made
