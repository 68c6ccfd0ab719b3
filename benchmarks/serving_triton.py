"""Serving by Triton: the intaglio backend beside Triton's Python backend with onnxruntime.

    make test-triton                     # once: the server and the backend
    python -m benchmarks.serving_triton [--seconds 3] [--clients 32] [--models digits]

The same server binary, the same requests, the server pinned to the first CPU and the clients to the
last, in turns. CPU time is that of all processes of the server. `INTAGLIO_TRITON_SERVER` names
another folder with bin/tritonserver.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import sysconfig
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from tests.serve.triton_server import BACKEND, found, triton

import intaglio
from benchmarks import machine, models
from benchmarks.serving import CPUS, Load, load
from intaglio.serve.publish import publish
from intaglio.serve.triton_config import CONFIG, write_config

SCRIPT = """
import sys
sys.path.extend({path!r})
import numpy as np, onnxruntime, triton_python_backend_utils as pb

class TritonPythonModel:
    def initialize(self, args):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession({model!r}, options)
        self.input = self.session.get_inputs()[0].name
        self.outputs = [o.name for o in self.session.get_outputs()]

    def execute(self, requests):
        answers = []
        for r in requests:
            x = pb.get_input_tensor_by_name(r, self.input).as_numpy()
            found = self.session.run(None, {{self.input: x}})
            tensors = [pb.Tensor(n, a) for n, a in zip(self.outputs, found)]
            answers.append(pb.InferenceResponse(output_tensors=tensors))
        return answers
"""


def onnxruntime_model(path: Path, config: str, repository: Path, work: Path) -> None:
    """The model in Triton's Python backend, with this interpreter's onnxruntime."""
    import onnxruntime

    server = found()
    assert server is not None
    backend = work / "backends/python"
    shutil.copytree(server / "backends/python", backend, dirs_exist_ok=True)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = server / "python_backend_stubs" / version / "triton_python_backend_stub"
    shutil.copy(stub, backend)
    folder = repository / "m/1"
    folder.mkdir(parents=True)
    site = str(Path(onnxruntime.__file__).parents[1])
    (folder / "model.py").write_text(SCRIPT.format(path=[site], model=str(path.resolve())))
    lines = [line for line in config.splitlines() if not line.startswith(("model_warm", "dynamic"))]
    text = "\n".join(lines).replace('"intaglio"', '"python"')
    (repository / "m" / CONFIG).write_text(text)


def processes(pid: int) -> list[int]:
    """A process and all that it started."""
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        for children in Path(f"/proc/{found[-1]}/task").glob("*/children"):
            todo += [int(n) for n in children.read_text().split()]
    return found


def wait_ready(address: str) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"http://{address}/v2/models/m/ready", timeout=5).read()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def measure(path: Path, work: Path, options: Any) -> None:
    package = work / f"{path.stem}.itg"
    intaglio.compile(path, batch=1).save(package)
    with intaglio.open(package, 1) as session:
        name, t = next(iter(session.inputs.items()))
    feed = name, np.zeros((1, *t.shape[1:]), np.float32)
    ours, theirs = work / "ours", work / "theirs"
    publish(package, ours, "m")
    write_config(package, ours / "m", instances=1, threads=1)
    onnxruntime_model(path, (ours / "m" / CONFIG).read_text(), theirs, work)
    server = found()
    assert server is not None
    needed = [str(p) for p in server.parents[1].glob("nvidia_pytriton.libs")]
    needed.append(sysconfig.get_config_var("LIBDIR") or "")  # of libpython
    os.environ["LD_LIBRARY_PATH"] = ":".join([*needed, os.environ.get("LD_LIBRARY_PATH", "")])
    os.sched_setaffinity(0, CPUS[:1])  # of the servers, which are started here
    with triton(ours, work) as a, triton(theirs, work, log="python.log") as b:
        os.sched_setaffinity(0, CPUS[-1:])
        for server in (a, b):
            wait_ready(server.http)
        best: dict[tuple[str, str], Load] = {}
        for _ in range(options.rounds):
            for label, server in (("intaglio", a), ("Python, onnxruntime", b)):
                ports = [int(s.rsplit(":", 1)[1]) for s in (server.http, server.grpc)]
                pids = processes(server.process.pid)
                for kind in ("binary", "gRPC"):
                    made = load(pids, ports, kind, feed, options.clients, options.seconds)
                    key = label, kind
                    if key not in best or made.cpu_us < best[key].cpu_us:
                        best[key] = made
    for (label, kind), made in best.items():
        p50, p99 = np.percentile(made.latencies, [50, 99]) * 1e3
        ratio = made.cpu_us / best["Python, onnxruntime", kind].cpu_us
        print(
            f"| {path.stem} | {label} | {kind} | {made.cpu_us:,.0f} | {ratio:.2f} "
            f"| {made.requests / made.seconds:,.0f} | {p50:.2f} | {p99:.2f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--models", default="digits")
    options = parser.parse_args()
    if found() is None or not BACKEND.exists():
        raise SystemExit("Triton's server or the backend is not there: make test-triton")
    print(json.dumps(machine.describe()))
    print(
        "| model | backend | protocol | CPU us/request | of Python's | requests/s | p50 ms "
        "| p99 ms |\n|---|---|---|---|---|---|---|---|"
    )
    for name in options.models.split(","):
        path = Path(name) if Path(name).is_file() else models.find(name)
        if path is None:
            print(f"| {name} | not found: put it into the folder of shared models |")
            continue
        with tempfile.TemporaryDirectory() as folder:
            measure(path, Path(folder), options)


if __name__ == "__main__":
    main()
