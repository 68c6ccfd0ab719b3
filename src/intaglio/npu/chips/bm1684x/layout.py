"""How the family lays out constants and temporary results: what tiling has to know of the encoder.

A chunk of constants is [lanes][bytes of a lane]; a lane has the weights of its channels, one after
the other, then their biases, then their scales. Each part starts at a whole vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array
from intaglio.npu.chip_layout import ChipLayout
from intaglio.npu.chips.bm1684x import float_layout
from intaglio.npu.chips.bm1684x.rounding import Rounding, lanes_of
from intaglio.npu.chips.bm1684x.variants import BM1684X, Variant
from intaglio.npu.layers import Layer
from intaglio.npu.weight_packing import TABLE_INPUT, Atoms, Constants
from intaglio.targets.chip import Chip

MAX_PASS = 32 << 10  # bytes of a lane for the temporary results of several blocks of channels


@dataclass(slots=True)
class BmConstants(Constants):
    """Weights, biases and scales of blocks of output channels, one channel for each lane."""

    lane_weights: int = 0  # bytes of the weights of one output channel
    bias_item: int = 4  # bytes of a bias
    variant: Variant = BM1684X

    def chunk(self, blocks: int, align: int) -> int:
        return self.variant.lanes * self._lane(blocks)

    def params_at(self, channels: int) -> int:
        blocks = self.variant.blocks(channels)
        return self.variant.lanes * self.bias_at(blocks)

    def param_bytes(self, channels: int) -> int:
        whole = self.variant.lanes * self._lane(self.variant.blocks(channels))
        return whole - self.params_at(channels)

    def weight_bytes(self, channels: int) -> int:
        return self.params_at(channels)

    def bias_at(self, blocks: int) -> int:
        """The offset of the biases in a lane of a chunk."""
        return self.variant.aligned(self.lane_weights * blocks)

    def scale_at(self, blocks: int) -> int:
        """The offset of the scales in a lane of a chunk: one vector for each channel."""
        return self.bias_at(blocks) + self.variant.aligned(self.bias_item * blocks)

    def _lane(self, blocks: int) -> int:
        scales = 0 if self.one_scale else self.variant.scale_step * blocks
        return self.scale_at(blocks) + self.variant.aligned(scales)

    def chunk_bytes(self, layer: Layer, first: int, blocks: int) -> bytes:
        assert layer.node is not None
        if layer.node.op in float_layout.PRODUCTS:
            return self._floats(layer, first, blocks)
        w, scale, bias = (v.data for v in layer.node.inputs[1:4] if v is not None)
        assert w is not None
        assert scale is not None
        assert bias is not None
        lanes = self.variant.lanes
        some = slice(first * lanes, (first + blocks) * lanes)
        result = np.zeros((lanes, self._lane(blocks)), np.uint8)
        rows = (
            _conv_rows(w[some], self.variant.inputs_at_once)
            if layer.op == "conv"
            else w[some].reshape(len(w[some]), -1)
        )
        _place(result, rows.view(np.uint8), 0, self.lane_weights)
        added = folded_bias(w[some], bias[some], layer.attrs["x_zero"])
        _place(result, added.reshape(-1, 1).view(np.uint8), self.bias_at(blocks), 4)
        if not self.one_scale:
            factors = scale[some].astype(np.float32).reshape(-1, 1).view(np.uint8)
            _place(result, factors, self.scale_at(blocks), self.variant.scale_step)
        return result.tobytes()

    def _floats(self, layer: Layer, first: int, blocks: int) -> bytes:
        """Weights and biases of floats; there are no scales."""
        w, bias = (v.data for v in layer.node.inputs[1:3])  # type: ignore[union-attr]
        lanes = self.variant.lanes
        some = slice(first * lanes, (first + blocks) * lanes)
        result = np.zeros((lanes, self._lane(blocks)), np.uint8)
        part = np.ascontiguousarray(w[some])  # type: ignore[index]
        rows = _conv_rows(part, self.atoms.inputs) if layer.op == "conv" else part
        _place(result, _bytes(rows), 0, self.lane_weights)
        _place(result, _bytes(bias[some]), self.bias_at(blocks), self.bias_item)  # type: ignore[index]
        return result.tobytes()


def _bytes(rows: Array) -> Array:
    """The bytes of each row."""
    return np.ascontiguousarray(rows.reshape(len(rows), -1)).view(np.uint8)


def folded_bias(w: Array, bias: Array, x_zero: int) -> Array:
    """bias - x_zero * sum(w): then sums of x * w equal those of (x - x_zero) * w."""
    sums = w.reshape(len(w), -1).sum(1, dtype=np.int64)
    return np.asarray((bias.astype(np.int64) - x_zero * sums).astype(np.int32))


def _conv_rows(w: Array, atom: int) -> Array:
    """One row per output channel: [ceil(inputs / atom)][kh][kw][atom]."""
    outs, ins, kh, kw = w.shape
    groups = -(-ins // atom)
    wide = np.zeros((outs, groups * atom, kh, kw), w.dtype)
    wide[:, :ins] = w
    shaped = wide.reshape(outs, groups, atom, kh, kw).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(shaped).reshape(outs, -1)


def _place(result: Array, rows: Array, at: int, step: int) -> None:
    """Write one row per channel into the lanes: channel c into lane c % lanes, at its block."""
    lanes = len(result)
    for block in range(-(-len(rows) // lanes)):
        some = rows[block * lanes : (block + 1) * lanes]
        start = at + block * step
        result[: len(some), start : start + rows.shape[1]] = some


class BmLayout(ChipLayout):
    """The layout of a chip of the family."""

    planar = True
    loads_ahead = 64

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.sizes: dict[tuple[Layer, int], int] = {}  # scratch memory, which tiling asks for often

    def constants(self, layer: Layer, chip: Chip) -> Constants | None:
        node = layer.node
        if node is not None and node.op in float_layout.PRODUCTS:
            return self._floats(layer)
        table = node.inputs[TABLE_INPUT[layer.op]] if node and layer.op in TABLE_INPUT else None
        raw, entries = float_layout.table(layer, self.variant), 0
        if table is not None and table.data is not None:
            entries = len(table.data)
            raw = rounding(layer, entries).table(table.data).tobytes()
            raw = lanes_of(raw, self.variant)
        if not layer.is_product:
            return Constants(Atoms(1, 1), 0, 0, raw, entries) if raw else None
        assert node is not None
        w, scale = node.inputs[1], node.inputs[2]
        assert w is not None
        assert scale is not None
        assert scale.data is not None
        outs, ins, kh, kw = w.shape
        atom, lanes = self.variant.inputs_at_once, self.variant.lanes
        lane = kh * kw * (-(-ins // atom) * atom if layer.op == "conv" else 1)
        one = bool((scale.data == scale.data[0]).all())
        atoms, blocks = Atoms(atom if layer.op == "conv" else 1, lanes), self.variant.blocks(outs)
        result = BmConstants(atoms, blocks, lane * lanes, raw, entries, one_scale=one)
        result.lane_weights, result.variant = lane, self.variant
        return result

    def _floats(self, layer: Layer) -> Constants:
        """The constants of a convolution of floats."""
        w, bias = layer.node.inputs[1:3]  # type: ignore[union-attr]
        assert w is not None
        assert bias is not None
        outs, ins, kh, kw = w.shape
        item = dtypes.itemsize(w.dtype)
        atom = float_layout.inputs_at_once(w.dtype, self.variant) if layer.op == "conv" else 1
        lane = kh * kw * item * (-(-ins // atom) * atom if layer.op == "conv" else 1)
        lanes, blocks = self.variant.lanes, self.variant.blocks(outs)
        result = BmConstants(Atoms(atom, lanes), blocks, lane * lanes, one_scale=True)
        result.lane_weights, result.variant = lane, self.variant
        result.bias_item = dtypes.itemsize(bias.dtype)
        return result

    def scratch(self, layer: Layer, rows: int) -> int:
        key = layer, rows
        if key not in self.sizes:
            plan = Scratch.of(layer, rows, self.variant) if rows else Scratch(0, 0, 0, 0)
            self.sizes[key] = self.variant.lanes * (plan.per_block * plan.blocks + plan.source)
        return self.sizes[key]


def rounding(layer: Layer, entries: int = 0) -> Rounding:
    """The last stage of a layer; that of a lookup alone looks up its operand's bytes."""
    if layer.op != "lut":
        return Rounding.of(layer.attrs, entries)
    x = layer.reads[0].map.dtype
    low, high = dtypes.limits(x)
    return Rounding("i8", 0, low, high, layer.attrs["base"], entries=entries)


@dataclass(frozen=True, slots=True)
class Scratch:
    """Temporary results of a layer, in bytes of a lane: of a block of channels, and in all."""

    sums: int  # i32 sums, the first operand in f32, or positions of the largest numbers
    spare: int  # the second operand, and rounded numbers
    source: int  # a copy of an operand that does not start at a whole vector
    blocks: int  # blocks of channels computed at once

    @property
    def per_block(self) -> int:
        return self.sums + self.spare

    @classmethod
    def of(cls, layer: Layer, rows: int, chip: Variant) -> Scratch:
        """The scratch memory of a layer while it makes `rows` rows of its result."""
        fm, aligned = layer.dst.map, chip.aligned
        pixels = rows * fm.width
        partial = rows < fm.height
        sums = spare = source = 0
        if float_layout.is_float(layer):
            sums, spare, source, at_once = float_layout.scratch(layer, rows, chip)
            many = chip.blocks(layer.dst.channels)
            most = max(1, min(many, MAX_PASS // max(sums + spare, 1)))
            return cls(sums, spare, source, at_once or most)
        if layer.op in ("conv", "depthwise", "eltwise") or (
            layer.op == "pool" and layer.attrs["kind"] == "avg"
        ):
            entries = _entries(layer)
            sums, spare = aligned(4 * pixels), rounding(layer, entries).scratch(pixels, chip)
            if layer.residual >= 0 or layer.op == "eltwise":
                spare = max(aligned(4 * pixels), 2 * aligned(2 * pixels))
        elif layer.op in ("pool", "lut"):
            spare = aligned(pixels) if partial or layer.op == "lut" else 0
            sums = aligned(2 * pixels) if layer.op == "pool" and chip.pool_indices else 0
        if layer.op in ("depthwise", "pool", "lut") and partial:
            low = max(fm.height - rows, 0) // 2
            first, last = _source_rows(layer, low, low + rows)
            source = aligned((last - first) * layer.reads[0].map.width)
        if layer.op == "eltwise" and layer.reads[1].channels < layer.dst.channels:
            other = layer.reads[1].map
            source = aligned(min(rows, other.height) * other.width)
        one = sums + spare
        blocks = max(1, min(chip.blocks(layer.dst.channels), MAX_PASS // max(one, 1)))
        return cls(sums, spare, source, blocks)


def _source_rows(layer: Layer, low: int, high: int) -> tuple[int, int]:
    """Rows of the first operand, without the limits of its height."""
    if layer.op == "lut":
        return low, high
    reach = (layer.kernel[0] - 1) * layer.dilation[0] + 1
    return 0, (high - low - 1) * layer.stride[0] + reach


def _entries(layer: Layer) -> int:
    assert layer.node is not None
    if layer.op not in TABLE_INPUT:
        return 0
    table = layer.node.inputs[TABLE_INPUT[layer.op]]
    return 0 if table is None else table.type.size
