"""One replica of a model on Ray Serve: the server's own HTTP application, without its sockets.

Ray starts a process for each replica. This module's state is that process's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from intaglio.serve.http_app import HttpApp, Receive, Scope, Send
from intaglio.serve.refusals import Refused
from intaglio.serve.repository import Repository
from intaglio.serve.server import Server
from intaglio.serve.settings import ModelSettings, ServeSettings

POLL_S = 0.02  # while requests of a model end


class Replica:
    """Models of a repository, with their batchers, metrics and versions: one, or those that Ray
    wants here."""

    def __init__(self, root: str, settings: ModelSettings, max_body: int):
        self.repository = Repository(Path(root), settings)
        self.server = Server(self.repository, ServeSettings(model=settings, max_body=max_body))
        self.app = HttpApp(self.server)
        self.wanted: Callable[[str], Awaitable[Any]] | None = None  # asks Ray for a model
        self._kept: dict[str, Kept] = {}
        self._used: Counter[str] = Counter()  # requests in flight

    async def load(self, name: str) -> None:
        """Load the newest version; the old one serves until it is warm."""
        await self.repository.load(name)
        self.server.ready = True

    async def renew(self) -> None:
        """Load the new versions of the models that are here."""
        for name in list(self._kept):
            await self.load(name)

    async def keep(self, name: str) -> Kept:
        """Load a model that stays here until Ray drops it."""
        await self.load(name)
        found = self._kept[name] = Kept(self, name)
        return found

    async def drop(self, kept: Kept) -> None:
        """Unload a model after its requests, unless it is wanted again."""
        if self._kept.get(kept.name) is not kept:
            return
        del self._kept[kept.name]
        while self._used[kept.name]:
            await asyncio.sleep(POLL_S)
        if kept.name not in self._kept:
            await self.repository.unload(kept.name)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; first load its model, where models come and go."""
        name = scope["path"].split("/")[3:4]
        if self.wanted is None or not name or not self.repository.has(name[0]):
            await self.app(scope, receive, send)
            return
        self._used[name[0]] += 1
        try:
            with suppress(Refused):  # the application says why it is not served
                await self.wanted(name[0])
            await self.app(scope, receive, send)
        finally:
            self._used[name[0]] -= 1

    async def close(self) -> None:
        self.server.ready = False
        await self.repository.close()


class Kept:
    """A model of a replica. Ray calls `__del__`, in a thread, when it drops the model."""

    def __init__(self, replica: Replica, name: str):
        self.name, self._replica, self._loop = name, replica, asyncio.get_running_loop()

    def __del__(self) -> None:
        if not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._replica.drop(self), self._loop)


_replica: Replica | None = None  # of this process


def start(root: str, settings: ModelSettings, max_body: int) -> Replica:
    """The replica of this process."""
    global _replica
    _replica = Replica(root, settings, max_body)
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
    await _replica.answer({**scope, "path": path}, receive, send)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def build() -> Any:
    """The application, as Ray asks for it in the replica's process."""
    return app
