"""The server: listens on HTTP and gRPC, loads models, and ends in order."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.server import ServerState

import intaglio
from intaglio.errors import BadInput, option
from intaglio.serve import model_metadata
from intaglio.serve.config_override import Config, overridden, override_of
from intaglio.serve.connection import connections
from intaglio.serve.freed_memory import keep_freed_memory
from intaglio.serve.http_app import HttpApp
from intaglio.serve.metrics import Metrics
from intaglio.serve.refusals import Refused
from intaglio.serve.repository import Override, Repository, shown_name
from intaglio.serve.request_log import log
from intaglio.serve.settings import ServeSettings
from intaglio.serve.shadow import Shadow
from intaglio.serve.traces import Traces

EXTENSIONS = ["binary_tensor_data", "classification", "model_configuration", "model_repository"]
EXTENSIONS += ["schedule_policy", "sequence", "statistics"]
NO_PEM = "give PEM files: the certificate, and the private key that belongs to it"
BACKLOG = 1024
POLL_S = 0.02  # while connections end
LAST_S = 0.2  # in which open connections may send one more request, which is answered


class Server:
    """A server of all models of a repository."""

    def __init__(self, repository: Repository, settings: ServeSettings):
        self.repository, self.settings = repository, settings
        self.metrics = Metrics(self)
        self.shadow = (
            None
            if settings.shadow is None
            else Shadow(settings.shadow, settings.shadow_percent, settings.token)
        )
        self.traces = None if settings.traces is None else Traces(settings.traces)
        self.ready = False
        self.http_port = self.grpc_port = 0
        self._state = ServerState()
        self._listening: asyncio.Server | None = None
        self._grpc: Any = None
        self._stop = asyncio.Event()

    def is_ready(self) -> bool:
        """Whether models are loaded, none waits for a new process, and the server is not ending."""
        return self.ready and all(m.alive for m in self.repository.models())

    def metadata(self) -> dict[str, Any]:
        """The answer to GET /v2."""
        return {"name": "intaglio", "version": intaglio.__version__, "extensions": EXTENSIONS}

    async def control(self, action: str, name: str, parameters: Any = None) -> None:
        """Load or unload a model, where requests may."""
        self.require_control()
        if action == "unload":
            await self.repository.unload(name)
            return
        try:
            await self.repository.load(name, self._override(name, override_of(parameters)))
        except Refused as e:
            words = f"failed to load '{shown_name(name)}': {e}"
            raise Refused(e.status, words, e.retry_after) from None

    def _override(self, name: str, given: Config | None) -> Override | None:
        """What changes the settings of a model, as a load request asks."""
        if given is None:
            return None
        entry = self.repository.entries.get(name)
        served = entry.newest if entry is not None else None
        current = None if served is None else model_metadata.config(served)
        return lambda settings: overridden(settings, given, current)

    def require_control(self) -> None:
        """Refuse requests that change what is served, unless the server was started for them."""
        if not self.settings.control:
            raise Refused(
                403, "models are not loaded or unloaded by requests; start the server with control"
            )

    # ---- life ----------------------------------------------------------------------------------
    async def start(self) -> None:
        """Listen, then load all models; ready after that."""
        settings, loop = self.settings, asyncio.get_running_loop()
        tls = tls_context(settings)
        config = uvicorn.Config(
            HttpApp(self),
            loop="none",
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            timeout_keep_alive=settings.keep_alive_s,
            proxy_headers=False,
        )
        config.load()
        protocol = connections(config, self._state, settings, loop)
        sock = listening_socket(settings.host, settings.http_port)
        unread_ms = max(int(settings.body_timeout_s * 1000), 1)  # connections inherit it
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unread_ms)
        self.http_port = sock.getsockname()[1]
        self._listening = await loop.create_server(protocol, sock=sock, ssl=tls, backlog=BACKLOG)
        if settings.grpc_port is not None:
            from intaglio.serve.grpc_service import start_grpc  # grpcio takes 0.1 s to import

            listening_socket(settings.host, settings.grpc_port).close()  # says why it cannot
            self._grpc, self.grpc_port = await start_grpc(self)
        await self.repository.load_all(self._stop.is_set)
        self.ready = not self._stop.is_set()

    def stop(self) -> None:
        """Begin to end; `serve` returns when all is done."""
        self._stop.set()

    async def serve(self, started: Callable[[Server], None] = lambda _: None) -> None:
        """Start, call `started`, and serve until a signal or `stop`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(ValueError, RuntimeError):  # not in the main thread
                loop.add_signal_handler(number, self.stop)
        try:
            await self.start()
            if self.ready:
                started(self)
            await self._stop.wait()
        finally:
            await self._end()

    async def _end(self) -> None:
        """Not ready, no new connections, requests in flight are answered, memory is freed."""
        self.ready = False
        log.info("stopping")
        if self._stop.is_set():
            await asyncio.sleep(self.settings.drain_s)
        if self._listening is not None:
            self._listening.close()
        limit = asyncio.get_running_loop().time() + self.settings.stop_s
        ending_grpc = self._grpc.stop(self.settings.stop_s) if self._grpc is not None else None
        connections: Any = self._state.connections
        last = min(asyncio.get_running_loop().time() + LAST_S, limit)
        while connections and asyncio.get_running_loop().time() < last:
            for connection in connections:
                connection.ends = True
            await asyncio.sleep(POLL_S)
        for connection in list(connections):
            connection.shutdown()
        while connections or self._state.tasks:
            if asyncio.get_running_loop().time() > limit:
                for connection in list(connections):
                    connection.transport.abort()
                break
            await asyncio.sleep(POLL_S)
        if ending_grpc is not None:
            await ending_grpc
        with suppress(asyncio.TimeoutError):
            left = max(limit - asyncio.get_running_loop().time(), 1.0)
            await asyncio.wait_for(self.repository.close(), left)
        if self.shadow is not None:
            self.shadow.close()
        if self.traces is not None:
            await asyncio.to_thread(self.traces.close)
        log.info("stopped")


def listening_socket(host: str, port: int) -> socket.socket:
    """A bound socket; BadInput says which address is taken."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as e:
        raise BadInput(
            f"cannot listen on {host}:{port}: {e.strerror}; choose another port"
        ) from None
    return sock


def tls_context(settings: ServeSettings) -> ssl.SSLContext | None:
    """TLS 1.2 or newer with the server's certificate; None: plain HTTP."""
    if settings.certificate is None:
        if settings.client_authority is not None:
            raise BadInput(
                f"client certificates need TLS; give {option('certificate')} and "
                f"{option('private_key')} too"
            )
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.certificate, settings.private_key)
        if settings.client_authority is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(settings.client_authority)
    except (OSError, ssl.SSLError) as e:
        words = e.strerror if isinstance(e, FileNotFoundError | PermissionError) else NO_PEM
        raise BadInput(f"cannot use certificate {settings.certificate}: {words}") from None
    return context


def run(repository: Repository, settings: ServeSettings, started: Callable[[Server], None]) -> None:
    """Serve in this thread until a signal."""
    import uvloop

    keep_freed_memory()

    async def main() -> None:
        server = Server(repository, settings)
        gc.collect()
        gc.freeze()  # later collections are short, and free old models soon
        await server.serve(started)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
