"""Every exported model of the zoo through our pipeline, compared with onnxruntime.

python -m benchmarks.zoo.check [NAME ...] [--exporter dynamo] [--seconds 2] [--no-interpret]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from benchmarks.zoo import MODELS, Array
from benchmarks.zoo.export import OPSETS, difference, path_of
from intaglio import compiler

TOLERANCE = 1e-3  # of an output's range
Outputs = dict[str, Array]


@dataclass
class Row:
    """One model: nodes at three stages, differences from onnxruntime, times of one thread."""

    name: str
    cells: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def attempt(self, what: str, run: Callable[[], Any]) -> Any:
        """The result of `run`, or None and its error among the failures."""
        try:
            return run()
        except Exception as e:  # the table lists every failure
            self.failures.append(f"{what}: {type(e).__name__}: {e}")
            return None

    def compare(self, what: str, made: Outputs | None, wanted: list[Array]) -> str:
        if made is None:
            return "failed"
        apart = max(map(difference, made.values(), wanted))
        if not apart <= TOLERANCE:
            self.failures.append(f"{what}: differs by {apart:.1e} of the range")
        return f"{apart:.0e}"


def interleave(
    runs: dict[str, Callable[[], Any]], seconds: float, least: int
) -> dict[str, list[float]]:
    """Milliseconds of each, taken in turns until `seconds` have passed."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < least:
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) * 1e3)
    return times


def onnxruntime_runner(path: Path, feeds: Outputs) -> Callable[[], list[Array]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def check(name: str, path: Path, seconds: float, interpreted: bool) -> Row:
    """Load, interpret, compile, run and time one model."""
    import onnx

    row, feeds = Row(name), MODELS[name].feeds(1)
    row.cells.append(str(len(onnx.load(path, load_external_data=False).graph.node)))
    peer = onnxruntime_runner(path, feeds)
    wanted = peer()
    graph = row.attempt("load", lambda: intaglio.load(path))
    if graph is None:
        return row
    neutral = row.attempt("optimize", lambda: intaglio.optimize(graph))
    row.cells.append(str(sum(1 for _ in neutral.nodes())) if neutral else "failed")
    compiled = row.attempt("compile", lambda: compiler.trace(graph))
    row.cells.append(str(len(compiled.plan.steps)) if compiled else "failed")
    if interpreted:
        made = row.attempt("interpret", lambda: intaglio.interpret(graph, feeds))
        row.cells.append(row.compare("interpret", made, wanted))
    if compiled is None:
        return row
    with intaglio.open(compiled.package, threads=1) as session:
        made = row.attempt("run", lambda: session.run(feeds))
        row.cells.append(row.compare("native", made, wanted))
        if made is not None:
            times = interleave({"ours": lambda: session.run(feeds), "theirs": peer}, seconds, 3)
            ours, theirs = min(times["ours"]), min(times["theirs"])
            row.cells += [f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.2f}"]
    return row


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="models [default: all exported]")
    parser.add_argument("--exporter", choices=OPSETS, default="torchscript")
    parser.add_argument("--seconds", type=float, default=2.0, help="per model, for the times")
    parser.add_argument(
        "--no-interpret", action="store_true", help="skip the interpreter, which is slow"
    )
    given = parser.parse_args()
    columns = [
        "model",
        "onnx nodes",
        "optimised",
        "steps",
        "interpreted",
        "native",
        "ours ms",
        "onnxruntime ms",
        "ratio",
    ]
    if given.no_interpret:
        columns.remove("interpreted")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    failures = []
    for name in given.names or MODELS:
        path = path_of(name, given.exporter)
        if not path.exists():
            print(f"| {name} | not exported: python -m benchmarks.zoo {name} |")
            continue
        with np.errstate(all="ignore"):
            row = check(name, path, given.seconds, not given.no_interpret)
        print(f"| {' | '.join([name, *row.cells])} |", flush=True)
        failures += [f"{name}: {f}" for f in row.failures]
    print("\n" + "\n".join(failures or ["all agree"]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
