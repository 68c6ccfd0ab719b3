"""Eight sessions of one model: memory and throughput, compared with onnxruntime.

python -m benchmarks.many_sessions [MODEL ...] [--sessions 8] [--seconds 2] [--rounds 3]

Every engine runs in its own process, through its public API, with one thread per run. As many
threads as there are sessions ask for answers all the time. Memory is the resident memory meanwhile,
above that of the interpreter with the engine imported; mapped files count. Throughput is the number
of answers per second of all threads together, the best of several rounds in turns.

pool: intaglio.SessionPool, whose sessions share weights and the memory for intermediate tensors.
clones: session.clone(), which share weights alone; each thread has its own.
onnxruntime: an InferenceSession for each thread. one session: all threads share it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import ROOT, available, case
from benchmarks.table import cosine, grid

ONNXRUNTIME = "onnxruntime"
POOL, CLONES = "pool", "clones"
ENGINES = (POOL, CLONES, ONNXRUNTIME, f"{ONNXRUNTIME}, one session")
MAX_MEMORY_SHARE = 1 / 3  # of onnxruntime's memory with as many sessions: the goal
Feeds = dict[str, Any]
Run = Callable[[Feeds], list[Any]]


def resident() -> int:
    """Resident memory of this process in bytes."""
    found = re.search(r"Rss: *(\d+) kB", Path("/proc/self/smaps_rollup").read_text())
    assert found is not None
    return int(found[1]) << 10


def import_engine(engine: str) -> None:
    """Import what a program with this engine imports."""
    if engine.startswith(ONNXRUNTIME):
        __import__("onnxruntime")
    else:
        import intaglio

        assert intaglio.SessionPool


def runners(engine: str, file: str, sessions: int) -> list[Run]:
    """One function per caller's thread."""
    if engine.startswith(ONNXRUNTIME):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        made = [
            onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
            for _ in range(1 if engine.endswith("one session") else sessions)
        ]
        made *= sessions // len(made)
        return [lambda feeds, s=s: s.run(None, feeds) for s in made]  # type: ignore[misc]
    import intaglio

    if engine == POOL:
        pool = intaglio.SessionPool(file, sessions)
        return [lambda feeds: list(pool.run(feeds).values())] * sessions
    first = intaglio.open(file, threads=1)
    ours = [first, *(first.clone() for _ in range(sessions - 1))]
    return [lambda feeds, s=s: list(s.run(feeds).values()) for s in ours]  # type: ignore[misc]


def measure(engine: str, file: str, sessions: int, seconds: float, inputs: str) -> dict[str, Any]:
    """What one process measures: memory in bytes, answers per second, the first answer."""
    import_engine(engine)
    with np.load(inputs) as stored:
        feeds = {n: stored[n] for n in stored}
    before = resident()
    runs = runners(engine, file, sessions)
    answer = runs[0](feeds)
    begin, stop = threading.Barrier(sessions + 1), threading.Event()
    counts = [0] * sessions

    def work(i: int) -> None:
        runs[i](feeds)  # each session has run when the time begins
        begin.wait()
        while not stop.is_set():
            runs[i](feeds)
            counts[i] += 1

    threads = [threading.Thread(target=work, args=(i,)) for i in range(sessions)]
    for t in threads:
        t.start()
    begin.wait()
    start = time.perf_counter()
    time.sleep(seconds)
    memory = resident() - before
    stop.set()
    for t in threads:
        t.join()
    rate = sum(counts) / (time.perf_counter() - start)
    np.savez(inputs.replace(".npz", "-answer.npz"), *answer)
    return {"memory": memory, "rate": rate}


def in_process(engine: str, file: Path, sessions: int, seconds: float, inputs: Path) -> Any:
    """`measure` in a process of its own, and the outputs."""
    command = ["--worker", engine, file, str(sessions), str(seconds), inputs]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.many_sessions", *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600,
    )
    if done.returncode:
        raise SystemExit(f"{engine}: {done.stderr.strip().splitlines()[-1]}")
    with np.load(inputs.with_name(f"{inputs.stem}-answer.npz")) as stored:
        return json.loads(done.stdout), [stored[n] for n in stored]


def one_model(name: str, sessions: int, seconds: float, rounds: int) -> dict[str, Any]:
    """All engines with one model: the least memory and the highest rate of all rounds."""
    import intaglio

    of = case(name)
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        package, inputs = Path(folder) / "model.itg", Path(folder) / "inputs.npz"
        intaglio.compile(of.path, dims=of.dims).save(package)
        np.savez(inputs, **of.feeds)
        for _ in range(rounds):
            outputs = {}
            for engine in ENGINES:
                file = of.path if engine.startswith(ONNXRUNTIME) else package
                got, outputs[engine] = in_process(engine, file, sessions, seconds, inputs)
                known = found.setdefault(engine, got)
                known["memory"] = min(known["memory"], got["memory"])
                known["rate"] = max(known["rate"], got["rate"])
            for engine, arrays in outputs.items():
                for a, b in zip(arrays, outputs[ONNXRUNTIME], strict=True):
                    if cosine(a, b) < 0.999:
                        raise SystemExit(f"{name}: {engine} gives other outputs than onnxruntime")
    return {"model": of.name, "engines": found}


def report(rows: Sequence[dict[str, Any]], sessions: int) -> str:
    """Two tables and a summary."""
    memory = [["model", *ENGINES, "pool's share", "clones' share"]]
    rates = [["model", *ENGINES, "pool's ratio"]]
    shares = []
    for row in rows:
        of = row["engines"]
        used = {e: of[e]["memory"] / of[ONNXRUNTIME]["memory"] for e in (POOL, CLONES)}
        cells = [f"{of[e]['memory'] / 1e6:.1f}" for e in ENGINES]
        memory.append([row["model"], *cells, *(f"{share:.2f}" for share in used.values())])
        ratio = of[POOL]["rate"] / max(of[e]["rate"] for e in ENGINES if e not in (POOL, CLONES))
        rates.append([row["model"], *(f"{of[e]['rate']:.0f}" for e in ENGINES), f"{ratio:.2f}"])
        shares.append(used[POOL])
    good = sum(share <= MAX_MEMORY_SHARE for share in shares)
    parts = [
        f"### Memory of {sessions} sessions, MB; share: of {ONNXRUNTIME}'s\n",
        grid(memory),
        f"\n### Answers per second, {sessions} threads; ratio: to the faster of the last two\n",
        grid(rates),
        f"\n- pool: at most 1/3 of {ONNXRUNTIME}'s memory on {good} of {len(rows)} models\n",
    ]
    return "\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.many_sessions",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: all that are there")
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each rate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.worker:
        engine, file, sessions, seconds, inputs = given.worker
        print(json.dumps(measure(engine, file, int(sessions), float(seconds), inputs)))
        return 0
    rows = []
    for name in given.models or [p.stem for p in available()]:
        rows.append(one_model(name, given.sessions, given.seconds, given.rounds))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        if given.json:
            Path(given.json).write_text(json.dumps(rows, indent=1))
    print(report(rows, given.sessions), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
