"""uvicorn's HTTP/1.1 protocol with limits: bytes of headers, time for headers and bodies.

A body within the limit reaches the application in one piece. The system writes a large one to where
the model reads it, which saves copies of large tensors.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote

import httptools
import numpy as np
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from intaglio.array_addresses import address_of
from intaglio.serve.exchange import Exchange
from intaglio.serve.infer_messages import HEADER_LENGTH
from intaglio.serve.settings import ServeSettings

MAX_HEADER_BYTES = 64 << 10
MAX_HEADERS = 256
LARGE = 64 << 10  # bytes of a body
MAX_PARTS = 64  # of a body in chunks; small ones are joined early
ALIGNMENT = 64
MIN_ARRIVING = 256 << 20  # bytes of bodies that may arrive at the same time, or four of the largest
LINGER_S = 5.0  # in which a client may read the answer before the connection is closed
IDLE, HEADERS, BODY = "idle", "headers", "body"  # what of a request has arrived
FRAMING = (b"content-length", b"transfer-encoding")  # headers that say where a body ends
MAX_DIGITS = 10  # of the length of a JSON header
MAX_PATHS = 1024  # that are remembered, and bytes of one
NO_HTTP = b"the request is no valid HTTP"
TOO_LONG = b"the headers are too long"
TOO_SLOW = b"the request took too long to arrive"
TOO_MUCH = b"too many large requests arrive at the same time; send the request again later"
TOO_MANY = b"too many connections are open; send the request again later"
RETRY_LATER = b"retry-after: 1\r\n"


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
    paths: dict[bytes, str]  # of URLs that were seen
    ends = False  # whether the next answer is the last

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._at, self._header_bytes = IDLE, 0
        self._until = self._idle_until = 0.0  # when the connection has waited long enough
        self.rest: memoryview | None = None  # where the rest of a large body is to be written
        self._whole: memoryview | None = None  # the memory of that body
        self._parts: list[bytes | bytearray] = []  # of another body; joined once
        self._left = self._held = 0  # bytes of it; of the body, as `arriving` has them
        self._stirred: list[Exchange] = []  # of which something has arrived
        if len(self.connections) > self.limits.max_connections:
            self._end(503, TOO_MANY)
            return
        self._wait(self.limits.header_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        self.lingering.discard(self)
        self._hold(0)
        self._parts = []
        self.connections.discard(self)
        self._unset_keepalive_if_required()
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        self.parser = None  # type: ignore[assignment]
        for exchange, _ in (*self.pipeline, (self.cycle, None)):
            if exchange is not None:
                exchange.disconnect()  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if self in self.lingering:
            return
        self._take(data)
        self._stir()

    def _stir(self) -> None:
        """Answer what has arrived; that comes last, because it may end the connection."""
        stirred = self._stirred
        while stirred:
            stirred.pop(0).proceed()

    def _take(self, data: bytes) -> None:
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
        if len(self._framing) != 1 or self._framing[0][0] != FRAMING[0]:
            return
        size = int(self._framing[0][1])
        if LARGE <= size <= self.limits.max_body and not self.parser.should_upgrade():
            if not self._hold(size):
                return
            whole = self._whole = self._aligned(size)
            self._gather(whole)
            self.rest, self._left = whole[self._size :], size - self._size

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
            self._stir()
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
                framing = (b"%s: %s\r\n" % pair for pair in self._framing)
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
        self._until = self.loop.time() + LINGER_S

    def on_message_begin(self) -> None:
        self._at = HEADERS
        self.url, self.headers = b"", []
        self._framing: list[tuple[bytes, bytes]] = []
        self._json_size = 0
        self.expect_100_continue = False

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self.headers
        if len(headers) >= MAX_HEADERS:
            raise ValueError("too many headers")  # httptools makes it a parser's error
        name = name.lower()
        headers.append((name, value))
        if name in FRAMING:
            self._framing.append((name, value))
        elif name == HEADER_LENGTH:
            self._json_size = int(value) if value.isdigit() and len(value) < MAX_DIGITS else 0
        elif name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        self._at, self._header_bytes = BODY, 0
        self._parts = []
        self._size = 0
        parser, url = self.parser, self.url
        path = self.paths.get(url)
        if path is None:
            path = httptools.parse_url(url).path.decode("ascii")
            path = unquote(path) if "%" in path else path
            if len(self.paths) < MAX_PATHS and len(url) < MAX_PATHS:
                self.paths[url] = path
        method = parser.get_method().decode("ascii")
        scope = {"type": "http", "method": method, "path": path, "headers": self.headers}
        keep_alive = parser.should_keep_alive() and parser.get_http_version() != "1.0"
        before, exchange = self.cycle, Exchange(self, scope, keep_alive, self.expect_100_continue)
        self.cycle = exchange  # type: ignore[assignment]
        if before is None or before.response_complete:
            exchange.may_start = True
            self._stirred.append(exchange)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))  # type: ignore[arg-type]

    def on_response_complete(self) -> None:
        """An answer is written: begin with the request that waits for that, or wait for one."""
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            exchange: Any = self.pipeline.pop()[0]
            exchange.may_start = True
            self.loop.call_soon(exchange.proceed)  # not now: a thousand of them may wait
        else:
            self._idle_until = self.loop.time() + self.limits.keep_alive_s

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
            self._stirred.append(cycle)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() and any(v != b"0" for _, v in self._framing):
            return  # its body follows
        parts = self._parts
        self._complete(parts[0] if len(parts) == 1 else self._joined())

    def _complete(self, whole: Any) -> None:
        """The request is here."""
        exchange: Any = self.cycle
        self._at, self._parts = IDLE, []
        self._hold(0)
        if not exchange.response_complete and not exchange.disconnected:
            exchange.whole, exchange.more_body = whole, False
            self._stirred.append(exchange)

    def _joined(self) -> Any:
        """The parts of the body in one piece."""
        if self._size < LARGE:
            return b"".join(self._parts)
        whole = self._aligned(self._size)
        self._gather(whole)
        return whole

    def _aligned(self, size: int) -> memoryview:
        """Memory for a body. It lies so that its binary part is aligned, which saves a copy."""
        memory: Any = np.empty(size + ALIGNMENT, np.uint8)
        at = -(address_of(memory) + self._json_size) % ALIGNMENT
        return memoryview(memory)[at : at + size]

    def _gather(self, whole: memoryview) -> None:
        at = 0
        for part in self._parts:
            whole[at : at + len(part)] = part
            at += len(part)

    def _wait(self, seconds: float) -> None:
        if not self._until:
            self._until = self.loop.time() + seconds

    def _cancel(self) -> None:
        self._until = 0.0

    def look(self, now: float) -> None:
        """End the connection if it has waited for too long. Called every now and then: a timer for
        each wait takes longer."""
        if self._until and now >= self._until:
            if self in self.lingering:
                self.transport.close()
            else:
                self._end(408, TOO_SLOW)
        elif self._idle_until and now >= self._idle_until:
            self.transport.close()

    def _unset_keepalive_if_required(self) -> None:
        self._idle_until = 0.0

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
            cycle.disconnect()  # the application stops to wait for the body
        self.linger()
