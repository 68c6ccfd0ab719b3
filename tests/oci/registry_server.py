"""A small OCI registry on loopback, in memory, with faults that tests switch on."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit


class Handler(http.server.BaseHTTPRequestHandler):
    """Blobs and manifests of the distribution specification, as far as push and pull use it."""

    protocol_version = "HTTP/1.1"

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _allowed(self) -> bool:
        if self.server.token and self.headers.get("Authorization") != self.server.token:
            self._answer(401, b'{"errors": [{"code": "UNAUTHORIZED", "message": "no"}]}',
                         WWW_Authenticate='Basic realm="test"')  # fmt: skip
            return False
        return True

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if not self._allowed():
            return
        if path == "/v2/":
            return self._answer(200, b"{}")
        kind, name = path.split("/")[-2:]
        found = {"blobs": self.server.blobs, "manifests": self.server.manifests}[kind].get(name)
        if found is None:
            error = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
            return self._answer(404, json.dumps(error).encode())
        return self._answer(200, self.server.fault(kind, found))

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self._body()
        if self._allowed():
            self._answer(202, Location=f"{self.path}session?state=1")

    def do_PUT(self) -> None:
        body, split = self._body(), urlsplit(self.path)
        if not self._allowed():
            return
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if "/manifests/" in split.path:
            self.server.manifests[split.path.rpartition("/")[2]] = body
            self.server.manifests[digest] = body
        else:
            assert parse_qs(split.query)["digest"] == [digest]
            self.server.blobs[digest] = body
            self.server.uploads += 1
        self._answer(201, Docker_Content_Digest=digest)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def registry(token: str | None = None):
    """A running registry; `address` is its host and port."""
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    made.blobs, made.manifests, made.uploads, made.token = {}, {}, 0, token
    made.fault = lambda kind, data: data
    made.address = f"127.0.0.1:{made.server_address[1]}"
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()
        thread.join()
