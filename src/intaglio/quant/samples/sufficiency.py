"""How many samples are enough: when those to come would hardly reach beyond the ranges so far.

After the first samples every block of them is judged by the ranges of all before it: what would be
cut off costs little beside what rounding costs anyway, or the next block is looked at too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from intaglio.quant.ranges.observe import Observation, widened

FIRST = 8  # samples that make the first ranges
BLOCK = 8  # samples that are judged by the ranges of those before
SHARE = 0.1  # of what rounding costs: ranges are settled where cutting a block costs less,
EARLY = 0.02  # and where it costs that much less by the first ranges, which few samples made


def spread(count: int) -> list[int]:
    """All numbers below `count` in an order of which every beginning is spread over them evenly."""
    bits = max((count - 1).bit_length(), 1)
    turned = (int(f"{i:0{bits}b}"[::-1], 2) for i in range(1 << bits))
    return [i for i in turned if i < count]


class Sufficiency:
    """Tells after blocks of samples whether more of them would change what matters."""

    def __init__(self, steps: int = 255):
        """`steps` is how many a range is cut into."""
        self.steps = steps
        self.before: list[tuple[float, float, np.ndarray, int]] = []
        self.judged = 0  # blocks
        self.share = float("inf")  # of the rounding error, that the last block would have added

    def sizes(self) -> Iterator[int]:
        """How many samples there are in every block."""
        self.before, self.judged = [], 0
        return itertools.chain([FIRST], itertools.repeat(BLOCK))

    def reached(self, seen: Iterable[Observation]) -> bool:
        """Are the ranges settled, by what was seen until the end of a block?"""
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
        """What a user should know of it."""
        return (
            f"{used} of {given} samples were used: what the last {BLOCK} of them hold beyond the "
            f"ranges of those before costs {self.share:.1%} of what rounding costs, so that more "
            f"would change little; set the limit to {given} to use all"
        )
