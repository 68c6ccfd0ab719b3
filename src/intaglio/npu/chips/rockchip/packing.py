"""Weights and numbers per channel as Rockchip's NPU reads them."""

from __future__ import annotations

import numpy as np

from intaglio.ir import Array
from intaglio.npu.chips.rockchip.geometry import RK3588, WEIGHT_CHANNELS, Design, round_up

INPUTS = 32  # of a block of weights


def weights(values: Array, zeros: Array, design: Design = RK3588, held: int = 0) -> bytes:
    """Bytes of int8 weights [outputs, inputs, height, width] with a zero point for each output.

    Blocks of the outputs that are computed at a time; in each, blocks of 32 inputs (the last one
    16, if 16 do); in each, the kernel's positions; in each, outputs by inputs. The
    number of outputs is even on some chips. `held`: inputs with those that fill up, whose weights
    are 0.
    """
    outputs, inputs, _, _ = values.shape
    kernels = round_up(outputs, 2) if design.even else outputs
    held = held or round_up(inputs, WEIGHT_CHANNELS)
    padded = np.zeros((kernels, held, *values.shape[2:]), np.int8)
    padded[:outputs] = zeros.reshape(-1, 1, 1, 1)
    padded[:outputs, :inputs] = values
    parts = []
    for first in range(0, len(padded), design.outputs):
        block = padded[first : first + design.outputs]
        for start in range(0, block.shape[1], INPUTS):
            parts.append(block[:, start : start + INPUTS].transpose(2, 3, 0, 1).tobytes())
    return b"".join(parts)


def depthwise_weights(values: Array, zeros: Array, channels: int, design: Design = RK3588) -> bytes:
    """Bytes of int8 weights [channels, 1, height, width]; `channels`: with those that fill up.

    Some chips read each weight as a sum of two bytes: itself and its zero point, negated.
    """
    padded = np.full((channels, *values.shape[2:]), zeros[0], np.int8)
    padded[: len(values)] = values[:, 0]
    block, parts = 2 * design.outputs, []
    others = np.full(channels, -zeros[0], np.int8)
    others[: len(values)] = -zeros
    for start in range(0, channels, block):
        part = padded[start : start + block].transpose(1, 2, 0)
        if design.pairs:
            other = np.broadcast_to(others[start : start + block], part.shape)
            several = [v.reshape(*part.shape[:2], -1, design.pairs) for v in (part, other)]
            part = np.stack(several, 3)
        parts.append(part.tobytes())
    return b"".join(parts)


def channels(
    bias: Array, zeros: Array | None, multipliers: Array, count: int, design: Design = RK3588
) -> bytes:
    """For each 8 or 4 channels: 32-bit biases, 16-bit zero points of weights, multipliers.

    Zero points are stored with the opposite sign: the unit adds them. None: weights hold them.
    """
    table = np.zeros((count // design.group, design.group), "<i4")
    given = [bias, multipliers] if zeros is None else [bias, -zeros, multipliers]
    parts = [table, *(table.astype("<i2") for _ in given[1:])]
    for part, values in zip(parts, given, strict=True):
        part.reshape(-1)[: len(values)] = values
    rows = zip(*parts, strict=True)
    return b"".join(part.tobytes() for row in rows for part in row)
