"""Runs the commands of a bmodel file: what the chip computes, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import groupby

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, BadInput, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.bm1684x import (
    arithmetic,
    bmodel,
    commands,
    convolve,
    dma,
    functions,
    jobs,
    matmul,
    move,
    native_units,
    pool,
    requantize,
    row_jobs,
    static_tables,
    window_jobs,
)
from intaglio.npu.chips.bm1684x.bmodel import Bmodel, Group, Stage, Tensor
from intaglio.npu.chips.bm1684x.commands import Command
from intaglio.npu.chips.bm1684x.lanes import DDR_AT, Memory
from intaglio.npu.chips.bm1684x.variants import BM1684X, VARIANTS

MOST_DDR = 1 << 30  # bytes of a simulated file
PART_BITS = 36  # the bits above name a part of DDR
CHIP_NAMES = {"CV186X": "BM1688"}  # the same chip
Run = Callable[[Memory, Mapping[str, int]], None]
UNITS: dict[str, Run] = {
    **dict.fromkeys(("AR", "sAR"), arithmetic.run),
    **dict.fromkeys(("RQ&DQ", "sRQ&sDQ"), requantize.run),
    **dict.fromkeys(("CONV", "sCONV"), convolve.conv),
    **dict.fromkeys(("PorD", "sPorD"), pool.run),
    **dict.fromkeys(("MM", "sMM"), matmul.columns),
    **dict.fromkeys(("MM2", "sMM2"), matmul.lanes),
    **dict.fromkeys(("TRANS&BC", "sTRANS&sBC", "CW&BC", "sCW&sBC"), move.run),
    **dict.fromkeys(("SG", "sSG"), move.gather),
    **dict.fromkeys(("SFU", "sSFU"), functions.run),
    "DMA_tensor": dma.tensor,
    "DMA_cw_transpose": dma.tensor,
    "DMA_matrix": dma.matrix,
    "DMA_general": dma.general,
    "DMA_gather": dma.gather,
}
JOBS: dict[str, Callable[[Memory, Mapping[str, int]], jobs.Job | None]] = {
    **dict.fromkeys(("AR", "sAR"), row_jobs.element),
    **dict.fromkeys(("RQ&DQ", "sRQ&sDQ"), row_jobs.scaled),
    **dict.fromkeys(("CONV", "sCONV"), window_jobs.conv),
    **dict.fromkeys(("PorD", "sPorD"), window_jobs.depthwise),
    "DMA_tensor": dma.copy,
}
NOTHING = ("SYSID", "SYS", "sDMA_sys")
NO_REGISTER = 127
MOST_CORES = 8
# numpy's dtype of a tensor's type; a type with half a byte has none
DTYPES = {c: dtypes.numpy_of(n) for c, (n, _) in bmodel.TYPES.items() if n not in ("i4", "u4")}
FLOATS = [dtypes.numpy_of(n) for n in ("f64", "f32", "f16", "bf16")]


def execute(memory: Memory, command: Command) -> None:
    """Run one command; Unsupported where it is not simulated."""
    if command.name in NOTHING:
        return
    fields = _fields(memory, command)
    job = _job(memory, command, fields)
    if job is None or not jobs.Batch([job]).run():
        _run_unit(memory, command, fields)


def _fields(memory: Memory, command: Command) -> dict[str, int]:
    """All fields of a command, with those that it leaves out."""
    chip = memory.chip.title.lower()
    form = commands.form_of(command, chip)
    if form is None or command.name not in UNITS:
        raise Unsupported(
            f"command {command.name} ({commands.kind_of(command, chip)}) is not simulated"
        )
    fields = dict.fromkeys(form.names, 0) | dict(form.defaults) | command.fields
    fields |= {"cmd_type": form.type}
    if command.engine == "dma":
        _name_addresses(fields)
    return fields


def _job(memory: Memory, command: Command, fields: dict[str, int]) -> jobs.Job | None:
    """The command for C; None where numpy runs it, or says what is wrong with it."""
    build = JOBS.get(command.name)
    if build is None or not native_units.available():
        return None
    try:
        return build(memory, fields)
    except (BadFile, Unsupported, ValueError, IndexError, KeyError, OverflowError):
        return None


def _run_unit(memory: Memory, command: Command, fields: dict[str, int]) -> None:
    where = f"command {command.number} of the {command.engine}, {command.name}"
    try:
        with np.errstate(all="ignore"):
            UNITS[command.name](memory, fields)
    except (BadFile, Unsupported) as e:
        raise type(e)(f"{where}: {e}") from None
    except (ValueError, IndexError, KeyError, OverflowError, MemoryError) as e:
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise BadFile(f"{where}: its fields do not fit together ({reason})") from None


def _name_addresses(fields: dict[str, int]) -> None:
    """The address fields by the names of BM1684X; the tables of the others have several."""
    for side in ("src", "dst", "index"):
        for low, high in (("l32", "h13"), ("h32", "l8")):
            if f"{side}_start_addr_{high}" in fields:
                fields[f"{side}_start_addr_l32"] = fields[f"{side}_start_addr_{low}"]
                fields[f"{side}_start_addr_h8"] = fields[f"{side}_start_addr_{high}"]


def write_registers(memory: Memory, f: Mapping[str, int]) -> None:
    """SYS_TR_ACC: numbers for registers that later commands read."""
    values = f["imm0"], f["imm1"] & 0xFFFFFFFF, f["imm1"] >> 32
    for i, value in enumerate(values):
        if f[f"reg_idx{i}"] != NO_REGISTER:
            memory.registers[f[f"reg_idx{i}"]] = value


UNITS["SYS_TR_ACC"] = write_registers


class _Step:
    """A command of a machine, with the registers that it finds."""

    def __init__(self, memory: Memory, command: Command):
        self.memory, self.command = memory, command
        self.fields = _fields(memory, command)
        if command.name == "SYS_TR_ACC":
            _run_unit(memory, command, self.fields)
        self.registers = dict(memory.registers)
        self.job = _job(memory, command, self.fields)

    def run(self) -> None:
        """In numpy."""
        self.memory.registers = self.registers
        _run_unit(self.memory, self.command, self.fields)


class _Part:
    """Commands in a row that C runs, or that numpy runs."""

    def __init__(self, steps: list[_Step]):
        self.steps = steps
        found = [s.job for s in steps if s.job is not None]
        self.batch = jobs.Batch(found) if found else None

    def run(self) -> None:
        """All of them; numpy runs the jobs that C leaves to it."""
        done = -1
        while self.batch and (done := self.batch.run(done + 1)) < self.batch.count:
            self.steps[done].run()
        if self.batch is None:
            for step in self.steps:
                step.run()


class Machine:
    """A bmodel file and the memories of the chip that runs it."""

    def __init__(self, model: Bmodel):
        chip = {v.title: v for v in VARIANTS.values()}.get(CHIP_NAMES.get(model.chip, model.chip))
        if chip is None:
            known = ", ".join(v.title for v in VARIANTS.values())
            raise Unsupported(
                f"a file for {model.chip or 'no chip'} is not simulated; files for {known} are"
            )
        if not model.nets or not model.nets[0].stages:
            raise BadFile("bmodel: it has no network")
        net = model.nets[0]
        self.chip, self.stage = chip, net.stages[0]
        if self.stage.encrypted:
            raise Unsupported(f"the coefficients of '{net.name}' are encrypted")
        groups = [self._groups(s) for s in self.stage.subnets]
        self.memory = Memory(self._ddr_parts(), chip)
        self.memories = [self.memory.of_core(i) for i in range(max(map(len, groups), default=1))]
        for memory in self.memories:
            memory.static[:] = static_tables.contents(chip.name)
        data = np.frombuffer(self.stage.coefficients, np.uint8)
        self._bytes(self.stage.address, len(data))[:] = data
        self.programs = [(core, part) for cores in groups for core, part in self._in_turn(cores)]

    def _in_turn(self, cores: list[list[Group]]) -> Iterator[tuple[int, list[Command]]]:
        """What cores run between barriers, one core after the other."""
        name = self.chip.title.lower()
        parts = [
            commands.between_barriers([c for g in gs for c in commands.decode(g.tiu, g.dma, name)])
            for gs in cores
        ]
        if len(set(map(len, parts))) > 1:
            counts = ", ".join(str(len(p) - 1) for p in parts)
            raise BadFile(f"bmodel: its cores have {counts} barriers; all need as many")
        for part in zip(*parts, strict=True):
            yield from enumerate(part)

    @staticmethod
    def _groups(subnet: bmodel.Subnet) -> list[list[Group]]:
        """The commands of each core."""
        if subnet.mode or subnet.dynamic:
            kind = "the CPU" if subnet.mode else "the chip's firmware"
            raise Unsupported(f"a part of the network runs on {kind}; only commands are simulated")
        if len(subnet.cores) > MOST_CORES:
            raise BadFile(
                f"bmodel: it runs on {len(subnet.cores)} cores; {MOST_CORES} are the most"
            )
        return subnet.cores or [subnet.groups]

    def _ddr_parts(self) -> list[tuple[int, int]]:
        """First address and size of each part of DDR; parts have different highest bits."""
        s = self.stage
        places = [(s.address, len(s.coefficients)), (s.neurons, s.neuron_bytes), s.io]
        for t in (*s.inputs, *s.outputs):
            dtype_of(t)
            places.append((t.address, t.size))
            if t.address < DDR_AT:
                raise BadFile(f"bmodel: tensor '{t.name}' lies at {t.address:#x}, not in DDR")
        if s.address < DDR_AT:
            raise BadFile(f"bmodel: its coefficients lie at {s.address:#x}, not in DDR")
        ends: dict[int, int] = {}
        for at, size in places:
            if at >= DDR_AT and size:
                base = at >> PART_BITS << PART_BITS
                base = DDR_AT if self.chip is BM1684X else base
                ends[base] = max(ends.get(base, 0), at + size - base)
        if (size := sum(ends.values())) > MOST_DDR:
            raise BadFile(f"bmodel: it needs {size} bytes of DDR; {MOST_DDR} are simulated")
        return list(ends.items())

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs for some inputs."""
        for t in self.stage.inputs:
            self._bytes(t.address, t.size)[:] = input_bytes(feeds, t)
        for part in self._parts:
            part.run()
        return {
            t.name: self._bytes(t.address, t.size).copy().view(dtype_of(t)).reshape(t.shape)
            for t in self.stage.outputs
        }

    @cached_property
    def _parts(self) -> list[_Part]:
        """The commands, as many as possible for C in a row."""
        steps = [
            _Step(self.memories[core], command)
            for core, program in self.programs
            for command in program
            if command.name not in NOTHING
        ]
        kept = [s for s in steps if s.command.name != "SYS_TR_ACC"]
        return [_Part(list(some)) for _, some in groupby(kept, lambda s: s.job is not None)]

    def _bytes(self, address: int, size: int) -> Array:
        memory, offset = self.memory.find(address, size)
        return memory[offset : offset + size]


def input_bytes(feeds: Mapping[str, Array], t: Tensor) -> Array:
    """The bytes of an input; integers are never made of floats, which would lose their scale."""
    if t.name not in feeds:
        raise BadInput(f"input '{t.name}' is missing")
    value, want = np.asarray(feeds[t.name]), dtype_of(t)
    floats = value.dtype in FLOATS and want in FLOATS
    if value.size * want.itemsize != t.size or not (value.dtype == want or floats):
        raise BadInput(
            f"input '{t.name}' is {value.dtype}{list(value.shape)}; {want}{list(t.shape)} is needed"
        )
    return np.ascontiguousarray(value, want).reshape(-1).view(np.uint8)


def dtype_of(t: Tensor) -> np.dtype:
    """The type of a tensor of a file, whose size is checked."""
    if t.type not in DTYPES:
        raise Unsupported(f"tensor '{t.name}' has type {bmodel.TYPES.get(t.type, (t.type,))[0]}")
    dtype = np.dtype(DTYPES[t.type])
    count = 1
    for d in t.shape:
        count *= d
    if count * dtype.itemsize != t.size:
        raise BadFile(
            f"bmodel: tensor '{t.name}' of shape {t.shape} has {t.size} bytes; "
            f"{count * dtype.itemsize} are needed"
        )
    return dtype


def stage_of(model: Bmodel) -> Stage:
    """The first network's first stage."""
    if not model.nets or not model.nets[0].stages:
        raise BadFile("bmodel: it has no network")
    return model.nets[0].stages[0]
