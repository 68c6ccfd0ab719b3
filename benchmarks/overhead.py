"""Overhead of a run: per step, per call from C, per call from Python.

python -m benchmarks.overhead [--seconds 0.5]

Steps on one element show the cost of a step. The demo's network (0.5 million MACs) shows the cost
of a call on top of its kernels. Every figure is the minimum of all runs within the time limit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from benchmarks import machine
from benchmarks.models import ROOT
from benchmarks.table import grid
from intaglio import native, ops
from intaglio.ir import Graph, Type, Value
from intaglio.package import Package

STEPS = (1, 10, 100, 1000)
GOALS = {"step": 1.0, "python": 20.0, "c": 5.0}  # microseconds


def chain(steps: int) -> Package:
    """A chain of `steps` steps on one element; compiled at level 0, so that they are not fused."""
    x = Value(Type("f32", (1,)), "x")
    y = x
    for i in range(steps):
        y = ops.neg(y) if i % 2 else ops.abs(y)
    return intaglio.compile(Graph([x], [y], ["y"]), level=0)


def digits() -> Package:
    """The demo's network."""
    return intaglio.compile(ROOT / "examples" / "digits" / "digits.onnx", dims={"batch": 1})


def from_c(package: Package, threads: int, seconds: float) -> float:
    """Microseconds of a run in a C program."""
    program = Path(native.library()._name).with_name("bench_latency")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.itg"
        package.save(path)
        command = [program, path, str(threads), str(seconds * 1e3)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout) / 1e3


def least(run: Callable[[], Any], seconds: float) -> float:
    """The minimum time of a call in microseconds."""
    best, end = 1 << 62, time.perf_counter_ns() + int(seconds * 1e9)
    while True:
        start = time.perf_counter_ns()
        run()
        after = time.perf_counter_ns()
        best = min(best, after - start)
        if after > end:
            return best / 1e3


@dataclass
class Call:
    """Times of the demo's network with one number of threads, in microseconds."""

    threads: int
    python: float
    out: float  # from Python with out=
    bound: float  # from Python with session.bind
    c: float
    kernels: float  # sum of the kernels' times


def call(package: Package, threads: int, seconds: float) -> Call:
    """Measure one line of the table."""
    with intaglio.open(package, threads=threads) as session:
        feeds = {n: np.zeros(t.shape, np.float32) for n, t in session.inputs.items()}
        out = {n: np.zeros(t.shape, np.float32) for n, t in session.outputs.items()}
        python = least(lambda: session.run(feeds), seconds)
        given = least(lambda: session.run(feeds, out=out), seconds)
        bound = least(session.bind(feeds, out).run, seconds)
    with intaglio.open(package, threads=threads, profile=True) as session:
        best: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            session.reset_profile()
            session.run(feeds)
            taken = [s.milliseconds * 1e3 for s in session.profile()]
            best = [min(pair) for pair in zip(best or taken, taken, strict=True)]
    return Call(threads, python, given, bound, from_c(package, threads, seconds), sum(best))


def run(seconds: float = 0.5) -> str:
    """Measure and return the report."""
    steps = {n: {t: from_c(chain(n), t, seconds) for t in (1, 2)} for n in STEPS}
    first, last = STEPS[0], STEPS[-1]
    slope = {t: (steps[last][t] - steps[first][t]) / (last - first) for t in (1, 2)}
    package = digits()
    calls = [call(package, t, seconds) for t in (1, 2)]
    macs = sum(s.macs for s in package.plan.steps)
    lines = [["steps of one element", "1 thread, µs", "2 threads, µs"]]
    lines += [[str(n), *(f"{us:.2f}" for us in row.values())] for n, row in steps.items()]
    lines += [["each more", *(f"{us:.3f}" for us in slope.values())]]
    parts = [grid(lines), ""]
    lines = [
        ["the demo's network, threads"]
        + [f"{name}, µs" for name in ("Python", "Python, out=", "Python, bind", "C", "kernels")]
    ]
    for one in calls:
        figures = (one.python, one.out, one.bound, one.c, one.kernels)
        lines.append([str(one.threads), *(f"{us:.1f}" for us in figures)])
    parts += [grid(lines), "", *(f"- {s}" for s in findings(slope, calls, macs))]
    return "\n".join([*parts, ""])


def findings(slope: dict[int, float], calls: list[Call], macs: int) -> list[str]:
    """The figures against their goals, and the time at the peak of a core."""
    one = calls[0]
    said = [
        f"a step costs {max(slope.values()) * 1e3:.0f} ns on top of its kernel "
        f"(goal: {GOALS['step'] * 1e3:.0f})",
        f"{macs / 1e6:.2f} million MACs from Python: {one.python:.1f} µs "
        f"(goal: {GOALS['python']:.0f}), {one.python - one.c:.1f} of it for Python",
        f"bound inputs and outputs: {one.bound:.1f} µs, {one.bound - one.c:.1f} of it for Python",
        f"from C: {one.c:.1f} µs (goal: {GOALS['c']:.0f}), "
        f"{max(one.c - one.kernels, 0):.1f} of it on top of the kernels",
    ]
    if top := machine.peak(1):
        said.append(f"a core's measured peak would compute it in {macs * 2 / top / 1e3:.1f} µs")
    return said


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="for each figure")
    print(run(parser.parse_args().seconds), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
