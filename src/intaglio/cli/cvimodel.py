"""cvimodel files of Sophgo's CV181x and CV180x on the command line: compile, inspect and run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from intaglio.cli import options, vendor_files
from intaglio.ir import Array, Graph, Type
from intaglio.targets.chip import Chip

if TYPE_CHECKING:
    from intaglio.npu.chips.cv18xx.compile import Compiled
    from intaglio.npu.chips.cv18xx.cvimodel import Cvimodel


def make(graph: Graph, chip: Chip, level: int) -> Compiled:
    """Compile a quantised graph."""
    from intaglio.npu.chips.cv18xx.compile import compile_cvimodel

    return compile_cvimodel(graph, chip, level)


def facts(made: Compiled) -> dict[str, Any]:
    """What --json prints of a cvimodel."""
    ports = {"inputs": made.lowered.inputs, "outputs": made.lowered.outputs}
    rows = {k: [asdict(p) for p in v] for k, v in ports.items()}
    return {"commands": _commands(made), "memory": _memory(made), **rows}


def about(made: Compiled) -> str:
    """The first line of the summary."""
    counts = _commands(made)
    return (
        f"cvimodel for {made.model.chip}, {len(made.data) / 1e6:.2f} MB, "
        f"{counts['tiu']} TIU and {counts['tdma']} TDMA commands"
    )


def summary(made: Compiled) -> Iterator[str]:
    """The memory of the program."""
    sizes = _memory(made)
    yield (
        f"memory  {sizes['weights']:,} bytes of weights, {sizes['shared']:,} of maps between "
        f"layers; {sizes['traffic']:,} moved in one run"
    )


def types(made: Compiled) -> tuple[list[str], list[str]]:
    """The element types of inputs and outputs."""
    program = made.model.programs[0]
    inputs, outputs = (
        [program.tensor(name).dtype for name in names]
        for names in (program.inputs, program.outputs)
    )
    return inputs, outputs


def _commands(made: Compiled) -> dict[str, int]:
    return dict(Counter(c.name for c in made.commands))


def _memory(made: Compiled) -> dict[str, int]:
    return {
        "weights": len(made.schedule.weights),
        "shared": made.model.programs[0].shared,
        "traffic": made.schedule.traffic,
    }


def load(path: str) -> Cvimodel:
    """The contents of a cvimodel file."""
    from intaglio.npu.chips.cv18xx.cvimodel import read

    return read(vendor_files.load(path))


def inspect(path: str, words: bool, as_json: bool) -> None:
    """Print the contents of a cvimodel."""
    from intaglio.npu.chips.cv18xx import disassembly

    vendor_files.show(disassembly, load(path), words, as_json)


def run(
    path: str, sources: tuple[str, ...], fill: str | None, seed: int
) -> tuple[dict[str, Array], dict[str, Type]]:
    """The outputs of a cvimodel, simulated, and their types."""
    from intaglio.npu.chips.cv18xx.simulate import Machine

    machine = Machine(load(path))
    inputs = {t.name: Type(t.dtype, t.shape) for t in machine.inputs}
    outputs = {t.name: Type(t.dtype, t.shape) for t in machine.outputs}
    feeds = options.read_feeds(sources, inputs, fill, seed, {})
    return machine.run(feeds), outputs
