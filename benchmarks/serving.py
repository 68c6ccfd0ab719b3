"""Serving: CPU time per request, requests a second and latency of `intaglio serve`.

    python -m benchmarks.serving [--seconds 3] [--clients 32] [--models digits,model.onnx]

The server is pinned to the first CPU, the clients to the last. The same package also runs in a loop
without a server, interleaved with the rounds, pinned to the same CPU: "of bench" is the share of
its speed that requests get, by CPU time, which other processes disturb least.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from benchmarks import machine, models
from intaglio.serve import grpc_schema

CPUS = sorted(os.sched_getaffinity(0))
HEAD = b"inference-header-content-length: "
LOOP = """
import sys, time, numpy as np, intaglio
path, batch, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
s = intaglio.open(path, 1)
x = {n: np.zeros((batch, *t.shape[1:]), "f4") for n, t in s.inputs.items()}
s.run(x)
n, cpu, end = 0, time.process_time(), time.perf_counter() + seconds
while time.perf_counter() < end:
    s.run(x)
    n += batch
print((time.process_time() - cpu) / n)
"""


@dataclass
class Load:
    """One run of the clients."""

    requests: int
    seconds: float
    cpu: float  # of the server, seconds
    latencies: list[float]

    @property
    def cpu_us(self) -> float:
        return self.cpu / max(self.requests, 1) * 1e6


@contextmanager
def serving(package: Path, *options: str):
    """A server pinned to the first CPU: its process, its HTTP port and its gRPC port."""
    command = [sys.executable, "-m", "intaglio", "serve", str(package), "--name", "m"]
    command += ["--port", "0", "--grpc-port", "0", "--threads", "1", *options]
    server = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, CPUS[:1]),
    )
    try:
        assert server.stdout is not None
        lines = [server.stdout.readline() for _ in range(3)]
        ports = [int(found) for line in lines[1:] for found in re.findall(r":(\d+)$", line)]
        if len(ports) != 2:
            raise SystemExit(f"the server did not start: {' '.join(lines)}")
        yield server, *ports
    finally:
        server.terminate()
        server.wait(30)


def cpu_seconds(pids: list[int]) -> float:
    """CPU time of all threads of these processes, in ns by the scheduler's own count."""
    threads = [t for pid in pids for t in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(t.read_text().split()[0]) for t in threads) * 1e-9


def http_request(name: str, x: np.ndarray, binary: bool) -> bytes:
    tensor: dict[str, Any] = {"name": name, "shape": list(x.shape), "datatype": "FP32"}
    if binary:
        tensor["parameters"] = {"binary_data_size": x.nbytes}
        head = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    else:
        head = {"inputs": [tensor | {"data": x.ravel().tolist()}]}
    text = json.dumps(head).encode()
    body = text + (x.tobytes() if binary else b"")
    lines = b"POST /v2/models/m/infer HTTP/1.1\r\nhost: a\r\n"
    if binary:
        lines += HEAD + b"%d\r\n" % len(text)
    return lines + b"content-length: %d\r\n\r\n" % len(body) + body


async def chunks(reader: asyncio.StreamReader) -> bytes:
    """A body in chunks."""
    parts = []
    while size := int(await reader.readline(), 16):
        parts.append((await reader.readexactly(size + 2))[:-2])
    await reader.readline()
    return b"".join(parts)


async def http_client(port: int, sent: bytes, end: float, latencies: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < end:
        start = time.perf_counter()
        writer.write(sent)
        head = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"(?i)\ncontent-length: (\d+)", head)
        body = await (chunks(reader) if size is None else reader.readexactly(int(size[1])))
        if b" 200 " not in head[:16]:
            raise SystemExit((head + body[:300]).decode())
        latencies.append(time.perf_counter() - start)
    writer.close()


async def grpc_client(port: int, name: str, x: np.ndarray, end: float, got: list[float]) -> None:
    import grpc

    request = grpc_schema.CLASSES["ModelInferRequest"](model_name="m")
    request.inputs.add(name=name, datatype="FP32", shape=x.shape)
    request.raw_input_contents.append(x.tobytes())
    sent = request.SerializeToString()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(f"/{grpc_schema.SERVICE}/ModelInfer")
        while time.perf_counter() < end:
            start = time.perf_counter()
            await call(sent)
            got.append(time.perf_counter() - start)


def load(
    pids: list[int], ports: list[int], kind: str, feed: Any, clients: int, seconds: float
) -> Load:
    """Closed loop: each client sends its next request when it has the answer."""
    name, x = feed
    latencies: list[float] = []

    async def main() -> None:
        end = time.perf_counter() + seconds
        if kind == "gRPC":
            work = [grpc_client(ports[1], name, x, end, latencies) for _ in range(clients)]
        else:
            sent = http_request(name, x, kind == "binary")
            work = [http_client(ports[0], sent, end, latencies) for _ in range(clients)]
        await asyncio.gather(*work)

    before, start = cpu_seconds(pids), time.perf_counter()
    asyncio.run(main())
    took = time.perf_counter() - start
    return Load(len(latencies), took, cpu_seconds(pids) - before, latencies)


def loop_cpu(package: Path, batch: int, seconds: float) -> float:
    """CPU seconds per row of the package without a server."""
    command = [sys.executable, "-c", LOOP, str(package), str(batch), str(seconds)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        timeout=60 + 10 * seconds,
        preexec_fn=lambda: os.sched_setaffinity(0, CPUS[:1]),
    )
    return float(done.stdout)


def measure(path: Path, folder: Path, options: Any) -> None:
    """Print the rows of one model."""
    batches = [1, 2, 4, 8, 16]
    for label, batch, clients, kinds in (
        ("batch 1", 1, options.clients, ("binary", "JSON", "gRPC")),
        ("batches 1 to 16", batches, options.clients, ("binary", "gRPC")),
    ):
        package = folder / f"{path.stem}-{label.replace(' ', '')}.itg"
        intaglio.compile(path, batch=batch).save(package)
        with intaglio.open(package, 1) as session:
            name, t = next(iter(session.inputs.items()))
        feed = name, np.zeros((1, *t.shape[1:]), np.float32)
        alone: dict[int, float] = {}
        sizes = [batch] if isinstance(batch, int) else batch
        with serving(package) as (server, *ports):
            best: dict[str, Load] = {}
            for _ in range(options.rounds):
                for size in sizes:
                    found = loop_cpu(package, size, options.seconds / len(sizes))
                    alone[size] = min(found, alone.get(size, found))
                for kind in kinds:
                    made = load([server.pid], ports, kind, feed, clients, options.seconds)
                    if kind not in best or made.cpu_us < best[kind].cpu_us:
                        best[kind] = made
        bench = min(alone.values())
        for kind, made in best.items():
            p50, p99 = np.percentile(made.latencies, [50, 99]) * 1e3
            print(
                f"| {path.stem} | {label} | {clients} | {kind} | {made.cpu_us:,.0f} "
                f"| {bench * 1e6:,.0f} | {bench * 1e6 / made.cpu_us:.0%} "
                f"| {made.requests / made.seconds:,.0f} | {p50:.2f} | {p99:.2f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--models", default="digits,mobilenet_v2_fp32")
    options = parser.parse_args()
    os.sched_setaffinity(0, CPUS[-1:])
    print(json.dumps(machine.describe()))
    print(
        "| model | plans | clients | protocol | CPU us/request | CPU us/row of bench | of bench "
        "| requests/s | p50 ms | p99 ms |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            path = Path(name) if Path(name).is_file() else models.find(name)
            if path is None:
                print(f"| {name} | not found: put it into the folder of shared models |")
                continue
            measure(path, Path(folder), options)


if __name__ == "__main__":
    main()
