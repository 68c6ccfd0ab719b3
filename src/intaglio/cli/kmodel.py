"""kmodel files of the K210 on the command line: compile, inspect and run them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from intaglio.cli import options, vendor_files
from intaglio.ir import Array, Graph, Type
from intaglio.targets.chip import Chip

if TYPE_CHECKING:
    from intaglio.npu.chips.k210.compile import Compiled
    from intaglio.npu.chips.k210.model import Kmodel

ENDING = ".kmodel"


def is_kmodel(path: str | None) -> bool:
    """Whether a file is named as a kmodel."""
    return path is not None and str(path).endswith(ENDING)


def make(graph: Graph, chip: Chip, level: int, version: int = 5) -> Compiled:
    """Compile a quantised graph."""
    from intaglio.npu.chips.k210.compile import compile_kmodel

    return compile_kmodel(graph, version, level)


def facts(made: Compiled) -> dict[str, Any]:
    """What --json prints of a kmodel."""
    return {
        "version": made.model.version,
        "commands": len(made.model.main.commands),
        "memory": made.model.modules[0].pools,
        **made.model.about,
    }


def about(made: Compiled) -> str:
    """The first line of the summary."""
    size, commands = len(made.data) / 1e6, len(made.model.main.commands)
    return f"kmodel {made.model.version}, {size:.2f} MB, {commands} commands"


def summary(made: Compiled) -> Iterator[str]:
    """The memory of the program."""
    pools = made.model.modules[0].pools
    yield f"memory  {pools['kpu']:,} bytes of the KPU's RAM, {pools['data']:,} of main memory"


def types(made: Compiled) -> tuple[list[str], list[str]]:
    """The element types of inputs and outputs."""
    kind = "f32, dequantised" if made.model.version == 3 else "u8"
    return ["u8"] * len(made.lowered.inputs), [kind] * len(made.lowered.outputs)


def load(path: str) -> Kmodel:
    """The kmodel in a file."""
    from intaglio.npu.chips.k210.compile import read

    return read(vendor_files.load(path))


def inspect(path: str, words: bool, as_json: bool) -> None:
    """Print the contents of a kmodel."""
    from intaglio.npu.chips.k210 import disassembly

    vendor_files.show(disassembly, load(path), words, as_json)


def run(
    path: str, sources: tuple[str, ...], fill: str | None, seed: int
) -> tuple[dict[str, Array], dict[str, Type]]:
    """The outputs of a kmodel, simulated, and their types."""
    from intaglio.npu.chips.k210.simulate import Machine, input_names, output_names

    model = load(path)
    machine = Machine(model)
    ports = zip(input_names(model), model.main.inputs, strict=True)
    types = {name: Type(p.range.dtype, p.shape) for name, p in ports}
    feeds = options.read_feeds(sources, types, fill, seed, {})
    found = zip(output_names(model), model.main.outputs, strict=True)
    return machine.run(feeds), {name: Type(p.range.dtype, p.shape) for name, p in found}
