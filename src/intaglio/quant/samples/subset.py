"""A subset of the samples, evenly spaced, for work that would take too long on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

SAMPLES = 24  # samples on which settings are tried


def some_of(samples: Sequence[Any], count: int = SAMPLES) -> list[Any]:
    """A few of the samples, evenly spread."""
    return [samples[i] for i in some_at(len(samples), count)]


def some_at(samples: int, count: int = SAMPLES) -> list[int]:
    """Which of so many samples `some_of` takes."""
    return [int(i) for i in np.unique(np.linspace(0, samples - 1, count).round())]
