"""Constants in the lanes of CV18xx.

A chunk of weights has the same bytes in every lane, one after the other in DDR: the weights of its
outputs, [kernel][input] (depthwise: 16-byte aligned windows), then 9 bytes for each output: bias,
multiplier, shift. One transfer writes all lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array
from intaglio.npu.chips.cv18xx import matmul, window_sum
from intaglio.npu.chips.cv18xx.arithmetic import of_convolution
from intaglio.npu.chips.cv18xx.average import is_average, table, table_bytes
from intaglio.npu.chips.cv18xx.window_sum import is_window_sum
from intaglio.npu.layers import Layer
from intaglio.npu.weight_packing import Atoms, Constants

UNITS = 16  # bytes to which addresses in a lane are aligned
PARAMETERS = np.dtype([("bias", "<i4"), ("multiplier", "<u4"), ("shift", "u1")])
ENTRIES = 256  # of a lookup table
MIN_DOUBLE_INPUTS = 4  # input channels with which the TIU reads two at once


def input_channels(layer: Layer) -> int:
    """Input channels that a convolution reads: one more, of zero weights, if that makes them even.

    Even numbers are twice as fast. The lane of the added channel holds any bytes.
    """
    inputs = layer.reads[0].channels
    return inputs + (inputs % 2 and inputs + 1 >= MIN_DOUBLE_INPUTS)


def depthwise_window(layer: Layer) -> tuple[int, int]:
    """The window of a depthwise convolution: the TIU does not dilate it, so zeros fill it."""
    (kh, kw), (dh, dw) = layer.kernel, layer.dilation
    return (kh - 1) * dh + 1, (kw - 1) * dw + 1


@dataclass(slots=True)
class LaneConstants(Constants):
    """Constants of a layer; `block_bytes` are those of one output channel, in its lane."""

    def chunk(self, blocks: int, align: int) -> int:
        lanes = self.atoms.outputs
        at = self.params_at(blocks * lanes) // lanes
        return lanes * _round_up(at + PARAMETERS.itemsize * blocks)

    def params_at(self, channels: int) -> int:
        lanes = self.atoms.outputs
        return lanes * _round_up(self.weight_bytes(channels) // lanes)

    def param_bytes(self, channels: int) -> int:
        return -(-channels // self.atoms.outputs) * self.atoms.outputs * PARAMETERS.itemsize

    def weight_bytes(self, channels: int) -> int:
        return -(-channels // self.atoms.outputs) * self.atoms.outputs * self.block_bytes

    def chunk_bytes(self, layer: Layer, first: int, blocks: int) -> bytes:
        assert layer.node is not None
        lanes = self.atoms.outputs
        numbers = of_convolution(layer.node)
        some = slice(first * lanes, (first + blocks) * lanes)
        rows = _weight_rows(numbers.weights[some], layer, self.block_bytes)
        quant = np.zeros(len(rows), PARAMETERS)
        quant["bias"], quant["multiplier"] = numbers.bias[some], numbers.multiplier[some]
        quant["shift"] = numbers.shift[some]
        last = quant.view(np.uint8).reshape(len(rows), -1)
        weights = _by_lane(rows.view(np.uint8), lanes, blocks)
        room = _round_up(weights.shape[1]) - weights.shape[1]
        padded = np.pad(weights, ((0, 0), (0, room)))
        return np.concatenate([padded, _by_lane(last, lanes, blocks)], 1).tobytes()


def _weight_rows(w: Array, layer: Layer, size: int) -> Array:
    """The weights of each output channel in the order of the TIU, in `size` bytes."""
    if layer.op == "conv":
        w = np.pad(w, ((0, 0), (0, input_channels(layer) - w.shape[1]), (0, 0), (0, 0)))
        w = w.transpose(0, 2, 3, 1)
    elif layer.dilation != (1, 1):
        spread = np.zeros((len(w), 1, *depthwise_window(layer)), w.dtype)
        spread[:, :, :: layer.dilation[0], :: layer.dilation[1]] = w
        w = spread
    rows = np.ascontiguousarray(w).reshape(len(w), -1)
    return np.ascontiguousarray(np.pad(rows, ((0, 0), (0, size - rows.shape[1]))))


def _by_lane(rows: Array, lanes: int, blocks: int) -> Array:
    """Rows of channels as one row for each lane; channels beyond the last are zeros."""
    padded = np.pad(rows, ((0, lanes * blocks - len(rows)), (0, 0)))
    turned = padded.reshape(blocks, lanes, -1).transpose(1, 0, 2)
    return np.ascontiguousarray(turned).reshape(lanes, -1)


def constants(layer: Layer, lanes: int) -> Constants | None:
    """The constants of a layer; None if it has none."""
    if layer.op == "lut":
        raw = bytes_of_table(layer).tobytes() * lanes
        return LaneConstants(Atoms(1, lanes), 0, 0, raw, ENTRIES)
    if is_average(layer):
        raw = _average_tables(layer, lanes).tobytes()
        return LaneConstants(Atoms(1, lanes), 0, 0, raw, len(raw))
    if is_window_sum(layer):
        raw = window_sum.table(layer, lanes).tobytes()
        return LaneConstants(Atoms(1, lanes), 0, 0, raw, len(raw))
    if layer.op == "matmul":
        raw = matmul.table(layer, lanes).tobytes()
        return LaneConstants(Atoms(1, lanes), 0, 0, raw, len(raw))
    if not layer.is_product:
        return None
    deep = layer.op == "conv"
    high, wide = layer.kernel if deep else depthwise_window(layer)
    size = high * wide * input_channels(layer) if deep else _round_up(high * wide)
    return LaneConstants(Atoms(2 if deep else 1, lanes), -(-layer.dst.channels // lanes), size)


def _average_tables(layer: Layer, lanes: int) -> Array:
    """The numbers of an average pool: by lane, those for each number of pixels."""
    assert layer.node is not None
    made = []
    for bias, multiplier, shift in table(layer.node).T:
        quant = np.zeros(layer.dst.channels, PARAMETERS)
        quant["bias"], quant["multiplier"], quant["shift"] = bias, multiplier, shift
        rows = quant.view(np.uint8).reshape(len(quant), -1)
        by_lane = _by_lane(rows, lanes, -(-len(quant) // lanes))
        room = table_bytes(len(quant), lanes) - by_lane.shape[1]
        made.append(np.pad(by_lane, ((0, 0), (0, room))))
    return np.ascontiguousarray(np.concatenate(made, 1))


def bytes_of_table(layer: Layer) -> Array:
    """The 256 results of a lookup table, by the byte that it maps."""
    assert layer.node is not None
    x, table = layer.node.inputs
    assert x is not None
    assert table is not None
    assert table.data is not None
    numbers = np.arange(ENTRIES, dtype=np.uint8).view(dtypes.numpy_of(x.dtype)).astype(np.int64)
    index = np.clip(numbers - layer.attrs["base"], 0, table.type.size - 1)
    return np.asarray(table.data[index]).view(np.uint8)


def _round_up(n: int) -> int:
    return -(-n // UNITS) * UNITS
