"""The state of streaming models: one session for each sequence id, dropped when it is idle."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from intaglio.serve.jobs import State
from intaglio.serve.refusals import Refused, bad_request

MAX_ID = 128  # characters of a sequence id


@dataclass(slots=True)
class Sequence:
    """A stream of requests, with the session that carries its state."""

    session: State
    used: float
    running: int = 0


class Sequences:
    """All sequences of one version of a model, the longest idle first."""

    def __init__(self, make: Callable[[], State], limit: int, idle: float):
        self._make, self._limit, self._idle_s = make, limit, idle
        self._known: OrderedDict[str, Sequence] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, parameters: dict[str, object]) -> tuple[str, Sequence]:
        """The sequence of a request, by its parameters; a new one if it starts."""
        key = sequence_id(parameters)
        self.sweep()
        found = self._known.get(key)
        if parameters.get("sequence_start"):
            if found is not None and found.running:
                raise bad_request(f"sequence {key!r} starts anew while a request of it is running")
            if found is None:
                self._make_room()
                found = self._known[key] = Sequence(self._make(), 0.0)
            found.session.reset()
        elif found is None:
            raise bad_request(
                f"sequence {key!r} is not known: it has not started, has ended, or was idle for "
                f"{self._idle_s:g} s; send its first request with sequence_start"
            )
        found.used = time.monotonic()
        found.running += 1
        self._known.move_to_end(key)
        self._wait()
        return key, found

    def end(self, key: str, sequence: Sequence, last: bool) -> None:
        """A request of a sequence was answered."""
        sequence.running -= 1
        sequence.used = time.monotonic()
        if last and not sequence.running and self._known.get(key) is sequence:
            del self._known[key]
            sequence.session.close()

    def sweep(self) -> None:
        """Drop sequences that were idle for too long."""
        limit = time.monotonic() - self._idle_s
        while self._known:
            key, oldest = next(iter(self._known.items()))
            if oldest.used > limit or oldest.running:
                return
            del self._known[key]
            oldest.session.close()

    def _wait(self) -> None:
        """Look for idle sequences later, without a request."""
        if self._timer is None and self._known:
            self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._look)

    def _look(self) -> None:
        self._timer = None
        self.sweep()
        self._wait()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for sequence in self._known.values():
            sequence.session.close()
        self._known.clear()

    def _make_room(self) -> None:
        if len(self._known) >= self._limit:
            raise Refused(
                503,
                f"{self._limit} sequences are open; end one, or serve with more max_sequences",
                retry_after=1,
            )


def sequence_id(parameters: dict[str, object]) -> str:
    """The id of a request's sequence: a number above 0, or words."""
    given = parameters.get("sequence_id")
    if isinstance(given, bool) or not isinstance(given, int | str) or given in (0, ""):
        raise bad_request(
            "the model keeps state between requests; give the parameter sequence_id, a number "
            "above 0 or a string, and sequence_start with the first request"
        )
    if len(str(given)) > MAX_ID:
        raise bad_request(f"sequence_id has {len(str(given))} characters; at most {MAX_ID}")
    return str(given)
