"""One replica of a model on Ray Serve: the server's own HTTP application, without its sockets.

Ray starts a process for each replica. This module's state is that process's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from intaglio.serve.http_app import HttpApp, Receive, Scope, Send
from intaglio.serve.repository import Repository
from intaglio.serve.server import Server
from intaglio.serve.settings import ModelSettings, ServeSettings


class Replica:
    """A model of a repository, with its batcher, metrics and versions."""

    def __init__(self, root: str, name: str, settings: ModelSettings, max_body: int):
        self.name = name
        self.repository = Repository(Path(root), settings)
        self.server = Server(self.repository, ServeSettings(model=settings, max_body=max_body))
        self.app = HttpApp(self.server)

    async def load(self) -> None:
        """Load the newest version; the old one serves until it is warm."""
        await self.repository.load(self.name)
        self.server.ready = True

    async def close(self) -> None:
        self.server.ready = False
        await self.repository.close()


_replica: Replica | None = None  # of this process


def start(root: str, name: str, settings: ModelSettings, max_body: int) -> Replica:
    """The replica of this process."""
    global _replica
    _replica = Replica(root, name, settings, max_body)
    return _replica


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI: requests below /v2/models/NAME."""
    assert _replica is not None
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    path, root = scope["path"], scope.get("root_path", "")
    if not path.startswith("/v2/"):  # Ray may take the application's prefix away
        path = root.rstrip("/") + path
    await _replica.app({**scope, "path": path}, receive, send)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def build() -> Any:
    """The application, as Ray asks for it in the replica's process."""
    return app
