"""Quantisation by tables: from samples to ranges, and from ranges to an integer network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import dtypes, ops, targets
from intaglio.compat.log import Log
from intaglio.compat.tpu_mlir import evaluate
from intaglio.compat.tpu_mlir.module_file import Module
from intaglio.compat.tpu_mlir.option_table import words
from intaglio.compat.tpu_mlir.samples import Dataset, Sample, inputs_of
from intaglio.compat.tpu_mlir.tables import CalibrationTable, Row
from intaglio.errors import BadInput, did_you_mean
from intaglio.ir import Graph, constant
from intaglio.quant import Quantized, Scheme, calibrate
from intaglio.quant.placement.place import activations, keeps_scale
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.ranges.affine import affine
from intaglio.targets import Target
from intaglio.targets.chip import Chip

SLACK = 2e-6  # numbers of a table have seven decimal places
DEFAULT_METHOD = "kl"


@dataclass(frozen=True)
class Request:
    """What a network is quantised for."""

    chip: Chip
    method: str = DEFAULT_METHOD
    accuracy: float | None = None  # cosine that a search for float layers keeps
    layers: Mapping[str, str] = field(default_factory=dict)  # fixed precisions
    floats: str | None = None  # type of float layers
    to_the_end: bool = False  # also quantise ops after the last product, with results in bytes

    def target(self) -> Target:
        """The chip as a target of quantisation."""
        found = targets.find(self.chip.name)
        if not self.to_the_end:
            return found
        kinds = (p if p.is_float else replace(p, float_results=False) for p in found.precisions)
        return replace(found, precisions=tuple(kinds))


def quantise(
    module: Module,
    samples: Any,
    count: int,
    request: Request,
    log: Log,
    scheme: Scheme | None = None,
) -> Quantized:
    """Calibrate the network of a module with samples."""
    real = count > 0
    return calibrate(
        module.graph.copy(),
        (dict(s) for s in samples),
        method=request.method,
        accuracy=request.accuracy,
        target=request.target(),
        limit=max(count, 1),
        layers=request.layers,
        floats=request.floats,
        scheme=scheme,
        bias_correction=real,
        warn=lambda w: log.warning(" ".join(str(w).split())),
    )


def table_of(module: Module, found: Quantized, samples: Dataset, method: str) -> CalibrationTable:
    """The ranges that a calibration chose, tensor by tensor, and those of the outputs."""
    computed = {v.name: v for v in found.float_graph.values() if v.data is None}
    rows = {}
    for name in computed:
        if name in found.scheme.tensors:
            t = found.scheme.tensors[name]
            rows[name] = row_of(*_bounds(t))
        elif name in found.observations:
            seen = found.observations[name]
            if np.isfinite([seen.low, seen.high]).all():
                rows[name] = row_of(seen.low, seen.high)
    rows |= _output_rows(module, [n for n in module.graph.output_names if n not in rows], samples)
    files = [",".join(str(Path(f).resolve()) for f in files) for files in samples.lines]
    return CalibrationTable(rows, files, method)


def _output_rows(module: Module, names: Sequence[str], samples: Dataset) -> dict[str, Row]:
    """Observed ranges of outputs that stay in floats on the chip of the calibration."""
    graph = module.graph
    floats = {
        n
        for n, v in zip(graph.output_names, graph.outputs, strict=True)
        if n in names and dtypes.is_float(v.dtype)
    }
    if not floats:
        return {}
    seen: dict[str, list[float]] = {n: [0.0, 0.0] for n in graph.output_names if n in floats}
    with evaluate.opened(graph) as session:
        for sample in samples:
            outputs = session.run(sample)
            for name, (low, high) in seen.items():
                y = np.asarray(outputs[name], np.float32)
                y = y[np.isfinite(y)]
                seen[name] = [min(low, float(y.min(initial=0))), max(high, float(y.max(initial=0)))]
    return {n: row_of(low, high) for n, (low, high) in seen.items()}


def row_of(low: float, high: float) -> Row:
    """A row whose threshold covers the range."""
    return Row(max(abs(low), abs(high), 1e-5), float(low), float(high))


def _bounds(t: TensorScheme) -> tuple[float, float]:
    """The range of a scheme; the widest, if it has several scales."""
    if len(t.scale) < 2:
        return t.lo, t.hi
    first, last = dtypes.limits(t.dtype)
    pairs = list(zip(t.scale, t.zero, strict=True))
    return min(s * (first - z) for s, z in pairs), max(s * (last - z) for s, z in pairs)


def by_table(
    module: Module,
    table: CalibrationTable,
    request: Request,
    test: Sample | None,
    symmetric: Sequence[str],
    log: Log,
) -> Quantized:
    """Quantise with the ranges of a table; the tensors in `symmetric` get no zero points.

    If the samples of the table still exist, weights and biases are fitted to them, and only those
    rows fix a tensor that differ from what the samples give.
    """
    _refuse_foreign(module, table)
    files = [words(s) for s in table.samples]
    known = bool(files) and all(Path(f).is_file() for line in files for f in line)
    samples: Any = Dataset(files, module) if known else [test] if test else [_zeros(module)]
    count = len(files) if known else int(bool(test))
    if not known:
        reason = "are not there any more" if files else "are not named in it"
        log.warning(
            f"the samples of the calibration table {reason}; its ranges are used, weights are "
            "rounded without samples; run run_calibration again for better weights"
        )
    mirrored = {
        n: affine(-table.rows[n].threshold, table.rows[n].threshold, "i8", True)
        for n in symmetric
        if n in table.rows
    }
    usual = replace(request, method=table.method or request.method)
    first = quantise(module, samples, count, usual, log, Scheme(dict(mirrored)))
    late = _mirrored(first, [n for n in symmetric if n not in mirrored])
    mirrored |= late
    fixed = _changed(first, table, mirrored, all_rows=not known)
    if not fixed and not late:
        return first
    if fixed:
        log.info(f"{len(fixed)} ranges of the calibration table are fixed")
    return quantise(module, samples, count, usual, log, Scheme({**fixed, **mirrored}))


def _mirrored(found: Quantized, names: Sequence[str]) -> dict[str, TensorScheme]:
    """Symmetric schemes of tensors that a calibration gave zero points."""
    given = {n: found.scheme.tensors[n] for n in names if n in found.scheme.tensors}
    most = {n: max(map(abs, _bounds(t))) for n, t in given.items() if any(t.zero)}
    return {n: affine(-m, m, "i8", True) for n, m in most.items()}


def _changed(
    found: Quantized, table: CalibrationTable, mirrored: Mapping[str, TensorScheme], all_rows: bool
) -> dict[str, TensorScheme]:
    """Schemes of tensors whose rows differ from a calibration; those that move values follow."""
    fixed = {}
    for name, t in found.scheme.tensors.items():
        row = table.rows.get(name)
        if row is None or name in mirrored or (t.axis is not None and not all_rows):
            continue
        low, high = row.range
        was = _bounds(t)
        slack = SLACK * max(1.0, row.threshold)
        same = abs(was[0] - low) <= slack and abs(was[1] - high) <= slack
        if all_rows or not same:
            fixed[name] = affine(low, high, t.dtype, not any(t.zero) and low < 0)
    for node in found.float_graph.nodes():
        if keeps_scale(node) and node.outputs[0].name in fixed:
            source = activations(node)[0].name
            if source in fixed:
                fixed[node.outputs[0].name] = fixed[source]
    return fixed


def round_outputs(graph: Graph, table: CalibrationTable, which: Sequence[int]) -> None:
    """Round float outputs of a quantised graph to bytes, by their rows in a table."""
    for i, (name, v) in enumerate(zip(graph.output_names, list(graph.outputs), strict=True)):
        made = v.producer
        if (
            i not in which
            or v.dtype != "f32"
            or (made is not None and made.op == "dequantize_linear")
        ):
            continue
        if name not in table.rows:
            raise BadInput(
                f"--quant_output: the calibration table has no output '{name}'; make it again by "
                "run_calibration"
            )
        t = table.rows[name].threshold
        scale = constant(np.float32(t / 127))
        zero = constant(np.int8(0))
        rounded = ops.dequantize_linear(
            ops.quantize_linear(v, scale, zero, dtype="i8"), scale, zero
        )
        graph.set_input(graph.result, i, rounded)


def _refuse_foreign(module: Module, table: CalibrationTable) -> None:
    """BadInput if a table has no tensor of the network."""
    names = {v.name for v in module.graph.values() if v.data is None}
    if not names & set(table.rows):
        some = next(iter(table.rows))
        raise BadInput(
            f"--calibration_table: no tensor of the network is in it; it has '{some}'"
            f"{did_you_mean(some, names)}; make the table from this .mlir by run_calibration"
        )


def _zeros(module: Module) -> Sample:
    return {v.name: np.zeros(v.shape, dtypes.numpy_of(v.dtype)) for v in inputs_of(module.graph)}
