"""One request over HTTP and its answer.

An inference request needs no task of asyncio: its coroutine goes on as soon as its body or its
result is there, in the same turn of the event loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from intaglio.serve.jobs import paused
from intaglio.serve.request_log import log

if TYPE_CHECKING:
    from intaglio.serve.http_protocol import LimitedProtocol

DISCONNECT = {"type": "http.disconnect"}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Exchange:
    """A request, from its headers to the last byte of its answer."""

    __slots__ = (
        "_future",
        "_wants_body",
        "_work",
        "awaits_100",
        "disconnected",
        "keep_alive",
        "may_start",
        "more_body",
        "protocol",
        "response_complete",
        "scope",
        "whole",
    )

    def __init__(
        self, protocol: LimitedProtocol, scope: dict[str, Any], keep_alive: bool, awaits_100: bool
    ):
        self.protocol, self.scope = protocol, scope
        self.keep_alive, self.awaits_100 = keep_alive, awaits_100
        self.may_start = False  # not before the answers to earlier requests of the connection
        self.disconnected = self.response_complete = False
        self.more_body, self.whole = True, b""  # the body, once it is here
        self._wants_body = False
        self._future: asyncio.Future[None] | None = None
        self._work: Any = None  # None: a task does it

    def proceed(self) -> None:
        """Begin, or go on with what has arrived of the body."""
        if self.may_start:
            self.may_start = False
            if self.disconnected:
                return
            if self.scope["path"].endswith("/infer"):
                self._work = self._answered()
                self.resume()
            else:
                protocol = self.protocol
                task = protocol.loop.create_task(self._answered())
                protocol.tasks.add(task)
                task.add_done_callback(protocol.tasks.discard)
        elif self._wants_body:
            self._wants_body = False
            if self._future is None:
                self.resume()
            elif not self._future.done():
                self._future.set_result(None)

    def resume(self, _: Any = None) -> None:
        """Go on until the coroutine waits again."""
        if self._work is None:
            return
        try:
            waits_for = self._work.send(None)
        except StopIteration:
            self._work = None
            return
        if waits_for is not None:  # a future; else `paused`
            waits_for._asyncio_future_blocking = False
            waits_for.add_done_callback(self.resume)

    async def receive(self) -> Any:
        """ASGI's: the body, or that the client is gone."""
        protocol = self.protocol
        if self.awaits_100 and not protocol.transport.is_closing():
            protocol.transport.write(CONTINUE)
            self.awaits_100 = False
        if self.more_body and not self.whole and not self.disconnected:
            protocol.flow.resume_reading()
            self._wants_body = True
            if self._work is not None:
                await paused()
            else:
                self._future = protocol.loop.create_future()
                await self._future
        if self.disconnected or self.response_complete:
            return DISCONNECT
        body, self.whole = self.whole, b""
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def _answered(self) -> None:
        protocol = self.protocol
        try:
            app: Any = protocol.app
            status, headers, body = await app.respond(self.scope, self.receive, self)
            if protocol.flow.write_paused and not self.disconnected:
                await protocol.flow.drain()
            if not self.disconnected:
                self._write(status, headers, body)
        except Exception as e:
            log.error("internal error", path=self.scope["path"][:200], error=repr(e))
            protocol.transport.close()

    def _write(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """The whole answer in one system call."""
        protocol = self.protocol
        if protocol.ends:
            self.keep_alive = False
        parts = [STATUS_LINE[status]]
        for name, value in headers:
            if name == b"connection":  # the application only ever closes
                self.keep_alive = False
            else:
                parts += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        if self.scope["method"] != "HEAD":
            parts.append(body)
        self.response_complete = True
        protocol.transport.write(b"".join(parts))
        if not self.keep_alive:
            protocol.end_after_answer()
        protocol.on_response_complete()

    def disconnect(self) -> None:
        """The client is gone, or gets no other answer."""
        if not self.response_complete:
            self.disconnected = True
        self.whole = b""  # nobody asks for it; the garbage collector takes a while
        self.proceed()
