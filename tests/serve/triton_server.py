"""The real Triton server, from the wheel nvidia-pytriton, with the backend of this checkout."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from intaglio import native

ROOT = Path(__file__).parents[2]
BUILD = Path(native.library()._name).parent
BACKEND = BUILD / "libtriton_intaglio.so"
START_S = 60
WHERE = "INTAGLIO_TRITON_SERVER"  # folder with bin/tritonserver


def found() -> Path | None:
    """The server's folder: of the variable, or of `make test-triton`."""
    places = [Path(os.environ[WHERE])] if WHERE in os.environ else []
    places += sorted(ROOT.glob(".venv-triton/lib/python3*/site-packages/pytriton/tritonserver"))
    return next((p for p in places if (p / "bin/tritonserver").exists()), None)


needs_triton = pytest.mark.skipif(
    found() is None or not BACKEND.exists(),
    reason="needs Triton's server and the backend: make test-triton",
)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Triton:
    """A running server on loopback."""

    def __init__(self, process: subprocess.Popen, http: int, grpc: int, log: Path):
        self.process, self.log = process, log
        self.http, self.grpc = f"127.0.0.1:{http}", f"127.0.0.1:{grpc}"

    def resident_kb(self) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0])


@contextmanager
def triton(repository: Path, work: Path, *options: str, log: str = "triton.log"):
    """A server of the models in a repository, which are all loaded; ended by its own id."""
    backends = work / "backends"
    (backends / "intaglio").mkdir(parents=True, exist_ok=True)
    place = backends / "intaglio" / BACKEND.name
    if not place.exists():  # another server may have mapped it
        shutil.copy(BACKEND, place)
    server, http, grpc, log = found(), free_port(), free_port(), work / log
    command = [
        str(server / "bin/tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        "--model-control-mode=explicit",
        "--load-model=*",
        "--exit-on-error=false",
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        f"--http-port={http}",
        f"--grpc-port={grpc}",
        "--allow-metrics=false",
        "--exit-timeout-secs=2",
        *options,
    ]
    with open(log, "w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        made = Triton(process, http, grpc, log)
        end = time.monotonic() + START_S
        while True:
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < end, log.read_text()[-3000:]
            try:
                urllib.request.urlopen(f"http://{made.http}/v2/health/live", timeout=5).read()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        yield made
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
