"""Compare a model with a golden one, tensor by tensor: interpreter, native code and simulators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from intaglio import dtypes, progress
from intaglio.analysis.accuracy import OTHER, with_layers
from intaglio.analysis.agreement import usable_inputs
from intaglio.analysis.comparison import Comparison, Row
from intaglio.analysis.golden import is_quantized, limits_of, without_rounding
from intaglio.analysis.joining import Joined, feeds_for, join, real_outputs, turned
from intaglio.analysis.package_tensors import PackageTensors
from intaglio.analysis.snapshot import Snapshot
from intaglio.analysis.step_names import short
from intaglio.analysis.tensor_error import TensorError
from intaglio.errors import BadInput, did_you_mean, option
from intaglio.interpret import initial_state, interpret
from intaglio.ir import Array, Graph, Value, detach
from intaglio.package import Package
from intaglio.quant.prepare import name_tensors
from intaglio.quant.ranges.observe import Observation, groups_by_bytes
from intaglio.quant.samples.dataset import samples as read_samples

INTERPRETER, NATIVE = "interpreter", "native"
LIMIT = 128 << 20  # bytes of golden tensors that are held at a time
RANDOM = 2  # samples if none are given


def compare(
    model: str | Path | Graph,
    other: str | Path | Graph | Package | None = None,
    data: Any = None,
    *,
    runs: Sequence[str] = (INTERPRETER, NATIVE),
    target: str | None = None,
    tensors: Sequence[str] = (),
    samples: int | None = None,
    seed: int = 0,
    snapshot: str | Path | None = None,
    reading: Mapping[str, Any] | None = None,
    histograms: bool = False,
    **load: Any,
) -> Comparison:
    """Compare `other` with `model`, whose float values are golden, on samples.

    Without `other`, a quantised model is compared with itself without rounding, and a float model's
    native code with the interpreter. `runs` are "interpreter" and "native"; `target` adds the
    simulator of that chip. `data` are samples for `model` from any source that `quantize` reads,
    by default random; `reading` has `mean`, `std`, `color`, `resize` for pictures. `tensors` limits
    the comparison. `snapshot` is a folder that receives the tensors as .npy files. `histograms`
    keeps one of the golden values of each tensor. Other keywords are for `intaglio.load`.
    """
    golden, words, graph, package = _sides(model, other, load)
    name_tensors(golden)
    feeds = _samples(golden, data, samples, seed, reading or {})
    for name in runs:
        if name not in (INTERPRETER, NATIVE):
            raise BadInput(
                f"no run is called '{name}'{did_you_mean(name, (INTERPRETER, NATIVE))}; the runs "
                f"are {INTERPRETER}, {NATIVE}, and the chip in {option('target')}"
            )
    if package is not None:
        joined = _of_package(golden)
    else:
        assert graph is not None
        joined = join(golden, graph)
    if not joined.pairs:
        raise BadInput(
            "no tensor of the two models could be joined: neither names nor structure agree; "
            "compare models of the same network"
        )
    _limit(joined, tensors)
    outputs = set(golden.outputs)
    rows = {
        v: Row(
            v.name,
            v.producer.op if v.producer else "input",
            joined.how[v],
            output=v in outputs,
            origin=v.producer.origin if v.producer else "",
            other=w.name,
            stored=_integers(w),
        )
        for v, w in joined.pairs.items()
    }
    saved = Snapshot(snapshot) if snapshot else None
    for v, row in rows.items() if histograms else ():
        row.range.observed = Observation(v.name)
    if package is not None:
        columns = ["package"]
        if not _compare_package(golden, package, feeds, rows, saved):
            words += "; the package does not name its layers (stripped): outputs only"
        rows = {v: r for v, r in rows.items() if r.entire}
    else:
        assert graph is not None
        columns = [r for r in runs if r != INTERPRETER or graph is not golden]
        columns += [target] if target else []
        _compare_graphs(golden, graph, joined, feeds, rows, columns, target, saved)
    if saved:
        saved.close()
    return Comparison(
        words,
        columns,
        list(rows.values()),
        len(feeds),
        joined.golden_only,
        joined.other_only if package is None else [],
        joined.shapes_differ,
        joined.not_comparable,
        {v.name: [w.name for n in v.uses for w in n.outputs] for v in golden.values()},
    )


def _sides(
    model: Any, other: Any, load: Mapping[str, Any]
) -> tuple[Graph, str, Graph | None, Package | None]:
    """The golden graph, what it is, and the other as a graph or a package."""
    if isinstance(model, Package) or (isinstance(model, str | Path) and _is_package(model)):
        raise BadInput(
            "the golden side is a package, which holds no float values; give the model it was "
            "compiled from first: intaglio compare model.onnx model.itg"
        )
    first = model.copy() if isinstance(model, Graph) else intaglio.load(model, **load)
    real_outputs(first)
    if other is None:
        if is_quantized(first):
            return without_rounding(first), "the model without rounding", first, None
        return first, "the model in the interpreter", first, None
    words = "the first model in the interpreter"
    if is_quantized(first) and not isinstance(other, Package):
        words = "the first model, quantised, in the interpreter"
    if isinstance(other, Package) or (isinstance(other, str | Path) and _is_package(other)):
        package = other if isinstance(other, Package) else Package.load(other)
        return first, words, None, package
    second = other.copy() if isinstance(other, Graph) else _loaded(other, load)
    real_outputs(second)
    return first, words, second, None


def _loaded(path: str | Path, load: Mapping[str, Any]) -> Graph:
    """The other model; options that name tensors of the first one do not apply to it."""
    kept = {k: v for k, v in load.items() if k in ("dims", "allow_large", "state")}
    return intaglio.load(path, **kept)


def _is_package(path: str | Path) -> bool:
    try:
        with open(path, "rb") as f:
            return f.read(4) == b"ITG1"
    except OSError:
        return False


def _samples(
    golden: Graph, data: Any, count: int | None, seed: int, reading: Mapping[str, Any]
) -> list[dict[str, Array]]:
    if count is not None and count < 1:
        raise BadInput(f"{option('samples', count)}: at least one sample is needed")
    if data is None:
        every = [usable_inputs(golden, seed + i)[0] for i in range(count or RANDOM)]
        return [{n: a for n, a in each.items() if n not in golden.state} for each in every]
    types = [(v.name, v.type) for v in golden.inputs if v.name not in golden.state]
    found = read_samples(data, types, limit=count or 8, seed=seed, warn=lambda w: None, **reading)
    return [dict(found[i]) for i in range(len(found))]


def _limit(joined: Joined, names: Sequence[str]) -> None:
    """Keep the tensors with these names alone."""
    shown = Counter(short(v.name) for v in joined.pairs)  # a name may be given as it is printed
    known = {short(v.name): v for v in joined.pairs if shown[short(v.name)] == 1}
    known |= {v.name.partition(";")[0]: v for v in known.values()}
    known |= {v.name: v for v in joined.pairs}
    listed = f"; without {option('tensors')} the table lists them"
    for name in names:
        if name not in known:
            raise BadInput(
                f"no tensor that both models have is called '{name}'"
                f"{did_you_mean(name, known) or listed}"
            )
    if names:
        joined.pairs = {known[n]: joined.pairs[known[n]] for n in dict.fromkeys(names)}


def _integers(v: Value) -> tuple[str, str]:
    """Name and origin of the integers that a real tensor is made from; empty if there are none."""
    stored = v.producer.inputs[0] if v.producer and v.producer.op == "dequantize_linear" else None
    if stored is None:
        return "", ""
    return stored.name, stored.producer.origin if stored.producer else ""


def _of_package(golden: Graph) -> Joined:
    from intaglio.analysis.joining import tensors

    inputs = [v for v in golden.inputs if dtypes.is_float(v.dtype) and v.name not in golden.state]
    every = {v: v for v in [*inputs, *tensors(golden)]}
    return Joined(every, dict.fromkeys(every, "node") | dict.fromkeys(inputs, "name"))


# ---- running ----
def values_of(
    graph: Graph, tensors: Iterable[Value], feeds: Mapping[str, Array]
) -> dict[Value, Array]:
    """Tensors of a graph, computed by the interpreter."""
    wanted = list(dict.fromkeys(tensors))
    if not wanted:
        return {}
    whole = Graph(graph.inputs, wanted, [f"t{i}" for i in range(len(wanted))], state=graph.state)
    try:
        results = interpret(whole, feeds)
    finally:
        detach(whole.result)
    return {v: results[f"t{i}"] for i, v in enumerate(wanted)}


class _Compiled:
    """A graph compiled for a target, with tensors as outputs."""

    def __init__(self, graph: Graph, tensors: Sequence[Value], target: str | None):
        self.tensors = list(dict.fromkeys(tensors))
        names = [f"t{i}" for i in range(len(self.tensors))]
        whole = Graph(graph.inputs, self.tensors, names, graph.name)
        self.states = first_states(graph)
        try:
            code = (
                {"npu_code": "own"} if target not in (None, "cpu") else {}
            )  # the integers' meaning
            made = intaglio.compile(whole.copy(), target=target or "cpu", **code)  # type: ignore[arg-type]
            self.session = intaglio.open(made)
        finally:
            detach(whole.result)

    def run(self, feeds: Mapping[str, Array]) -> dict[Value, Array]:
        given = {**self.states, **feeds}
        results = self.session.run({n: given[n] for n in self.session.inputs})
        return {v: results[f"t{i}"] for i, v in enumerate(self.tensors)}


def _compare_graphs(
    golden: Graph,
    other: Graph,
    joined: Joined,
    samples: Sequence[Mapping[str, Array]],
    rows: dict[Value, Row],
    columns: Sequence[str],
    target: str | None,
    saved: Snapshot | None,
) -> None:
    counterparts = joined.counterparts() | _inputs(golden, other)
    layers = [(v.name, w) for v, w in joined.pairs.items() if w in counterparts]
    alone, single = None, dict[str, Value]()
    if other is not golden and INTERPRETER in columns:
        alone, single = with_layers(golden, layers, counterparts, joined.named_factors())
    for v, w in joined.pairs.items():
        rows[v].range.limits = limits_of(w)
    groups = groups_by_bytes(list(joined.pairs), LIMIT)
    for part, group in enumerate(groups):
        theirs = [joined.pairs[v] for v in group]
        engines = {c: _Compiled(other, theirs, None if c == NATIVE else target) for c in columns
                   if c != INTERPRETER}  # fmt: skip
        for n, sample in enumerate(samples):
            progress.report(
                "comparing tensors", part * len(samples) + n, len(groups) * len(samples)
            )
            exact = values_of(golden, group, sample)
            feeds = feeds_for(other, sample, golden)
            for column in columns:
                found = (
                    values_of(other, theirs, feeds)
                    if column == INTERPRETER
                    else engines[column].run(feeds)
                )
                for v in group:
                    result = joined.real(v, found[joined.pairs[v]])
                    rows[v].entire.setdefault(column, TensorError()).add(exact[v], result)
                    if saved:
                        saved.add(n, column, v.name, result)
            mine = [v for v in group if v.name in single]
            if alone is not None and mine:
                given = {**first_states(other), **feeds}
                both = {**first_states(golden), **sample}
                both |= {f"{OTHER}{n}": a for n, a in given.items()}
                both = {v.name: both[v.name] for v in alone.inputs}
                found = values_of(alone, [single[v.name] for v in mine], both)
                for v in mine:
                    row = rows[v]
                    row.single = row.single or TensorError()
                    row.single.add(exact[v], joined.real(v, found[single[v.name]]))
            for v in group:
                rows[v].range.add(exact[v], joined.factors.get(v))
                if saved:
                    saved.add(n, "golden", v.name, exact[v])


def first_states(graph: Graph) -> dict[str, Array]:
    """The first values of the states of a graph: every sample starts with them."""
    types = {v.name: v.type for v in graph.inputs}
    return {n: initial_state(types[n], a) for n, a in graph.state.items()}


def _inputs(golden: Graph, other: Graph) -> dict[Value, str]:
    """The names of golden inputs by inputs of the other graph with the same type."""
    names = {v.name: v for v in golden.inputs}
    pairs = zip(golden.inputs, other.inputs, strict=False)
    found = {b: names.get(b.name, a) for a, b in pairs}
    return {b: a.name for b, a in found.items() if a.type.but(quant=None) == b.type.but(quant=None)}


def _compare_package(
    golden: Graph,
    package: Package,
    samples: Sequence[Mapping[str, Array]],
    rows: dict[Value, Row],
    saved: Snapshot | None,
) -> bool:
    """Fill the rows; whether layers could be compared."""
    runner = PackageTensors(package, golden)
    wanted = [v for v in rows if dtypes.is_float(v.dtype)]
    try:
        for n, sample in enumerate(samples):
            progress.report("comparing tensors", n, len(samples))
            exact = values_of(golden, wanted, sample)
            feeds = _fitting(runner, sample, golden)
            found = runner.run(feeds, exact)
            own, readings = runner.single(feeds, exact), runner.by_tensor
            for v, result in found.items():
                result = turned(result, v.shape)
                rows[v].entire.setdefault("package", TensorError()).add(exact[v], result)
                if v in own:
                    single = rows[v].single or TensorError()
                    single.add(exact[v], turned(own[v], v.shape))
                    rows[v].single = single
                reading = None if v in runner.outputs.values() else readings.get(v)
                if reading is not None:
                    rows[v].range.limits, rows[v].fitted = reading.limits, reading.fitted
                    rows[v].origin = reading.origin or rows[v].origin
                    rows[v].stored = reading.name, reading.origin
                rows[v].range.add(exact[v], None if reading is None else reading.factors)
                if saved:
                    saved.add(n, "golden", v.name, exact[v])
                    saved.add(n, "package", v.name, result)
        return bool(runner.readings)
    finally:
        runner.close()


def _fitting(
    runner: PackageTensors, sample: Mapping[str, Array], golden: Graph
) -> dict[str, Array]:
    values = [Value(t, n) for n, t in runner.session.inputs.items()]
    feeds = feeds_for(Graph(values, []), sample, golden)
    return {n: np.ascontiguousarray(a) for n, a in feeds.items()}
