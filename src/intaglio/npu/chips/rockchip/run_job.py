"""Runs a job in the simulator: its words alone, on the memory of a board."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array
from intaglio.npu.chips.rockchip.dpu_tasks import map_size
from intaglio.npu.chips.rockchip.geometry import DESIGNS, RK3588, Design
from intaglio.npu.chips.rockchip.job import INTERNAL, WEIGHTS, Job, JobPort
from intaglio.npu.chips.rockchip.native_machine import Machine, placed

PAGE = 4096
FILL = 0xA5  # of memory that nothing has written


class JobMachine:
    """A board with the weights of a job."""

    def __init__(self, job: Job):
        self.job = job
        self.design = DESIGNS[job.chip]
        self.start = -(-len(job.weights) // PAGE) * PAGE  # of the memory of maps
        self.memory = np.full(self.start + job.internal, FILL, np.uint8)
        self.memory[: len(job.weights)] = np.frombuffer(job.weights, np.uint8)
        self.tasks = [self._placed(i) for i in range(len(job.tasks))]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by their names."""
        for port in self.job.inputs:
            data = stored(_checked(inputs, port), port, self.design)
            at = self.start + port.offset
            self.memory[at : at + len(data)] = data
        Machine(self.memory, self.job.chip).run(self.tasks)
        return {p.name: self._output(p) for p in self.job.outputs}

    def _placed(self, number: int) -> Array:
        task = self.job.tasks[number]
        starts = {WEIGHTS: 0, INTERNAL: self.start}
        at = {i: starts[a.memory] + a.offset for i, a in task.addresses.items()}
        return placed(task.words, at)

    def _output(self, port: JobPort) -> Array:
        at = self.start + port.offset
        return from_stored(self.memory[at : at + port.size], port, self.design)


def stored(values: Array, port: JobPort, design: Design = RK3588) -> Array:
    """The bytes of an input as they lie in memory."""
    flat = values.view(np.uint8)[0] ^ (0x80 if port.is_unsigned else 0)
    if port.is_picture:
        return np.ascontiguousarray(flat.transpose(1, 2, 0)).reshape(-1)
    size, atom = map_size(port.shape, design), design.atom
    padded = np.zeros((-(-size.channels // atom) * atom, size.pixels), np.uint8)
    padded[: size.channels, : size.height * size.width] = flat.reshape(size.channels, -1)
    blocks = padded.reshape(-1, atom, size.pixels).transpose(0, 2, 1)
    return np.ascontiguousarray(blocks).reshape(-1)


def from_stored(data: Array, port: JobPort, design: Design = RK3588) -> Array:
    """An output from its bytes in memory."""
    size = map_size(port.shape, design)
    blocks = data.reshape(-1, size.pixels, design.atom).transpose(0, 2, 1).reshape(-1, size.pixels)
    flat = blocks[: size.channels, : size.height * size.width].reshape(port.shape)
    made = np.ascontiguousarray(flat) ^ np.uint8(0x80 if port.is_unsigned else 0)
    return made.view(np.uint8 if port.is_unsigned else np.int8)


def _checked(inputs: Mapping[str, Array], port: JobPort) -> Array:
    if port.name not in inputs:
        raise BadInput(f"input '{port.name}' is missing")
    given = np.asarray(inputs[port.name])
    want = np.dtype(np.uint8 if port.is_unsigned else np.int8)
    if given.dtype != want or given.shape != port.shape:
        raise BadInput(
            f"input '{port.name}' is {given.dtype}{list(given.shape)}; "
            f"{want}{list(port.shape)} is needed"
        )
    return np.ascontiguousarray(given)
