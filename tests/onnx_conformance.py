"""The node tests that come with onnx, in the interpreter and compiled.

python -m tests.onnx_conformance --engine interpreter --filter "conv|pool" --failures
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import multiprocessing
import multiprocessing.connection
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
import intaglio.ort as ort
from intaglio.errors import IntaglioError
from intaglio.frontends.onnx import load_onnx
from intaglio.frontends.onnx.importer import NeedsValue
from intaglio.frontends.onnx.tensors import ELEMENTS, to_array
from intaglio.frontends.onnx.unsupported_ops import REASONS, family_of
from intaglio.frontends.options import ImportOptions

WORKERS = 2
SECONDS = 60.0  # for one test
Arrays = list[np.ndarray]


@dataclass
class Result:
    """The result of one test with one engine."""

    name: str
    passed: bool
    why: str = ""
    bound: bool = False  # inputs that decide shapes were made constant: "session" does it itself
    folded: bool = False  # then nothing is computed at run time


@functools.cache
def cases() -> list[Any]:
    """Every node test of the installed onnx; it generates them at run time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return list(collect_testcases(None))


# ---- unsupported tests -------------------------------------------------------------------------
def out_of_scope(case: Any) -> str | None:
    """The family of unsupported features that this test belongs to; None if none."""
    graph = case.model.graph
    for info in (*graph.input, *graph.output):
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            return {"sequence_type": "sequences", "optional_type": "optionals"}.get(kind, "maps")
        if info.type.tensor_type.elem_type not in ELEMENTS:
            return "strings"
    for node in graph.node:
        if family := family_of(node.op_type):
            return family
        if node.domain == "ai.onnx.ml":
            return "classical machine learning"
        if any(a.name == "training_mode" and a.i for a in node.attribute):
            return "training"
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
            return "training"
    return None


# Tests in scope that a session does not pass, with the reason.
REMAINING = {
    **dict.fromkeys(
        ["test_dft_inverse", "test_dft_inverse_opset19"],
        "expects another library's rounding errors of 2e-7 where the result is 0, within 1e-7",
    )
}


def needs_values(case: Any) -> bool:
    """Whether the model can be loaded only with values for some inputs."""
    try:
        load_onnx(case.model)
    except NeedsValue:
        return True
    except IntaglioError:
        return False
    return False


# ---- the engines: a model and its inputs in, its outputs and two notes out ---------------------
Ran = tuple[Arrays, bool, bool]


def _load(case: Any, feeds: dict[str, np.ndarray]) -> tuple[Any, dict[str, np.ndarray]]:
    """The graph and the inputs that stay, inputs that decide shapes being bound as values."""
    values: dict[str, np.ndarray] = {}
    while True:
        try:
            return load_onnx(case.model, ImportOptions(values=values)), {
                k: v for k, v in feeds.items() if k not in values
            }
        except NeedsValue as e:
            new = {name: feeds[name] for name in e.names if name in feeds and name not in values}
            if not new:
                raise
            values |= new


def interpreter(case: Any, feeds: dict[str, np.ndarray]) -> Ran:
    graph, rest = _load(case, feeds)
    got = intaglio.interpret(graph, rest)
    return list(got.values()), len(rest) < len(feeds), not any(graph.nodes())


def native(case: Any, feeds: dict[str, np.ndarray]) -> Ran:
    graph, rest = _load(case, feeds)
    folded = not any(graph.nodes())
    package = intaglio.compile(graph, target="cpu")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.itg"
        package.save(path)
        with intaglio.open(path) as session:
            got = {name: np.array(a) for name, a in session.run(rest).items()}
    return [got[o.name] for o in case.model.graph.output], len(rest) < len(feeds), folded


def session(case: Any, feeds: dict[str, np.ndarray]) -> Ran:
    """As a user runs it: nothing is bound, and the session finds out what it must compile for."""
    made = ort.InferenceSession(case.model, background=False)
    results = made.run(None, feeds)
    return results, bool(made.value_inputs), False


def compiled(case: Any, isa: str | None = None) -> Any:
    """The test's model as a package for its first set of inputs."""
    names = [i.name for i in case.model.graph.input]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays = [_array(a) for a in case.data_sets[0][0]]
        graph, _ = _load(case, dict(zip(names, arrays, strict=True)))
        return intaglio.compile(graph, target="cpu", isa=isa)


def onnxruntime(case: Any, feeds: dict[str, np.ndarray]) -> Ran:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    peer = onnxruntime.InferenceSession(
        case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(peer.run(None, feeds)), False, False


ENGINES: dict[str, Callable[[Any, dict[str, np.ndarray]], Ran]] = {
    "interpreter": interpreter,
    "native": native,
    "session": session,
    "onnxruntime": onnxruntime,
}


def missing(engine: str) -> str | None:
    """Why an engine cannot be used here; None if it can."""
    if engine == "native" and not (hasattr(intaglio, "compile") and hasattr(intaglio, "open")):
        return "intaglio.compile and intaglio.open do not exist yet"
    if engine == "onnxruntime" and importlib.util.find_spec("onnxruntime") is None:
        return "onnxruntime is not installed"
    return None


# ---- one test ----------------------------------------------------------------------------------
def run_case(case: Any, engine: str) -> Result:
    """Run a test's model on its data and compare as onnx's own runner does."""
    bound = folded = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for inputs, outputs in case.data_sets:
                names = [i.name for i in case.model.graph.input]
                feeds = dict(zip(names, [_array(a) for a in inputs], strict=True))
                got, bound, folded = ENGINES[engine](case, feeds)
                _compare(got, [_array(a) for a in outputs], case)
    except Exception as e:
        words = str(e).strip().splitlines() or [""]
        kind = "" if isinstance(e, IntaglioError) else f"{type(e).__name__}: "
        return Result(case.name, False, kind + " ".join(w.strip() for w in words)[:300], bound)
    return Result(case.name, True, "", bound, folded)


def _array(item: Any) -> np.ndarray:
    return to_array(item, None) if hasattr(item, "data_type") else np.asarray(item)


def _compare(got: Arrays, want: Arrays, case: Any) -> None:
    assert len(got) == len(want), f"{len(got)} outputs, {len(want)} expected"
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        assert g.shape == w.shape, f"output {i} has shape {g.shape}, {w.shape} expected"
        assert g.dtype == w.dtype, f"output {i} is {g.dtype}, {w.dtype} expected"
        rtol = case.rtol
        if w.dtype.name == "bfloat16":
            rtol = max(rtol, 2**-6)
        if w.dtype.kind not in "fiub":  # numpy cannot compare the small types
            g, w = g.astype(np.float32), w.astype(np.float32)
        np.testing.assert_allclose(g, w, rtol=rtol, atol=case.atol, err_msg=f"output {i}")


# ---- many tests, in processes of their own: a crash costs one test, not the run ----------------
def _serve(connection: Any, engine: str) -> None:
    while (index := connection.recv()) is not None:
        connection.send(run_case(cases()[index], engine))


class _Worker:
    def __init__(self, engine: str):
        context = multiprocessing.get_context("fork")  # shares the generated tests
        self.connection, far = context.Pipe()
        self.process = context.Process(target=_serve, args=(far, engine), daemon=True)
        self.process.start()
        far.close()
        self.index: int | None = None
        self.deadline = 0.0

    def give(self, index: int | None) -> None:
        self.index, self.deadline = index, time.monotonic() + SECONDS
        self.connection.send(index)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def run_all(engine: str, indices: Iterable[int]) -> list[Result]:
    """Results of these tests, in no particular order."""
    todo = list(indices)[::-1]
    results: list[Result] = []
    workers = [_Worker(engine) for _ in range(min(WORKERS, len(todo)))]
    for w in workers:
        w.give(todo.pop())
    while busy := [w for w in workers if w.index is not None]:
        ready = multiprocessing.connection.wait([w.connection for w in busy], timeout=1.0)
        for w in busy:
            assert w.index is not None
            name = cases()[w.index].name
            why = ""
            if w.connection in ready:
                try:
                    results.append(w.connection.recv())
                except EOFError:
                    w.process.join()
                    why = f"crashed the process (exit code {w.process.exitcode})"
            elif time.monotonic() > w.deadline:
                why = f"took more than {SECONDS:.0f} s"
            else:
                continue
            if why:
                results.append(Result(name, False, why))
                w.stop()
                workers[workers.index(w)] = w = _Worker(engine)
            if todo:
                w.give(todo.pop())
            else:
                w.index = None
    for w in workers:
        w.stop()
    return results


@dataclass
class Report:
    """The outcome of one engine over the selected tests."""

    engine: str
    results: list[Result]
    seconds: float

    @property
    def passed(self) -> int:
        return sum(r.passed for r in self.results)

    @property
    def rate(self) -> float:
        return self.passed / max(len(self.results), 1)

    def __str__(self) -> str:
        n = len(self.results)
        bound = sum(r.bound for r in self.results)
        folded = sum(r.folded for r in self.results)
        notes = f"{bound} with inputs bound as values, {folded} folded to constants"
        if self.engine == "session":
            notes = f"nothing bound; {bound} sessions compiled for values of inputs"
        return (
            f"{self.engine:12} {self.passed:5} passed of {n:5} in scope: {100 * self.rate:6.2f} %"
            f"   ({notes}; {self.seconds:.0f} s)"
        )


def conformance(engine: str, pattern: str = "") -> Report:
    """Run every test in scope whose name matches."""
    start = time.monotonic()
    chosen = [
        i for i, c in enumerate(cases()) if re.search(pattern, c.name) and out_of_scope(c) is None
    ]
    results = sorted(run_all(engine, chosen), key=lambda r: r.name)
    return Report(engine, results, time.monotonic() - start)


def print_scope(selected: Sequence[Any], verbose: bool) -> None:
    """The number of tests, and the excluded ones by reason."""
    families: dict[str, list[str]] = {}
    for case in selected:
        if family := out_of_scope(case):
            families.setdefault(family, []).append(case.name)
    left_out = sum(map(len, families.values()))
    print(f"{len(selected)} tests: {len(selected) - left_out} in scope, {left_out} out of scope:")
    for family, names in sorted(families.items(), key=lambda f: -len(f[1])):
        print(f"  {len(names):4}  {family}: {REASONS[family][0]}")
        if verbose:
            print("        " + " ".join(names))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.onnx_conformance", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--engine", choices=[*ENGINES], action="append", help="default: all")
    parser.add_argument("--filter", default="", help="regular expression on test names")
    parser.add_argument("--failures", action="store_true", help="list failed tests with the reason")
    parser.add_argument("--scope", action="store_true", help="list every test left out")
    options = parser.parse_args(argv)
    selected = [c for c in cases() if re.search(options.filter, c.name)]
    print_scope(selected, options.scope)
    failed = False
    for engine in options.engine or ENGINES:
        if why := missing(engine):
            print(f"{engine:12} skipped: {why}")
            continue
        report = conformance(engine, options.filter)
        print(report, flush=True)
        failed |= engine != "onnxruntime" and report.rate < 1
        if options.failures:
            _print_failures(report)
    return int(failed)


def _print_failures(report: Report) -> None:
    for r in report.results:
        if not r.passed:
            print(f"  {r.name}: {r.why}")
    ops = Counter(
        re.sub(r"\d+", "N", re.sub(r"'[^']*'", "'…'", r.why))[:48]
        for r in report.results
        if not r.passed
    ).most_common(10)
    for words, count in ops:
        print(f"  {count:5} x {words}")


if __name__ == "__main__":
    sys.exit(main())
