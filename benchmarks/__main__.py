"""`make bench`: latency in f32 and in int8 beside the peers, what int8 costs in accuracy and in
time to calibrate, start-up, memory and sizes, and our own overhead.

python -m benchmarks [--float] [--quick] [--out build/bench]

With --float, on two quiet cores, about 20 minutes, 5 with --quick: latency in f32, start-up and
overhead; the first time, peers convert the models for up to ten minutes more. Without, int8 comes
too, its latency, accuracy and calibration: about an hour more, 10 minutes with --quick. Figures go
to files in the output folder: latency, int8 and accuracy (.json and .md), calibration.json and
startup.json; a row of latency is written as soon as it is measured.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import calibration, compare, overhead, peers, startup
from benchmarks.accuracy import engines, report
from benchmarks.accuracy.__main__ import failures, run
from benchmarks.accuracy.one import TASKS
from benchmarks.models import ROOT

FEW = ("mobilenet_v2", "nudenet", "minilm_l3", "dtln")  # whose accuracy --quick measures


def bytes_of(out: Path, quick: bool) -> int:
    """What int8 costs in accuracy, and what calibrating takes; returns how much failed."""
    files = {"json_file": out / "accuracy.json", "markdown_file": out / "accuracy.md"}
    rows = run(FEW if quick else list(TASKS), list(engines.ENGINES), quick, **files)
    print("## Accuracy of int8\n\n" + report.markdown(rows))
    cost = calibration.run(count=20 if quick else 100, json_file=out / "calibration.json")
    print("## Calibration\n\n" + calibration.report(cost))
    return failures(rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    compare.options(parser)
    parser.add_argument("--float", action="store_true", help="no int8: 20 minutes")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    cases, chosen = compare.choose(given)
    failed = 0
    known: dict[str, startup.Cells] = {}
    for precision, name in (("f32", "latency"), *([] if given.float else [("int8", "int8")])):
        able = [p for p in chosen if p in peers.installed(precision)]
        files = {"json_file": given.out / f"{name}.json", "markdown_file": given.out / f"{name}.md"}
        found = compare.run(cases, [1, 2], able, seconds=1.0, precision=precision, **files)
        print(f"## Latency, {precision}\n\n" + compare.report(found, able))
        failed += compare.failures(found)
        known = known or startup.measured(found)
    if not given.float:
        failed += bytes_of(given.out, given.quick)
    print("## Start-up\n\n" + startup.run(cases, chosen, 1, given.out / "startup.json", known))
    print("\n## Overhead\n\n" + overhead.run())
    return failed


if __name__ == "__main__":
    sys.exit(main())
