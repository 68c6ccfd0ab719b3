"""Shadow traffic: a share of the requests is sent to another server too, whose answers are compared
and thrown away. Clients never wait for it; what is too much for the other server is left out.
"""

from __future__ import annotations

import http.client
import queue
import random
import ssl
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from intaglio.errors import BadInput
from intaglio.serve.agreement import agree, outputs_of
from intaglio.serve.refusals import Refused, bad_request

if TYPE_CHECKING:
    from intaglio.serve.repository import Repository
    from intaglio.serve.served_model import ServedModel

MAX_WAITING = 64  # requests that wait for the other server
MAX_BYTES = 64 << 20  # of them
TIMEOUT_S = 10.0
HEADER_LENGTH = "inference-header-content-length"
RESULTS = ("same", "different", "failed", "left_out")


class Shadow:
    """Sends copies of requests to one other server, in a thread of its own."""

    def __init__(self, url: str, percent: float, token: str | None):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"the shadow is '{url}'; give a URL such as http://127.0.0.1:8100")
        self._parts, self._token = parts, token
        self.percent = percent  # of the requests of models that have no share of their own
        self.shares: dict[str, float] = {}
        self.counts: dict[str, dict[str, int]] = {}
        self._queue: queue.SimpleQueue[tuple[str, Copied] | None] = queue.SimpleQueue()
        self._waiting = self._bytes = 0
        self._thread: threading.Thread | None = None
        self._connection: http.client.HTTPConnection | None = None

    def set_share(self, name: str, percent: Any) -> None:
        """Send this share of a model's requests from now on."""
        if isinstance(percent, bool) or not isinstance(percent, int | float):
            raise bad_request("the share is no number; give a percentage, such as 10")
        if not 0 <= percent <= 100:
            raise bad_request(f"the share is {percent}; give 0 to 100")
        self.shares[name] = float(percent)

    def wants(self, model: ServedModel) -> bool:
        """Whether this request is copied; those of sequences are not."""
        percent = self.shares.get(model.name, self.percent)
        return percent > 0 and model.sequences is None and random.random() * 100 < percent

    def copy(self, name: str, copied: Copied) -> None:
        """Take a request and its answer; the event loop goes on at once."""
        size = len(copied.body) + len(copied.answer)
        if self._waiting >= MAX_WAITING or self._bytes + size > MAX_BYTES:
            self._count(name, "left_out")
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="intaglio-shadow", daemon=True)
            self._thread.start()
        self._waiting += 1
        self._bytes += size
        self._queue.put((name, copied))

    def close(self) -> None:
        if self._thread is not None:
            self._queue.put(None)

    def _work(self) -> None:
        while (taken := self._queue.get()) is not None:
            name, copied = taken
            try:
                result = "same" if self._compare(name, copied) else "different"
            except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
                result = "failed"
                if self._connection is not None:
                    self._connection.close()
            self._waiting -= 1
            self._bytes -= len(copied.body) + len(copied.answer)
            self._count(name, result)
        if self._connection is not None:
            self._connection.close()

    def _compare(self, name: str, copied: Copied) -> bool:
        if self._connection is None:
            self._connection = self._connect()
        headers = {"Content-Type": "application/octet-stream"}
        if copied.json_size is not None:
            headers[HEADER_LENGTH] = str(copied.json_size)
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        path = f"{self._parts.path.rstrip('/')}/v2/models/{name}/infer"
        self._connection.request("POST", path, copied.body, headers)
        answer = self._connection.getresponse()
        body, length = answer.read(), answer.getheader(HEADER_LENGTH)
        if answer.status != 200:
            raise ValueError(f"status {answer.status}")
        theirs = outputs_of(body, None if length is None else int(length))
        return agree(outputs_of(copied.answer, copied.answer_json_size), theirs)

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)

    def _count(self, name: str, result: str) -> None:
        counts = self.counts.setdefault(name, dict.fromkeys(RESULTS, 0))
        counts[result] += 1


class Copied(msgspec.Struct):
    """A request and the answer that its client got."""

    body: bytes
    json_size: int | None
    answer: bytes
    answer_json_size: int | None


def change_share(
    shadow: Shadow | None, repository: Repository, name: str, body: dict[str, Any]
) -> dict[str, Any]:
    """The answer to POST /v2/repository/models/NAME/shadow: the share and the counts so far."""
    repository.find(name)
    if shadow is None:
        raise Refused(400, "this server copies no requests; start it with shadow")
    if "percent" in body:
        shadow.set_share(name, body["percent"])
    counts = shadow.counts.get(name) or dict.fromkeys(RESULTS, 0)
    return {"percent": shadow.shares.get(name, shadow.percent), **counts}
