"""The server of the live page: HTTP on this machine, from the standard library.

The standard library's server suffices for one user, so that `intaglio ui` needs no extra. Requests
from other sites are refused by their Host and Origin; beyond loopback every request needs a token.
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import json
import secrets
import socket
import threading
from collections.abc import Callable
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from intaglio.errors import BadInput, IntaglioError, option
from intaglio.ui.live_page import live_page
from intaglio.ui.workbench import Workbench

PORT = 8001
MOST_BYTES = 64 << 20  # of a request
COOKIE = "intaglio_token"
IDLE_SECONDS = 30  # of a connection
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


class LivePage:
    """A live page that is being served; close it, or use it in a `with` block."""

    def __init__(self, bench: Workbench, host: str, port: int):
        self.bench, self.host = bench, host
        self.token = "" if _is_loopback(host) else secrets.token_urlsafe(24)
        try:
            self._server = _Server((host, port), self)
        except OSError as e:
            raise BadInput(_why(e, host, port)) from None
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address to open, with the token if there is one."""
        host = self.host if self.host not in ("0.0.0.0", "::") else socket.gethostname()
        named = f"[{host}]" if ":" in host else host
        return f"http://{named}:{self.port}/{f'?token={self.token}' if self.token else ''}"

    def wait(self) -> None:
        """Serve until the page is closed."""
        self._thread.join()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self.bench.close()

    def __enter__(self) -> LivePage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start(
    model: str | Path, *args: Any, host: str = "127.0.0.1", port: int = PORT, **keywords: Any
) -> LivePage:
    """Serve the live page of a model; the arguments are those of `Workbench`. Port 0: any."""
    refuse_port(host, port)
    return LivePage(Workbench(model, *args, **keywords), host, port)


def refuse_port(host: str, port: int) -> None:
    """BadInput if the port cannot be served, before the model is read."""
    if not 0 <= port < 65536:
        raise BadInput(f"{option('port', port)}: a port is a number from 0 to 65535")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as e:
        raise BadInput(_why(e, host, port)) from None


def _why(e: OSError, host: str, port: int) -> str:
    if e.errno == errno.EADDRINUSE:
        return f"port {port} is in use; give another one: {option('port', port + 1)}"
    if e.errno == errno.EACCES:
        return f"port {port} is reserved; give one above 1023: {option('port', PORT)}"
    return f"cannot serve on {host}: {e.strerror or e}; give {option('host', '127.0.0.1')}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], page: LivePage):
        self.page = page
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)


class _Refused(Exception):
    """An answer that is no page: code and words."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "intaglio", ""
    timeout = IDLE_SECONDS

    def log_message(self, *_: object) -> None:
        """Requests are not printed."""

    def do_GET(self) -> None:  # the library's name
        bench = self.server.page.bench
        self._answer(
            {
                "/": lambda: ("text/html", _locked(bench, lambda: live_page(bench))),
                "/api/report": lambda: ("application/json", _json(bench.report.to_dict())),
                "/scheme.yaml": lambda: ("application/yaml", bench.scheme_file()),
            }
        )

    def do_POST(self) -> None:
        bench = self.server.page.bench
        self._answer(
            {
                "/api/run": lambda: ("application/json", _json(bench.run(self._body()))),
                "/api/precision": lambda: ("application/json", _json(self._change(bench))),
            }
        )

    def _change(self, bench: Workbench) -> dict[str, Any]:
        try:
            given = json.loads(self._body())
            layers = {str(k): str(v) for k, v in given["layers"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise _Refused(400, 'send {"layers": {"NAME": "f32"}}') from None
        return bench.change(layers).to_dict()

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MOST_BYTES:
            raise _Refused(413, f"send at most {MOST_BYTES >> 20} MiB, with a Content-Length")
        return self.rfile.read(int(length))

    def _answer(self, pages: dict[str, Callable[[], tuple[str, str]]]) -> None:
        code, kind = 200, "text/plain"
        try:
            self._allow()
            path = urlsplit(self.path).path
            if path not in pages:
                raise _Refused(404, f"{path}: no such page")
            kind, words = pages[path]()
        except _Refused as e:
            code, words = e.args
        except IntaglioError as e:
            code, words = 400, str(e)
        except Exception as e:  # an error of ours: the page says so and goes on
            code, words = 500, f"internal error: {type(e).__name__}: {e}"
        data = words.encode()
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        if self.server.page.token and code == 200:
            self.send_header(
                "Set-Cookie",
                f"{COOKIE}={self.server.page.token}; HttpOnly; SameSite=Strict; Path=/",
            )
        self.end_headers()
        self.wfile.write(data)

    def _allow(self) -> None:
        """Refuse requests from other sites, and those without the token."""
        host, token = self.headers.get("Host", ""), self.server.page.token
        named = urlsplit(f"//{host}").hostname or ""
        if not token and not _is_loopback(named):
            raise _Refused(403, "this page is served to this machine only")
        origin = self.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise _Refused(403, "requests from other sites are refused")
        if not token:
            return
        given = parse_qs(urlsplit(self.path).query).get("token", [""])[0]
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        for word in (given, cookie.value if cookie else ""):
            if word and hmac.compare_digest(word.encode(), token.encode()):
                return
        raise _Refused(403, "open the address that `intaglio ui` printed: it has the token")


def _locked(bench: Workbench, work: Callable[[], str]) -> str:
    with bench.lock:
        return work()


def _json(content: Any) -> str:
    return json.dumps(content)
