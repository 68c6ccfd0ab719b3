"""The tables in static memory, which the firmware loads: powers of e, series of functions."""

from __future__ import annotations

import math

import numpy as np

from intaglio.ir import Array
from intaglio.npu.chips.bm1684x.lanes import STATIC


def contents() -> Array:
    """The bytes of static memory."""
    factorials = [math.factorial(i) for i in range(64)]
    powers = [math.exp(i) for i in range(-103, 89)]
    log = [0.0] + [(-1) ** (i + 1) / i for i in range(1, 64)]
    parts = [
        _floats(powers, 256),
        _floats([1 / f for f in factorials[:32]], 32),
        _floats(log, 64),
        np.zeros(16, np.uint32),
        np.arange(64, dtype=np.uint32),
    ]
    data = np.concatenate(parts).view(np.uint8)
    memory = np.zeros(STATIC, np.uint8)
    memory[: len(data)] = data
    return memory


def _floats(values: list[float], room: int) -> Array:
    words = np.zeros(room, np.uint32)
    words[: len(values)] = np.array(values, np.float32).view(np.uint32)
    return words
