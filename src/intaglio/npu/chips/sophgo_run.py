"""The op `sophgo.run`: runs the cvimodel or bmodel that a package holds for its NPU part.

On a board, the plug-in `sophgo` (csrc/plugins/sophgo.c) runs it by the vendor's library. Here, our
simulators do.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

from intaglio import dtypes
from intaglio.custom.definition import Operand
from intaglio.custom.simulated import Simulated
from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.npu.ops.program import MOST_RESULTS
from intaglio.ops.registry import op
from intaglio.package.vendor_files import ending_of

NAME, PLUGIN, VERSION = "sophgo.run", "sophgo", "1"
CHIPS = (  # also those that may come: other words would be another op to packages
    *("cv180x", "cv181x", "cv182x", "cv183x", "cv184x", "cv186x"),
    *("bm1684", "bm1684x", "bm1684x2", "bm1688", "bm1690", "sg2260", "sg2380"),
)
RANK = 4  # of every result
FIELDS = f"chip:e1({'|'.join(CHIPS)}) macs:i1 n_types:i1 types:i{MOST_RESULTS * (1 + RANK)}"


def numbers_of(types: Sequence[Type]) -> tuple[int, ...]:
    """The attribute `types`: code of the element type and four extents of each result."""
    if len(types) > MOST_RESULTS:
        raise BadInput(f"an NPU part has {len(types)} results; at most {MOST_RESULTS} fit its op")
    return tuple(n for t in types for n in (dtypes.TABLE[t.dtype].code, *t.shape))


def types_of(numbers: Sequence[int]) -> list[Type]:
    """The types of the results; the inverse of `numbers_of`."""
    if len(numbers) % (1 + RANK) or not numbers:
        raise BadInput(f"{NAME}: types has {len(numbers)} numbers; it needs 5 for each result")
    rows = [numbers[i : i + 1 + RANK] for i in range(0, len(numbers), 1 + RANK)]
    if any(code not in dtypes.BY_CODE or min(shape) < 1 for code, *shape in rows):
        raise BadInput(f"{NAME}: types has {tuple(numbers)}; these are no types of results")
    return [Type(dtypes.BY_CODE[code].name, tuple(shape)) for code, *shape in rows]


class _Machine:
    """A file in the simulator of its chip."""

    def __init__(self, raw: bytes):
        machine: Any
        if ending_of(raw) == ".cvimodel":
            from intaglio.npu.chips.cv18xx import cvimodel, simulate

            read = cvimodel.read(raw)
            machine = simulate.Machine(read)
            ports = machine.inputs, machine.outputs
        else:
            from intaglio.npu.chips.bm1684x import bmodel
            from intaglio.npu.chips.bm1684x import simulate as simulate_bm

            read = bmodel.read(raw)  # type: ignore[assignment]
            machine = simulate_bm.Machine(read)  # type: ignore[arg-type]
            ports = machine.stage.inputs, machine.stage.outputs
        self.chip, self.machine = read.chip.lower(), machine
        self.inputs, self.outputs = ([t.name for t in group] for group in ports)
        self.lock = threading.Lock()  # its memory is that of one run

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        if len(inputs) != len(self.inputs):
            raise BadInput(f"its file takes {len(self.inputs)} inputs, {len(inputs)} are given")
        with self.lock:
            found = self.machine.run(dict(zip(self.inputs, inputs, strict=True)))
        return [found[name] for name in self.outputs]


@functools.lru_cache(maxsize=8)
def _machine(raw: bytes) -> _Machine:
    return _Machine(raw)


def _types(file: Value, *inputs: Value, chip: str, macs: int, types: Sequence[int]) -> list[Type]:
    if file.dtype != "u8" or file.type.rank != 1:
        raise BadInput(f"{NAME}: its file is {file.type}; it must be bytes")
    return types_of(types)


def _operand_types(operands: Sequence[Operand | None], attrs: dict[str, Any]) -> list[Type]:
    values = [Value(Type(o.dtype, o.shape)) for o in operands if o is not None]
    if not values or len(values) != len(operands):
        raise BadInput(f"{NAME}: an input is absent")
    return _types(*values, **attrs)


@op(_types, name=NAME, macs=lambda node: int(node.attrs["macs"]), foldable=False)
def sophgo_run(
    file: Array, *inputs: Array, chip: str, macs: int, types: Sequence[int]
) -> tuple[Array, ...]:
    """The results of a file of Sophgo's chips, computed by our simulator."""
    machine = _machine(file.tobytes())
    if machine.chip != chip:
        raise BadInput(f"{NAME}: its file is for {machine.chip or 'no chip'}, the step for {chip}")
    return tuple(machine.run(inputs))


SIMULATED = Simulated(NAME, PLUGIN, VERSION, FIELDS, sophgo_run.body, _operand_types)
