"""Counters and histograms of one version of a model. Only the event loop writes them."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

DECADE = (1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.3, 8.0)  # a bucket is 28 % wide at most
SHORT = tuple(round(m * 1e-5, 9) for m in DECADE[::2])  # below 0.1 ms
LATENCY_BUCKETS = (*SHORT, *(round(m * 10.0**e, 9) for e in range(-4, 1) for m in DECADE), 10.0)
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)
STEP_S = 1.0  # of the traffic that the page shows
STEPS = 60


class Histogram:
    """Counts of values by upper bounds; the last count is of those above all bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]):
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """The value below which a share of the counted values lie, interpolated within its bucket."""
    left = share * sum(counts)
    if not left:
        return None
    low = 0.0
    for high, n in zip(bounds, counts, strict=False):
        if n and left <= n:
            return low + (high - low) * left / n
        left, low = left - n, high
    return low


@dataclass(slots=True)
class Duration:
    """How often something happened, and how long it took in all."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int, times: int = 1) -> None:
        self.count += times
        self.ns += ns

    def plain(self) -> dict[str, int]:
        return {"count": self.count, "ns": self.ns}


@dataclass(slots=True)
class BatchTimes:
    """Times of all runs of one batch size."""

    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)

    def plain(self) -> dict[str, dict[str, int]]:
        return {n: getattr(self, n).plain() for n in self.__slots__}


PHASES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")


class Statistics:
    """What a version of a model has done."""

    def __init__(self) -> None:
        self.inferences = self.executions = self.padded = self.last_ms = 0
        self.phases = {n: Duration() for n in PHASES}
        self._answered = [d for n, d in self.phases.items() if n != "fail"]
        self.batches: dict[int, BatchTimes] = {}
        self.latency = Histogram(LATENCY_BUCKETS)
        self.queue = Histogram(LATENCY_BUCKETS)
        self.batch_size = Histogram(BATCH_BUCKETS)
        self.refused: dict[str, int] = {}
        self._recent: dict[int, int] = {}  # second -> rows
        self._before: deque[tuple[int, list[int]]] = deque(maxlen=STEPS)  # latency, by second

    def ran(self, rows: int, size: int, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """A batch of `rows` ran in the plan for `size`."""
        self.executions += 1
        self.padded += size - rows
        times = self.batches.get(rows)
        if times is None:
            times = self.batches[rows] = BatchTimes()
        for spent, ns in (
            (times.compute_input, input_ns),
            (times.compute_infer, infer_ns),
            (times.compute_output, output_ns),
        ):  # not by `add`: calls take longer
            spent.count += 1
            spent.ns += ns
        self.batch_size.add(rows)

    def answered(
        self, rows: int, total_ns: int, queue_ns: int, input_ns: int, infer_ns: int, output_ns: int
    ) -> None:
        """A request of `rows` was answered."""
        self.inferences += rows
        for spent, ns in zip(
            self._answered, (total_ns, queue_ns, input_ns, infer_ns, output_ns), strict=True
        ):
            spent.count += 1
            spent.ns += ns
        now = time.time()
        self.last_ms = int(now * 1000)
        second = int(now)
        if second in self._recent:
            self._recent[second] += rows
        else:
            self._recent[second] = rows
            self._before.append((second, self.latency.counts.copy()))
            for old in [s for s in self._recent if s < second - STEPS]:
                del self._recent[old]
        self.latency.add(total_ns * 1e-9)
        self.queue.add(queue_ns * 1e-9)

    def failed(self, reason: str, total_ns: int = 0) -> None:
        """A request was refused; reasons are few."""
        self.phases["fail"].add(total_ns)
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def recent(self) -> list[int]:
        """Inferences in each of the last seconds, the newest last."""
        now = int(time.time())
        return [self._recent.get(now - i, 0) for i in range(STEPS, 0, -1)]

    def recent_latency(self, share: float) -> float | None:
        """The latency below which a share of the last minute's requests were answered."""
        oldest = int(time.time()) - STEPS
        base = next((counts for second, counts in self._before if second >= oldest), None)
        if base is None:
            return None
        counts = [n - b for n, b in zip(self.latency.counts, base, strict=True)]
        return quantile(self.latency.bounds, counts, share)

    def plain(self, name: str, version: str) -> dict[str, object]:
        """Statistics as Triton's statistics extension words them."""
        stats = {n: d.plain() for n, d in self.phases.items()}
        stats |= {"cache_hit": Duration().plain(), "cache_miss": Duration().plain()}
        return {
            "name": name,
            "version": version,
            "last_inference": self.last_ms,
            "inference_count": self.inferences,
            "execution_count": self.executions,
            "inference_stats": stats,
            "batch_stats": [
                {"batch_size": n} | times.plain() for n, times in sorted(self.batches.items())
            ],
            "memory_usage": [],
            "response_stats": {},
            "latency": {"seconds": self.latency.bounds, "counts": self.latency.counts},
        }
