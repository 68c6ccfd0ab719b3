"""uvicorn's HTTP/1.1 protocol with limits: bytes of headers, time for headers and bodies.

A body within the limit reaches the application in one piece. The system writes a large one to where
the model reads it, which saves copies of large tensors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
READ = 32 << 10  # bytes that are read at once, but for large bodies
LARGE = 64 << 10  # bytes of a body
MAX_PARTS = 64  # of a body in chunks; small ones are joined early
ALIGNMENT = 64
MIN_ARRIVING = 256 << 20  # bytes of bodies that may arrive at the same time, or four of the largest
LINGER_S = 5.0  # in which a client may read the answer before the connection is closed
IDLE, HEADERS, BODY = "idle", "headers", "body"  # what of a request has arrived
FRAMING = (b"content-length", b"transfer-encoding")  # headers that say where a body ends
NO_HTTP = b"the request is no valid HTTP"
TOO_LONG = b"the headers are too long"
TOO_SLOW = b"the request took too long to arrive"
TOO_MUCH = b"too many large requests arrive at the same time; send the request again later"
TOO_MANY = b"too many connections are open; send the request again later"
RETRY_LATER = b"retry-after: 1\r\n"


class WholeAnswer(RequestResponseCycle):
    """A request whose answer is written by one system call. The application sends it in one body,
    with its length and headers of its own."""

    protocol: LimitedProtocol
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
        if self.protocol.ends:
            self.keep_alive = False
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
            self.protocol.end_after_answer()
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
    lingering: set[LimitedProtocol]  # closed, but that the client may read its answer
    arriving: list[int]  # bytes of all bodies that are arriving
    memory: memoryview  # of the server, for what is not a large body
    ends = False  # whether the next answer is the last

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._at, self._header_bytes = IDLE, 0
        self._timer: asyncio.TimerHandle | None = None
        self.rest: memoryview | None = None  # where the rest of a large body is to be written
        self._whole: memoryview | None = None  # the memory of that body
        self._parts: list[bytes | bytearray] = []  # of another body; joined once
        self._left = self._held = 0  # bytes of it; of the body, as `arriving` has them
        if len(self.connections) > self.limits.max_connections:
            self._end(503, TOO_MANY)
            return
        self._wait(self.limits.header_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        self.lingering.discard(self)
        self._hold(0)
        self._parts = []
        if self.cycle is not None:  # nobody asks for its body; the garbage collector takes a while
            cast(WholeAnswer, self.cycle).whole = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self in self.lingering:
            return
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
            self._expect_large()

    def _expect_large(self) -> None:
        """Let the system write the rest of a large body to its place."""
        sizes = [int(v) for n, v in self.headers if n == FRAMING[0]]
        plain = len(sizes) == 1 and not any(n == FRAMING[1] for n, _ in self.headers)
        if plain and LARGE <= sizes[0] <= self.limits.max_body and not self.parser.should_upgrade():
            if not self._hold(sizes[0]):
                return
            whole = self._whole = self._aligned(sizes[0])
            self._gather(whole)
            self.rest, self._left = whole[self._size :], sizes[0] - self._size

    def received(self, n: int) -> None:
        """Bytes of a large body were written to `rest`."""
        assert self.rest is not None
        self._unset_keepalive_if_required()
        self._left -= n
        if not self._left:
            self._cancel()
            self.parser = httptools.HttpRequestParser(self)  # the other one expects the body
            self._complete(self._whole)
            if self.cycle.response_complete:
                self._wait(self.limits.header_timeout_s)
        elif self.cycle.response_complete:  # refused: the rest is thrown away
            self._hold(0)
            self.rest = self.memory[: self._left]
        else:
            self.rest = self.rest[n:]

    def _hold(self, size: int) -> bool:
        """Count the bytes of the body that arrives; False if all together are too many."""
        self.arriving[0] += size - self._held
        self._held = size
        if not size:
            self.rest = self._whole = None
        elif self.arriving[0] > max(MIN_ARRIVING, 4 * self.limits.max_body):
            self._end(503, TOO_MUCH)
            return False
        return True

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
        self.linger()

    def end_after_answer(self) -> None:
        """Close the connection; not at once if a part of the request is not read."""
        if self._at is IDLE:
            self.transport.close()
        else:
            self.linger()

    def linger(self) -> None:
        """Close the connection when the client has read the answer: if bytes of the request arrive
        at a closed socket, the system resets the connection, and the answer may be lost."""
        self._cancel()
        self._unset_keepalive_if_required()
        if self.transport.is_closing():
            return
        self.connections.discard(self)
        self._hold(0)
        if len(self.lingering) >= self.limits.max_connections:
            self.transport.close()
            return
        self.lingering.add(self)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(LINGER_S, self.transport.close)

    def on_message_begin(self) -> None:
        self._at = HEADERS
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MAX_HEADERS:
            raise ValueError("too many headers")  # httptools makes it a parser's error
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._at, self._header_bytes = BODY, 0
        self._parts = []
        self._size = 0
        super().on_headers_complete()
        cycle: Any = self.cycle
        cycle.__class__ = WholeAnswer  # its task has not begun
        cycle.protocol = self

    def on_body(self, body: bytes) -> None:
        cycle: Any = self.cycle
        if cycle.response_complete or cycle.disconnected:
            return
        parts = self._parts
        parts.append(body)
        self._size += len(body)
        if len(parts) > MAX_PARTS:
            joined = parts[0] if isinstance(parts[0], bytearray) else bytearray(parts[0])
            for part in parts[1:]:
                joined += part
            self._parts = [joined]
        if self._size > self._held + LARGE and not self._hold(self._size):
            return
        if self._size > self.limits.max_body:  # the application refuses it
            cycle.whole = b"".join(self._parts)
            self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() and any(
            n in FRAMING and v != b"0" for n, v in self.headers
        ):
            return  # its body follows
        parts = self._parts
        self._complete(parts[0] if len(parts) == 1 else self._joined())

    def _complete(self, whole: Any) -> None:
        """The request is here."""
        cycle = cast(WholeAnswer, self.cycle)
        self._at, self._parts = IDLE, []
        self._hold(0)
        if whole and not cycle.response_complete:
            cycle.whole = whole
        super().on_message_complete()

    def _joined(self) -> Any:
        """The parts of the body in one piece."""
        if self._size < LARGE:
            return b"".join(self._parts)
        whole = self._aligned(self._size)
        self._gather(whole)
        return whole

    def _aligned(self, size: int) -> memoryview:
        """Memory for a body. It lies so that its binary part is aligned, which saves a copy."""
        given = (v for n, v in self.headers if n == HEADER_LENGTH and v.isdigit() and len(v) < 10)
        memory: Any = np.empty(size + ALIGNMENT, np.uint8)
        at = -(memory.ctypes.data + int(next(given, b"0"))) % ALIGNMENT
        return memoryview(memory)[at : at + size]

    def _gather(self, whole: memoryview) -> None:
        at = 0
        for part in self._parts:
            whole[at : at + len(part)] = part
            at += len(part)

    def _wait(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(seconds, self._end, 408, TOO_SLOW)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, status: int, words: bytes) -> None:
        self._cancel()
        if self.transport is None or self.transport.is_closing() or self in self.lingering:
            return
        cycle: Any = self.cycle
        unanswered = cycle is not None and not cycle.response_complete
        if unanswered and (self._at is not BODY or self.pipeline):  # another request's answer
            self.transport.close()
            return
        body = b'{"error":"%s"}' % words
        later = RETRY_LATER if status == 503 else b""
        self.transport.write(
            b"HTTP/1.1 %d Refused\r\ncontent-type: application/json\r\nconnection: close\r\n"
            b"%scontent-length: %d\r\n\r\n%s" % (status, later, len(body), body)
        )
        if unanswered:
            cycle.disconnected = True  # the application stops to wait for the body
            cycle.message_event.set()
        self.linger()


class Connection(asyncio.BufferedProtocol):
    """Gives the event loop memory to read into: that of a large body, or memory for the rest."""

    def __init__(self, http: LimitedProtocol):
        self._http, self._memory = http, http.memory

    def connection_made(self, transport: Any) -> None:
        self._http.connection_made(transport)

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
    shared = {"limits": settings, "lingering": set(), "arriving": [0], "memory": memory}
    kind = type("LimitedProtocol", (LimitedProtocol,), shared)
    return lambda: Connection(kind(config, state, {}, loop))
