"""What int8 costs in accuracy: ours by default and with --auto, beside onnxruntime and OpenVINO.

python -m benchmarks.accuracy [MODEL ...] [--engines intaglio,onnxruntime] [--quick]
                              [--json FILE] [--markdown FILE]

Models and data come from ../shared (INTAGLIO_SHARED) and from PyPI; what is not there is left out
and said. Every engine calibrates with the same samples, none of which is evaluated. Scores of the
peers are kept (INTAGLIO_BENCH_CACHE): only ours are computed anew each time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.accuracy import engines, report
from benchmarks.accuracy.one import TASKS
from benchmarks.models import ROOT

LONGEST = 1800  # seconds for one engine and one model


def measure(name: str, engine: str, quick: bool) -> report.Row:
    """One engine's score, or why there is none."""
    row: report.Row = {"model": name, "metric": TASKS[name].metric, "engine": engine}
    if why := engines.missing(engine):
        return row | {"missing": why}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "score.json"
        command = [sys.executable, "-m", "benchmarks.accuracy.one", name, engine, str(file)]
        try:
            done = subprocess.run(
                [*command, *["--quick"] * quick],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=LONGEST,
            )
        except subprocess.TimeoutExpired:
            return row | {"failed": f"took longer than {LONGEST} s"}
        if not file.exists():
            said = [s for s in done.stderr.splitlines() if s.strip()] or ["it said nothing"]
            return row | {"failed": f"{said[-1].strip()[:300]} (code {done.returncode})"}
        found: dict[str, Any] = json.loads(file.read_text())
        return row | found


def run(
    names: Sequence[str],
    chosen: Sequence[str],
    quick: bool = False,
    json_file: str | Path | None = None,
    markdown_file: str | Path | None = None,
) -> list[report.Row]:
    """All rows; files are written after every one, so that a stop loses nothing."""
    rows: list[report.Row] = []
    for i, name in enumerate(names, 1):
        for engine in chosen:
            wanted = {engines.DYNAMIC: TASKS[name].dynamic, engines.INT4: TASKS[name].int4}
            if not wanted.get(engine, True):
                continue
            row = measure(name, engine, quick)
            rows.append(row)
            print(f"[{i}/{len(names)}] {_line(row)}", file=sys.stderr, flush=True)
            if json_file:
                about = {"machine": machine.describe(), "quick": quick, "rows": rows}
                Path(json_file).write_text(json.dumps(about, indent=1))
            if markdown_file:
                Path(markdown_file).write_text(report.markdown(rows))
            if "missing" in row and engine == engines.FLOAT:
                break  # nobody has that model
    return rows


def _line(row: report.Row) -> str:
    words = f"{row['model']}, {row['engine']}: "
    if "value" not in row:
        return words + str(row.get("failed") or row.get("missing"))
    return words + f"{row['value']:.2f} {row['metric']}"


def failures(rows: Sequence[report.Row]) -> int:
    """How many models we ourselves could not quantise or run."""
    return sum("failed" in r for r in rows if r["engine"] in (engines.OURS, engines.AUTO))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    known = list(engines.ENGINES)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(TASKS)}")
    parser.add_argument("--engines", default=",".join(known), help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--markdown", metavar="FILE")
    given = parser.parse_args(arguments)
    for name in given.models:
        if name not in TASKS:
            parser.error(f"there is no model '{name}'; there are {', '.join(TASKS)}")
    chosen = given.engines.split(",")
    for engine in chosen:
        if engine not in known:
            parser.error(f"there is no engine '{engine}'; there are {', '.join(known)}")
    chosen = [engines.FLOAT, *(e for e in chosen if e != engines.FLOAT)]
    rows = run(given.models or list(TASKS), chosen, given.quick, given.json, given.markdown)
    print(report.markdown(rows), end="")
    return failures(rows)


if __name__ == "__main__":
    sys.exit(main())
