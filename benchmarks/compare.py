"""Latency against every installed peer, measured in turns, so that noise hits all alike.

python -m benchmarks.compare [MODEL ...] [--threads 1,2] [--seconds 2] [--peers ncnn,openvino]
                             [--json FILE] [--markdown FILE] [--quick]
                             [--precision bf16|int8]

A MODEL is a name of the zoo or the path of an ONNX file. Every engine gets the same inputs; an
engine whose outputs differ from those of most engines gets no time. Models are converted for the
peers once and cached (INTAGLIO_BENCH_CACHE, by default ~/.cache/intaglio/bench). With --precision
bf16, only engines that support bf16 take part, and every output is compared with f32. With
--precision int8, every engine quantises the model itself from the same samples, and our f32 runs
too.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from benchmarks import machine, models, peers, table, worker
from benchmarks.models import Case
from benchmarks.peers import FLOAT, OURS, Array, Refused
from benchmarks.table import Row, cosine
from benchmarks.worker import LOADING, Worker
from benchmarks.zoo import macs

AGREE = 1e-3  # of an output's range
ROUNDS = 6  # bursts of each engine
ALIKE = {"bf16": 0.99, "int8": 0.9}  # the lowest accepted cosine to f32
SETTLE = 0.01  # seconds for an engine's idle threads to stop spinning before the next one's turn


def compare(
    case: Case,
    threads: int,
    engines: Sequence[str],
    seconds: float,
    clock: str = "wall",
    precision: str = "f32",
) -> Row:
    """One row of the table: all engines are loaded, then run in turns."""
    engines = [*engines, *([FLOAT] if precision == "int8" else [])]
    cells: dict[str, dict[str, Any]] = {e: {} for e in engines}
    with contextlib.ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for engine in engines:
            try:
                file, taken = worker.convert(engine, case, threads, precision)
                if engine in (OURS, FLOAT):
                    stack.callback(shutil.rmtree, file.parent)
                made = stack.enter_context(Worker(engine, threads, precision))
                start = made.ask("load", file, case.feeds, seconds=LOADING)
                file_mb = worker.loaded_bytes(file) / 1e6
                cells[engine]["start"] = {"compile": taken, **start, "file": file_mb}
                if said := getattr(peers.module(engine, precision), "note", lambda _: None)(file):
                    cells[engine]["note"] = said
                workers[engine] = made
            except Refused as e:
                cells[engine] = {"failed": str(e)}
        made_by = _attempt_all(workers, cells, "outputs")
        judged = differences(made_by) if precision == "f32" else cosines(made_by, exact(case))
        for engine, apart in judged.items():
            cells[engine]["apart" if precision == "f32" else "cosine"] = apart
            if not (apart <= AGREE if precision == "f32" else apart >= ALIKE[precision]):
                shapes = [a.shape for a in made_by[engine]]
                words = f"differ by {apart:.0e} of the range (shapes {shapes})"
                if precision != "f32":
                    words = f"have a cosine of {apart:.4f} to f32 (shapes {shapes})"
                cells[engine] = {"failed": f"its outputs {words}"}
                del workers[engine]
        watch = machine.Watch(lambda: _own_seconds(workers))
        times = interleave(workers, cells, seconds, clock)
        busy = watch.read()
    for engine, runs in times.items():
        if runs and "failed" not in cells[engine]:
            cells[engine] |= {"min": min(runs), "median": statistics.median(runs)}
            cells[engine]["runs"] = len(runs)
    return {
        "model": case.name,
        "threads": threads,
        "mmac": macs.count(intaglio.load(case.path, dims=case.dims)) / 1e6,
        "engines": cells,
        "busy": {**asdict(busy), "crowded": busy.crowded},
    }


def _unmeasured(case: Case, threads: int, engines: Sequence[str], why: str) -> Row:
    """A row without times: we cannot read the model, or no engine computes it in f32."""
    quiet = {"others": 0.0, "steal": 0.0, "load": 0.0, "crowded": False}
    cells = {e: {"failed": f"not measured: {why}"} for e in engines}
    return {"model": case.name, "threads": threads, "mmac": 0, "engines": cells, "busy": quiet}


def convert(cases: Sequence[Case], chosen: Sequence[str], precision: str = "f32") -> None:
    """Convert the model for all peers before anything is measured; results are cached."""
    for engine, case in itertools.product(chosen, cases):
        with contextlib.suppress(Refused):  # reported when the row is measured
            worker.convert(engine, case, 1, precision)


def interleave(
    workers: dict[str, Worker], cells: dict[str, dict[str, Any]], seconds: float, clock: str
) -> dict[str, list[float]]:
    """Milliseconds of every run; the engines take turns in an order that changes."""
    times: dict[str, list[float]] = {e: [] for e in workers}
    order = random.Random(0)
    for _ in range(ROUNDS):
        for engine in order.sample(sorted(workers), len(workers)):
            time.sleep(SETTLE)
            try:
                times[engine] += workers[engine].ask("burst", seconds / ROUNDS, 2, clock)
            except Refused as e:
                cells[engine] = {"failed": str(e)}
                del workers[engine]
    return times


def differences(outputs: dict[str, list[Array]]) -> dict[str, float]:
    """Difference of each engine's outputs from the engine that most others agree with."""
    between = {
        (a, b): max(map(difference, outputs[a], outputs[b]), default=0.0)
        if len(outputs[a]) == len(outputs[b])
        else float("inf")
        for a, b in itertools.permutations(outputs, 2)
    }

    def friends(one: str) -> int:
        return sum(between[other, one] <= AGREE for other in outputs if other != one)

    if not outputs:
        return {}
    middle = max((e for e in outputs if e != OURS or len(outputs) == 1), key=friends)
    return {e: 0.0 if e == middle else between[e, middle] for e in outputs}


def difference(a: Array, b: Array) -> float:
    """The largest difference relative to b's range; axes of extent 1 may be missing."""
    a, b = np.squeeze(np.asarray(a, np.float64)), np.squeeze(np.asarray(b, np.float64))
    if a.shape != b.shape:
        return float("inf")
    return float(np.abs(a - b).max() / max(np.ptp(b), 1e-12)) if a.size else 0.0


def exact(case: Case) -> list[Array]:
    """The outputs in f32, by a peer if possible, so that our own error shows."""
    for engine in (*(p for p in ("onnxruntime", "openvino") if not peers.missing(p)), OURS):
        with contextlib.suppress(Refused), contextlib.ExitStack() as stack:
            file, _ = worker.convert(engine, case, 1)
            if engine == OURS:
                stack.callback(shutil.rmtree, file.parent)
            made = stack.enter_context(Worker(engine, 1))
            made.ask("load", file, case.feeds, seconds=LOADING)
            outputs: list[Array] = made.ask("outputs")
            return outputs
    raise Refused("no engine here computes it in f32")


def cosines(outputs: dict[str, list[Array]], right: list[Array]) -> dict[str, float]:
    """For each engine, the lowest cosine of an output to the right one."""
    return {
        e: min(map(cosine, made, right), default=1.0) if len(made) == len(right) else 0.0
        for e, made in outputs.items()
    }


def _attempt_all(
    workers: dict[str, Worker], cells: dict[str, dict[str, Any]], what: str
) -> dict[str, Any]:
    answers = {}
    for engine, made in list(workers.items()):
        try:
            answers[engine] = made.ask(what)
        except Refused as e:
            cells[engine] = {"failed": str(e)}
            del workers[engine]
    return answers


def _own_seconds(workers: dict[str, Worker]) -> float:
    return worker.cpu_seconds(os.getpid()) + sum(w.cpu_seconds() for w in workers.values())


def run(
    cases: Sequence[Case],
    threads: Sequence[int],
    chosen: Sequence[str],
    seconds: float,
    clock: str = "wall",
    json_file: str | Path | None = None,
    markdown_file: str | Path | None = None,
    precision: str = "f32",
) -> dict[str, Any]:
    """Run the whole comparison; files are written after every row."""
    found: dict[str, Any] = {"machine": machine.describe(), "clock": clock, "rows": [], "peaks": {}}
    found["precision"] = precision
    found["versions"] = {OURS: intaglio.__version__} | {
        p: (peers.versions(p, precision) or {}).get(peers.module(p).PACKAGES[0]) for p in chosen
    }
    convert(cases, chosen, precision)
    steps = list(itertools.product(cases, threads))
    for i, (case, n) in enumerate(steps, 1):
        top = machine.peak(n)
        found["peaks"][n] = max(top or 0, found["peaks"].get(n) or 0) or None
        try:
            row = compare(case, n, [OURS, *chosen], seconds, clock, precision)
        except (Refused, intaglio.IntaglioError) as e:  # continue with the next model
            row = _unmeasured(case, n, [OURS, *chosen], str(e))
        found["rows"].append(row)
        print(f"[{i}/{len(steps)}] {_line(row)}", file=sys.stderr, flush=True)
        found["summary"] = {str(t): table.summary(found["rows"], chosen, t) for t in threads}
        if json_file:
            Path(json_file).write_text(json.dumps(found, indent=1))
        if markdown_file:
            Path(markdown_file).write_text(report(found, chosen))
    return found


def report(found: dict[str, Any], chosen: Sequence[str]) -> str:
    """The comparison as Markdown."""
    about = found["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in found["versions"].items())
    precision = found["precision"]
    able = [p for p in peers.PEERS if precision in peers.precisions(p)]
    lacking = [
        f"{p} is not installed: {peers.why_missing(p, precision)}"
        for p in able
        if peers.missing(p, precision)
    ]
    head = f"{about['cpu']}, {about['cpus']} CPUs, {about['isa']}; {about['date']}; {versions}\n\n"
    if precision == "bf16":
        lacking += [f"{p} has no bf16 on a CPU" for p in peers.PEERS if p not in able]
    if found["clock"] == "cpu":
        lacking.append("times are processor time, which other processes hardly change")
    return head + table.markdown(found["rows"], chosen, found["peaks"], lacking, precision)


def failures(found: dict[str, Any]) -> int:
    """The number of rows in which we failed or were wrong."""
    return sum("failed" in r["engines"][OURS] for r in found["rows"])


def _line(row: Row) -> str:
    ours, best = table.time_of(row, OURS), table.fastest(row)
    words = f"{row['model']}, {table.threads(row['threads'])}: "
    words += f"{table.digits(ours)} ms" if ours else f"FAILED: {row['engines'][OURS].get('failed')}"
    if ours and best:
        words += f", fastest peer {table.digits(best[1])} ({best[0]}), ratio {best[1] / ours:.2f}"
    return words + (" (busy)" if row["busy"]["crowded"] else "")


def options(parser: argparse.ArgumentParser) -> None:
    """The options that compare, startup and `make bench` share."""
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: the zoo's 22")
    parser.add_argument("--peers", help=f"of {', '.join(peers.PEERS)} [default: all installed]")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(models.QUICK)}")


def names(given: argparse.Namespace) -> Sequence[str]:
    """The names of the requested models."""
    return given.models or (models.QUICK if given.quick else models.LIST)


def choose(given: argparse.Namespace) -> tuple[list[Case], list[str]]:
    """The requested models and peers that are available."""
    wanted = getattr(given, "precision", "f32")
    asked = given.peers.split(",") if given.peers is not None else peers.installed(wanted)
    chosen = [p for p in asked if p]
    for p in chosen:
        if p not in peers.PEERS:
            raise SystemExit(f"unknown peer '{p}'; known are {', '.join(peers.PEERS)}")
        if wanted not in peers.precisions(p):
            raise SystemExit(f"{p} computes in {', '.join(peers.precisions(p))}, not in {wanted}")
        if lacking := peers.missing(p, wanted):
            raise SystemExit(f"{p} needs {', '.join(lacking)}: pip install intaglio[peers]")
    return models.cases(names(given)), chosen


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    options(parser)
    parser.add_argument("--threads", help="default: 1,2")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each engine in each row")
    parser.add_argument(
        "--clock",
        choices=worker.CLOCKS,
        default="wall",
        help="cpu: processor time, for one thread on a busy machine",
    )
    parser.add_argument("--precision", choices=peers.precisions(OURS), default="f32")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--markdown", metavar="FILE")
    given = parser.parse_args(arguments)
    cases, chosen = choose(given)
    asked = given.threads or ("1,2" if given.clock == "wall" else "1")
    threads = [int(n) for n in asked.split(",")]
    if given.clock == "cpu" and max(threads) > 1:
        parser.error("--clock cpu counts waiting threads as work; use it with --threads 1")
    found = run(
        cases,
        threads,
        chosen,
        given.seconds,
        given.clock,
        given.json,
        given.markdown,
        given.precision,
    )
    print(report(found, chosen), end="")
    return failures(found)


if __name__ == "__main__":
    sys.exit(main())
