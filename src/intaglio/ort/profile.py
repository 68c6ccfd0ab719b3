"""The file that `end_profiling` writes: events as Chrome's trace viewer and Perfetto read them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from intaglio.files import write_atomically
from intaglio.native_session import StepProfile


class Profile:
    """The times of a session's runs."""

    def __init__(self, prefix: str):
        self.prefix = prefix
        self.start_ns = time.perf_counter_ns()
        self.began = time.strftime("%Y-%m-%d_%H-%M-%S")
        self.events: list[dict[str, Any]] = []

    def add(self, name: str, since_ns: int) -> None:
        """Record what has run since then."""
        now = time.perf_counter_ns()
        self.events.append(_event("Session", name, since_ns - self.start_ns, now - since_ns, {}))

    def write(self, plans: Sequence[Sequence[StepProfile]]) -> str:
        """Write the file; returns its name."""
        events = list(self.events)
        for number, steps in enumerate(plans):
            at = 0.0
            for i, step in enumerate(steps):
                mean = step.milliseconds * 1e6 / max(step.calls, 1)
                facts = {
                    "op_name": step.op,
                    "provider": "CPUExecutionProvider",
                    "node_index": str(i),
                    "plan": str(number),
                    "calls": str(step.calls),
                    "macs": str(step.macs),
                    "isa": step.isa,
                    "threads": str(step.threads),
                }
                name = f"{step.origin or step.op}_kernel_time"
                events.append(_event("Node", name, at, mean, facts))
                at += mean
        path = Path(f"{self.prefix}_{self.began}.json")
        write_atomically(path, json.dumps(events, indent=0).encode())
        return str(path)


def _event(kind: str, name: str, start: float, length: float, facts: dict[str, str]) -> Any:
    """One event; times are nanoseconds here and microseconds in the file."""
    return {
        "cat": kind,
        "pid": 0,
        "tid": 0,
        "dur": round(length / 1e3, 3),
        "ts": round(start / 1e3, 3),
        "ph": "X",
        "name": name,
        "args": facts,
    }
