"""A server in a thread of this process, on ports that the system chooses."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason='serving needs pip install "intaglio[serve]"')
pytest.importorskip("grpc", reason='serving needs pip install "intaglio[serve]"')

from intaglio.serve.repository import Repository
from intaglio.serve.server import Server
from intaglio.serve.settings import ModelSettings, ServeSettings

START_S = 60


class Running:
    """A server and its event loop, for tests that look inside."""

    def __init__(self, repository: Repository, settings: ServeSettings, loop: Any = None):
        self.repository, self._settings, self._loop_factory = repository, settings, loop
        self.server: Server | None = None
        self.failed: BaseException | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        async def main() -> None:
            self.loop = asyncio.get_running_loop()
            self.server = Server(self.repository, self._settings)
            await self.server.serve(lambda _: self._started.set())

        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                runner.run(main())
        except BaseException as e:
            self.failed = e
        finally:
            self._started.set()

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(START_S)
        if self.failed is not None:
            raise self.failed

    def call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(START_S)

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.server.stop)
        self._thread.join(START_S)
        assert not self._thread.is_alive()

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self.server.http_port}"

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.server.grpc_port}"

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, JSON or bytes, and headers of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.http_port, timeout=START_S)
        try:
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            raw = answer.read()
            found = {k.lower(): v for k, v in answer.getheaders()}
            is_json = found.get("content-type") == "application/json"
            return answer.status, json.loads(raw) if is_json else raw, found
        finally:
            connection.close()


@contextmanager
def running(source: Any, name: str = "m", **settings: Any):
    """A running server of a repository folder, a package file, or a Package."""
    loop = settings.pop("loop", None)  # a factory
    model = settings.pop("model", None) or ModelSettings(threads=1)
    settings = {"grpc_port": None, **settings}
    chosen = ServeSettings(http_port=0, stop_s=10.0, model=model, **settings)
    is_folder = isinstance(source, Path) and source.is_dir()
    repository = Repository(source if is_folder else None, model)
    if not is_folder:
        repository.add(name, source)
    made = Running(repository, chosen, loop)
    made.start()
    try:
        yield made
    finally:
        made.end()


def tensor(name: str, a: np.ndarray, datatype: str = "FP32") -> dict[str, Any]:
    """An input of a JSON request."""
    data = a.ravel().tolist()
    return {"name": name, "shape": list(a.shape), "datatype": datatype, "data": data}
