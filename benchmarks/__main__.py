"""`make bench`: latency in f32 and in int8 beside the peers, what int8 costs in accuracy and in
time to calibrate, start-up, memory and sizes, and our own overhead.

python -m benchmarks [--quick] [--out build/bench]

About an hour and a half for everything once the peers have converted the models, 15 minutes with
--quick. Figures go to files in the output folder: latency, int8 and accuracy (.json and .md),
calibration.json and startup.json.
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


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    compare.options(parser)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    cases, chosen = compare.choose(given)
    failed = 0
    for precision, name in (("f32", "latency"), ("int8", "int8")):
        able = [p for p in chosen if p in peers.installed(precision)]
        files = {"json_file": given.out / f"{name}.json", "markdown_file": given.out / f"{name}.md"}
        found = compare.run(cases, [1, 2], able, seconds=2.0, precision=precision, **files)
        print(f"## Latency, {precision}\n\n" + compare.report(found, able))
        failed += compare.failures(found)
    files = {"json_file": given.out / "accuracy.json", "markdown_file": given.out / "accuracy.md"}
    rows = run(FEW if given.quick else list(TASKS), list(engines.ENGINES), given.quick, **files)
    print("## Accuracy of int8\n\n" + report.markdown(rows))
    cost = calibration.run(
        count=20 if given.quick else 100, json_file=given.out / "calibration.json"
    )
    print("## Calibration\n\n" + calibration.report(cost))
    print("## Start-up\n\n" + startup.run(cases, chosen, 2, given.out / "startup.json"))
    print("\n## Overhead\n\n" + overhead.run())
    return failed + failures(rows)


if __name__ == "__main__":
    sys.exit(main())
