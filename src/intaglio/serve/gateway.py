"""The configuration of HAProxy in front of servers: TLS, tokens, limits, retries, canary weights.

Each model has a backend with all servers, whose weights a rollout changes, and backends with the
stable and the canary servers alone, which clients choose by a header. `track` makes them share one
health check. Requests are repeated on another server, which is right because inference changes
nothing; requests of a sequence are not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from intaglio.arguments import whole_number
from intaglio.errors import BadInput, option
from intaglio.serve.settings import checked_name

VERSION_HEADER = "x-intaglio-version"  # of a request: canary or stable
SERVER_HEADER = "x-intaglio-server"  # of an answer: which server gave it
SEQUENCE_HEADER = "x-sequence-id"
OTHERS = "models"  # the backend of models that have none of their own
MODEL_BACKEND = "model."
STABLE, CANARY = "stable", "canary"  # names of servers, before their number
FULL_WEIGHT = 100
MAX_SOCKET_PATH = 97  # of HAProxy
RESERVED_BYTES = 4096  # of a buffer, for headers that are added
ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]{1,253}):([0-9]{1,5})\Z")
UNSAFE = re.compile(r"[\s\"'\\#$]")  # in a path that stands in the configuration
ERRORS = {
    400: "the request is no HTTP",
    408: "the request took too long to arrive",
    500: "internal error of the gateway",
    502: "the answer was cut off",
    503: "no server is ready; send the request again later",
    504: "the server did not answer in time",
}


@dataclass(frozen=True)
class Gateway:
    """What stands in front of which servers."""

    models: Sequence[str]
    stable: Sequence[str]  # HOST:PORT of HTTP
    canary: Sequence[str] = ()
    grpc: Sequence[str] = ()  # HOST:PORT of gRPC of stable servers
    listen: str = "127.0.0.1:8080"
    grpc_listen: str | None = None
    certificate: str | None = None  # PEM file of the certificate and its private key
    client_authority: str | None = None  # PEM file
    token_hashes: str | None = None  # file with a SHA-256 in hexadecimal a line
    socket: str = "/tmp/intaglio-haproxy.sock"
    max_body: int = 64 << 20
    max_repeated: int = 1 << 20  # bytes of a request that can be repeated on another server
    max_connections: int = 1024
    slow_client_s: int = 10
    server_s: int = 60  # for an answer

    def __post_init__(self) -> None:
        for name in self.models:
            checked_name(name)
        if not self.stable:
            raise BadInput("the gateway has no stable server; give the HOST:PORT of at least one")
        addresses = (*self.stable, *self.canary, *self.grpc, self.listen, self.grpc_listen)
        for address in addresses:
            if address is not None:
                check_address(address)
        for path in (self.certificate, self.client_authority, self.token_hashes, self.socket):
            if path is not None and UNSAFE.search(path):
                raise BadInput(f"{path!r} has characters that a configuration cannot; rename it")
        if len(self.socket) > MAX_SOCKET_PATH:
            raise BadInput(
                f"the socket {self.socket} has {len(self.socket)} characters; HAProxy takes at "
                f"most {MAX_SOCKET_PATH}; choose a shorter path"
            )
        if self.client_authority is not None and self.certificate is None:
            raise BadInput(f"client certificates need TLS; give {option('certificate')} too")
        if self.certificate is not None:
            _check_pem(self.certificate)
        if (self.grpc_listen is None) != (not self.grpc):
            raise BadInput("gRPC needs both grpc_listen and the gRPC addresses of the servers")
        for name in ("max_body", "max_repeated", "max_connections", "slow_client_s", "server_s"):
            whole_number(name, getattr(self, name), 1, 1 << 31)


def check_address(address: str) -> None:
    """BadInput for all but HOST:PORT."""
    found = ADDRESS.match(address)
    if found is None or not 1 <= int(found[2]) <= 65535:
        raise BadInput(f"the address is '{address[:80]}'; give HOST:PORT, such as 127.0.0.1:8000")


def token_hash(token: str) -> str:
    """What the file of tokens holds, so that reading it gives no token away."""
    return hashlib.sha256(token.encode()).hexdigest().upper()


def configuration(g: Gateway) -> str:
    """The text of haproxy.cfg."""
    backends = [_model(g, f"{MODEL_BACKEND}{name}", name) for name in g.models]
    parts = [_global(g), _defaults(g), _frontend(g), *backends, _model(g, OTHERS, None)]
    parts.append(_sequences(g))
    if g.grpc_listen is not None:
        parts.append(_grpc(g))
    return "\n\n".join(parts) + "\n"


def _global(g: Gateway) -> str:
    return f"""# Written by `intaglio gateway`: haproxy -f THIS_FILE
global
    maxconn {g.max_connections}
    stats socket {g.socket} mode 600 level admin
    tune.bufsize {g.max_repeated + RESERVED_BYTES}  # a request that fits can be repeated
    tune.maxrewrite {RESERVED_BYTES}
    ssl-default-bind-options ssl-min-ver TLSv1.2
    hard-stop-after {g.server_s}s"""


def _defaults(g: Gateway) -> str:
    errors = "\n".join(
        f"    http-error status {status} content-type application/json "
        f"""string '{{"error":"{words}"}}'""" + (" hdr Retry-After 1" if status == 503 else "")
        for status, words in ERRORS.items()
    )
    return f"""defaults
    mode http
    timeout connect 1s
    timeout client {g.slow_client_s}s
    timeout http-request {g.slow_client_s}s
    timeout http-keep-alive 75s
    timeout queue 1s
    timeout server {g.server_s}s
    retries 3
    option redispatch 1
    retry-on conn-failure empty-response response-timeout 503
    default-server inter 1s fastinter 200ms fall 2 rise 1
{errors}"""


def _bind(g: Gateway, address: str, protocols: str) -> str:
    if g.certificate is None:
        return f"bind {address}"
    client = f" ca-file {g.client_authority} verify required" if g.client_authority else ""
    return f"bind {address} ssl crt {g.certificate}{client} alpn {protocols}"


def _refusals(g: Gateway, is_open: str) -> str:
    """Lines that refuse requests before any server sees them."""
    words = f"the request is larger than {g.max_body} bytes"
    lines = [
        f"""http-request deny deny_status 413 content-type application/json string """
        f"""'{{"error":"{words}"}}' if {{ req.hdr_val(content-length) gt {g.max_body} }}"""
    ]
    if g.token_hashes is not None:
        bearer = "req.hdr(authorization),regsub(^Bearer[[:space:]]+,,i),sha2(256),hex"
        lines += [
            f"http-request set-var(txn.token) {bearer}",
            f"acl has_token var(txn.token) -m str -i -f {g.token_hashes}",
            """http-request deny deny_status 401 content-type application/json string """
            """'{"error":"the request has no valid token"}' hdr WWW-Authenticate Bearer """
            f"unless has_token{is_open}",
        ]
    return "\n".join(f"    {line}" for line in lines)


def _frontend(g: Gateway) -> str:
    canary = f"{{ req.hdr({VERSION_HEADER}) -m str {CANARY} }}"
    stable = f"{{ req.hdr({VERSION_HEADER}) -m str {STABLE} }}"
    path = "path,url_dec"
    by_name = f"%[var(txn.model),regsub(^,{MODEL_BACKEND})]"
    known = f"var(txn.model) -m str {' '.join(g.models)}" if g.models else "always_false"
    chosen = ""
    if g.canary:
        chosen = f"""
    use_backend {by_name}.{CANARY} if known_model {canary}
    use_backend {OTHERS}.{CANARY} if {canary}"""
    return f"""frontend http
    {_bind(g, g.listen, "h2,http/1.1")}
    unique-id-format %[uuid()]
    http-request set-header X-Request-Id %[unique-id] unless {{ req.hdr(x-request-id) -m found }}
    acl is_health {path} -m reg ^/v2/health/(live|ready)$
    acl is_public {path} -m reg ^/v2($|/health/|/models/|/repository/index$)
    http-request deny deny_status 403 content-type application/json string \
'{{"error":"the gateway does not pass this path on"}}' unless is_public
{_refusals(g, " || is_health")}
    http-request wait-for-body time {g.slow_client_s}s  # a slow client holds no server
    http-request set-var(txn.model) {path},field(4,/)
    acl known_model {known}
    acl has_version {path},field(5,/) -m str versions
    use_backend sequences if {{ req.hdr({SEQUENCE_HEADER}) -m found }}{chosen}
    use_backend {by_name}.{STABLE} if known_model {stable} || known_model has_version
    use_backend {OTHERS}.{STABLE} if {stable} || has_version
    use_backend {by_name} if known_model
    default_backend {OTHERS}"""


def _model(g: Gateway, name: str, model: str | None) -> str:
    """The backend of a model with all servers, and those of the stable and the canary ones.

    A server is checked by whether it is ready, and tracked by all other backends.
    """
    checked = model is None
    lines = [f"backend {name}", "    balance roundrobin"]
    lines.append(f"    http-response set-header {SERVER_HEADER} %s")
    if checked:
        lines.append("    option httpchk GET /v2/health/ready")
    groups = [(STABLE, g.stable, FULL_WEIGHT), (CANARY, g.canary, 0)]
    for kind, addresses, weight in groups:
        for i, address in enumerate(addresses, 1):
            state = "check" if checked else f"track {OTHERS}/{kind}{i}"
            lines.append(f"    server {kind}{i} {address} {state} weight {weight}")
    for kind, addresses, _ in groups:
        if addresses:
            lines += ["", f"backend {name}.{kind}", "    balance roundrobin"]
            lines.append(f"    http-response set-header {SERVER_HEADER} %s")
        for i, address in enumerate(addresses, 1):
            lines.append(f"    server {kind}{i} {address} track {OTHERS}/{kind}{i}")
    return "\n".join(lines)


def _sequences(g: Gateway) -> str:
    servers = "\n".join(
        f"    server {STABLE}{i} {address} track {OTHERS}/{STABLE}{i}"
        for i, address in enumerate(g.stable, 1)
    )
    return f"""backend sequences  # one server for each; a repeated request would count twice
    balance hdr({SEQUENCE_HEADER})
    hash-type consistent
    http-request disable-l7-retry
    http-response set-header {SERVER_HEADER} %s
{servers}"""


def _grpc(g: Gateway) -> str:
    assert g.grpc_listen is not None
    plain = "" if g.certificate else " proto h2"
    servers = "\n".join(
        f"    server {STABLE}{i} {address} proto h2 check" for i, address in enumerate(g.grpc, 1)
    )
    service = "/inference.GRPCInferenceService/"
    return f"""frontend grpc
    {_bind(g, g.grpc_listen, "h2")}{plain}
    acl is_health path {service}ServerLive {service}ServerReady
    http-request deny deny_status 403 unless {{ path_beg {service} }}
    http-request deny deny_status 403 if {{ path_beg {service}RepositoryModel }}
{_refusals(g, " || is_health")}
    default_backend grpc

backend grpc
    balance roundrobin
    http-request disable-l7-retry if {{ path_end /ModelStreamInfer }}
{servers}"""


def _check_pem(path: str) -> None:
    """HAProxy wants the certificate and its key in one file."""
    try:
        text = Path(path).read_text("ascii", "replace")
    except OSError as e:
        raise BadInput(f"cannot read the certificate {path}: {e.strerror}") from None
    if "BEGIN CERTIFICATE" not in text or "PRIVATE KEY" not in text:
        raise BadInput(
            f"{path} lacks the certificate or its private key; HAProxy reads both from one file: "
            "cat certificate.pem key.pem > both.pem"
        )
