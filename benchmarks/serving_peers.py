"""Serving beside other servers: CPU time per request, requests a second, latency.

    python -m benchmarks.serving_peers --install     # once: an environment for each server
    python -m benchmarks.serving_peers [--seconds 3] [--clients 32] [--peers mlserver,litserve]

All servers run the same model, ours with Intaglio, the others with onnxruntime and one thread. All
are pinned to the first CPU and the clients to the last; they are measured in turns. CPU time is
that of all processes of a server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from benchmarks import machine, models
from benchmarks.serving import CPUS, Load, cpu_seconds, http_client, http_request, serving
from benchmarks.serving_triton import processes

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".venv-serving"
START_S = 180.0
SESSION = """
import numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession("MODEL", options)
name = session.get_inputs()[0].name
outputs = [o.name for o in session.get_outputs()]
"""
INSIDE = "\n".join("        " + line for line in SESSION.strip().splitlines())  # of a method


@dataclass(frozen=True)
class Peer:
    """A server: what to install, its files (MODEL and PORT are filled in), its command."""

    title: str
    requirements: tuple[str, ...]
    files: dict[str, str]
    command: tuple[str, ...]
    path: str
    kinds: tuple[str, ...]  # of requests: binary, JSON, or a server's own JSON


PEERS = {
    "mlserver": Peer(
        "MLServer",
        ("mlserver==1.7.1", "onnxruntime"),
        {
            "model.py": SESSION
            + """
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse

class Model(MLModel):
    async def predict(self, payload):
        x = NumpyCodec.decode_input(payload.inputs[0])
        found = session.run(None, {name: x.astype(np.float32)})
        made = [NumpyCodec.encode_output(n, a) for n, a in zip(outputs, found)]
        return InferenceResponse(model_name=self.name, outputs=made)
""",
            "model-settings.json": '{"name": "m", "implementation": "model.Model"}',
            "settings.json": '{"host": "127.0.0.1", "http_port": PORT, "grpc_port": PORT1, '
            '"metrics_port": PORT2, "parallel_workers": 0, "logging_settings": null}',
        },
        ("mlserver", "start", "."),
        "/v2/models/m/infer",
        ("JSON",),
    ),
    "kserve": Peer(
        "KServe SDK",
        ("kserve==0.21.0", "onnxruntime"),
        {
            "serve.py": SESSION
            + """
from kserve import InferOutput, InferResponse, Model, ModelServer

class Served(Model):
    def __init__(self):
        super().__init__("m")
        self.ready = True

    def predict(self, request, headers=None, response_headers=None):
        given = request.inputs[0]
        made = []
        for n, a in zip(outputs, session.run(None, {name: given.as_numpy()})):
            made.append(InferOutput(n, list(a.shape), "FP32"))
            made[-1].set_data_from_numpy(a, binary_data=given._raw_data is not None)
        return InferResponse(request.id or "1", "m", made)

ModelServer(http_port=PORT, enable_grpc=False, workers=1, access_log_format=None).start([Served()])
"""
        },
        ("python", "serve.py"),
        "/v2/models/m/infer",
        ("binary", "JSON"),
    ),
    "litserve": Peer(
        "LitServe",
        ("litserve==0.2.19", "onnxruntime"),
        {
            "serve.py": """
import litserve, numpy as np

class Api(litserve.LitAPI):
    def setup(self, device):
"""
            + INSIDE
            + """
        self.session, self.name = session, name

    def decode_request(self, request):
        return np.array(request["x"], np.float32)

    def predict(self, x):
        return self.session.run(None, {self.name: x})[0]

    def encode_response(self, y):
        return {"y": y.tolist()}

if __name__ == "__main__":
    litserve.LitServer(Api(), accelerator="cpu").run(
        host="127.0.0.1", port=PORT, generate_client_file=False, log_level="error")
"""
        },
        ("python", "serve.py"),
        "/predict",
        ("own JSON",),
    ),
    "bentoml": Peer(
        "BentoML",
        ("bentoml==1.4.39", "onnxruntime"),
        {
            "service.py": SESSION
            + """
import bentoml

@bentoml.service(workers=1)
class Served:
    @bentoml.api
    def infer(self, x: np.ndarray) -> np.ndarray:
        return session.run(None, {name: x.astype(np.float32)})[0]
"""
        },
        ("bentoml", "serve", "service:Served", "--host", "127.0.0.1", "--port", "PORT"),
        "/infer",
        ("own JSON",),
    ),
    "ray": Peer(
        "Ray Serve",
        ("ray[serve]==2.60.0", "onnxruntime"),
        {
            "serve.py": """
import time, ray
from ray import serve
from starlette.requests import Request

@serve.deployment(max_ongoing_requests=64)
class Served:
    def __init__(self):
"""
            + INSIDE
            + """
        self.session, self.name, self.numpy = session, name, np

    async def __call__(self, request: Request):
        x = self.numpy.array((await request.json())["x"], self.numpy.float32)
        return {"y": self.session.run(None, {self.name: x})[0].tolist()}

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
serve.run(Served.bind(), route_prefix="/infer")
while True:
    time.sleep(1)
"""
        },
        ("python", "serve.py"),
        "/infer",
        ("own JSON",),
    ),
}


def install(names: list[str]) -> None:
    """An environment for each; what cannot be installed is named and left out later."""
    for name in names:
        folder = PLACE / name
        if (folder / "done").exists():
            continue
        print(f"{PEERS[name].title}: {', '.join(PEERS[name].requirements)}", flush=True)
        venv.create(folder, with_pip=True)
        command = [folder / "bin/pip", "install", "-q", "--disable-pip-version-check"]
        if subprocess.run([*command, *PEERS[name].requirements]).returncode:
            print(f"could not install {name}; it is left out of the comparison")
        else:
            (folder / "done").touch()


def free_ports() -> list[int]:
    """Three ports that are free now."""
    sockets = [socket.socket() for _ in range(3)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    found = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return found


def start(name: str, model: Path, folder: Path, stack: ExitStack) -> tuple[int, int]:
    """Start a peer; its process and its port."""
    peer, bin_folder, ports = PEERS[name], PLACE / name / "bin", free_ports()

    def filled(text: str) -> str:
        for word, port in (("PORT1", ports[1]), ("PORT2", ports[2]), ("PORT", ports[0])):
            text = text.replace(word, str(port))
        return text.replace("MODEL", str(model))

    folder.mkdir()
    for file, text in peer.files.items():
        (folder / file).write_text(filled(text))
    program, *arguments = map(filled, peer.command)
    path = f"{bin_folder}:{os.environ['PATH']}"
    quiet = {"BENTOML_DO_NOT_TRACK": "True", "RAY_USAGE_STATS_ENABLED": "0"}
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            [bin_folder / program, *arguments],
            cwd=folder,
            stdout=log,
            stderr=log,
            env=os.environ | quiet | {"PATH": path, "HOME": str(folder)},
            preexec_fn=lambda: os.sched_setaffinity(0, CPUS[:1]),
        )

    def end() -> None:
        all_of_it = processes(process.pid)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pid in all_of_it[1:]:  # what it left behind
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue

    stack.callback(end)
    return process.pid, ports[0]


def request_of(kind: str, path: str, name: str, x: np.ndarray) -> bytes:
    """The bytes of a request."""
    if kind != "own JSON":
        sent = http_request(name, x, kind == "binary")
        typed = b"host: a\r\ncontent-type: application/json\r\n"  # MLServer asks for it
        return sent if kind == "binary" else sent.replace(b"host: a\r\n", typed, 1)
    body = json.dumps({"x": x.tolist()}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def wait_ready(port: int, sent: bytes, log: Path) -> None:
    """Until the server answers this request with 200."""
    head, _, body = sent.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    url, end = f"http://127.0.0.1:{port}{lines[0].split()[1]}", time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10).read()
            return
        except (OSError, urllib.error.HTTPError) as e:
            refused = isinstance(e, urllib.error.HTTPError) and e.code in (400, 415, 422)
            if refused or time.monotonic() > end:
                words = e.read()[:300] if isinstance(e, urllib.error.HTTPError) else e
                raise RuntimeError(f"{words}\n{log.read_text()[-2000:]}") from None
            time.sleep(0.5)


def measured(pids: list[int], port: int, sent: bytes, clients: int, seconds: float) -> Load:
    """Closed loop, as in benchmarks.serving."""
    latencies: list[float] = []

    async def main() -> None:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(http_client(port, sent, end, latencies) for _ in range(clients)))

    before, begin = cpu_seconds(pids), time.perf_counter()
    asyncio.run(main())
    took = time.perf_counter() - begin
    return Load(len(latencies), took, cpu_seconds(pids) - before, latencies)


def measure(path: Path, work: Path, names: list[str], options: Any) -> None:
    """Print the rows of one model."""
    package = work / "m.itg"
    intaglio.compile(path, batch=1).save(package)
    with intaglio.open(package, 1) as session:
        name, t = next(iter(session.inputs.items()))
    x = np.zeros((1, *t.shape[1:]), np.float32)
    with ExitStack() as stack:
        server, port, _ = stack.enter_context(serving(package))
        rows = [("intaglio serve", kind, server.pid, port, request_of(kind, "", name, x))
                for kind in ("binary", "JSON")]  # fmt: skip
        for peer in names:
            pid, port = start(peer, path.resolve(), work / peer, stack)
            sent = {kind: request_of(kind, PEERS[peer].path, name, x) for kind in PEERS[peer].kinds}
            try:
                for one in sent.values():
                    wait_ready(port, one, work / peer / "log")
            except RuntimeError as e:
                print(f"{PEERS[peer].title} does not answer: {e}", file=sys.stderr)
                continue
            rows += [(PEERS[peer].title, kind, pid, port, one) for kind, one in sent.items()]
        best: dict[tuple[str, str], Load] = {}
        for _ in range(options.rounds):
            for title, kind, pid, port, one in rows:
                made = measured(processes(pid), port, one, options.clients, options.seconds)
                key = title, kind
                if key not in best or made.cpu_us < best[key].cpu_us:
                    best[key] = made
    ours = best["intaglio serve", "binary"].cpu_us
    for (title, kind), made in best.items():
        p50, p99 = np.percentile(made.latencies, [50, 99]) * 1e3
        print(
            f"| {path.stem} | {title} | {kind} | {made.cpu_us:,.0f} | {made.cpu_us / ours:.1f} "
            f"| {made.requests / made.seconds:,.0f} | {p50:.2f} | {p99:.2f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--models", default="digits")
    options = parser.parse_args()
    names = options.peers.split(",")
    if options.install:
        install(names)
        return
    missing = [n for n in names if not (PLACE / n / "done").exists()]
    if missing:
        print(f"left out, not installed: {', '.join(missing)}", file=sys.stderr)
    os.sched_setaffinity(0, CPUS[-1:])
    print(json.dumps(machine.describe()))
    print(
        "| model | server | requests | CPU us/request | of ours | requests/s | p50 ms | p99 ms |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for name in options.models.split(","):
        path = Path(name) if Path(name).is_file() else models.find(name)
        if path is None:
            print(f"| {name} | not found: put it into the folder of shared models |")
            continue
        with tempfile.TemporaryDirectory() as folder:
            measure(path, Path(folder), [n for n in names if n not in missing], options)


if __name__ == "__main__":
    main()
