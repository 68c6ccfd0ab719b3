"""Latency beside onnxruntime, interleaved in one run, so that a noisy machine is noisy for both.

python -m benchmarks.compare [MODEL ...] [--threads 1,2] [--seconds 2] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from benchmarks import models


def interleave(
    runs: dict[str, Callable[[], Any]], seconds: float, least: int = 10
) -> dict[str, list[float]]:
    """Milliseconds of each, taken in turns until `seconds` have passed."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < least:
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) * 1e3)
    return times


def onnxruntime_runner(path: Path, threads: int, feeds: dict[str, Any]) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return lambda: session.run(names, feeds)


def compare(path: Path, threads: int, seconds: float) -> dict[str, Any]:
    """One row: our and onnxruntime's min and median, and how far the outputs lie apart."""
    package = intaglio.compile(path, dims=models.dims(path))
    with intaglio.open(package, threads=threads) as session:
        feeds = models.feeds(session.inputs)
        names = list(session.outputs)
        peer = onnxruntime_runner(path, threads, feeds)
        ours, theirs = session.run(feeds), dict(zip(names, peer(), strict=True))
        apart = max(_apart(ours[n], theirs[n]) for n in names)
        runs = {"intaglio": lambda: session.run(feeds), "onnxruntime": peer}
        times = interleave(runs, seconds)
    row: dict[str, Any] = {"model": path.stem, "threads": threads, "apart": apart}
    for name, t in times.items():
        row[name] = {"min": min(t), "median": statistics.median(t), "runs": len(t)}
    row["ratio"] = row["onnxruntime"]["min"] / row["intaglio"]["min"]
    return row


def _apart(a: Any, b: Any) -> float:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.abs(a - b).max() / max(np.ptp(b), 1e-12)) if a.size else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="names or paths [default: all that are found]")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json")
    given = parser.parse_args()
    paths = [models.find(m) or Path(m) for m in given.models] or models.available()
    rows = []
    print("| model | threads | intaglio min/median ms | onnxruntime min/median ms | ratio | diff |")
    print("|---|---|---|---|---|---|")
    for path in paths:
        for threads in map(int, given.threads.split(",")):
            row = compare(path, threads, given.seconds)
            rows.append(row)
            i, o = row["intaglio"], row["onnxruntime"]
            print(
                f"| {row['model']} | {threads} | {i['min']:.3f} / {i['median']:.3f} "
                f"| {o['min']:.3f} / {o['median']:.3f} | {row['ratio']:.2f} | {row['apart']:.1e} |",
                flush=True,
            )
    mean = statistics.geometric_mean([r["ratio"] for r in rows])
    print(f"\ngeometric mean over {len(rows)} rows: {mean:.2f} times onnxruntime's speed")
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
