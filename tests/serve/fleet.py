"""Servers and HAProxy as processes, and clients that count who answers."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from tests.frontends.onnx_text import model

import intaglio
from intaglio.serve.gateway import Gateway, configuration

HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
needs_haproxy = pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")
START_S = 60
ROW = np.array([[1, 2, 4]], np.float32)
REQUEST = json.dumps(
    {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": ROW.ravel().tolist()}]}
).encode()


def scores(weights: tuple[int, ...], width: int = 0) -> intaglio.Package:
    """y = weights * x; with a width, after products of matrices that change nothing but take time.

    (3, 2, 1) and (1, 1, 1) choose other classes for ROW than (1, 2, 3).
    """
    types = "(float[1,3] x) => (float[1,3] y)"
    constants, body = f"float[3] k = {{{', '.join(map(str, weights))}}}", "y = Mul(x, k)"
    if width:
        constants += f", int64[2] up = {{{width}, 1}}, int64[2] down = {{1, {width}}}"
        constants += ", float[1] zero = {0}"
        body = (
            "s = ReduceSum(x)  a = Expand(s, up)  b = Expand(s, down)  p = MatMul(a, b) "
            "q = MatMul(p, p)  m = ReduceMax(q)  z = Mul(m, zero)  w = Mul(x, k)  y = Add(w, z)"
        )
    return intaglio.compile(model(f"{types} <{constants}> {{ {body} }}"))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Fleet:
    """Processes that end with the test."""

    def __init__(self, stack: ExitStack, folder: Path, repository: Path):
        self.stack, self.folder, self.repository = stack, folder, repository
        self.port = free_port()
        self.socket = folder / "haproxy.sock"

    def process(self, *command: str, **options) -> subprocess.Popen:
        process = subprocess.Popen(command, text=True, **options)

        def end() -> None:
            process.kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()

        self.stack.callback(end)
        return process

    def server(
        self, *options: str, port: int = 0, script: str = ""
    ) -> tuple[subprocess.Popen, int]:
        """A server of the repository and its port; a script runs before it."""
        run = f"{script}\nfrom intaglio.cli import main; main()"
        command = [sys.executable, "-c", run, "serve", str(self.repository), "--control"]
        command += ["--port", str(port), "--no-grpc", "--threads", "1", *options]
        process = self.process(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for line in process.stdout:
            if found := re.match(r"HTTP .*:(\d+)$", line):
                return process, int(found[1])
        raise AssertionError(f"the server did not start: {process.wait()}")

    def gateway(self, **settings) -> subprocess.Popen:
        """HAProxy with our configuration, ready."""
        chosen = Gateway(
            listen=f"127.0.0.1:{self.port}", socket=str(self.socket), **{"models": ["m"]} | settings
        )
        path = self.folder / "haproxy.cfg"
        path.write_text(configuration(chosen))
        return self.haproxy(path)

    def haproxy(self, path: Path) -> subprocess.Popen:
        assert HAPROXY is not None
        process = self.process(HAPROXY, "-f", str(path), stderr=subprocess.DEVNULL)
        until(lambda: self.socket.exists() and process.poll() is None)
        return process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def until(done: Callable[[], bool], seconds: float = START_S) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/v2/health/ready", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


class Clients:
    """Clients of a gateway in a closed loop, in a process of the test's own thread."""

    def __init__(self, port: int, headers: bytes = b""):
        self.port, self.ended = port, False
        self.statuses: Counter[int] = Counter()
        self.servers: Counter[str] = Counter()
        self.answers: Counter[tuple[float, ...]] = Counter()
        self._sent = (
            b"POST /v2/models/m/infer HTTP/1.1\r\nhost: a\r\n%scontent-length: %d\r\n\r\n%s"
        )
        self._sent %= headers, len(REQUEST), REQUEST

    async def _one(self, most: int) -> None:
        reader = writer = None
        while not self.ended and sum(self.statuses.values()) < most:
            if writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(self._sent)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(re.search(rb"content-length: (\d+)", head)[1])
            body = await reader.readexactly(size)
            status = int(head.split()[1])
            self.statuses[status] += 1
            if found := re.search(rb"x-intaglio-server: (\w+)", head):
                self.servers[found[1].decode()] += 1
            if status == 200:
                self.answers[tuple(json.loads(body)["outputs"][0]["data"])] += 1
            if b"connection: close" in head:
                writer.close()
                writer = None
        if writer is not None:
            writer.close()

    async def run(self, clients: int = 4, most: int = 1 << 40) -> None:
        """Send `most` requests in all, or until `ended` is set."""
        await asyncio.gather(*(self._one(most) for _ in range(clients)))
