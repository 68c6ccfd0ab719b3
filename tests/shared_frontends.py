"""Every TFLite, PyTorch, TensorFlow, Caffe and Darknet model in ../shared/models, ours compiled
against the runtime that it was made for, on the data that it was made for.

    python -m tests.shared_frontends                        # outputs
    python -m tests.shared_frontends --accuracy             # top-1 on labelled data
    python -m tests.shared_frontends --only tflite/ --python ~/peers/bin/python
    python -m tests.shared_frontends --public               # models of PyPI and GitHub instead

Reading needs none of the runtimes. Each is looked for in this interpreter, in those that `--python`
or INTAGLIO_PYTHONS (apart by colons) names, and in the peers' that `make bench` makes; where none
has it, the row says so. LiteRT and torch come with `pip install intaglio[peers]`, OpenCV with
`[dev]`, TensorFlow by itself.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests import reference_worker
from tests.shared_feeds import MODELS, Inputs
from tests.shared_models import SHARED, TOLERANCE

import intaglio
from intaglio import dtypes

ROOT = Path(__file__).parents[1]
POINTS = 0.3  # by which the accuracy may differ from the reference's
SHARE = 0.999  # of the elements of integers that are to be within one step
KEPT = 1 << 28  # bytes of samples that are also run by the reference
SECONDS = 600  # that a reference may take
FORMATS = {
    "tflite": ("*.tflite", "litert"),
    "torchscript": ("*.pt", "torch"),
    "tf_pb": ("*.pb", "tensorflow"),
    "caffe": ("*/*.prototxt", "caffe"),
    "darknet": ("*.cfg", "darknet"),
}  # folder -> its models, and what runs them
PACKAGES = {
    "litert": "LiteRT",
    "torch": "torch",
    "tensorflow": "TensorFlow",
    "caffe": "OpenCV",
    "darknet": "OpenCV",
}


class Absent(Exception):
    """No interpreter has the reference runtime."""


def paths() -> dict[str, Path]:
    """The models by folder and name."""
    root = SHARED / "models"
    return {
        str(
            p.relative_to(root).with_suffix("")
            if p.suffix != ".cfg"
            else f"{folder}/{p.name.removesuffix('.cfg')}"
        ): p
        for folder, (pattern, _) in FORMATS.items()
        for p in sorted((root / folder).glob(pattern))
    }


# ---- the reference -------------------------------------------------------------------------------
@functools.cache
def interpreter(runtime: str, others: tuple[str, ...]) -> str:
    """The first interpreter that has the runtime."""
    module = reference_worker.MODULES[runtime]
    probe = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    named = [p for p in os.environ.get("INTAGLIO_PYTHONS", "").split(os.pathsep) if p]
    peers = [str(p) for p in [ROOT / ".venv-bench" / "bin" / "python"] if p.exists()]
    for python in (sys.executable, *others, *named, *peers):
        done = subprocess.run([python, "-c", probe], capture_output=True, check=False)
        if done.returncode == 0:
            return python
    raise Absent(f"{PACKAGES[runtime]} is in no interpreter; name one with INTAGLIO_PYTHONS")


def reference(
    runtime: str,
    path: Path,
    steps: Sequence[Inputs],
    names: dict[str, Any],
    others: tuple[str, ...],
) -> list[list[np.ndarray]]:
    """Outputs of the model's own runtime for each step."""
    python = interpreter(runtime, others)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "feeds.npz", Path(folder) / "outputs.npz"
        facts = json.dumps({**names, "count": len(steps[0]), "steps": len(steps)})
        arrays = {f"{i}/{k}": x for i, f in enumerate(steps) for k, x in enumerate(f)}
        np.savez(source, names=np.array(facts), **arrays)
        command = [python, reference_worker.__file__, runtime, str(path), str(source), str(target)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:]
            raise Absent(f"{PACKAGES[runtime]} fails: {' '.join(said)[:200]}")
        with np.load(target) as file:
            count = 1 + max(int(key.split("/")[1]) for key in file.files)
            return [[file[f"{i}/{k}"] for k in range(count)] for i in range(len(steps))]


# ---- comparing -----------------------------------------------------------------------------------
@dataclass
class Row:
    """One line of the table."""

    model: str
    steps: int = 0
    error: float = 0.0  # largest |difference| as a share of the output's range
    share: float | None = None  # of the elements of integers that differ by one step at most
    top: bool = True  # the largest element of every output is at the same place
    refused: str = ""  # error of loading, compiling or running
    skipped: str = ""  # why there is no reference
    most: float | None = None  # where a last bit can move a step: `error` is the median, this all

    @property
    def ok(self) -> bool:
        close = self.error <= TOLERANCE if self.share is None else self.share >= SHARE
        return not self.refused and not self.skipped and self.top and close

    def __str__(self) -> str:
        head = f"{self.model:50}"
        if self.refused or self.skipped:
            return (
                f"{head} {'REFUSED' if self.refused else 'skipped'}: {self.refused or self.skipped}"
            )
        share = "" if self.share is None else f"{self.share:8.3%}"
        top = "equal" if self.top else "DIFFERS"
        verdict = "ok" if self.ok else "WRONG"
        if self.most is not None:
            verdict += f" (in the median; {self.most:.1e} where a rounding falls the other way)"
        return f"{head} {self.steps:5} {self.error:9.1e} {share:>9} {top:>8}  {verdict}"


HEAD = f"{'model':50} {'steps':>5} {'max|Δ|':>9} {'±1 step':>9} {'top-1':>8}"


def compare(name: str, others: tuple[str, ...] = ()) -> Row:
    """Compile, run and compare one model."""
    row = Row(name)
    model, path = MODELS[name], paths()[name]
    try:
        graph = intaglio.load(path, **model.load)
        feeds = [fitting(graph, model.feeds(i)) for i in range(model.steps)]
        names = {
            "inputs": [v.name for v in graph.inputs if not v.name.startswith("state.")],
            "outputs": graph.output_names,
            "shapes": [x.shape for x in feeds[0]] if model.load.get("shapes") else [],
        }
        with intaglio.open(intaglio.compile(graph)) as session:
            run = runner(graph, session)
            ours = [run(f) for f in feeds]
    except Exception as e:
        row.refused = " ".join(f"{type(e).__name__}: {e}".split())[:240]
        return row
    try:
        folder = name.split("/")[0]
        theirs = reference(FORMATS[folder][1], path, feeds, names, others)
    except (Absent, subprocess.TimeoutExpired) as e:
        row.skipped = str(e)
        return row
    row.steps = model.steps
    close = elements = 0
    errors = []
    for ours_, theirs_ in zip(ours, theirs, strict=True):
        errors.append(0.0)
        for got, want in pairs(ours_, theirs_):
            if got.shape != want.shape:
                row.refused = f"an output has shape {got.shape}, the reference's {want.shape}"
                return row
            if folder == "darknet":  # OpenCV writes 0 for scores below a threshold
                got = np.where((np.arange(got.shape[-1]) > 4) & (want == 0), 0, got)
            apart = np.abs(got.astype(np.float64) - want)
            errors[-1] = max(errors[-1], float(apart.max(initial=0)) / (float(np.ptp(want)) or 1.0))
            row.top &= bool(want.flat[got.argmax()] == want.max())
            if want.dtype.kind in "iu":
                close += int((apart <= (want.dtype.itemsize < 4)).sum())  # indices must be equal
                elements += want.size
    row.error = max(errors)
    if model.rounds:
        row.error, row.most = float(np.median(errors)), row.error
    row.share = close / elements if elements else None
    return row


def pairs(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> Any:
    """Outputs in order; without the axes of one element that only one of the two has."""
    for got, want in zip(ours, theirs, strict=True):
        same = got.size == want.size and [d for d in got.shape if d > 1] == [
            d for d in want.shape if d > 1
        ]
        yield (got.reshape(want.shape) if same else got), want


def fitting(graph: Any, feeds: Inputs) -> Inputs:
    """Feeds quantised for quantised inputs, else cast to the element type."""
    made = []
    for v, x in zip(graph.inputs, feeds, strict=False):
        kind = dtypes.numpy_of(v.dtype)
        if v.type.quant is not None and x.dtype.kind == "f":
            scale, zero = v.type.quant.scale[0], v.type.quant.zero[0]
            ends = np.iinfo(kind)
            x = np.clip(np.rint(x / np.float32(scale)) + zero, ends.min, ends.max)
        made.append(np.ascontiguousarray(x.reshape(v.shape), kind))
    return made


def runner(graph: Any, session: Any) -> Callable[[Inputs], Inputs]:
    """One step of a session."""
    names = [v.name for v in graph.inputs]

    def run(feeds: Inputs) -> Inputs:
        made = session.run(dict(zip(names, feeds, strict=False)))
        return [np.array(made[name]) for name in graph.output_names if name in made]

    return run


# ---- accuracy ------------------------------------------------------------------------------------
def accuracy(name: str, others: tuple[str, ...]) -> str:
    """Top-1, that of models/INDEX.md, and that of the model's own runtime on the same samples.

    A model with state reads the samples as one sequence, as its figure was measured.
    """
    model = MODELS[name]
    told = model.labelled
    assert told is not None
    try:
        graph = intaglio.load(paths()[name], **model.load)
        feeds, labels, hits = [], [], []
        small = told.count() * sum(v.type.bytes for v in graph.inputs) <= KEPT
        with intaglio.open(intaglio.compile(graph)) as session:
            run = runner(graph, session)
            for i in range(told.count()):
                x, label = told.sample(i)
                x = fitting(graph, x)
                labels.append(label + told.first)
                hits.append(int(run(x)[0].argmax()) == labels[-1])
                feeds += [x] * small
    except Exception as e:
        return f"{name:42} REFUSED: {' '.join(f'{type(e).__name__}: {e}'.split())[:240]}"
    got, want = 100 * float(np.mean(hits)), told.reference
    line = f"{name:42} {len(hits):7} {got:8.2f} {'' if want is None else format(want, '.2f'):>8}"
    if feeds:
        names = {
            "inputs": [v.name for v in graph.inputs],
            "outputs": graph.output_names,
            "shapes": [],
        }
        try:
            theirs = reference(FORMATS[name.split("/")[0]][1], paths()[name], feeds, names, others)
            right = [int(y[0].argmax()) == label for y, label in zip(theirs, labels, strict=True)]
            want = 100 * float(np.mean(right))
            line += f" {want:9.2f}"
        except (Absent, subprocess.TimeoutExpired) as e:
            line += f" skipped: {e}"
    if want is None:
        return line
    return f"{line:80} {'ok' if abs(got - want) <= POINTS else 'WRONG'}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.shared_frontends", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--public", action="store_true", help="models of PyPI and GitHub")
    parser.add_argument("--accuracy", action="store_true", help="top-1 on labelled data")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="PATH",
        help="another interpreter, with runtimes that this one lacks",
    )
    options = parser.parse_args(argv)
    others = tuple(options.python)
    if options.public:
        from tests import public_models

        return public_models.report(options.only)
    chosen = [name for name in paths() if options.only in name]
    if not chosen:
        print(f"skipped: no such model in {SHARED / 'models'}; set INTAGLIO_SHARED")
        return 0
    if options.accuracy:
        print(f"{'model':42} {'samples':>7} {'top-1 %':>8} {'INDEX.md':>8} {'same data':>9}")
        lines = []
        for name in chosen:
            if MODELS[name].labelled:
                lines.append(accuracy(name, others))
                print(lines[-1], flush=True)
        return int(any(line.endswith("WRONG") or " REFUSED: " in line for line in lines))
    print(HEAD)
    rows = []
    for name in chosen:
        rows.append(compare(name, others))
        print(rows[-1], flush=True)
    refused, skipped = sum(bool(r.refused) for r in rows), sum(bool(r.skipped) for r in rows)
    print(
        f"{sum(r.ok for r in rows)} of {len(rows)} agree with their own runtimes within "
        f"{TOLERANCE:g}; {refused} refused, {skipped} without a reference"
    )
    return int(not all(r.ok or r.skipped for r in rows))


if __name__ == "__main__":
    sys.exit(main())
