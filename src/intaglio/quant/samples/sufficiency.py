"""Early stopping of calibration: stop once another block of samples hardly changes the ranges.

Samples are observed in blocks. Each block is compared with the ranges of the blocks before it: if
clipping its values to those ranges adds little to the rounding error, no further block is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from intaglio.errors import option
from intaglio.quant.ranges.observe import Observation, widened

MAY_STOP_EARLY = 64  # calibration with at most this many samples uses them all
FIRST = 8  # samples in the first block
BLOCK = 8  # samples in each further block
SHARE = 0.1  # greatest clipping error of a block, relative to the rounding error, to stop
EARLY = 0.02  # the same for the second block: the ranges before it are from few samples


def spread(count: int) -> list[int]:
    """The numbers below `count` in bit-reversed order: every prefix is evenly spread."""
    bits = max((count - 1).bit_length(), 1)
    reversed_bits = (int(f"{i:0{bits}b}"[::-1], 2) for i in range(1 << bits))
    return [i for i in reversed_bits if i < count]


class Sufficiency:
    """Decides after each block of samples whether the ranges are settled."""

    def __init__(self, steps: int = 255):
        """`steps` is the number of quantisation steps in a range."""
        self.steps = steps
        self.before: list[tuple[float, float, np.ndarray, int]] = []
        self.judged = 0  # number of blocks compared
        self.share = float("inf")  # clipping error of the last block / rounding error

    def sizes(self) -> Iterator[int]:
        """The number of samples in each block."""
        self.before, self.judged = [], 0
        return itertools.chain([FIRST], itertools.repeat(BLOCK))

    def reached(self, seen: Iterable[Observation]) -> bool:
        """Are the ranges settled after this block?"""
        every = list(seen)
        before, self.before = self.before, [(o.low, o.high, o.counts, o.exponent) for o in every]
        if not before:
            return False
        cut, rounded = 0.0, 0.0
        for o, (low, high, counts, exponent) in zip(every, before, strict=True):
            new = o.counts - widened(counts, o.exponent - exponent)
            bins = len(new) // 2
            at = (np.arange(2 * bins) - bins + 0.5) * (2.0**o.exponent / bins)
            power = float(new @ (at * at))
            if power > 0:
                low, high = min(low, 0.0), max(high, 0.0)
                over = np.maximum(np.maximum(at - high, low - at), 0.0)
                cut += float(new @ (over * over)) / power
                rounded += float(new.sum()) * ((high - low) / self.steps) ** 2 / 12 / power
        self.share = cut / rounded if rounded else (np.inf if cut else 0.0)
        self.judged += 1
        return self.share <= (EARLY if self.judged == 1 else SHARE)

    def words(self, used: int, given: int) -> str:
        """The message for the user."""
        return (
            f"{used} of {given} samples were used: the last {BLOCK} would change the error by only "
            f"{self.share:.1%}; set {option('limit', given)} to use all"
        )
