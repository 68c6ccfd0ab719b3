"""Where a package runs: on this machine's processor, or in the simulator of a chip with an NPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from intaglio.errors import IntaglioError

if TYPE_CHECKING:
    from intaglio.package import Package

TARGETS = (
    "cpu runs on the processor. All other targets are simulated: their packages run\n"
    "in a simulator on this PC, not on the chip; `intaglio perf` predicts its speed."
)
PREDICTED = "predicted from figures of the chip, not measured on it"

core_mask = click.option(
    "--core-mask",
    metavar="CORES",
    help="NPU cores that run it: 0, 0,2, ..., all [default: as many as it was compiled for].",
)


def chip_of(package: Package) -> str | None:
    """The chip whose NPU a package is simulated for; None for a package that needs only a CPU."""
    target = str(package.meta.get("target", "cpu"))
    has_programs = any(s.op == "npu.run" for p in package.plan.walk() for s in p.steps)
    return target if target != "cpu" or has_programs else None


def words(package: Package) -> str:
    """One line: silicon or simulation."""
    cpu = "any CPU" if package.isa == "scalar" else f"CPUs with {package.isa}"
    if chip := chip_of(package):
        runs = f"{chip} is simulated on this PC, not run; steps beside the NPU are for {cpu}"
        return f"{runs}; {instead}" if (instead := _chip_file(package, chip)) else runs
    return f"runs on the processor; for {cpu}"


def _chip_file(package: Package, chip: str) -> str:
    """How to write what the chip itself runs, for a package of our own instructions."""
    from intaglio.targets import chip as chips

    if package.vendor_files() or chip not in chips.names() or not chips.load(chip).file:
        return ""
    return f"the chip itself runs a .{chips.load(chip).file}: give -o NAME.{chips.load(chip).file}"


def predicted_ms(package: Package, core_mask: str | None = None) -> float | None:
    """The predicted time on the chip; None for a CPU, or if the package has no report."""
    from intaglio.analysis.performance import performance

    if chip_of(package) is None:
        return None
    try:
        return performance(package, core_mask=core_mask).milliseconds
    except IntaglioError:  # a stripped package
        return None
