"""Start-up: compile, load and first run, memory and sizes, compared with the peers.

python -m benchmarks.startup [MODEL ...] [--peers ncnn,openvino] [--times 2] [--json FILE] [--quick]

Measures the time to compile (or convert), load and run once, and the peak memory above that of the
imported engine, each in a fresh process with one thread; the minimum of several. Also lists the
sizes of model files and installed packages.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import compare, peers, worker
from benchmarks.models import ROOT, Case
from benchmarks.peers import OURS, Refused
from benchmarks.table import grid
from benchmarks.worker import LOADING, Worker
from intaglio import native

COLUMNS = {
    "compile": "Compile or convert, seconds (onnxruntime loads ONNX itself)",
    "load": "Load, milliseconds",
    "first": "First run, milliseconds",
    "rss": "Peak memory above import, MB",
    "file": "Files that are loaded, MB",
}
Cells = dict[str, dict[str, Any]]


def measure(case: Case, engine: str, times: int) -> dict[str, Any]:
    """One engine and one model: the minimum of `times` fresh processes."""
    try:
        with contextlib.ExitStack() as stack:
            file, seconds = worker.convert(engine, case, 1)
            if engine == OURS:
                stack.callback(shutil.rmtree, file.parent)
            found = []
            for _ in range(times):
                with Worker(engine, 1) as made:
                    found.append(made.ask("load", file, case.feeds, seconds=LOADING))
            least = {key: min(f[key] for f in found) for key in ("load", "first", "rss")}
            return {"compile": seconds, **least, "file": worker.loaded_bytes(file) / 1e6}
    except Refused as e:
        return {"failed": str(e)}


def measured(found: dict[str, Any]) -> dict[str, Cells]:
    """Start-up figures of a comparison's workers with one thread (also fresh processes)."""
    return {
        r["model"]: {
            e: c["start"] if "failed" not in c else {"failed": c["failed"]}
            for e, c in r["engines"].items()
        }
        for r in found["rows"]
        if r["threads"] == 1
    }


def best(run: Callable[[], Any], times: int) -> float:
    """Minimum milliseconds of `times` calls."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken) * 1e3


def import_time(module: str, times: int = 5) -> float:
    """Milliseconds of `import module` in a fresh interpreter, without the interpreter's start."""

    def run(code: str) -> float:
        command = [sys.executable, "-c", code]
        return best(lambda: subprocess.run(command, check=True, capture_output=True), times)

    return run(f"import {module}") - run("pass")


def package_bytes(engine: str) -> int:
    """The installed size of the engine alone: no converter, no dependencies."""
    if engine != OURS:
        return peers.installed_bytes(peers.module(engine).PACKAGES[0])
    sources = (ROOT / "src" / "intaglio").rglob("*.py")
    return sum(f.stat().st_size for f in [*sources, Path(native.library()._name)])


def report(rows: dict[str, Cells], engines: Sequence[str], packages: Cells) -> str:
    """A table for each quantity, and a summary."""
    imports = [f"{packages[e]['import']:.0f}" for e in engines]
    sizes = [f"{packages[e]['bytes'] / 1e6:.1f}" for e in engines]
    parts = [grid([["", *engines], ["import, ms", *imports], ["installed, MB", *sizes]])]
    for key, title in COLUMNS.items():
        lines = [["model", *engines]]
        for model, cells in rows.items():
            lines.append([model, *(_digits(cells[e].get(key)) for e in engines)])
        parts += [f"\n### {title}\n", grid(lines)]
    return "\n".join([*parts, "", *(f"- {s}" for s in findings(rows)), ""])


def findings(rows: dict[str, Cells]) -> list[str]:
    """Our load time against onnxruntime's, our memory against the smallest peer's, and failures."""
    said = []
    loads = [
        c["onnxruntime"]["load"] / c[OURS]["load"]
        for c in rows.values()
        if "load" in c[OURS] and "load" in c.get("onnxruntime", {})
    ]
    if loads:
        said.append(
            f"load: {statistics.geometric_mean(loads):.1f} times as fast as onnxruntime's "
            f"(geometric mean; from {min(loads):.1f} to {max(loads):.1f})"
        )
    smallest = [
        c[OURS]["rss"] <= min(theirs)
        for c in rows.values()
        if "rss" in c[OURS]
        and (theirs := [v["rss"] for e, v in c.items() if e != OURS and "rss" in v])
    ]
    if smallest:
        said.append(
            f"memory: no more than the smallest peer's on {sum(smallest)} of {len(smallest)} models"
        )
    return said + [
        f"{model}, {engine}: {cell['failed']}"
        for model, cells in rows.items()
        for engine, cell in cells.items()
        if "failed" in cell
    ]


def _digits(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def run(
    cases: Sequence[Case],
    chosen: Sequence[str],
    times: int,
    json_file: str | Path | None = None,
    known: dict[str, Cells] | None = None,
) -> str:
    """Measure what is missing, write `json_file`, and return the report."""
    known = known or {}
    compare.convert([c for c in cases if c.name not in known], chosen)
    engines = [OURS, *chosen]
    packages: Cells = {
        e: {"import": import_time(peers.module(e).ENGINE), "bytes": package_bytes(e)}
        for e in engines
    }
    rows: dict[str, Cells] = {}
    for i, case in enumerate(cases, 1):
        rows[case.name] = known.get(case.name) or {e: measure(case, e, times) for e in engines}
        loads = ", ".join(f"{e} {_digits(c.get('load'))}" for e, c in rows[case.name].items())
        print(f"[{i}/{len(cases)}] {case.name}: load ms: {loads}", file=sys.stderr, flush=True)
        if json_file:
            Path(json_file).write_text(json.dumps({"packages": packages, "rows": rows}, indent=1))
    return report(rows, engines, packages)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.startup",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    compare.options(parser)
    parser.add_argument("--times", type=int, default=2, help="fresh processes for each figure")
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args(arguments)
    cases, chosen = compare.choose(given)
    print(run(cases, chosen, given.times, given.json), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
