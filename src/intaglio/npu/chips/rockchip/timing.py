"""How long the tasks of a job take, from their registers, and what bounds each of them.

A task takes as long as the slowest of three: CNA and CORE multiply, the DPU or PPU writes a block
of 16 channels of a pixel in a cycle (numbers through a table take longer), and DDR moves maps and
weights. Three constants of a chip are fitted to the int8 speeds that rknn_model_zoo 2.3.2 publishes
for one core; RK3588's and RK3566's are met within 13 %, by `python -m benchmarks.rockchip`.
"""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.npu.chips.rockchip.geometry import DESIGNS, RK3562, RK3576, RK3588, Design, round_up
from intaglio.npu.chips.rockchip.job import Job, JobTask
from intaglio.npu.predict.engines import LayerText, Step, Timed
from intaglio.targets import chip as chips

SOURCE = "the register commands of the job: products, bytes and pixels of each task"
CONVOLUTION, POOL = 0x5, 0x60  # bits of the blocks that they start
INPUTS = 32  # that a cycle multiplies, for as many outputs as the design has
LOOKS_UP = (0x302, 0x1004140)  # EW_CFG


@dataclass(frozen=True, slots=True)
class Fit:
    """What is fitted for a chip."""

    task: int  # cycles to start a task and to end it
    ddr: float  # share of the bandwidth of DDR
    tables: float  # numbers that go through the tables in a cycle


FITS = {
    "rk3588": Fit(21_800, 0.84, 2.0),
    "rk3562": Fit(42_000, 0.98, 0.8),  # those of the RK3566
    "rk3576": Fit(21_800, 0.84, 2.0),  # those of the RK3588
    "rk3566": Fit(42_000, 0.98, 0.8),
    "rv1106": Fit(42_000, 0.98, 0.8),  # an estimate: nothing is published; those of the RK3566
}
CNA, DPU, DDR = "CNA", "DPU", "DDR"


@dataclass(frozen=True, slots=True)
class Cost:
    """A task's cycles in each part, and its bytes and products."""

    products: float  # cycles of CNA and CORE
    pixels: float  # cycles of DPU or PPU
    bytes: int
    macs: int = 0
    inputs: str = ""
    output: str = ""

    def bound(self, per_cycle: float) -> str:
        """The part that takes the most cycles; `per_cycle`: bytes of DDR."""
        parts = {CNA: self.products, DPU: self.pixels, DDR: self.bytes / per_cycle}
        return max(parts, key=lambda k: parts[k])

    def cycles(self, per_cycle: float) -> float:
        return max(self.products, self.pixels, self.bytes / per_cycle)


def of_job(job: Job, clock: float | None = None, ddr: float | None = None) -> Timed:
    """The steps of a job; `clock` in MHz, `ddr` in GB/s."""
    chip = chips.load(job.chip)
    mhz, speed = clock or chip.clock, ddr or chip.ddr
    design = DESIGNS[job.chip]
    fit = FITS[design.registers]
    per_cycle = speed * 1e3 / mhz * fit.ddr
    start = fit.task / mhz
    steps: list[Step] = []
    layers: list[LayerText] = []
    for number, task in enumerate(job.tasks):
        cost = of_task(task, design)
        bound = cost.bound(per_cycle)
        kind = f"{task.op.split('.')[-1]} ({bound})"
        layers.append(LayerText(kind, task.name, "i8", cost.inputs, cost.output))
        long = start + cost.cycles(per_cycle) / mhz
        sizes = cost.bytes, cost.macs, bound == DDR
        steps.append(Step("NPU", kind, number, long, start, number - 1, *sizes))
    notes = ["(CNA), (DPU) or (DDR) behind a task's name is the part that takes the longest"]
    return Timed(steps, layers, SOURCE, mhz, speed, notes)


def of_task(task: JobTask, design: Design = RK3588) -> Cost:
    """The cost of a task from its registers."""
    r = {w.register: w.value for w in task.words}
    if design in (RK3562, RK3576) and task.blocks != POOL:
        r = _elsewhere(r, design)
    if task.blocks & CONVOLUTION == CONVOLUTION:
        return _convolution(r, design)
    if task.blocks == POOL:
        return _pool(r, design.atom)
    width, height = (r[0x4030] & 0x1FFF) + 1, (r[0x4034] & 0x1FFF) + 1
    channels = round_up((r[0x403C] >> 16 & 0x1FFF) + 1, design.atom)
    one = width * height * channels
    reads = one if not r[0x5034] & 1 and r[0x5034] >> 30 else 0
    tables = 8 * sum(w.register == 0x4104 for w in task.words)
    shape = f"{channels}x{height}x{width}"
    return Cost(0, _dpu(r, one, design), 2 * one + reads + tables, 0, shape, shape)


def _elsewhere(r: dict[int, int], design: Design) -> dict[int, int]:
    """Registers of an RK3576 or RK3562 where its sisters have them, as far as a cost needs them."""
    made = {0x4030: r[0x4020], 0x4034: r[0x4024], 0x403C: r[0x4030], 0x4070: r[0x407C]}
    made[0x5034] = r[0x5034]
    if 0x1024 not in r:
        return made
    one = 1 if design is RK3576 else 0  # its sizes are stored with 1 less
    window, size, channels = r[0x1024], r[0x102C], (r[0x1028] & 0xFFFF) + one
    made[0x1038] = window + (one << 24 | one << 16)
    made[0x1024] = (channels - 1) << 16 | round_up(channels, design.atom)
    made[0x100C] = 3 if r[0x100C] & 1 else 0
    # rows that the buffer still holds are not read
    made[0x1020] = ((size >> 16) + one) << 16 | (r[0x1078] & 0xFFFF) + one
    return made | {0x1040: r[0x1038] >> 31 << 13, 0x1030: r[0x101C]}


def _dpu(r: dict[int, int], numbers: int, design: Design) -> float:
    """Cycles in which the DPU writes so many numbers."""
    return numbers / (FITS[design.registers].tables if r[0x4070] in LOOKS_UP else design.atom)


def _convolution(r: dict[int, int], design: Design) -> Cost:
    width, height = (r[0x4030] & 0x1FFF) + 1, (r[0x4034] & 0x1FFF) + 1
    outputs = (r[0x403C] >> 16 & 0x1FFF) + 1
    taps = (r[0x1038] >> 24 & 31) * (r[0x1038] >> 16 & 31)
    stored, depthwise = r[0x1024] & 0xFFFF, (r[0x100C] & 3) == 3
    picture = r[0x100C] >> 12 & 15
    real = (r[0x1024] >> 16 & 0x3FFF) + 1
    together = design.outputs * 2  # of a depthwise convolution
    plain = picture or design is not RK3588 or r[0x100C] >> 16 & 1
    channels = real if plain else (stored - 1) // together * together + real
    pixels = width * height
    if depthwise:
        products = pixels * taps * -(-outputs // together)
        macs = pixels * taps * outputs
    else:
        products = pixels * taps * -(-channels // INPUTS) * -(-outputs // design.outputs)
        macs = pixels * taps * outputs * channels
    rows, columns = r[0x1020] & 0x7FF, r[0x1020] >> 16 & 0x7FF
    read = rows * columns * (channels if picture else stored)
    written = pixels * round_up(outputs, design.atom)
    second = written if not r[0x5034] & 1 else 0
    weights = 0 if r[0x1040] >> 13 & 1 else r[0x1030]
    size = read + written + second + weights
    shapes = f"{channels}x{rows}x{columns}", f"{outputs}x{height}x{width}"
    return Cost(products, _dpu(r, written, design), size, macs, *shapes)


def _pool(r: dict[int, int], atom: int) -> Cost:
    channels = (r[0x6014] & 0x1FFF) + 1
    inside = ((r[0x600C] & 0x1FFF) + 1) * ((r[0x6010] & 0x1FFF) + 1)
    outside = ((r[0x6018] & 0x1FFF) + 1) * ((r[0x601C] & 0x1FFF) + 1)
    size = (inside + outside) * channels
    return Cost(0, max(inside, outside) * channels / atom, size)
