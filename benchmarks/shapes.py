"""A package with open dimensions beside packages for one shape: results, time, memory and file.

    python -m benchmarks.shapes MODEL.onnx --dim batch=1..8 --dim seq=1..256
        [--count 200] [--at batch=1,seq=16] [--threads 1] [--seed 0]

Compiles the model once for the ranges. Then compiles it for `--count` random sizes within them and
compares the outputs of both with each other. At the sizes of `--at` (default: the smallest, the
largest, and three between), both run in turns; so does onnxruntime, which takes any shape.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from benchmarks.native import Run, in_turns
from intaglio import dtypes
from intaglio.open_graph import at_sizes, open_ranges
from intaglio.symint import Symbol

TOLERANCE = 1e-4  # of an output's largest value: other kernels add in another order
Sizes = dict[str, int]


def feeds_for(session: Any, sizes: Sizes, seed: int) -> dict[str, np.ndarray]:
    """Random floats; integers are 0 or 1, because they may be masks or ids."""
    rng, feeds = np.random.default_rng(seed), {}
    for name, t in session.inputs.items():
        shape, kind = at_sizes(t, sizes).shape, dtypes.numpy_of(t.dtype)
        floats = dtypes.is_float(t.dtype)
        feeds[name] = (rng.random(shape) if floats else rng.integers(0, 2, shape)).astype(kind)
    return feeds


def distance(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> float:
    """The largest difference, relative to the largest value of its output; inf if shapes differ."""
    if any(x.shape != b[n].shape or x.dtype != b[n].dtype for n, x in a.items()):
        return float("inf")
    apart = [
        np.abs(x.astype(np.float64) - b[n]).max(initial=0) / max(np.abs(b[n]).max(initial=0), 1e-6)
        for n, x in a.items()
    ]
    return float(max(apart))


def random_sizes(symbols: Sequence[Symbol], rng: random.Random) -> Sizes:
    return {
        s.name: s.multiple * rng.randint(s.low // s.multiple, s.high // s.multiple) for s in symbols
    }


def between(symbols: Sequence[Symbol], share: float) -> Sizes:
    return {
        s.name: max(s.low, int(s.low + share * (s.high - s.low)) // s.multiple * s.multiple)
        for s in symbols
    }


def compare_outputs(path: Path, session: Any, symbols: Sequence[Symbol], count: int, seed: int) -> float:  # fmt: skip # noqa: E501
    """The largest distance between the package for ranges and packages for random sizes."""
    rng, worst = random.Random(seed), 0.0
    for i in range(count):
        sizes = random_sizes(symbols, rng)
        feeds = feeds_for(session, sizes, i)
        with intaglio.open(intaglio.compile(path, dims=sizes), threads=1) as fixed:
            apart = distance(session.run(feeds), fixed.run(feeds))
        worst = max(worst, apart)
        if apart > TOLERANCE:
            print(f"  differs by {apart:.2g} at {sizes}")
        if sys.stderr.isatty():
            print(f"\r{i + 1} of {count} sizes", end="", file=sys.stderr)
    return worst


def time_row(path: Path, session: Any, sizes: Sizes, threads: int) -> str:
    """Times at one size, and how far outputs are from onnxruntime's."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    other = onnxruntime.InferenceSession(str(path), options)
    feeds = feeds_for(session, sizes, 0)
    names = session.output_names
    with intaglio.open(intaglio.compile(path, dims=sizes), threads=threads) as fixed:
        runs: dict[str, Run] = {
            "range": lambda: session.run(feeds),
            "fixed": lambda: fixed.run(feeds),
            "onnxruntime": lambda: other.run(None, feeds),
        }
        apart = distance(session.run(feeds), dict(zip(names, other.run(None, feeds), strict=True)))
        times = in_turns(runs, 2.0)
    best = {n: min(t) for n, t in times.items()}
    middle = {n: statistics.median(t) for n, t in times.items()}
    words = " ".join(f"{n}={d}" for n, d in sizes.items())
    return (
        f"{words:32} {best['range']:9.3f} {best['fixed']:9.3f} {best['onnxruntime']:9.3f} "
        f"{best['range'] / best['fixed']:6.2f} {middle['range'] / middle['fixed']:6.2f} "
        f"{best['onnxruntime'] / best['range']:6.2f} {apart:9.1e}"
    )


def memory_rows(path: Path, session: Any, package: Any, symbols: Sequence[Symbol]) -> list[str]:
    largest = {s.name: s.high for s in symbols}
    with_largest = intaglio.compile(path, dims=largest)
    with intaglio.open(with_largest, threads=1) as fixed:
        ours, other = session.memory(), fixed.memory()
    rows = [f"{n:8} {ours[n]:12,} {other[n]:12,} {ours[n] / max(other[n], 1):6.3f}" for n in other]
    a, b = len(package.image), len(with_largest.image)
    return [*rows, f"{'file':8} {a:12,} {b:12,} {a / b:6.3f}"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shapes",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("model", metavar="MODEL.onnx", type=Path)
    parser.add_argument("--dim", action="append", required=True, metavar="NAME=1..8")
    parser.add_argument("--at", action="append", metavar="NAME=1,NAME=16")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    start = time.perf_counter()
    pairs = dict(d.split("=") for d in given.dim)
    dims = {n: int(d) if d.isdigit() else d for n, d in pairs.items()}
    package = intaglio.compile(given.model, dims=dims)
    print(f"compiled for {', '.join(given.dim)} in {time.perf_counter() - start:.2f} s")
    with intaglio.open(package, threads=given.threads) as session:
        symbols = list(open_ranges(session.inputs.values()).values())
        symbols += [Symbol(n, d, d) for n, d in dims.items() if isinstance(d, int)]
        print(f"\n{'bytes':8} {'range':>12} {'largest':>12}  ratio")
        print("\n".join(memory_rows(given.model, session, package, symbols)))
        listed = [dict(pair.split("=") for pair in at.split(",")) for at in given.at or ()]
        sizes = [{n: int(d) for n, d in at.items()} for at in listed]
        sizes = sizes or [between(symbols, share) for share in (0, 0.25, 0.5, 0.75, 1)]
        columns = f"{'range ms':>9} {'fixed':>9} {'ort':>9} {'/fixed':>6} {'median':>6}"
        print(f"\n{'size':32} {columns} {'x ort':>6} {'from ort':>9}")
        for at in sizes:
            print(time_row(given.model, session, at, given.threads), flush=True)
        worst = compare_outputs(given.model, session, symbols, given.count, given.seed)
    verdict = "equal within" if worst <= TOLERANCE else "NOT equal within"
    print(f"\n{given.count} random sizes: {verdict} {TOLERANCE:g}; largest distance {worst:.2g}")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
