"""The HTTP side of the server: an ASGI application without a framework."""

from __future__ import annotations

import hmac
import zlib
from collections.abc import Awaitable, Callable
from random import getrandbits
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import msgspec

from intaglio.serve import infer_messages, model_metadata
from intaglio.serve.http_protocol import LARGE
from intaglio.serve.infer_messages import HEADER_LENGTH
from intaglio.serve.jobs import Client
from intaglio.serve.page import PAGE, live_figures
from intaglio.serve.refusals import Refused, bad_request, lacks
from intaglio.serve.request_log import log
from intaglio.serve.shadow import Copied, change_share
from intaglio.serve.traces import Traced

if TYPE_CHECKING:
    from intaglio.serve.server import Server

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
JSON_TYPE = (b"content-type", b"application/json")
OCTETS = (b"content-type", b"application/octet-stream")
OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")  # without the token
MAX_REQUEST_ID = 128
_encode = msgspec.json.Encoder().encode


class HttpApp:
    """Answers requests of the Open Inference Protocol and Triton's extensions."""

    def __init__(self, server: Server):
        self._server = server
        self._token = server.settings.token
        self._max_body = server.settings.max_body
        self._traces = server.traces
        self._names_requests = server.settings.log_requests or server.traces is not None
        self._infer_paths: dict[str, tuple[str, str]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI, for other servers than this one."""
        if scope["type"] != "http":
            return
        status, headers, body = await self.respond(scope, receive)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def respond(
        self, scope: Scope, receive: Receive, client: Client | None = None
    ) -> tuple[int, Headers, bytes]:
        """The answer to a request: status, headers, body."""
        started = perf_counter_ns()
        path, request_id = scope["path"], b""
        traced = None if self._traces is None else Traced()
        try:
            size, json_size, encoding, token = -1, None, b"", b""
            for name, value in scope["headers"]:
                if name == b"content-length":
                    size = int(value)
                elif name == HEADER_LENGTH:
                    json_size = _length(value)
                elif name == b"content-encoding":
                    encoding = value
                elif name == b"authorization":
                    token = value
                elif name == b"x-request-id":
                    request_id = value[:MAX_REQUEST_ID]
            if size > self._max_body:
                raise too_large(size, self._max_body)
            if self._token is not None and path not in OPEN_PATHS:
                check_token(self._token, token.decode("latin-1"))
            model = self._infer_paths.get(path)
            if model is None and path.endswith("/infer"):
                model = self._remembered(path)
            if model is None:
                status, headers, body = await self._other(scope, receive, path)
            else:
                if scope["method"] != "POST":
                    raise Refused(405, f"{path[:80]} takes POST")
                if size >= LARGE:
                    self._server.repository.find(*model).batcher.refuse_if_full()
                body = await self._body(receive)
                if encoding:
                    body = decompressed(body, encoding, self._max_body)
                headers, body = await self._infer(model, body, json_size, client, traced)
                status = 200
        except Refused as e:
            status, headers, body = self._refusal(e, scope)
            e.__traceback__ = None  # its frames hold the request, and the garbage collector is slow
        except Exception as e:
            log.error(
                "internal error", path=path, error=repr(e), request_id=request_id.decode("latin-1")
            )
            status, headers, body = 500, [JSON_TYPE], _encode({"error": "internal error"})
        headers.append((b"content-length", b"%d" % len(body)))
        if request_id:
            headers.append((b"x-request-id", request_id))
        if not request_id and self._names_requests:
            request_id = b"%016x" % getrandbits(64)
            headers.append((b"x-request-id", request_id))
        if traced is not None and traced.model is not None:
            self._trace(scope, started, status, request_id, traced)
        if self._server.settings.log_requests or status >= 500:
            self._log(scope, status, started, request_id)
        return status, headers, body

    # ---- inference -----------------------------------------------------------------------------
    async def _infer(
        self,
        named: tuple[str, str],
        body: bytes,
        json_size: int | None,
        client: Client | None,
        traced: Traced | None,
    ) -> tuple[Headers, bytes]:
        server = self._server
        model = server.repository.find(*named)
        try:
            request, binary = infer_messages.parse(body, json_size)
            inputs = infer_messages.inputs_of(request, binary, model.signature)
            if request.outputs:
                infer_messages.requested(request, model.signature.outputs)
        except Refused as e:
            model.statistics.failed(e.reason)
            raise
        outputs = await model.infer(inputs, request.parameters, client, traced)
        if traced is not None:
            traced.ended = perf_counter_ns()
        head, tensors = infer_messages.answer(model, request, outputs)
        if tensors is None:
            headers, made = [JSON_TYPE], head
        else:
            headers = [OCTETS, (HEADER_LENGTH, b"%d" % len(head))]
            made = b"".join((head, *tensors))
        shadow = server.shadow
        if shadow is not None and not named[1] and shadow.wants(model):
            size = None if tensors is None else len(head)
            shadow.copy(model.name, Copied(bytes(body), json_size, made, size))
        return headers, made

    def _remembered(self, path: str) -> tuple[str, str] | None:
        parts = path.split("/")
        if path.startswith("/v2/models/") and len(parts) == 5:
            found = parts[3], ""
        elif path.startswith("/v2/models/") and len(parts) == 7 and parts[4] == "versions":
            found = parts[3], parts[5]
        else:
            return None
        if found[0] in self._server.repository.entries and len(self._infer_paths) < 4096:
            self._infer_paths[path] = found
        return found

    async def _body(self, receive: Receive) -> bytes:
        message = await receive()
        body: bytes = message.get("body", b"")
        if not message.get("more_body"):
            if message["type"] == "http.disconnect":
                raise Refused(499, "the client is gone")
            return body
        parts, size = [body], len(body)
        while message.get("more_body"):
            if size > self._max_body:
                raise too_large(size, self._max_body)
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(499, "the client is gone")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
        if size > self._max_body:
            raise too_large(size, self._max_body)
        return b"".join(parts)

    # ---- everything else -----------------------------------------------------------------------
    async def _other(self, scope: Scope, receive: Receive, path: str) -> tuple[int, Headers, bytes]:
        server, repository = self._server, self._server.repository
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        match (method, *path.strip("/").split("/")):
            case ("GET", ""):
                return 200, [(b"content-type", b"text/html; charset=utf-8")], PAGE
            case ("GET", "v2"):
                return _json(server.metadata())
            case ("GET", "v2", "health", "live"):
                return 200, [], b""
            case ("GET", "v2", "health", "ready"):
                return (200 if server.is_ready() else 503), [], b""
            case ("GET", "metrics"):
                kind, body = server.metrics.exposition()
                return 200, [(b"content-type", kind)], body
            case ("GET", "live.json"):
                return _json(live_figures(server))
            case ("GET", "v2", "models", "stats"):
                return _json(self._statistics(repository.models()))
            case (_, "v2", "systemsharedmemory" | "cudasharedmemory", *_):
                raise Refused(501, lacks("shared memory"))
            case (_, "v2", "trace", "setting") | (_, "v2", "models", _, "trace", "setting"):
                raise Refused(501, lacks("trace settings"))
            case (_, "v2", "logging"):
                raise Refused(501, lacks("log settings"))
            case ("GET", "v2", "models", name, *rest):
                return self._model(name, rest)
            case ("GET" | "POST", "v2", "repository", "index"):
                body = await self._body(receive)
                only_ready = bool(_object(body).get("ready")) if body else False
                rows = repository.index()
                return _json([r for r in rows if not only_ready or r["state"] == "READY"])
            case ("POST", "v2", "repository", "models", name, "load" | "unload" as action):
                parameters = _object(await self._body(receive)).get("parameters")
                await server.control(action, name, parameters)
                return _json({})
            case ("POST", "v2", "repository", "models", name, "shadow"):
                server.require_control()
                return _json(
                    change_share(
                        server.shadow, repository, name, _object(await self._body(receive))
                    )
                )
            case ("GET" | "POST", "v2", *_):
                raise Refused(404, f"there is no {path[:80]!r} here")
        if method not in ("GET", "POST"):
            raise Refused(405, f"requests are GET or POST, not {method[:20]}")
        raise Refused(404, f"there is no {method} {path[:80]!r} here")

    def _model(self, name: str, rest: list[str]) -> tuple[int, Headers, bytes]:
        version = ""
        if rest[:1] == ["versions"] and len(rest) > 1:
            version, rest = rest[1], rest[2:]
        repository = self._server.repository
        if rest == ["ready"]:
            try:
                alive = repository.find(name, version).alive
            except Refused as e:
                return (503 if e.status == 503 else 404), [], b""
            return (200 if alive else 503), [], b""
        model = repository.find(name, version)
        match rest:
            case []:
                return _json(model_metadata.metadata(model, repository.entries[name]))
            case ["config"]:
                return _json(model_metadata.config(model))
            case ["stats"]:
                served = repository.entries[name].serving.values()
                return _json(self._statistics([model] if version else list(served)))
        raise Refused(404, f"there is no '{'/'.join(rest)[:80]}' of a model")

    def _statistics(self, models: list[Any]) -> dict[str, Any]:
        return {"model_stats": [m.statistics.plain(m.name, m.version) for m in models]}

    def _refusal(self, e: Refused, scope: Scope) -> tuple[int, Headers, bytes]:
        self._server.metrics.refused(e.reason)
        headers: Headers = [JSON_TYPE]
        if e.retry_after is not None:
            headers.append((b"retry-after", b"%d" % e.retry_after))
        if e.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if e.status in (413, 499):
            headers.append((b"connection", b"close"))
        return e.status, headers, _encode({"error": str(e)})

    def _trace(
        self, scope: Scope, started: int, status: int, request_id: bytes, traced: Traced
    ) -> None:
        assert self._traces is not None
        names = (b"traceparent", b"tracestate")
        found = {n.decode(): v.decode("latin-1") for n, v in scope["headers"] if n in names}
        self._traces.record(found, started, status, request_id.decode("latin-1"), traced)

    def _log(self, scope: Scope, status: int, started: int, request_id: bytes) -> None:
        log.info(
            "request",
            method=scope["method"],
            path=scope["path"][:200],
            status=status,
            ms=round((perf_counter_ns() - started) * 1e-6, 3),
            request_id=request_id.decode("latin-1"),
        )


def check_token(token: str, given: str) -> None:
    """Refuse a request that does not bear the token; takes the same time for every wrong one."""
    bearer = given[7:] if given[:7].lower() == "bearer " else ""
    if not hmac.compare_digest(bearer.encode("latin-1", "replace"), token.encode()):
        raise Refused(401, "the request has no valid token; send 'Authorization: Bearer TOKEN'")


def too_large(size: int, limit: int) -> Refused:
    """The refusal of a body that is not read."""
    return Refused(413, f"the request has {size} bytes or more; at most {limit} are taken")


def decompressed(body: bytes, encoding: bytes, limit: int) -> bytes:
    """The body behind `Content-Encoding`; Refused if it is larger than the limit."""
    kinds = {b"gzip": 31, b"deflate": 15}
    if encoding.lower() not in kinds:
        if encoding.lower() == b"identity":
            return body
        shown = encoding[:20].decode("latin-1")
        raise Refused(415, f"content encoding '{shown}' is not known; gzip and deflate are")
    stream = zlib.decompressobj(kinds[encoding.lower()])
    try:
        made = stream.decompress(body, limit + 1)
    except zlib.error as e:
        raise bad_request(f"the body cannot be decompressed: {e}") from None
    if len(made) > limit:
        raise too_large(len(made), limit)
    if not stream.eof:
        raise bad_request("the body cannot be decompressed: it ends too early")
    return made


def _length(value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise bad_request("Inference-Header-Content-Length is no number")
    return int(value)


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body) if body else {}
    except (msgspec.DecodeError, RecursionError) as e:
        raise bad_request(f"the request is no JSON: {e}") from None
    if not isinstance(found, dict):
        raise bad_request("the request is no JSON object")
    return found


def _json(value: Any) -> tuple[int, Headers, bytes]:
    return 200, [JSON_TYPE], _encode(value)
