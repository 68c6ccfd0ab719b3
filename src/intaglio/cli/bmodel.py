"""bmodel files of Sophgo's chips on the command line: compile, inspect and run them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from intaglio.cli import options, vendor_files
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Type
from intaglio.targets.chip import Chip

if TYPE_CHECKING:
    from intaglio.npu.chips.bm1684.compile import Compiled as Shifted
    from intaglio.npu.chips.bm1684x.bmodel import Bmodel
    from intaglio.npu.chips.bm1684x.compile import Compiled

    Made = Compiled | Shifted


def make(
    graph: Graph,
    chip: Chip,
    level: int,
    firmware: str | None = None,
    cores: int = 1,
    precision: str = "f32",
) -> Made:
    """Compile a graph; `firmware` is a file that the bmodel brings along.

    Layers of floats are computed in `precision`; f32 ones of a quantised model only where the chip
    needs them between its other layers.
    """
    from intaglio.npu.chips.bm1684x.compile import compile_bmodel
    from intaglio.npu.chips.quantised import is_quantised

    if chip.only_shifts:
        return _make_shifted(graph, chip, level, firmware, cores, precision)
    dtype = "" if precision == "f32" and is_quantised(graph) else precision
    return compile_bmodel(graph, chip, level, firmware=firmware, cores=cores, dtype=dtype)


def _make_shifted(
    graph: Graph, chip: Chip, level: int, firmware: str | None, cores: int, precision: str
) -> Made:
    """A file of the first generation, which computes with bytes on one core."""
    from intaglio.npu.chips.bm1684.compile import compile_bmodel

    if firmware or cores != 1 or precision != "f32":
        raise BadInput(
            f"{chip.name} computes with bytes, on one core, without firmware in its file; "
            "leave out --precision, --cores and --firmware"
        )
    return compile_bmodel(graph, chip, level)


def facts(made: Made) -> dict[str, Any]:
    """What --json prints of a bmodel."""
    return {"commands": _commands(made), "memory": _memory(made), **made.about}


def about(made: Made) -> str:
    """The first line of the summary."""
    counts = _commands(made)
    return (
        f"bmodel for {made.model.chip}, {len(made.data) / 1e6:.2f} MB, "
        f"{counts['tiu']} TIU and {counts['dma']} DMA commands"
    )


def summary(made: Made) -> Iterator[str]:
    """The memory of the program."""
    sizes = _memory(made)
    yield (
        f"memory  {sizes['coefficients']:,} bytes of coefficients, {sizes['neurons']:,} of "
        f"inputs, outputs and maps; {sizes['traffic']:,} moved in one run"
    )


def types(made: Made) -> tuple[list[str], list[str]]:
    """The element types of inputs and outputs."""
    return [p.dtype for p in made.lowered.inputs], [p.dtype for p in made.lowered.outputs]


def _commands(made: Made) -> dict[str, int]:
    return dict(Counter(c.engine for c in made.commands))


def _memory(made: Made) -> dict[str, int]:
    (stage,) = made.model.nets[0].stages
    return {
        "coefficients": len(stage.coefficients),
        "neurons": stage.neuron_bytes,
        "traffic": made.program.traffic,
    }


def load(path: str) -> Bmodel:
    """The contents of a bmodel file."""
    from intaglio.npu.chips.bm1684x.bmodel import read

    return read(vendor_files.load(path))


def inspect(path: str, words: bool, as_json: bool) -> None:
    """Print the contents of a bmodel."""
    from intaglio.npu.chips.bm1684x import disassembly

    vendor_files.show(disassembly, load(path), words, as_json)


def run(
    path: str, sources: tuple[str, ...], fill: str | None, seed: int
) -> tuple[dict[str, Array], dict[str, Type]]:
    """The outputs of a bmodel, simulated, and their types."""
    from intaglio.npu.chips.bm1684.simulate import machine_of
    from intaglio.npu.chips.bm1684x.bmodel import TYPES

    machine = machine_of(load(path))
    stage = machine.stage
    inputs, outputs = (
        {t.name: Type(TYPES[t.type][0], t.shape) for t in tensors}
        for tensors in (stage.inputs, stage.outputs)
    )
    feeds = options.read_feeds(sources, inputs, fill, seed, {})
    return machine.run(feeds), outputs
