"""Weights and numbers per channel as Rockchip's NPU reads them."""

from __future__ import annotations

import numpy as np

from intaglio.ir import Array

OUTPUTS, INPUTS = 32, 32  # of a block of weights
DEPTHWISE = 64  # channels of a block
CHANNELS = 8  # that stand together in the table of biases, zero points and multipliers


def weights(values: Array, zeros: Array) -> bytes:
    """Bytes of int8 weights [outputs, inputs, height, width] with a zero point for each output.

    Blocks of 32 outputs; in each, blocks of 32 inputs (the last one 16, if 16 do); in each, the
    kernel's positions; in each, outputs by inputs. The number of outputs is even. Inputs that
    fill up have weights of 0.
    """
    outputs, inputs, _, _ = values.shape
    padded = np.zeros((outputs + outputs % 2, -(-inputs // 16) * 16, *values.shape[2:]), np.int8)
    padded[:outputs] = zeros.reshape(-1, 1, 1, 1)
    padded[:outputs, :inputs] = values
    parts = []
    for first in range(0, len(padded), OUTPUTS):
        block = padded[first : first + OUTPUTS]
        for start in range(0, block.shape[1], INPUTS):
            parts.append(block[:, start : start + INPUTS].transpose(2, 3, 0, 1).tobytes())
    return b"".join(parts)


def depthwise_weights(values: Array, zeros: Array, channels: int) -> bytes:
    """Bytes of int8 weights [channels, 1, height, width]; `channels`: with those that fill up."""
    padded = np.full((channels, *values.shape[2:]), zeros[0], np.int8)
    padded[: len(values)] = values[:, 0]
    starts = range(0, channels, DEPTHWISE)
    return b"".join(padded[s : s + DEPTHWISE].transpose(1, 2, 0).tobytes() for s in starts)


def channels(bias: Array, zeros: Array, multipliers: Array, count: int) -> bytes:
    """For each 8 channels: 32-bit biases, then 16-bit zero points of weights, then multipliers.

    Zero points are stored with the opposite sign: the unit adds them.
    """
    table = np.zeros((count // CHANNELS, CHANNELS), "<i4")
    parts = [table, table.astype("<i2"), table.astype("<i2")]
    for part, values in zip(parts, (bias, -zeros, multipliers), strict=True):
        part.reshape(-1)[: len(values)] = values
    rows = zip(*parts, strict=True)
    return b"".join(part.tobytes() for row in rows for part in row)
