"""The performance report of a network as its vendor's compiler would run it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from intaglio import passes
from intaglio.analysis.performance import LayerRow, Part, Performance, npu_rows
from intaglio.errors import BadInput, option
from intaglio.ir import Graph
from intaglio.npu import outline
from intaglio.npu.lowering.target import npu_target
from intaglio.npu.predict import vendor
from intaglio.npu.predict.element_types import as_bytes, dtype_of, size_of
from intaglio.npu.predict.timeline import Timeline
from intaglio.package import Package
from intaglio.targets import chip as chips
from intaglio.targets.chip import Chip

if TYPE_CHECKING:
    from intaglio.analysis.whatif import WhatIf

SOURCE = "a program in the style of the vendor's compiler and the figures of the chip"
WORDS = {"start": "start of the program", "picture": "conversion of the picture"}


def part(graph: Graph, chip: Chip, dtype: str = "i8", cores: int = 1) -> vendor.Part:
    """A quantised graph, compiled in the vendor's style, with products of type `dtype`."""
    target = npu_target(vendor.as_used(as_bytes(chip, dtype)))
    graph, more = graph.copy(), vendor.beyond_units(graph, chip)
    few = vendor.arithmetic_functions(graph)
    passes.run(graph, [*passes.neutral(target.cost), *passes.offload(target)])
    return vendor.part(graph, chip, dtype, cores, more=more, arithmetic=few)


def float_part(graph: Graph, chip: Chip, cores: int = 1) -> vendor.Part:
    """A float graph, compiled in the vendor's style, with all layers in f16."""
    target = npu_target(vendor.as_used(chip), precision="f16", attention=False)
    graph, more = graph.copy(), vendor.beyond_units(graph, chip)
    passes.run(graph, [*passes.neutral(target.cost), *passes.offload(target)])
    return vendor.part(graph, chip, "f16", cores, True, more)


def of_package(package: Package, what: WhatIf) -> Performance:
    """Predict the speed of the network of a package, compiled again in the vendor's style."""
    what.check()
    fixed = {"core_mask": what.core_mask, "batch": what.batch, "sparse": what.sparse}
    for name, value in fixed.items():
        if value is not None:
            raise BadInput(
                f"{option(name, value)} with {option('as_vendor', True)} needs the model file, "
                "not a package"
            )
    if "outline" not in package.meta:
        raise BadInput(
            "this package has no outline of its network: it is for the CPU, stripped, or made by "
            "an earlier version; compile the model again, or predict from the model file"
        )
    chip = chips.load(package.meta["target"])
    if what.sram is not None:
        chip = replace(chip, sram=what.sram)
    dtype = None if what.dtype is None else dtype_of(what.dtype)
    one = outline.part(package.meta["outline"], chip, dtype, what.cores)
    found = performance([one], with_figures(chip, what))
    found.name = package.plans[-1].name
    return found


def with_figures(chip: Chip, what: WhatIf) -> Chip:
    """The chip with the clock and the bandwidth that are assumed."""
    changes = {k: v for k, v in (("clock", what.clock), ("ddr", what.ddr)) if v is not None}
    return replace(chip, **changes)  # type: ignore[arg-type]


def performance(parts: Sequence[vendor.Part], chip: Chip, batch: int = 1) -> Performance:
    """Predict the speed of a network that consists of these parts, for `batch` samples."""
    found = vendor.predict(parts, chip)
    lines = [line for each in found.lines for line in each]
    cores = max((line.cores for line in lines), default=1)
    result = Performance(
        chip.name,
        chip.clock,
        chip.ddr,
        cores,
        found.milliseconds,
        estimates=list(chip.estimates),
        chip_cores=chip.cores,
        core_numbers=tuple(range(cores)),
        source=SOURCE,
        batch=batch,
        family=chip.family,
        kind=vendor.kind(parts, batch),
    )
    now = 0.0
    for rows, line in _modules(parts, found):
        name = f"cpu{len(result.parts) - len(result.busy)}" if line is None else ""
        name = name or f"npu{len(result.busy)}"
        rows = [replace(r, module=name) for r in rows]
        long = sum(r.microseconds for r in rows)
        result.parts.append(Part(name, now, now + long, line))
        result.layers += rows
        now += long
        if line is not None:
            result.busy.append(line.busy())
    result.layers = [replace(r, id=i) for i, r in enumerate(result.layers)]
    result.npu_milliseconds = sum(r.microseconds for r in result.layers if r.unit == "NPU") / 1e3
    result.cpu_milliseconds = result.milliseconds - result.npu_milliseconds
    return result


def _modules(
    parts: Sequence[vendor.Part], found: vendor.Prediction
) -> Iterator[tuple[list[LayerRow], Timeline | None]]:
    """The rows of each module in execution order, and its timeline if it is a program."""
    for k, p in enumerate(parts):
        costs = [c for c in found.costs if c.part == k]
        first = [_cost_row(c) for c in costs if c.others is None and c.microseconds]
        programs = list(zip(found.programs[k], found.lines[k], strict=True))
        for number in range(len(programs) + 1):
            rows = first if not number else []
            for c in costs:
                if c.others is not None and c.others.after == number:
                    rows = rows + list(_other_rows(c))
            if rows:
                yield rows, None
            if number < len(programs):
                program, line = programs[number]
                rows = npu_rows(line, program.about, "")
                yield rows if p.native else [_scaled(r, p.dtype) for r in rows], line


def _scaled(r: LayerRow, dtype: str) -> LayerRow:
    """A layer of a program whose bytes stand for elements of `dtype`."""
    size = size_of(dtype)
    kind = dtype if dtype != "i8" else r.dtype
    return replace(r, dtype=kind, bytes=round(r.bytes * size), near=round(r.near * size))


def _cost_row(c: vendor.Cost) -> LayerRow:
    return _row(c.what, WORDS[c.what], c.microseconds)


def _other_rows(c: vendor.Cost) -> Iterator[LayerRow]:
    """The ops of a run, with the time of each."""
    assert c.others is not None
    for op, time in zip(c.others.ops, c.each, strict=True):
        yield _row(op.op, op.name, time, op.dtype, op.inputs, op.output)


def _row(
    op: str, name: str, microseconds: float, dtype: str = "", inputs: str = "", output: str = ""
) -> LayerRow:
    return LayerRow(
        0,
        "",
        op,
        name,
        dtype,
        "CPU",
        inputs,
        output,
        ddr_cycles=0.0,
        npu_cycles=0.0,
        cycles=0.0,
        microseconds=microseconds,
        mac_use=0.0,
        bytes=0,
        near=0,
        bound="CPU",
    )
