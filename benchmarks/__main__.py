"""`make bench`: compare Intaglio with its peers on this machine.

Measures latency in f32 and int8, calibration time, start-up time, memory, file sizes, the runtime's
overhead and, with --accuracy, the accuracy of int8.

python -m benchmarks [--quick] [--float] [--accuracy] [--out build/bench]

Duration on two idle cores: 45 minutes, 10 minutes with --quick, half of that with --float. The
first run also converts the models for the peers: 30 minutes, or 5 with --quick. --accuracy adds two
to three hours, or 10 minutes with --quick. Results go to files in the output folder: latency, int8
and accuracy (.json and .md), calibration.json and startup.json. Each row of latency is written as
soon as it is measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import calibration, compare, models, overhead, peers, startup, table
from benchmarks.accuracy import engines, report
from benchmarks.accuracy.__main__ import failures, run
from benchmarks.accuracy.one import TASKS

FEW = ("mobilenet_v2", "nudenet", "minilm_l3", "dtln")  # models whose accuracy --quick measures
STARTED = time.monotonic()


def stage(words: str) -> None:
    """Print the current stage on stderr."""
    minutes = (time.monotonic() - STARTED) / 60
    print(f"--- {words} (after {minutes:.0f} minutes)", file=sys.stderr, flush=True)


def accuracy(out: Path, quick: bool) -> int:
    """Measure the accuracy of int8; returns the number of failures."""
    files = {"json_file": out / "accuracy.json", "markdown_file": out / "accuracy.md"}
    tasks = FEW if quick else list(TASKS)
    chosen = [e for e in engines.ENGINES if not quick or e != engines.AUTO]  # it takes minutes
    stage(f"accuracy of int8: {len(tasks)} models, {len(chosen)} engines")
    rows = run(tasks, chosen, quick, **files)
    print("## Accuracy of int8\n\n" + report.markdown(rows), flush=True)
    return failures(rows)


def calibrate(out: Path, quick: bool) -> int:
    """Measure calibration time; returns the number of failures."""
    count = 20 if quick else 100
    stage(f"calibration of ResNet-50 with {count} images")
    try:
        cost = calibration.run(count=count, json_file=out / "calibration.json")
    except models.NotExported as e:
        print(f"## Calibration\n\n- left out: {e}\n", flush=True)
        return 0
    print("## Calibration\n\n" + calibration.report(cost), flush=True)
    return calibration.failures(cost)


def headlines(found: dict[str, Any]) -> list[str]:
    """One line for each number of threads: our speed compared with the fastest peer."""
    said = []
    for threads, of in found["summary"].items():
        means = {which: of[which].get("fastest") for which in ("min", "median")}
        if not means["min"]:
            continue
        rows = [r for r in found["rows"] if str(r["threads"]) == threads]
        both = sum(table.ratio_to_fastest(r) is not None for r in rows)
        slower = ", ".join(of["slower"]) or "none"
        busy = sum(r["busy"]["crowded"] for r in rows)
        doubt = f" (others used the machine in {busy} of {len(rows)} rows)" if busy else ""
        said.append(
            f"{found['precision']}, {table.threads(int(threads))}: the fastest peer takes "
            f"{means['min']:.2f} times our time (by medians {means['median']:.2f}), geometric mean "
            f"over {both} of {len(rows)} models; slower than the fastest: {slower}{doubt}"
        )
    return said


def measure(given: argparse.Namespace) -> int:
    """Run all measurements in order; returns the number of our failures."""
    cases, chosen = compare.choose(given)
    absent = sorted(
        set(compare.names(given)) - {c.name for c in cases} - {str(c.path) for c in cases}
    )
    failed, said = 0, [f"left out: {', '.join(absent)}"] if absent else []
    known: dict[str, startup.Cells] = {}
    for precision, name in (("f32", "latency"), *([] if given.float else [("int8", "int8")])):
        able = [p for p in chosen if p in peers.installed(precision)]
        files = {"json_file": given.out / f"{name}.json", "markdown_file": given.out / f"{name}.md"}
        stage(f"latency, {precision}: {len(cases)} models against {', '.join(able) or 'no peer'}")
        found = compare.run(cases, [1, 2], able, seconds=1.0, precision=precision, **files)
        print(f"## Latency, {precision}\n\n" + compare.report(found, able), flush=True)
        failed += compare.failures(found)
        said += headlines(found)
        known = known or startup.measured(found)
    if not given.float:
        failed += calibrate(given.out, given.quick)
    if given.accuracy:
        failed += accuracy(given.out, given.quick)
    stage("start-up, memory and sizes")
    started = startup.run(cases, chosen, 1, given.out / "startup.json", known)
    print("## Start-up\n\n" + started, flush=True)
    stage("overhead")
    print("## Overhead\n\n" + overhead.run(), flush=True)
    said.append(f"{failed} failures of ours" if failed else "no failures of ours")
    said.append(f"{(time.monotonic() - STARTED) / 60:.0f} minutes; figures in {given.out}")
    print("## In short\n\n" + "\n".join(f"- {s}" for s in said), flush=True)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    compare.options(parser)
    parser.add_argument("--float", action="store_true", help="no int8")
    parser.add_argument(
        "--accuracy", action="store_true", help="also measure the accuracy of int8; takes hours"
    )
    parser.add_argument("--out", type=Path, default=models.ROOT / "build" / "bench")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        return min(measure(given), 100)
    except KeyboardInterrupt:
        print(f"interrupted; results so far are in {given.out}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
