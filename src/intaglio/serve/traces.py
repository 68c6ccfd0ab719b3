"""OpenTelemetry traces: a span for each inference request, with its time in the queue and its run.

The SDK reads its own environment variables: OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER,
OTEL_EXPORTER_OTLP_HEADERS and others.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import intaglio
from intaglio.errors import BadInput
from intaglio.extras import install_command

if TYPE_CHECKING:
    from intaglio.serve.jobs import Job
    from intaglio.serve.served_model import ServedModel

SERVER_ERROR = 500


@dataclass(slots=True)
class Traced:
    """What a span tells of a request, filled while it runs."""

    model: ServedModel | None = None
    job: Job | None = None
    ended: int = 0  # the run


class Traces:
    """Makes spans of requests that have ended, and sends them in the background."""

    def __init__(self, endpoint: str, exporter: Any = None):
        try:
            from opentelemetry.propagate import extract
            from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

            if exporter is None:
                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

                exporter = OTLPSpanExporter(endpoint=endpoint)
        except ImportError as e:
            raise BadInput(
                f"traces need the Python package '{e.name}'; install it: "
                f"{install_command('traces')}"
            ) from None
        given = {SERVICE_VERSION: intaglio.__version__}
        resource = Resource.create({SERVICE_NAME: "intaglio"} | given)
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("intaglio.serve", intaglio.__version__)
        self._extract, self._in_context = extract, set_span_in_context
        self._kind, self._error = SpanKind.SERVER, Status(StatusCode.ERROR)
        self._offset = time.time_ns() - perf_counter_ns()  # from the clock of jobs to that of spans

    def record(
        self, headers: Mapping[str, str], started: int, status: int, request_id: str, seen: Traced
    ) -> None:
        """Make the span of a request; `headers` may name the caller's span (traceparent)."""
        now = perf_counter_ns()
        name = "infer" if seen.model is None else f"infer {seen.model.name}"
        span = self._tracer.start_span(
            name, self._extract(headers), self._kind, start_time=started + self._offset
        )
        if span.is_recording():
            span.set_attribute("http.response.status_code", status)
            if request_id:
                span.set_attribute("intaglio.request_id", request_id)
            if status >= SERVER_ERROR:
                span.set_status(self._error)
            self._parts(span, seen, now)
        span.end(now + self._offset)

    def _parts(self, span: Any, seen: Traced, now: int) -> None:
        """The spans inside: waiting in the queue, and running."""
        model, job = seen.model, seen.job
        if model is None or job is None:
            return
        span.set_attribute("intaglio.model", model.name)
        span.set_attribute("intaglio.version", model.version)
        span.set_attribute("intaglio.rows", job.rows)
        context = self._in_context(span)
        run = job.started if job.started > 1 else now
        for name, start, end in (("queue", job.arrived, run), ("run", run, seen.ended or now)):
            if end > start:
                part = self._tracer.start_span(name, context, start_time=start + self._offset)
                part.end(end + self._offset)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()
