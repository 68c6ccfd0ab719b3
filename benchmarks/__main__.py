"""`make bench`: latency beside the peers, start-up, memory and sizes, and our own overhead.

python -m benchmarks [--quick] [--out build/bench]

About 25 minutes for everything once the peers have converted the models, 5 with --quick. Figures
go to latency.json, latency.md and startup.json in the output folder.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import compare, overhead, startup
from benchmarks.models import ROOT


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
    files = {"json_file": given.out / "latency.json", "markdown_file": given.out / "latency.md"}
    found = compare.run(cases, [1, 2], chosen, seconds=2.0, **files)
    print("## Latency\n\n" + compare.report(found, chosen))
    print("## Start-up\n\n" + startup.run(cases, chosen, 2, given.out / "startup.json"))
    print("\n## Overhead\n\n" + overhead.run())
    return compare.failures(found)


if __name__ == "__main__":
    sys.exit(main())
