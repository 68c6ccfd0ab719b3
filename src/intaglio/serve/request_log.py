"""Structured logs: one JSON object a line on stderr."""

from __future__ import annotations

import sys
import time
from typing import Any

import msgspec

MAX_PER_SECOND = 100  # lines; more are counted and left out


class RequestLog:
    """Writes lines; too many in a second are left out, and their number is written instead."""

    def __init__(self) -> None:
        self._second = self._written = self._left_out = 0
        self._encode = msgspec.json.Encoder(enc_hook=str).encode

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        now = time.time()
        if int(now) != self._second:
            left, self._second, self._written, self._left_out = self._left_out, int(now), 0, 0
            if left:
                self._line(now, "warning", "log lines left out", {"count": left})
        if self._written >= MAX_PER_SECOND:
            self._left_out += 1
            return
        self._written += 1
        self._line(now, level, event, fields)

    def _line(self, now: float, level: str, event: str, fields: dict[str, Any]) -> None:
        line = {"time": round(now, 3), "level": level, "event": event} | fields
        sys.stderr.write(self._encode(line).decode() + "\n")
        sys.stderr.flush()


log = RequestLog()
