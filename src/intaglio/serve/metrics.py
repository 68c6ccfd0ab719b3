"""The metrics of the server for Prometheus. Labels are names of loaded models and fixed reasons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from intaglio.serve.statistics import Histogram

if TYPE_CHECKING:
    from intaglio.serve.server import Server

LABELS = ["model", "version"]


class Metrics:
    """Collects the figures of all served models when Prometheus asks."""

    def __init__(self, server: Server):
        self._server = server
        self._refused: dict[str, int] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        for made in (ProcessCollector, GCCollector, PlatformCollector):
            made(registry=self._registry)

    def refused(self, reason: str) -> None:
        """Count a refused request of any model."""
        self._refused[reason] = self._refused.get(reason, 0) + 1

    def exposition(self) -> tuple[bytes, bytes]:
        """The content type and the text of all metrics."""
        return CONTENT_TYPE_LATEST.encode(), generate_latest(self._registry)

    def collect(self) -> Iterator[Any]:
        models = self._server.repository.models()
        ready = GaugeMetricFamily("intaglio_ready", "1 while the server is ready")
        ready.add_metric([], float(self._server.is_ready()))
        yield ready
        refused = CounterMetricFamily(
            "intaglio_http_refused", "Requests refused, by reason", labels=["reason"]
        )
        for reason, n in sorted(self._refused.items()):
            refused.add_metric([reason], n)
        yield refused
        for name, words, unit in (
            ("latency", "Time from arrival to answer", "_seconds"),
            ("queue", "Time in the queue", "_seconds"),
            ("batch_size", "Rows of a run", ""),
        ):
            family = HistogramMetricFamily(f"intaglio_{name}{unit}", words, labels=LABELS)
            for m in models:
                found: Histogram = getattr(m.statistics, name)
                family.add_metric([m.name, m.version], _buckets(found), found.sum)
            yield family
        yield from self._counters(models)

    def _counters(self, models: list[Any]) -> Iterator[Any]:
        for name, words in (
            ("inferences", "Rows answered"),
            ("executions", "Runs of the model"),
            ("padded", "Rows of padding that were computed"),
        ):
            family = CounterMetricFamily(f"intaglio_{name}", words, labels=LABELS)
            for m in models:
                family.add_metric([m.name, m.version], getattr(m.statistics, name))
            yield family
        failed = CounterMetricFamily(
            "intaglio_failed", "Requests without an answer, by reason", labels=[*LABELS, "reason"]
        )
        waiting = GaugeMetricFamily("intaglio_waiting", "Requests in the queue", labels=LABELS)
        for m in models:
            waiting.add_metric([m.name, m.version], m.batcher.waiting)
            for reason, n in sorted(m.statistics.refused.items()):
                failed.add_metric([m.name, m.version, reason], n)
        yield failed
        yield waiting
        if self._server.shadow is not None:
            copied = CounterMetricFamily(
                "intaglio_shadow", "Copied requests, by result", labels=["model", "result"]
            )
            for name, counts in sorted(self._server.shadow.counts.items()):
                for result, n in counts.items():
                    copied.add_metric([name, result], n)
            yield copied


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    total, made = 0, []
    for bound, n in zip((*histogram.bounds, None), histogram.counts, strict=True):
        total += n
        made.append(("+Inf" if bound is None else str(float(bound)), float(total)))
    return made
