"""uvicorn's HTTP/1.1 protocol with limits: bytes of headers, time for headers and bodies.

A body within the limit reaches the application in one piece, which saves copies of large tensors.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httptools
import numpy as np
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from intaglio.serve.infer_messages import HEADER_LENGTH
from intaglio.serve.settings import ServeSettings

MAX_HEADER_BYTES = 64 << 10
MAX_HEADERS = 256
LARGE = 64 << 10  # bytes of a body
ALIGNMENT = 64
IDLE, HEADERS, BODY = "idle", "headers", "body"  # what of a request has arrived
FRAMING = (b"content-length", b"transfer-encoding")  # headers that say where a body ends
NO_HTTP = b"the request is no valid HTTP"
TOO_LONG = b"the headers are too long"
TOO_SLOW = b"the request took too long to arrive"
TOO_MANY = b"too many connections are open"


class WholeAnswer(RequestResponseCycle):
    """A request whose answer is written by one system call. The application sends it in one body,
    with its length and headers of its own."""

    whole: Any = None  # the body, which uvicorn would copy

    async def receive(self) -> Any:
        message: Any = await super().receive()
        if self.whole is not None and message["type"] == "http.request":
            message["body"], self.whole = self.whole, None
        return message

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        parts = [STATUS_LINE[self._start["status"]]]
        for name, value in self._start["headers"]:
            if name == b"connection":  # the application only ever closes
                self.keep_alive = False
            else:
                parts += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        if self.scope["method"] != "HEAD":
            parts.append(message["body"])
        self.response_started = self.response_complete = True
        self.transport.write(b"".join(parts))
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


class Continued:
    """What a second parser calls: of its first message, whose headers were seen, the body only."""

    def __init__(self, owner: LimitedProtocol):
        self._owner, self._messages = owner, 0
        self.on_body, self.on_message_complete = owner.on_body, owner.on_message_complete

    def on_message_begin(self) -> None:
        self._messages += 1
        if self._messages > 1:
            self._owner.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._messages > 1:
            self._owner.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._messages > 1:
            self._owner.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._messages > 1:
            self._owner.on_headers_complete()


class LimitedProtocol(HttpToolsProtocol):
    """A connection of a client that may be slow or hostile."""

    limits = ServeSettings()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._at, self._header_bytes = IDLE, 0
        self._timer: asyncio.TimerHandle | None = None
        if len(self.connections) > self.limits.max_connections:
            self._end(503, TOO_MANY)
            return
        self._wait(self.limits.header_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self._at
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("")
            return
        at = self._at
        if at is IDLE and (self.cycle is None or self.cycle.response_complete):
            self._wait(self.limits.header_timeout_s)  # empty lines are no request
            return
        if at is not before or at is IDLE:
            self._cancel()
        if at is HEADERS:
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADER_BYTES:
                self._end(431, TOO_LONG)
            self._wait(self.limits.header_timeout_s)
        elif at is BODY:
            self._wait(self.limits.body_timeout_s)

    def _parse(self, data: bytes) -> None:
        """Offers to upgrade, such as that of Java's HttpClient, are ignored: the parser takes what
        follows for another protocol, and is told that it is a body, or the next request."""
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as e:
                data = data[e.args[0] :]
            if self._at is BODY:
                framing = (b"%s: %s\r\n" % (n, v) for n, v in self.headers if n in FRAMING)
                self.parser = httptools.HttpRequestParser(Continued(self))
                self.parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n" % b"".join(framing))

    def send_400_response(self, msg: str) -> None:
        """The parser has given up: the answer is its last."""
        body = b'{"error":"%s"}' % NO_HTTP
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )
        self.transport.close()

    def on_message_begin(self) -> None:
        self._at = HEADERS
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MAX_HEADERS:
            raise ValueError("too many headers")  # httptools makes it a parser's error
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._at, self._header_bytes = BODY, 0
        self._parts: list[bytes] = []  # of the body; joined once
        self._size = 0
        super().on_headers_complete()
        self.cycle.__class__ = WholeAnswer  # its task has not begun

    def on_body(self, body: bytes) -> None:
        cycle: Any = self.cycle
        if cycle.response_complete:
            return
        self._parts.append(body)
        self._size += len(body)
        if self._size > self.limits.max_body:  # the application refuses it
            cycle.whole = b"".join(self._parts)
            self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() and any(
            n in FRAMING and v != b"0" for n, v in self.headers
        ):
            return  # its body follows
        self._at = IDLE
        parts, cycle = self._parts, cast(WholeAnswer, self.cycle)
        if parts and not cycle.response_complete:
            cycle.whole = parts[0] if len(parts) == 1 else self._joined(parts)
        self._parts = []
        super().on_message_complete()

    def _joined(self, parts: list[bytes]) -> Any:
        """The body. A large one lies so that its binary part is aligned, which saves a copy."""
        if self._size < LARGE:
            return b"".join(parts)
        given = (v for n, v in self.headers if n == HEADER_LENGTH and v.isdigit() and len(v) < 10)
        whole: Any = np.empty(self._size + ALIGNMENT, np.uint8)
        at = -(whole.ctypes.data + int(next(given, b"0"))) % ALIGNMENT
        body = memoryview(whole)[at : at + self._size]
        at = 0
        for part in parts:
            body[at : at + len(part)] = part
            at += len(part)
        return body

    def _wait(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(seconds, self._end, 408, TOO_SLOW)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, status: int, words: bytes) -> None:
        self._cancel()
        if self.transport is None or self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            body = b'{"error":"%s"}' % words
            self.transport.write(
                b"HTTP/1.1 %d Refused\r\ncontent-type: application/json\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n%s" % (status, len(body), body)
            )
        self.transport.close()


def limited_by(settings: ServeSettings) -> type[Any]:
    """The protocol class with the limits of these settings."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": settings})
