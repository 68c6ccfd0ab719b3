"""The chip's memories: words of its lanes, and DDR."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intaglio.errors import BadFile, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.bm1684.variant import BM1684, WORD

I8, F32, I16, I32 = 0, 2, 3, 4  # codes of precisions
SIGNED: dict[int, type] = {I8: np.int8, I16: np.int16, I32: np.int32, F32: np.float32}
UNSIGNED: dict[int, type] = {I8: np.uint8, I16: np.uint16, I32: np.uint32, F32: np.float32}
ALIGNED, COMPACT, PER_CHANNEL, STRIDED = range(4)  # layouts of operands
MOST = 1 << 25  # elements of an operand: local memory has so many bytes
Dims = Sequence[int]


def dtype_of(code: int, signed: int) -> np.dtype:
    """How numpy reads a type."""
    table = SIGNED if signed else UNSIGNED
    if code not in table:
        raise Unsupported(f"type {code} is not simulated")
    return np.dtype(table[code])


class Memory:
    """Local memory, and parts of DDR by their first addresses. Tensors are [n, c, h, w]."""

    def __init__(self, parts: Sequence[tuple[int, int]]):
        self.local = np.zeros((BM1684.lanes, BM1684.lane_bytes), np.uint8)
        self.parts = [(at, np.zeros(size, np.uint8)) for at, size in parts]

    def is_local(self, address: int) -> bool:
        """Whether the DMA engine finds local memory at an address."""
        return 0 <= address - BM1684.local < BM1684.lanes * BM1684.lane_bytes

    def steps(self, layout: int, shape: Dims, given: Dims, lane: int = 0) -> tuple[int, ...]:
        """Strides in words by the layout of an operand."""
        _, c, h, w = shape
        if layout == STRIDED:
            return tuple(given)
        if layout not in (ALIGNED, COMPACT):
            raise BadFile(f"a command has a tensor of layout {layout}; 0, 1 and 3 are possible")
        plane = h * w if layout == COMPACT else BM1684.aligned(h * w * WORD) // WORD
        return plane * -(-(lane + c) // BM1684.lanes), plane, w, 1

    def _view(
        self, address: int, dtype: np.dtype, shape: Dims, steps: Dims, images: int, unit: int
    ) -> tuple[Array, int]:
        """A tensor as [n / images, blocks, lanes, h, w, images], and its first lane.

        `unit` is the bytes of a step, `images` how many of them share a pixel.
        """
        lane, offset = divmod(address - BM1684.local, BM1684.lane_bytes)
        n, c, h, w = shape
        if not 0 <= lane < BM1684.lanes or min(shape) < 1 or n * c * h * w > MOST:
            raise BadFile(
                f"a command has a tensor of {n}x{c}x{h}x{w} at {address:#x}; local memory has "
                f"{BM1684.lanes} lanes of {BM1684.lane_bytes} bytes"
            )
        groups, blocks = -(-n // images), -(-(lane + c) // BM1684.lanes)
        sizes = groups, blocks, h, w
        last = sum((d - 1) * s * unit for d, s in zip(sizes, steps, strict=True))
        last += images * dtype.itemsize
        if offset + last > BM1684.lane_bytes or min(steps) < 0:
            raise BadFile(
                f"a tensor of {n}x{c}x{h}x{w} at byte {offset} of a lane ends at byte "
                f"{offset + last}; a lane has {BM1684.lane_bytes}"
            )
        ns, cs, hs, ws = (s * unit for s in steps)
        strides = ns, cs, BM1684.lane_bytes, hs, ws, dtype.itemsize
        full = groups, blocks, BM1684.lanes, h, w, images
        return np.ndarray(full, dtype, self.local.data, offset, strides), lane

    def read(
        self,
        address: int,
        dtype: np.dtype,
        shape: Dims,
        steps: Dims,
        images: int = 0,
        unit: int = WORD,
    ) -> Array:
        """A tensor of local memory; `images` share a pixel, as many as a word holds if not said."""
        images = images or WORD // dtype.itemsize
        view, lane = self._view(address, dtype, shape, steps, images, unit)
        n, c, h, w = shape
        whole = view.transpose(0, 5, 1, 2, 3, 4).reshape(-1, view.shape[1] * BM1684.lanes, h, w)
        return np.asarray(whole[:n, lane : lane + c])

    def write(
        self, address: int, values: Array, steps: Dims, images: int = 0, unit: int = WORD
    ) -> None:
        """Store a tensor in local memory."""
        images = images or WORD // values.dtype.itemsize
        view, lane = self._view(address, values.dtype, values.shape, steps, images, unit)
        n, c = values.shape[:2]
        for image in range(n):
            part, at = view[image // images, ..., image % images], 0
            for block in range(view.shape[1]):
                first = lane if block == 0 else 0
                count = min(BM1684.lanes - first, c - at)
                part[block, first : first + count] = values[image, at : at + count]
                at += count

    def flat(self, address: int, dtype: np.dtype, shape: Dims, steps: Dims) -> Array:
        """A view of a tensor in DDR; strides are in elements."""
        if min(shape) < 1 or np.prod(np.array(shape, np.float64)) > MOST or min(steps) < 0:
            raise BadFile(f"a DMA command moves a tensor of {'x'.join(map(str, shape))}")
        last = sum((d - 1) * s for d, s in zip(shape, steps, strict=True)) + 1
        memory, offset = self.find(address, last * dtype.itemsize)
        return np.ndarray(
            tuple(shape), dtype, memory.data, offset, tuple(s * dtype.itemsize for s in steps)
        )

    def find(self, address: int, size: int) -> tuple[Array, int]:
        """The part of DDR with so many bytes at an address, and the offset there."""
        for base, memory in self.parts:
            if base <= address and address + size <= base + len(memory):
                return memory, address - base
        raise BadFile(
            f"a command reads or writes {size} bytes at address {address:#x}, where no memory is"
        )
