"""The predicted speed and the memory of a package whose NPU parts are files of the chip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

from intaglio.analysis import vendor_performance as by_commands
from intaglio.analysis.performance import Performance
from intaglio.errors import BadFile, BadInput, option
from intaglio.npu.predict.engines import KnownLayers, LayerText, Timed, described, in_a_row
from intaglio.package import Package
from intaglio.package.vendor_files import OPS, ending_of
from intaglio.passes.partition_report import OnCpu, Partition
from intaglio.targets import chip as chips

READERS = {".bmodel": ("bm1684x", "bmodel"), ".cvimodel": ("cv18xx", "cvimodel")}


def performance(
    package: Package, clock: float | None = None, ddr: float | None = None
) -> Performance:
    """Predict the speed from the commands of the files, and estimates of the ops on the CPU."""
    meta = package.meta
    if "partition" not in meta or "npu" not in meta:
        raise BadInput(
            "this package is stripped, so it does not name the ops around the chip's files; "
            f"extract the files and predict theirs, or compile without {option('strip', True)}"
        )
    chip = chips.load(meta["target"])
    partition, files = Partition.from_dict(meta["partition"]), list(_files(package))
    on_cpu, parts, number = list(partition.on_cpu), [], 0
    for m in partition.modules:
        if m.kind == "cpu":
            rows = _take(on_cpu, m.microseconds)
            parts.append(by_commands.cpu((_text(r, m.name), r.microseconds) for r in rows))
            continue
        if number >= min(len(files), len(meta["npu"])):
            raise BadFile(f"package has no file of NPU part '{m.name}'; compile it again")
        timed = _timed(files[number], meta["npu"][number], f"npu{number}", clock, ddr)
        parts.append(by_commands.with_start(timed, chip))
        number += 1
    found = by_commands.report(in_a_row(parts), chip)
    found.name = package.plans[-1].name
    return found


def _files(package: Package) -> Iterator[bytes]:
    """The files of the largest sizes, in the order of their steps."""
    for step in package.plans[-1].steps:
        if step.op in OPS and step.inputs[0] is not None and step.inputs[0].data is not None:
            yield step.inputs[0].data.tobytes()


def _timed(
    file: bytes, about: dict[str, Any], module: str, clock: float | None, ddr: float | None
) -> Timed:
    """A file's commands with the layers that the package names."""
    room, container = READERS[ending_of(file)]
    model = import_module(f"intaglio.npu.chips.{room}.{container}").read(file)
    steps = import_module(f"intaglio.npu.chips.{room}.steps")
    layers = [replace(text, module=module) for text in described(about["layers"])]
    timed: Timed = steps.of_file(model, clock, ddr, KnownLayers(layers, about["commands"]))
    return timed


def _take(rows: list[OnCpu], microseconds: float) -> list[OnCpu]:
    """The next ops of the CPU, up to a sum of times: those of one module."""
    taken: list[OnCpu] = []
    while rows and sum(r.microseconds for r in taken) < microseconds * (1 - 1e-9):
        taken.append(rows.pop(0))
    return taken


def _text(r: OnCpu, module: str) -> LayerText:
    dtype, _, rest = r.type.partition("[")
    return LayerText(r.op, r.name, dtype, r.inputs, rest.partition("]")[0], module)
