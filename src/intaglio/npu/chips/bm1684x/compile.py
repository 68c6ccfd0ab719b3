"""From a quantised graph to a bmodel: the whole compiler for BM1684X."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intaglio import passes
from intaglio.errors import BadInput, Unsupported
from intaglio.files import write_atomically
from intaglio.ir import Graph
from intaglio.npu import compile as schedule
from intaglio.npu.chips.bm1684x import bmodel, commands
from intaglio.npu.chips.bm1684x.bmodel import Bmodel, Group, Net, Stage, Subnet, Tensor
from intaglio.npu.chips.bm1684x.commands import Command
from intaglio.npu.chips.bm1684x.cut import Lowered, lower, why_not
from intaglio.npu.chips.bm1684x.encode import Encoder
from intaglio.npu.chips.bm1684x.float_layers import straight_products
from intaglio.npu.chips.bm1684x.float_ops import FLOATS
from intaglio.npu.chips.bm1684x.layout import BmLayout
from intaglio.npu.chips.bm1684x.spread import spread_inputs
from intaglio.npu.chips.bm1684x.transfers import Addresses
from intaglio.npu.chips.bm1684x.unsigned import as_unsigned
from intaglio.npu.chips.bm1684x.variants import VARIANTS, Variant
from intaglio.npu.chips.file_part import Port, Reals
from intaglio.npu.lowering.target import npu_target
from intaglio.targets.chip import Chip

TYPES = {name: code for code, (name, _) in bmodel.TYPES.items()}
PAGE = 4096
MAX_COMMANDS = (1 << 20) - 2  # numbers that a command's field holds


@dataclass
class Compiled:
    """A bmodel, and the graph of the chip's layers, whose meaning it has."""

    model: Bmodel
    lowered: Lowered
    program: schedule.Compiled
    commands: list[Command]
    data: bytes

    @property
    def graph(self) -> Graph:
        """The layers as a graph of integers: `intaglio.interpret` gives the file's bits."""
        return self.lowered.graph

    @property
    def about(self) -> dict[str, Any]:
        """The ports of the file, with the scales that turn their numbers into real ones."""
        return about_ports(self.lowered.inputs, self.lowered.outputs)

    def save(self, path: str | Path) -> None:
        """Write the file."""
        write_atomically(path, self.data)


def about_ports(inputs: Sequence[Port], outputs: Sequence[Port]) -> dict[str, Any]:
    """Ports as plain data."""

    def row(p: Port) -> dict[str, Any]:
        size = {"name": p.name, "dtype": p.dtype, "shape": list(p.shape)}
        return size | {"scale": p.scale, "zero": p.zero}

    return {"inputs": [row(p) for p in inputs], "outputs": [row(p) for p in outputs]}


def compile_bmodel(
    graph: Graph,
    chip: Chip,
    level: int = 3,
    grouped: bool = True,
    firmware: str | Path | None = None,
    cores: int = 1,
    dtype: str = "",
    layers: Mapping[str, str] | None = None,
) -> Compiled:
    """Compile a quantised graph to a bmodel; the given graph stays unchanged.

    Unsupported names the ops that stand in the way. Ops before the first layer (quantising the
    input) and after the last are left to the caller: `lowered.before` and `lowered.after`.
    `firmware` is Sophgo's kernel module, which the file brings along: the runtime of SG2260 needs
    one, those of the other chips have their own. `dtype` is the type in which the chip computes
    ops of floats: f16, bf16 or f32; without one a network has to be quantised. `layers` has the
    types of single ones, by the names of the model's operators.
    """
    if chip.name not in VARIANTS:
        known = ", ".join(VARIANTS)
        raise BadInput(f"bmodel files are written for {known}, not for {chip.name}")
    for kind in (dtype, *(layers or {}).values()):
        if kind not in ("", *FLOATS):
            raise BadInput(f"dtype is {kind}; {', '.join(FLOATS)} are possible")
    graph = graph.copy()
    reals = Reals()
    reals.learn(graph)
    passes.run(graph, passes.neutral(), level)
    reals.learn(graph)
    lowered = lower(graph, npu_target(chip, also=why_not), dtype, reals, layers)
    return compile_layers(lowered, chip, grouped, firmware, cores)


def compile_layers(
    lowered: Lowered,
    chip: Chip,
    grouped: bool = True,
    firmware: str | Path | None = None,
    cores: int = 1,
) -> Compiled:
    """The bmodel of layers that are lowered already."""
    variant = VARIANTS[chip.name]
    straight_products(lowered.graph)
    spread_inputs(lowered.graph, variant)
    lowered.graph = as_unsigned(lowered.graph)
    program = schedule.build(lowered.graph, chip, grouped, cores, BmLayout(variant))
    coefficients = program.weights.tobytes() or bytes(64)
    internal = program.program.internal
    found = places(lowered.inputs, lowered.outputs, len(coefficients), internal, variant)
    stage = Stage(found.inputs, found.outputs, [], coefficients, variant.coefficients)
    stage.neurons, stage.neuron_bytes = found.neurons, found.neuron_bytes
    streams = [Encoder(program, found.addresses, core=core).run() for core in range(cores)]
    made = [_group(stream, variant) for stream in streams]
    stage.cores = cores
    by_core = variant.by_core or cores > 1
    subnet = Subnet(stage.inputs, stage.outputs, [] if by_core else made)
    subnet.cores = [[group] for group in made] if by_core else []
    stage.subnets = [subnet]
    model = Bmodel([Net(lowered.graph.name or "net", [stage])], variant.title)
    if firmware is not None:
        model.kernel = Path(firmware).name, _read(firmware)
    every = [c for stream in streams for c in stream]
    return Compiled(model, lowered, program, every, bmodel.write(model))


def _group(stream: list[Command], chip: Variant) -> Group:
    """The commands of one core, encoded."""
    counts = {e: sum(c.engine == e for c in stream) for e in commands.ENGINES}
    if max(counts.values()) > MAX_COMMANDS:
        raise Unsupported(
            f"{chip.name}: the program has {max(counts.values())} commands for one engine; "
            f"at most {MAX_COMMANDS} can be numbered: use a smaller input"
        )
    tiu, dma = commands.encode(stream, chip.title.lower())
    return Group(tiu, dma, counts["tiu"] + 1, counts["dma"] + 1)


@dataclass(frozen=True, slots=True)
class Places:
    """Where the tensors of a file lie in DDR."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    addresses: Addresses
    neurons: int  # address of inputs, outputs and maps
    neuron_bytes: int


def places(
    given: Sequence[Port], results: Sequence[Port], coefficients: int, internal: int, chip: Variant
) -> Places:
    """Addresses in DDR: so many bytes of coefficients, then inputs, outputs, maps of groups."""
    base = neurons = chip.neurons or chip.coefficients + _page(coefficients)
    ports: list[list[Tensor]] = []
    for hidden, group in ((bmodel.INPUT, given), (bmodel.OUTPUT, results)):
        tensors = []
        for i, p in enumerate(group):
            # of an input, the factor that turns real numbers into its own
            scale = 1 / p.scale if hidden == bmodel.INPUT else p.scale
            rest = {"scale": scale, "zero": p.zero, "hidden": hidden, "index": i}
            tensor = Tensor(p.name, TYPES[p.dtype], p.shape, base, **rest)  # type: ignore[arg-type]
            tensors.append(tensor)
            base += _page(tensor.size)
        ports.append(tensors)
    inputs, outputs = ports
    addresses = Addresses(
        chip, chip.coefficients, base, [t.address for t in inputs], [t.address for t in outputs]
    )
    return Places(inputs, outputs, addresses, neurons, base + _page(internal) - neurons)


def _read(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise BadInput(f"cannot read {path}: {(e.strerror or str(e)).lower()}") from None


def _page(size: int) -> int:
    return -(-size // PAGE) * PAGE
