"""A model on a server, by HTTP: one deadline for a whole request, and no waiting on a dead link."""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import quote, urlsplit

import msgspec

from intaglio.client import wire
from intaglio.errors import BadInput, IntaglioError
from intaglio.ir import Array

FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 30.0  # after a failure no request is sent for so long
MOST_ANSWER = 256 << 20  # bytes
CHUNK = 1 << 16
OVERLOADED = (429, 502, 503, 504)  # statuses of a server that may answer later


class Unreachable(IntaglioError):
    """The server did not answer in time, or cannot be reached; the device must answer."""


class Server:
    """A model of a server of the Open Inference Protocol: `intaglio serve`, Triton, KServe.

    After a failure requests fail at once for a second, then for two, four, ... up to 30, so that a
    link that is down costs the timeout once and not on every request. One connection is kept open.
    `ssl_context` is for https with certificates of your own.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        version: int | None = None,
        timeout: float = 1.0,
        token: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"the server is '{url}'; give a URL such as http://127.0.0.1:8000")
        if not timeout > 0:
            raise BadInput(f"timeout is {timeout}; give seconds above 0")
        self.url, self.model, self.timeout = url.rstrip("/"), model, timeout
        self._tls = parts.scheme == "https"
        self._context = ssl_context
        self._host, self._port = parts.hostname, parts.port
        chosen = "" if version is None else f"/versions/{version}"
        self._path = f"{parts.path.rstrip('/')}/v2/models/{quote(model, safe='')}{chosen}/infer"
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connection: http.client.HTTPConnection | None = None
        self._lock = threading.Lock()
        self._closed_until, self._wait = 0.0, FIRST_RETRY_S

    @property
    def down(self) -> bool:
        """Whether requests fail at once, because one has failed a moment ago."""
        return time.monotonic() < self._closed_until

    def run(self, feeds: Mapping[str, Array], timeout: float | None = None) -> dict[str, Array]:
        """The server's outputs; Unreachable if there is no answer, BadInput if it refuses them."""
        if self.down:
            left = self._closed_until - time.monotonic()
            raise Unreachable(f"{self.url} did not answer; the next try is in {left:.1f} s")
        body, json_size = wire.request(feeds)
        end = time.monotonic() + (self.timeout if timeout is None else timeout)
        with self._lock:
            try:
                status, answer, size = self._exchange(body, json_size, end)
            except (OSError, http.client.HTTPException) as e:
                self._failed()
                raise Unreachable(f"{self.url} does not answer: {e or type(e).__name__}") from None
            if status in OVERLOADED:
                self._failed()
                raise Unreachable(f"{self.url} answers {status}: {_words(answer)}")
            if status != 200:
                raise BadInput(f"{self.url} refuses a request for '{self.model}': {_words(answer)}")
            try:
                found = wire.outputs_of(answer, size)
            except wire.WrongAnswer as e:
                self._failed()
                raise Unreachable(f"the answer of {self.url} cannot be read: {e}") from None
        self._wait = FIRST_RETRY_S
        return found

    def _exchange(self, body: bytes, json_size: int, end: float) -> tuple[int, bytes, int | None]:
        """One request and its answer, over the open connection or a new one."""
        kept = self._connection is not None
        try:
            return self._once(body, json_size, end)
        except (ConnectionError, http.client.RemoteDisconnected):
            self._drop()
            if not kept:
                raise
            return self._once(body, json_size, end)  # servers close connections that are idle

    def _once(self, body: bytes, json_size: int, end: float) -> tuple[int, bytes, int | None]:
        if self._connection is None:
            self._connection = self._connected(end)
        connection = self._connection
        assert connection.sock is not None
        connection.sock.settimeout(_left(end))
        connection.request(
            "POST",
            self._path,
            body,
            {
                "Content-Type": "application/octet-stream",
                wire.JSON_SIZE: str(json_size),
                **self._headers,
            },
        )
        sock = connection.sock
        sock.settimeout(_left(end))
        response = connection.getresponse()
        chunks, total = [], 0
        while True:
            sock.settimeout(_left(end))
            if not (chunk := response.read1(CHUNK)):
                break
            total += len(chunk)
            if total > MOST_ANSWER:
                raise http.client.HTTPException(f"its answer is larger than {MOST_ANSWER} bytes")
            chunks.append(chunk)
        response.close()  # the connection stays
        stated = response.getheader(wire.JSON_SIZE)
        if response.will_close:
            self._drop()
        size = int(stated) if stated and stated.isdecimal() else None
        return response.status, b"".join(chunks), size

    def _connected(self, end: float) -> http.client.HTTPConnection:
        made: http.client.HTTPConnection
        if self._tls:
            made = http.client.HTTPSConnection(
                self._host, self._port, timeout=_left(end), context=self._context
            )
        else:
            made = http.client.HTTPConnection(self._host, self._port, timeout=_left(end))
        made.connect()
        return made

    def _failed(self) -> None:
        self._drop()
        self._closed_until = time.monotonic() + self._wait
        self._wait = min(2 * self._wait, LONGEST_RETRY_S)

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        with self._lock:
            self._drop()


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left


def _words(body: bytes) -> str:
    with suppress(msgspec.DecodeError, UnicodeDecodeError, AttributeError):
        return str(msgspec.json.decode(body[:4096]).get("error", ""))[:300]
    return body[:100].decode(errors="replace")
