"""How the BM1684 lays out constants and temporary results: what tiling has to know.

A chunk of constants is [lanes][bytes of a lane]; a lane has the weights of its channels, one after
the other, then their biases, then their shifts. Each part starts at a whole vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array
from intaglio.npu.chip_layout import ChipLayout
from intaglio.npu.chips.bm1684.arithmetic import common_shift
from intaglio.npu.chips.bm1684.lower import product_of
from intaglio.npu.chips.bm1684.variant import BM1684, TABLE_ENTRIES, WORD
from intaglio.npu.layers import Layer
from intaglio.npu.weight_packing import Atoms, Constants
from intaglio.targets.chip import Chip

MAX_PASS = 32 << 10  # bytes of a lane for the temporary results of several blocks of channels
BIAS, SHIFT = 2, WORD  # bytes of a bias and of a shift


@dataclass(slots=True)
class LaneConstants(Constants):
    """Weights, biases and shifts of blocks of output channels, one channel for each lane."""

    lane_weights: int = 0  # bytes of the weights of one output channel

    def chunk(self, blocks: int, align: int) -> int:
        return BM1684.lanes * self._lane(blocks)

    def params_at(self, channels: int) -> int:
        return BM1684.lanes * self.bias_at(BM1684.blocks(channels))

    def param_bytes(self, channels: int) -> int:
        whole = BM1684.lanes * self._lane(BM1684.blocks(channels))
        return whole - self.params_at(channels)

    def weight_bytes(self, channels: int) -> int:
        return self.params_at(channels)

    def bias_at(self, blocks: int) -> int:
        """The offset of the biases in a lane of a chunk."""
        return BM1684.aligned(self.lane_weights * blocks)

    def shifts_at(self, blocks: int) -> int:
        """The offset of the shifts."""
        return self.bias_at(blocks) + BM1684.aligned(BIAS * blocks)

    def _lane(self, blocks: int) -> int:
        shifts = 0 if self.one_scale else BM1684.aligned(SHIFT * blocks)
        return self.shifts_at(blocks) + shifts

    def chunk_bytes(self, layer: Layer, first: int, blocks: int) -> bytes:
        assert layer.node is not None
        made = product_of(layer.node)
        some = slice(first * BM1684.lanes, (first + blocks) * BM1684.lanes)
        result = np.zeros((BM1684.lanes, self._lane(blocks)), np.uint8)
        w = made.weights[some]
        rows = _words(w) if layer.op == "conv" else w.reshape(len(w), -1)
        _place(result, rows, 0, self.lane_weights)
        bias = made.bias[some].astype(np.int16).reshape(-1, 1)
        _place(result, bias, self.bias_at(blocks), BIAS)
        if not self.one_scale:
            more = 1 - (made.shifts[some] - common_shift(made.shifts))
            numbers = more.astype(np.int16).reshape(-1, 1)
            _place(result, numbers, self.shifts_at(blocks), SHIFT)
        return result.tobytes()


def table_of(layer: Layer) -> bytes:
    """A lookup table: a word for each byte; a lane has a share of it until it moves to L2."""
    assert layer.node is not None
    x, table = layer.node.inputs[:2]
    assert x is not None
    assert table is not None
    assert table.data is not None
    numbers = np.arange(TABLE_ENTRIES, dtype=np.uint8).view(dtypes.numpy_of(x.dtype))
    index = np.clip(numbers.astype(np.int32) - layer.attrs["base"], 0, len(table.data) - 1)
    words: Array = table.data[index].view(np.uint8).astype(np.uint32)
    return words.tobytes()


def _words(w: Array) -> Array:
    """One row per output channel: [kh][kw][ceil(inputs / 4)][4]."""
    outs, ins, kh, kw = w.shape
    groups = -(-ins // WORD)
    wide = np.zeros((outs, groups * WORD, kh, kw), np.int8)
    wide[:, :ins] = w
    shaped = wide.reshape(outs, groups, WORD, kh, kw).transpose(0, 3, 4, 1, 2)
    return np.ascontiguousarray(shaped).reshape(outs, -1)


def _place(result: Array, rows: Array, at: int, step: int) -> None:
    """Write one row per channel into the lanes: channel c into lane c % lanes, at its block."""
    lanes, raw = len(result), np.ascontiguousarray(rows).view(np.uint8)
    for block in range(-(-len(raw) // lanes)):
        some = raw[block * lanes : (block + 1) * lanes]
        start = at + block * step
        result[: len(some), start : start + raw.shape[1]] = some


class WordLayout(ChipLayout):
    """The layout of the BM1684."""

    planar = True
    loads_ahead = 64
    spread = WORD

    def constants(self, layer: Layer, chip: Chip) -> Constants | None:
        if layer.op == "lut":
            return Constants(Atoms(1, 1), 0, 0, table_of(layer), TABLE_ENTRIES)
        if not layer.is_product:
            return None
        assert layer.node is not None
        w = layer.node.inputs[1]
        assert w is not None
        outs, ins, kh, kw = w.shape
        lane = kh * kw * (-(-ins // WORD) * WORD if layer.op == "conv" else 1)
        shifts = product_of(layer.node).shifts
        one = bool((shifts == shifts[0]).all())
        atoms = Atoms(WORD if layer.op == "conv" else 1, BM1684.lanes)
        blocks = BM1684.blocks(outs)
        result = LaneConstants(atoms, blocks, lane * BM1684.lanes, one_scale=one)
        result.lane_weights = lane
        return result

    def scratch(self, layer: Layer, rows: int) -> int:
        if not rows:
            return 0
        plan = Scratch.of(layer, rows)
        return BM1684.lanes * (plan.per_block * plan.blocks + plan.source)


@dataclass(frozen=True, slots=True)
class Scratch:
    """Temporary results of a layer, in bytes of a lane: of a block of channels, and in all."""

    first: int
    second: int
    source: int  # a copy of an operand that does not start at a whole vector
    blocks: int  # blocks of channels computed at once

    @property
    def per_block(self) -> int:
        return self.first + self.second

    @classmethod
    def of(cls, layer: Layer, rows: int) -> Scratch:
        """The scratch memory of a layer while it makes `rows` rows of its result."""
        fm, aligned = layer.dst.map, BM1684.aligned
        pixels = rows * fm.width
        first = second = source = 0
        if layer.op in ("conv", "depthwise"):
            assert layer.node is not None
            shifts = product_of(layer.node).shifts
            # sums of 16 bits as the convolution writes them, and as AR does
            mixed = not (shifts == shifts[0]).all()
            first = (2 if mixed else 1) * aligned(WORD * pixels)
            second = aligned(WORD * pixels) if mixed else 0
        elif layer.op == "eltwise":
            first = second = aligned(WORD * pixels)
        elif layer.op in ("pool", "lut"):
            first = aligned(WORD * pixels)
        if layer.op == "lut":
            source = BM1684.blocks(layer.dst.channels) * first
        elif layer.is_window and (rows < fm.height or layer.reads[0].map.height == 1):
            reach = (layer.kernel[0] - 1) * layer.dilation[0] + 1
            read = min((rows - 1) * layer.stride[0] + reach, layer.reads[0].map.height)
            blocks = BM1684.blocks(layer.reads[0].channels)
            source = blocks * aligned(WORD * read * layer.reads[0].map.width)
        one = first + second
        blocks = max(1, min(BM1684.blocks(layer.dst.channels), MAX_PASS // max(one, 1)))
        return cls(first, second, source, blocks)
