"""Connections of clients: the event loop reads large bodies to their place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from intaglio.serve.http_protocol import LINGER_S, LimitedProtocol
from intaglio.serve.settings import ServeSettings

PRECISION = 0.05  # of the shortest time that a connection may wait
READ = 32 << 10  # bytes that are read at once, but for large bodies


class Watch:
    """Looks at all connections every now and then, while there are some."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: ServeSettings,
        *groups: set[LimitedProtocol],
    ):
        waits = settings.header_timeout_s, settings.body_timeout_s, settings.keep_alive_s, LINGER_S
        self._every = min(waits) * PRECISION
        self._loop, self._groups, self._runs = loop, groups, False

    def start(self) -> None:
        if not self._runs:
            self._runs = True
            self._loop.call_later(self._every, self._look)

    def _look(self) -> None:
        now, found = self._loop.time(), [c for group in self._groups for c in group]
        for connection in found:
            connection.look(now)
        self._runs = False
        if found:
            self.start()


class Connection(asyncio.BufferedProtocol):
    """Gives the event loop memory to read into: that of a large body, or memory for the rest."""

    def __init__(self, http: LimitedProtocol, watch: Watch):
        self._http, self._memory, self._watch = http, http.memory, watch

    def connection_made(self, transport: Any) -> None:
        self._http.connection_made(transport)
        self._watch.start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        rest = self._http.rest
        return self._memory if rest is None else rest

    def buffer_updated(self, nbytes: int) -> None:
        if self._http.rest is None:
            self._http.data_received(bytes(self._memory[:nbytes]))
        else:
            self._http.received(nbytes)


def connections(
    config: Any, state: Any, settings: ServeSettings, loop: asyncio.AbstractEventLoop
) -> Callable[[], asyncio.BaseProtocol]:
    """What makes the protocol of each connection, with the limits of these settings."""
    memory = memoryview(bytearray(READ))  # what is read is taken before the next read
    lingering: set[LimitedProtocol] = set()
    shared = {
        "limits": settings,
        "lingering": lingering,
        "arriving": [0],
        "memory": memory,
        "paths": {},
    }
    kind = type("LimitedProtocol", (LimitedProtocol,), shared)
    watch = Watch(loop, settings, state.connections, lingering)
    return lambda: Connection(kind(config, state, {}, loop), watch)
