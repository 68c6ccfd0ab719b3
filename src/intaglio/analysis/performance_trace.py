"""The timeline of a performance report as events for chrome://tracing and Perfetto."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from intaglio.analysis.performance import LayerRow, Performance
from intaglio.npu.own import isa
from intaglio.npu.predict.engines import Timed


def events(p: Performance) -> Iterator[dict[str, Any]]:
    """The events of NPU queues and CPU, or of a vendor's engines."""
    if p.commands is not None:
        yield from _command_events(p.commands)
        return
    yield _metadata_event("process_name", 0, 0, "CPU")
    for core, number in enumerate(p.core_numbers):
        yield _metadata_event("process_name", core + 1, 0, f"NPU core {number}")
        for q, queue in enumerate(isa.QUEUES):
            yield _metadata_event("thread_name", core + 1, q, queue)
    for part in p.parts:
        rows = [r for r in p.layers if r.module == part.name]
        if part.line is None:
            now = part.begin
            for r in rows:
                yield _event(f"{r.op} {r.name}", 0, 0, now, r.microseconds, r)
                now += r.microseconds
            continue
        of, c, scale = {r.layer: r for r in rows}, part.line.costs, 1.0 / part.line.chip.clock
        first = part.end - part.line.cycles * scale
        for i in range(len(c)):
            row = of[int(c.layer[i])]
            start, end = (float(t[i]) * scale for t in (part.line.start, part.line.end))
            yield _event(
                f"{isa.NAMES[int(c.op[i])]} {row.name}",
                int(c.core[i]) + 1,
                int(c.queue[i]),
                first + start,
                end - start,
                row,
            )


def _command_events(timed: Timed) -> Iterator[dict[str, Any]]:
    """The events of a vendor's commands: a thread for each engine."""
    engines = list(dict.fromkeys(s.engine for s in timed.steps))
    for i, name in enumerate(engines):
        yield _metadata_event("thread_name", 0, i, name)
    for s, begin in zip(timed.steps, timed.begin, strict=True):
        yield {
            "name": f"{s.what} {timed.layers[s.layer].name}",
            "ph": "X",
            "pid": 0,
            "tid": engines.index(s.engine),
            "ts": begin,
            "dur": s.microseconds,
            "args": {"bytes": s.bytes},
        }


def _metadata_event(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _event(name: str, pid: int, tid: int, begin: float, long: float, r: LayerRow) -> dict[str, Any]:
    return {
        "name": name,
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": begin,
        "dur": long,
        "args": {"id": r.id, "module": r.module, "bound": r.bound},
    }
