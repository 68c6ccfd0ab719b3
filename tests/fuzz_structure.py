"""Fuzzing of models by their structure, compared with onnxruntime and LiteRT.

    python -m tests.fuzz_structure [--count 1000] [--only onnx] [--seed 7]

A mutant is a valid file with another model in it: attributes, operators, shapes, element types,
constants and connections of ONNX's node tests and of small TFLite models are changed. A mutant that
both runtimes accept must have equal outputs. Both run in child processes with limits on time and
memory; a crash, a hang, an error that is not ours or a difference fails, and the file is kept.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tests.fuzz_structure_onnx import Onnx
from tests.fuzz_structure_tflite import Tflite

import intaglio
from intaglio.errors import IntaglioError

SECONDS = 20  # of the CPU, for one runtime and one file
BYTES = 4 << 30  # of address space beyond what the process has at first
TOLERANCE = 2e-3  # of floats, relative to the largest number of the output
LARGEST = 1e6  # outputs beyond it are not compared: sums of them depend on their order
FORMATS = {"onnx": Onnx, "tflite": Tflite}
Arrays = list[np.ndarray]


@dataclass
class Outcome:
    """What a runtime made of a model."""

    arrays: Arrays = field(default_factory=list)
    refused: str = ""  # its own words
    failed: str = ""  # a crash, a hang or an error without words


def in_child(compute: Callable[[], Arrays], expected: tuple[type[BaseException], ...]) -> Outcome:
    """Run `compute` in a child process; an exception of `expected` is a refusal."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _answer(compute, expected, writer)
    os.close(writer)
    with open(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Outcome(failed=f"ended by signal {signal.Signals(os.WTERMSIG(status)).name}")
    made: Outcome = pickle.loads(data)  # from our own child
    return made


def _answer(
    compute: Callable[[], Arrays], expected: tuple[type[BaseException], ...], writer: int
) -> None:
    """In the child: compute, write the outcome, end."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # its default action ends the process
    faulthandler.disable()  # a crash of the child is an answer, too
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES,) * 2)
    try:
        outcome = Outcome([np.array(a) for a in compute()])
    except expected as e:
        words = str(e)
        ours = isinstance(e, IntaglioError) and (not words or "\n" in words)
        outcome = Outcome(failed=f"words: {words!r}") if ours else Outcome(refused=words or "?")
    except BaseException as e:
        outcome = Outcome(failed=f"{type(e).__name__}: {' '.join(str(e).split())[:200]}")
    with open(writer, "wb") as pipe:
        pipe.write(pickle.dumps(outcome))
    os._exit(0)


def difference(ours: Arrays, theirs: Arrays) -> str:
    """The first difference in words; "" if there is none."""
    if len(ours) != len(theirs):
        return f"{len(ours)} outputs, theirs are {len(theirs)}"
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if b.dtype == object:  # an optional output that is not there
            continue
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {i} is {a.dtype}{a.shape}, theirs {b.dtype}{b.shape}"
        if not b.size or b.dtype.kind not in "fiub":
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        known = np.isfinite(y) & (np.abs(y) < LARGEST)
        if not known.any():
            continue
        far = np.abs(np.where(known, x, 0) - np.where(known, y, 0)).max()
        step = 1 if b.dtype.itemsize == 1 and b.dtype.kind in "iu" else 0
        limit = TOLERANCE * max(1.0, np.abs(y[known]).max()) if b.dtype.kind == "f" else step
        if not far <= limit:
            return f"output {i} {a.dtype}{a.shape} differs by {far:g}"
    return ""


def ours(data: bytes, path: Path, feeds: Sequence[np.ndarray]) -> Arrays:
    """Our outputs, compiled for this machine."""
    path.write_bytes(data)
    graph = intaglio.load(path)
    with intaglio.open(intaglio.compile(graph), threads=1) as session:
        names = list(session.inputs)
        return list(session.run(dict(zip(names, feeds, strict=True))).values())


def compare(kind: str, data: bytes, seed: str, folder: Path) -> tuple[str, str]:
    """What became of one mutant, and the words of a failure."""
    form = FORMATS[kind]
    feeds = form.feeds(data, np.random.default_rng(zlib.crc32(seed.encode())))
    if feeds is None:
        return "without inputs", ""
    path = folder / f"mutant.{kind}"
    mine = in_child(lambda: ours(data, path, feeds), (IntaglioError,))
    if mine.failed:
        return "failed", mine.failed
    theirs = in_child(lambda: form.reference(data, feeds), (Exception,))
    if theirs.failed or theirs.refused:
        return ("both refuse" if mine.refused else "only we accept"), ""
    if mine.refused:
        return "only they accept", ""
    words = difference(mine.arrays, theirs.arrays)
    return ("different", words) if words else ("agree", "")


def fuzz(kind: str, count: int, seed: int, show: bool = False) -> tuple[Counter[str], list[str]]:
    """The outcomes of `count` mutants, and the failures in words."""
    warnings.simplefilter("ignore")
    form = FORMATS[kind]
    models = form.models()
    form.warm_up()
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(count):
            rng = random.Random(f"{kind} {seed} {i}")
            data = form.mutate(rng.choice(models), rng, models)
            if data is None:
                outcomes["not writable"] += 1
                continue
            outcome, words = compare(kind, data, f"{kind} {seed} {i}", Path(folder))
            outcomes[outcome] += 1
            if words:
                kept = Path(tempfile.gettempdir()) / f"intaglio-structure-{seed}-{i}.{kind}"
                kept.write_bytes(data)
                failures.append(f"{kind} {seed} {i}: {outcome}: {words} ({kept})")
                if show:
                    print(f"  {failures[-1]}", flush=True)
    return outcomes, failures


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz_structure", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--count", type=int, default=1000, help="mutants per format")
    parser.add_argument("--only", default="", help="formats whose name contains this")
    parser.add_argument("--seed", type=int, default=None, help="[default: a new one, printed]")
    options = parser.parse_args(argv)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    bad = 0
    for kind in FORMATS:
        if options.only in kind:
            outcomes, failures = fuzz(kind, options.count, seed, show=True)
            bad += len(failures)
            print(f"{kind}: " + ", ".join(f"{n} {k}" for k, n in outcomes.most_common()))
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
