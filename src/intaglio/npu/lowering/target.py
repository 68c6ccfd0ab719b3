"""The target of a chip with an NPU, and of the CPU beside it."""

from __future__ import annotations

from collections.abc import Callable

from intaglio.errors import BadInput
from intaglio.ir import Node
from intaglio.npu import ops as ops  # registers the NPU ops that the rules make
from intaglio.npu.lowering import limits
from intaglio.npu.lowering.builder import Builder
from intaglio.npu.lowering.channel_sums import BEFORE_QUANTISATION
from intaglio.npu.lowering.rules import lowering_rules, why_not, why_not_lowered
from intaglio.npu.lowering.volumes import volume_rules
from intaglio.targets import Target, cpu
from intaglio.targets.chip import Chip
from intaglio.targets.precision import Precision, Stored, floats, name_of

MAX_TABLE_BITS = 10  # a table in the epilogue of a product has at most 2^10 entries


def npu_target(
    chip: Chip,
    isa: str | int | None = None,
    precision: str = "f32",
    also: Callable[[Node], str | None] | None = None,
    attention: bool = True,
) -> Target:
    """`chip` with the CPU beside it, which runs the other ops.

    That CPU is not this machine's: by default its steps are packed for plain C, which runs on any
    CPU, so also beside the simulator. `also` are limits of an encoder of real commands.
    Without `attention`, attention in f16 stays on the CPU.
    """
    if precision == "f16" and "f16" not in chip.types:
        has = ", ".join(map(name_of, chip.types))
        raise BadInput(
            f"{chip.name} does not multiply f16; its types are {has}: quantise the model, "
            "or compile it for another chip"
        )
    rules = lowering_rules(chip, precision == "f16", also, attention)
    on_npu = precision == "f16" or (
        precision == "bf16" and chip.file == "bmodel" and not chip.only_shifts
    )
    host = cpu.target("scalar" if isa is None else isa, "f32" if on_npu else precision)
    volumes = volume_rules(Builder(limits.why_not(chip, also)), why_not_lowered(chip, rules))
    return Target(
        chip.name,
        why_not(chip, (*volumes, *rules), also),
        rules,
        isa=host.isa,
        cost=host.cost,
        precision=precision,
        chip=chip,
        volumes=volumes,
        replace=BEFORE_QUANTISATION,
        host=host,
        precisions=precisions(chip),
    )


def precisions(chip: Chip) -> tuple[Precision, ...]:
    """The precisions of a quantised model's layers: the NPU's own, and f32 on the CPU."""
    tables = chip.units.get("lut")
    entries = tables.limits.get("entries") if tables else 256
    bits = MAX_TABLE_BITS
    if isinstance(entries, int):
        bits = min(bits, entries.bit_length() - 1)
    rate = chip.units["conv"].rate
    i8_weights = Stored(("i8",), grains=("channel", "tensor"))
    # layers write bytes; residuals are layers
    only_bytes = chip.file in ("kmodel", "cvimodel") or chip.only_shifts
    one_type = chip.file == "cvimodel" or chip.only_shifts
    found = [
        Precision(
            "int8",
            Stored(
                ("i8",) if one_type else ("i8", "u8"),
                zeros=not chip.only_shifts,
                one_sided=chip.only_shifts,
            ),
            i8_weights,
            float_results=not only_bytes,
            adds_residuals=not only_bytes,
            table_bits=bits,
        )
    ]
    if only_bytes:
        return tuple(found)  # these files have no float layers
    if "i16" in rate:
        weights = Stored(("i8", "i16"), grains=("channel", "tensor"))
        slowdown = rate["i8"] / rate["i16"]
        found.append(Precision("int16", Stored(("i16",), zeros=True), weights, slowdown))
    if "f16" in rate:
        found.append(floats("f16", rate["i8"] / rate["f16"]))
    macs_per_ns = rate["i8"] * chip.clock / 1e3
    return *found, floats("f32", macs_per_ns / chip.host.per_ns("products"))
