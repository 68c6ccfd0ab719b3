"""`make bench`: latency in f32 and in int8 beside the peers, what calibrating takes, start-up,
memory and sizes, our own overhead and, on demand, what int8 costs in accuracy.

python -m benchmarks [--quick] [--float] [--accuracy] [--out build/bench]

On two quiet cores about 45 minutes, 10 with --quick, half of that with --float; the first time,
peers convert the models for about half an hour more, 5 minutes with --quick. With --accuracy two to
three hours more, 10 minutes with --quick. Figures go to files in the output folder: latency, int8
and accuracy (.json and .md), calibration.json and startup.json; a row of latency is written as soon
as it is measured.
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

FEW = ("mobilenet_v2", "nudenet", "minilm_l3", "dtln")  # whose accuracy --quick measures
STARTED = time.monotonic()


def stage(words: str) -> None:
    """Say what comes now, where the progress is shown."""
    minutes = (time.monotonic() - STARTED) / 60
    print(f"--- {words} (after {minutes:.0f} minutes)", file=sys.stderr, flush=True)


def accuracy(out: Path, quick: bool) -> int:
    """What int8 costs in accuracy; returns how much failed."""
    files = {"json_file": out / "accuracy.json", "markdown_file": out / "accuracy.md"}
    tasks = FEW if quick else list(TASKS)
    chosen = [e for e in engines.ENGINES if not quick or e != engines.AUTO]  # which takes minutes
    stage(f"accuracy of int8: {len(tasks)} models, {len(chosen)} engines")
    rows = run(tasks, chosen, quick, **files)
    print("## Accuracy of int8\n\n" + report.markdown(rows), flush=True)
    return failures(rows)


def calibrate(out: Path, quick: bool) -> int:
    """What calibrating takes; returns how much failed."""
    count = 20 if quick else 100
    stage(f"calibration of ResNet-50 with {count} pictures")
    try:
        cost = calibration.run(count=count, json_file=out / "calibration.json")
    except models.NotExported as e:
        print(f"## Calibration\n\n- left out: {e}\n", flush=True)
        return 0
    print("## Calibration\n\n" + calibration.report(cost), flush=True)
    return calibration.failures(cost)


def headlines(found: dict[str, Any]) -> list[str]:
    """The comparison in a line for each number of threads."""
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
    """All parts, one after the other; returns how much of ours failed."""
    cases, chosen = compare.choose(given)
    absent = sorted(
        set(compare.names(given)) - {c.name for c in cases} - {str(c.path) for c in cases}
    )
    failed, said = 0, [f"left out: {', '.join(absent)}"] if absent else []
    known: dict[str, startup.Cells] = {}
    for precision, name in (("f32", "latency"), *([] if given.float else [("int8", "int8")])):
        able = [p for p in chosen if p in peers.installed(precision)]
        files = {"json_file": given.out / f"{name}.json", "markdown_file": given.out / f"{name}.md"}
        stage(f"latency, {precision}: {len(cases)} models beside {', '.join(able) or 'nobody'}")
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
    said.append(f"{failed} failures of ours" if failed else "nothing of ours failed")
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
    parser.add_argument("--accuracy", action="store_true", help="of int8, too: hours")
    parser.add_argument("--out", type=Path, default=models.ROOT / "build" / "bench")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        return min(measure(given), 100)
    except KeyboardInterrupt:
        print(f"stopped; what was measured is in {given.out}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
