"""Chips with a neural processing unit: what its units do, within which limits."""

from __future__ import annotations

from intaglio.errors import BadInput
from intaglio.npu.lowering.rules import lowering, why_not
from intaglio.npu.ops import cpu_fallback as cpu_fallback  # registers what each npu op is on a CPU
from intaglio.targets import Target, cpu
from intaglio.targets.chip import Chip
from intaglio.targets.precision import Precision, Stored, floats, name_of

TABLE_BITS = 10  # of the sums by which a product's end looks a function up, where there are tables


def npu_target(chip: Chip, isa: str | int | None = None, precision: str = "f32") -> Target:
    """`chip` with a CPU beside it that runs what its units do not, by default this machine's."""
    if precision == "f16" and "f16" not in chip.types:
        has = ", ".join(map(name_of, chip.types))
        raise BadInput(
            f"{chip.name} multiplies no f16; its types are {has}: quantise the model, "
            "or compile it for another chip"
        )
    rules = lowering(chip, precision == "f16")
    host = cpu.target(isa, "f32" if precision == "f16" else precision)
    return Target(
        chip.name,
        why_not(chip, rules),
        rules,
        isa=host.isa,
        cost=host.cost,
        precision=precision,
        chip=chip,
        host=host,
        precisions=precisions(chip),
    )


def precisions(chip: Chip) -> tuple[Precision, ...]:
    """What layers of quantised models compute in: on the NPU, or in f32 on the CPU beside it."""
    tables = chip.units.get("lut")
    entries = tables.limits.get("entries") if tables else 256
    bits = TABLE_BITS if not isinstance(entries, int) else min(TABLE_BITS, entries.bit_length() - 1)
    of_weights = Stored(("i8",), grains=("channel", "tensor"))
    rate = chip.units["conv"].rate
    found = [Precision("int8", Stored(("i8", "u8"), zeros=True), of_weights, table_bits=bits)]
    if "i16" in rate:
        wide = Stored(("i8", "i16"), grains=("channel", "tensor"))
        found.append(
            Precision("int16", Stored(("i16",), zeros=True), wide, rate["i8"] / rate["i16"])
        )
    if "f16" in rate:
        found.append(floats("f16", rate["i8"] / rate["f16"]))
    products = rate["i8"] * chip.clock / 1e3  # per nanosecond
    return *found, floats("f32", products / chip.host.per_ns("products"))
