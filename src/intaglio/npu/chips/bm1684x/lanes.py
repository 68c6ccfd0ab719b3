"""The chip's memories: local memory of its lanes, static memory, L2 and DDR."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from intaglio.errors import BadFile
from intaglio.ir import Array
from intaglio.npu.chips.bm1684x import numbers
from intaglio.npu.chips.bm1684x.variants import BM1684X, Variant

LANES = 64
LANE = 1 << 18  # bytes from one lane to the next, as the C library has it
LOCAL = LANES * LANE
LOCAL_AT = 0x0800_0000  # as the DMA sees it
STATIC_AT, STATIC = 0x0900_0000, 1 << 14
L2_AT, L2 = 0x1000_0000, 1 << 21
DDR_AT = 0x1_0000_0000
MOST = 1 << 24  # elements of an operand: local memory has so many bytes

Dims = Sequence[int]


def align(size: int, to: int) -> int:
    """The next multiple."""
    return -(-size // to) * to


class Memory:
    """All memories; tensors are [n, c, h, w] with channels spread over the lanes."""

    def __init__(self, ddr: int | list[tuple[int, int]], chip: Variant = BM1684X):
        """`ddr` is the size, or the first address and the size of each part."""
        self.chip, self.lanes, self.eu_bytes = chip, chip.lanes, chip.eu_bytes
        self.raw = np.zeros(chip.lanes * LANE, np.uint8)  # lanes may have less
        self.static = np.zeros(STATIC, np.uint8)
        self.l2 = np.zeros(chip.l2_bytes, np.uint8)
        parts = [(DDR_AT, ddr)] if isinstance(ddr, int) else ddr
        self.parts = [(at, np.zeros(size, np.uint8)) for at, size in parts]
        self.registers: dict[int, int] = {}  # that commands write and read

    def of_core(self, core: int) -> Memory:
        """The memory of another core: the same DDR and L2, local memory of its own."""
        if not core:
            return self
        other = Memory([], self.chip)
        other.parts, other.l2 = self.parts, self.l2
        return other

    @cached_property
    def scratch(self) -> Array:
        """As much memory as the lanes have, for sums that a command rounds."""
        return np.zeros(len(self.raw), np.uint8)

    @property
    def ddr(self) -> Array:
        """The first part of DDR."""
        return self.parts[0][1]

    def lane_of(self, address: int) -> int:
        """The lane of a local address."""
        return address // self.chip.lane_bytes

    def blocks(self, address: int, channels: int) -> int:
        """Rounds over the lanes of a tensor."""
        return -(-(self.lane_of(address) + channels) // self.lanes)

    def local(self, address: int) -> int | None:
        """The local address of one that the DMA uses; None: it is elsewhere."""
        offset = address - self.chip.local
        return offset if 0 <= offset < self.lanes * self.chip.lane_bytes else None

    def strides(
        self, shape: Dims, code: int, layout: int, address: int, given: Dims = ()
    ) -> tuple[int, ...]:
        """Strides in elements by the layout: 0 aligned, 1 compact, 2 one per channel, 3 given."""
        _, c, h, w = shape
        if layout == 3:
            return tuple(given)
        if layout == 2:
            return 0, 1, 0, 0
        if layout not in (0, 1):
            raise BadFile(f"a command has a tensor of layout {layout}; 0 to 3 are possible")
        per = self.eu_bytes // numbers.BYTES.get(code, 1)
        plane = h * w if layout == 1 else align(h * w, per)
        return plane * self.blocks(address, c), plane, w, 1

    def view(self, address: int, dtype: np.dtype, shape: Dims, steps: Dims) -> tuple[Array, int]:
        """A tensor as [n, blocks of lanes, lanes, h, w], and the lane of its first channel."""
        most = self.chip.lane_bytes
        lane, offset = divmod(address, most)
        n, c, h, w = shape
        size, blocks = dtype.itemsize, -(-(lane + c) // self.lanes)
        if lane >= self.lanes or n * c * h * w > MOST or min(shape) < 1:
            raise BadFile(
                f"a command has a tensor of {n}x{c}x{h}x{w} at byte {offset} of lane {lane}; "
                f"there are {self.lanes} lanes of {most} bytes"
            )
        last = sum((d - 1) * s for d, s in zip((n, blocks, h, w), steps, strict=True)) + 1
        if offset + last * size > most:
            raise BadFile(
                f"a tensor of {n}x{c}x{h}x{w} at byte {offset} of a lane ends at byte "
                f"{offset + last * size}; a lane has {most}"
            )
        ns, cs, hs, ws = (s * size for s in steps)
        at = (n, blocks, self.lanes, h, w), dtype, self.raw.data, offset, (ns, cs, LANE, hs, ws)
        return np.ndarray(*at), lane

    def read(self, address: int, dtype: np.dtype, shape: Dims, steps: Dims) -> Array:
        """A tensor [n, c, h, w]; a view where it lies in one block of lanes."""
        view, lane = self.view(address, dtype, shape, steps)
        n, c, h, w = shape
        if view.shape[1] == 1:
            return view[:, 0, lane : lane + c]
        return view.reshape(n, -1, h, w)[:, lane : lane + c]

    def write(self, address: int, values: Array, steps: Dims) -> None:
        """Store a tensor [n, c, h, w]."""
        view, lane = self.view(address, values.dtype, values.shape, steps)
        c, at = values.shape[1], 0
        for block in range(view.shape[1]):
            first = lane if block == 0 else 0
            count = min(self.lanes - first, c - at)
            view[:, block, first : first + count] = values[:, at : at + count]
            at += count

    def find(self, address: int, size: int) -> tuple[Array, int]:
        """The memory of an address that the DMA uses, other than local memory, and the offset."""
        for base, memory in (*self.parts, (self.chip.l2, self.l2), (STATIC_AT, self.static)):
            if base <= address < base + max(len(memory), 1):
                if address + size > base + len(memory):
                    break
                return memory, address - base
        raise BadFile(
            f"a command reads or writes {size} bytes at address {address:#x}, where no memory is"
        )

    def flat(self, address: int, dtype: np.dtype, shape: Dims, steps: Dims) -> Array:
        """A view of a tensor in DDR, L2 or static memory."""
        if min(shape) < 1 or np.prod(np.array(shape, np.float64)) > 16 * MOST:
            raise BadFile(f"a DMA command moves a tensor of {'x'.join(map(str, shape))}")
        last = sum((d - 1) * s for d, s in zip(shape, steps, strict=True)) + 1
        memory, offset = self.find(address, last * dtype.itemsize)
        bytes_ = tuple(s * dtype.itemsize for s in steps)
        return np.ndarray(tuple(shape), dtype, memory.data, offset, bytes_)
