"""How long the tasks of a job take, from their registers, and what bounds each of them.

A task takes as long as the slowest of three: CNA and CORE multiply, the DPU or PPU writes a block
of 16 channels of a pixel in a cycle (numbers through a table take longer), and DDR moves maps and
weights. Three constants are fitted to nine int8 speeds that rknn_model_zoo 2.3.2 publishes for one
core; all nine are met within 14 %, by the benchmark `python -m benchmarks.rockchip`.
"""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.npu.chips.rockchip.geometry import ATOM, round_up
from intaglio.npu.chips.rockchip.job import Job, JobTask
from intaglio.npu.predict.engines import LayerText, Step, Timed
from intaglio.targets import chip as chips

SOURCE = "the register commands of the job: products, bytes and pixels of each task"
CONVOLUTION, POOL = 0x1D, 0x60
INPUTS, OUTPUTS, DEPTHWISE = 32, 32, 64  # channels that a cycle multiplies
TASK_CYCLES = 21_800  # to start a task and to end it; fitted
DDR_SHARE = 0.84  # of the bandwidth of DDR; fitted
TABLE_RATE = 2.0  # numbers that go through the tables in a cycle; fitted
LOOKS_UP = 0x302  # EW_CFG
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
    per_cycle = speed * 1e3 / mhz * DDR_SHARE
    start = TASK_CYCLES / mhz
    steps: list[Step] = []
    layers: list[LayerText] = []
    for number, task in enumerate(job.tasks):
        cost = of_task(task)
        bound = cost.bound(per_cycle)
        kind = f"{task.op.split('.')[-1]} ({bound})"
        layers.append(LayerText(kind, task.name, "i8", cost.inputs, cost.output))
        long = start + cost.cycles(per_cycle) / mhz
        sizes = cost.bytes, cost.macs, bound == DDR
        steps.append(Step("NPU", kind, number, long, start, number - 1, *sizes))
    notes = ["(CNA), (DPU) or (DDR) behind a task's name is the part that takes the longest"]
    return Timed(steps, layers, SOURCE, mhz, speed, notes)


def of_task(task: JobTask) -> Cost:
    """The cost of a task from its registers."""
    r = {w.register: w.value for w in task.words}
    if task.blocks == CONVOLUTION:
        return _convolution(r)
    if task.blocks == POOL:
        return _pool(r)
    width, height = (r[0x4030] & 0x1FFF) + 1, (r[0x4034] & 0x1FFF) + 1
    channels = (r[0x4058] & 0x1FFF) + 1
    one = width * height * channels
    reads = one if not r[0x5034] & 1 and r[0x5034] >> 30 else 0
    tables = 8 * sum(w.register == 0x4104 for w in task.words)
    shape = f"{channels}x{height}x{width}"
    return Cost(0, _dpu(r, one), 2 * one + reads + tables, 0, shape, shape)


def _dpu(r: dict[int, int], numbers: int) -> float:
    """Cycles in which the DPU writes so many numbers."""
    return numbers / (TABLE_RATE if r[0x4070] == LOOKS_UP else ATOM)


def _convolution(r: dict[int, int]) -> Cost:
    width, height = (r[0x4030] & 0x1FFF) + 1, (r[0x4034] & 0x1FFF) + 1
    outputs = (r[0x403C] >> 16 & 0x1FFF) + 1
    taps = (r[0x1038] >> 24 & 31) * (r[0x1038] >> 16 & 31)
    stored, depthwise = r[0x1024] & 0xFFFF, (r[0x100C] & 15) == 3
    picture = r[0x100C] >> 12 & 15
    real = (r[0x1024] >> 16 & 0x3FFF) + 1
    channels = real if picture else (stored - 1) // DEPTHWISE * DEPTHWISE + real
    pixels = width * height
    if depthwise:
        products = pixels * taps * -(-outputs // DEPTHWISE)
        macs = pixels * taps * outputs
    else:
        products = pixels * taps * -(-channels // INPUTS) * -(-outputs // OUTPUTS)
        macs = pixels * taps * outputs * channels
    rows, columns = r[0x1020] & 0x7FF, r[0x1020] >> 16 & 0x7FF
    read = rows * columns * (channels if picture else stored)
    written = pixels * round_up(outputs, ATOM)
    second = written if not r[0x5034] & 1 else 0
    weights = 0 if r[0x1040] >> 13 & 1 else r[0x1030]
    size = read + written + second + weights
    shapes = f"{channels}x{rows}x{columns}", f"{outputs}x{height}x{width}"
    return Cost(products, _dpu(r, written), size, macs, *shapes)


def _pool(r: dict[int, int]) -> Cost:
    channels = (r[0x6014] & 0x1FFF) + 1
    inside = ((r[0x600C] & 0x1FFF) + 1) * ((r[0x6010] & 0x1FFF) + 1)
    outside = ((r[0x6018] & 0x1FFF) + 1) * ((r[0x601C] & 0x1FFF) + 1)
    size = (inside + outside) * channels
    return Cost(0, max(inside, outside) * channels / ATOM, size)
