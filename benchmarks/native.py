"""Latency of model files beside the runtime that they were made for: TFLite files beside LiteRT,
ONNX files beside onnxruntime.

    python -m benchmarks.native FILE_OR_FOLDER ... [--threads 1,2] [--seconds 1] [--json FILE]

Both run in turns, each model by the public API with its defaults. Rows of models on which we are
slower than the other runtime by more than 3 % are marked. A model that one of the two refuses, or
whose open dimensions have no size, has a row that says so.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from benchmarks import models
from benchmarks.compare import SETTLE
from benchmarks.table import digits
from intaglio import dtypes

MARGIN = 1.03  # slower than this times the other runtime's time is marked
ROUNDS = 8  # bursts of each runtime
SUFFIXES = {".tflite": "LiteRT", ".onnx": "onnxruntime"}
Run = Callable[[], Any]


def files(given: Sequence[str]) -> list[Path]:
    """The model files of the paths, folders searched through."""
    found = []
    for path in map(Path, given):
        inside = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES)
        found += inside if path.is_dir() else [path]
    return found


def load(path: Path) -> Any:
    """The graph; open dimensions are 1."""
    dims = models.dims(path) if path.suffix == ".onnx" else {}
    return intaglio.load(path, dims=dims) if dims else intaglio.load(path)


def feeds_of(graph: Any) -> dict[str, np.ndarray]:
    """Noise between 0 and 1, all values of bytes."""
    rng, feeds = np.random.default_rng(0), {}
    for v in graph.inputs:
        kind = dtypes.numpy_of(v.dtype)
        if v.name in graph.state:
            continue
        if dtypes.is_float(v.dtype):
            feeds[v.name] = rng.random(v.shape).astype(kind)
        else:
            low, high = dtypes.limits(v.dtype) if kind.itemsize == 1 else (0, 2)
            feeds[v.name] = rng.integers(low, high, v.shape).astype(kind)
    return feeds


def theirs(path: Path, feeds: dict[str, np.ndarray], threads: int) -> Run:
    """One run of the model in its own runtime."""
    if path.suffix == ".onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(str(path), options)
        known = {i.name for i in session.get_inputs()}
        given = {k: x for k, x in feeds.items() if k in known}
        return lambda: session.run(None, given)
    from ai_edge_litert.interpreter import Interpreter

    engine = Interpreter(str(path), num_threads=threads if threads == 1 else 2 * threads)
    engine.allocate_tensors()  # with two threads, one of LiteRT's only waits: it gets four
    inputs = [d["index"] for d in engine.get_input_details()]
    outputs = [d["index"] for d in engine.get_output_details()]

    def run() -> list[np.ndarray]:
        for index, x in zip(inputs, feeds.values(), strict=True):
            engine.set_tensor(index, x)
        engine.invoke()
        return [engine.get_tensor(i) for i in outputs]

    return run


def burst(run: Run, seconds: float) -> list[float]:
    """Milliseconds of each run, after one that is not counted."""
    run()
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while len(taken) < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        taken.append((time.perf_counter() - start) * 1e3)
    return taken


def in_turns(runs: dict[str, Run], seconds: float) -> dict[str, list[float]]:
    """Milliseconds of runs that take turns, in random order."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    order = random.Random(0)
    for _ in range(ROUNDS):
        for name in order.sample(sorted(runs), len(runs)):
            time.sleep(SETTLE)
            times[name] += burst(runs[name], seconds / ROUNDS)
    return times


def measure(path: Path, threads: int, seconds: float) -> dict[str, Any]:
    """`timed` in a process of its own: a runtime may crash."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(timed, path, threads, seconds).result()
        except BrokenProcessPool:
            return {"model": path.name, "threads": threads, "failed": "a runtime crashed"}


def timed(path: Path, threads: int, seconds: float) -> dict[str, Any]:
    """Times of one model in both runtimes, or why there are none."""
    row: dict[str, Any] = {"model": path.name, "threads": threads}
    try:
        graph = load(path)
        feeds = feeds_of(graph)
        with intaglio.open(intaglio.compile(graph), threads=threads) as session:
            runs = {"ours": lambda: session.run(feeds), "theirs": theirs(path, feeds, threads)}
            times = in_turns(runs, seconds)
    except Exception as e:  # any runtime may refuse in any way; the row says how
        row["failed"] = " ".join(f"{type(e).__name__}: {e}".split())[:160]
        return row
    for name, taken in times.items():
        row[name] = {"min": min(taken), "median": statistics.median(taken)}
    row["ratio"] = row["theirs"]["min"] / row["ours"]["min"]
    return row


def line(row: dict[str, Any]) -> str:
    head = f"{row['model'][-60:]:60} {row['threads']:2}"
    if "failed" in row:
        return f"{head} {row['failed']}"
    ours, other = row["ours"], row["theirs"]
    mark = "  slower" if row["ratio"] * MARGIN < 1 else ""
    return (
        f"{head} {digits(ours['min']):>8} {digits(ours['median']):>8} "
        f"{digits(other['min']):>8} {digits(other['median']):>8} {row['ratio']:6.2f}{mark}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.native",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("models", nargs="+", metavar="FILE_OR_FOLDER")
    parser.add_argument("--threads", default="1", help="default: 1")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each runtime in each row")
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args(arguments)
    print(f"{'model':60} {'t':>2} {'ours ms':>8} {'median':>8} {'theirs':>8} {'median':>8}  ratio")
    rows = []
    for path in files(given.models):
        for threads in map(int, given.threads.split(",")):
            rows.append(measure(path, threads, given.seconds))
            print(line(rows[-1]), flush=True)
    ratios = [r["ratio"] for r in rows if "ratio" in r]
    if ratios:
        slower = sum(r * MARGIN < 1 for r in ratios)
        mean = statistics.geometric_mean(ratios)
        print(f"{len(ratios)} rows: geometric mean {mean:.2f}, {slower} slower by more than 3 %")
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
