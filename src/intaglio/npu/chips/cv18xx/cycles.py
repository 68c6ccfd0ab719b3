"""Cycles of the TIU for a layer, by which tiling chooses bands and groups.

The figures are those of tpu-mlir's cycle model (CV18xx_profiling.cpp): each lane computes one
channel, sixteen pixels at once.
"""

from __future__ import annotations

import math

from intaglio.npu.chips.cv18xx.average import is_average
from intaglio.npu.chips.cv18xx.constants import (
    MIN_DOUBLE_INPUTS,
    UNITS,
    depthwise_window,
    input_channels,
)
from intaglio.npu.chips.cv18xx.window_sum import is_window_sum
from intaglio.npu.layers import Layer

START = 72  # cycles until the first result of a convolution, and after the last
COMMAND = 38  # the same for element-wise commands
LEAST = 16  # of a step with a multiplier for each channel
# cycles of a step, by element-wise command
WINDOW_SUM = 8.0
MULTIPLY, ADD, ACCUMULATE, COPY, LOOKUP = 5.5, 7.5, 12.0, 5.0, 19.0


def cycles(layer: Layer, rows: int, lanes: int) -> float:
    """Cycles for `rows` rows of the result of one image."""
    blocks = -(-layer.dst.channels // lanes)
    steps = blocks * -(-rows * layer.dst.map.width // UNITS)
    if layer.op == "conv":
        return START + steps * _conv(layer)
    if layer.op == "matmul":
        depth, terms = layer.reads[0].channels, 1 + sum(map(bool, _zeros(layer)[:2]))
        step = max(depth // 2 if depth % 2 == 0 else depth, LEAST)
        return terms * (blocks * START + steps * step) + steps * (COPY if terms > 1 else 0)
    if layer.op == "depthwise":
        taps = math.prod(depthwise_window(layer))
        return START + steps * (max(taps * _fetches(layer, taps), LEAST) + 3)
    if layer.op == "pool":
        taps = math.prod(layer.kernel)
        if is_average(layer):  # about nine commands: corners, edges, and what they enclose
            return 9 * START + steps * (max(taps * _fetches(layer, taps), LEAST) + 3)
        return START + steps * (taps * _fetches(layer, taps) + 2)
    if is_window_sum(layer):
        return COMMAND + steps * WINDOW_SUM
    if layer.op == "eltwise" and layer.attrs["kind"] == "mul":
        return _product(layer, steps)
    if layer.op == "eltwise":
        return 3 * COMMAND + steps * (MULTIPLY + ADD + ACCUMULATE)
    if layer.op == "lut":
        return COMMAND + steps * LOOKUP
    copies = math.prod(layer.factor)
    return copies * COMMAND + steps * COPY


def _conv(layer: Layer) -> int:
    """Cycles of a step: one for each tap and one or two input channels."""
    inputs, taps = input_channels(layer), math.prod(layer.kernel)
    double = inputs % 2 == 0 and inputs >= MIN_DOUBLE_INPUTS
    fetches = -(-((UNITS - 1) * layer.stride[1] + 1) // UNITS) + 1
    waits = taps * max(fetches - inputs, 0)
    return max(taps * (inputs // 2 if double else inputs) + waits + 1, LEAST)


def _fetches(layer: Layer, taps: int) -> float:
    """Reads of a row for each tap: several where rows are short or the stride is large."""
    if taps == 1:
        return 1.0
    wide = min(layer.dst.map.width, UNITS)
    read = ((wide - 1) * layer.stride[1] + 1) / UNITS * (UNITS / wide)
    return read + (UNITS - 1) / UNITS


def _product(layer: Layer, steps: int) -> float:
    """A product of two maps: commands for each zero point."""
    zeros = _zeros(layer)
    terms, sums = 1 + sum(map(bool, zeros[:2])), sum(map(bool, zeros))
    return (terms + sums) * COMMAND + steps * (terms * MULTIPLY + sums * ADD)


def _zeros(layer: Layer) -> list[int]:
    return [layer.attrs[k] for k in ("a_zero", "b_zero", "y_zero")]
