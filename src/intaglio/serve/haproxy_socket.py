"""HAProxy's runtime socket: servers of a backend, their weights and counts."""

from __future__ import annotations

import csv
import io
import socket
from dataclasses import dataclass
from pathlib import Path

from intaglio.errors import BadInput

TIMEOUT_S = 5.0
MAX_ANSWER = 16 << 20
MAX_WEIGHT = 256
# Answers that are errors, connections that failed, answers that were cut off, and requests that
# HAProxy repeated, here or on another server: their clients saw no error.
ERRORS = ("hrsp_4xx", "hrsp_5xx", "econ", "eresp", "wretr", "wredis")


@dataclass(frozen=True)
class ProxyServer:
    """A server of a backend, with its counts since HAProxy started."""

    name: str
    address: str
    weight: int
    is_up: bool
    requests: int
    errors: int  # answers 4xx and 5xx, and requests that it did not answer


class HaproxySocket:
    """Commands for a running HAProxy."""

    def __init__(self, path: str | Path):
        self.path = str(path)

    def servers(self, backend: str) -> list[ProxyServer]:
        """The servers of a backend, in the order of the configuration."""
        text = self.command(f"show stat {backend} 4 -1")
        rows = csv.DictReader(io.StringIO(text.removeprefix("# ")))
        found = [
            ProxyServer(
                row["svname"],
                row.get("addr") or "",
                _number(row["weight"]),
                row["status"].startswith(("UP", "no check")),
                _number(row["stot"]),
                sum(_number(row[n]) for n in ERRORS),
            )
            for row in rows
            if row["svname"] not in ("FRONTEND", "BACKEND")
        ]
        if not found:
            raise BadInput(
                f"the HAProxy at {self.path} has no backend '{backend}'; write its configuration "
                "anew with intaglio gateway"
            )
        return found

    def set_weight(self, backend: str, server: str, weight: int) -> None:
        """Set the weight of a server, 0 to 256."""
        answer = self.command(f"set server {backend}/{server} weight {weight}").strip()
        if answer:
            raise BadInput(f"HAProxy does not set the weight of {backend}/{server}: {answer}")

    def command(self, line: str) -> str:
        """The answer to one command."""
        parts, size = [], 0
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
                s.settimeout(TIMEOUT_S)
                s.connect(self.path)
                s.sendall(line.encode() + b"\n")
                while (part := s.recv(1 << 16)) and size < MAX_ANSWER:
                    parts.append(part)
                    size += len(part)
        except OSError as e:
            raise BadInput(
                f"cannot reach HAProxy at {self.path}: {e.strerror or e}; start it with the "
                "configuration of intaglio gateway"
            ) from None
        return b"".join(parts).decode("utf-8", "replace")


def weights_of(percent: float, stable: int, canary: int) -> tuple[int, int]:
    """Weights of each stable and each canary server, so that the canary ones get `percent` of all
    requests; the nearest that whole numbers up to 256 allow."""
    if percent <= 0:
        return MAX_WEIGHT, 0
    if percent >= 100:
        return 0, MAX_WEIGHT

    def wrong(weights: tuple[int, int]) -> float:
        s, c = weights[0] * stable, weights[1] * canary
        return abs(100 * c / (s + c) - percent)

    candidates = []
    for s in range(1, MAX_WEIGHT + 1):
        c = round(percent / (100 - percent) * s * stable / canary)
        candidates.append((s, min(max(c, 1), MAX_WEIGHT)))
    return min(candidates, key=wrong)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
