"""A subset of the samples, evenly spaced, for work that would take too long on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

COMPARED_SAMPLES = 24  # samples on which models are compared


def evenly_spaced(samples: Sequence[Any], count: int = COMPARED_SAMPLES) -> list[Any]:
    """At most `count` of the samples, evenly spaced."""
    return [samples[i] for i in evenly_spaced_indices(len(samples), count)]


def evenly_spaced_indices(samples: int, count: int = COMPARED_SAMPLES) -> list[int]:
    """The numbers of the samples that `evenly_spaced` takes."""
    return [int(i) for i in np.unique(np.linspace(0, samples - 1, count).round())]
