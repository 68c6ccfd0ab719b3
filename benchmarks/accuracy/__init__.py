"""How much accuracy quantisation costs, ours and the peers', on real models and real data.

A task is one model (or a chain of them) with its data and its metric. Every engine quantises the
same ONNX files from the same calibration samples and answers the same questions, none of which is
a calibration sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
Feeds = dict[str, Array]
Run = Callable[[Feeds], list[Array]]  # one run of one model: outputs in the model's order


class Missing(Exception):
    """A model or data that is not there, and how to get it."""


@dataclass
class Score:
    """What one engine reached: more is better, in percent or decibels."""

    value: float
    parts: list[float] = field(default_factory=list)  # by sample, where the value is their mean
    more: dict[str, float] = field(default_factory=dict)  # other figures worth to know


@dataclass(frozen=True)
class Task:
    """One model, its data and its metric."""

    metric: str  # with its unit: "top-1 %"
    file: Callable[[], Path]  # the ONNX file; Missing if it cannot be had
    calibration: Callable[[int], Sequence[Feeds]]  # that many samples
    evaluation: Callable[[int], Iterable[Feeds]]  # at most that many samples
    score: Callable[[list[list[Array]], list[list[Array]]], Score]  # of answers beside the float's
    samples: int = 100  # to evaluate; all there are if there are fewer
    quick: int = 50
    calibrate: int = 32
    agreement: bool = False  # the metric compares with what the float model answers
    dynamic: bool = False  # a net of products, which onnxruntime quantises dynamically
    int4: bool = False  # a transformer, whose weights may have four bits
    keep: Callable[[list[Array]], list[Array]] = list  # what the score needs of an answer
    feed: Callable[[Any], Feeds] | None = None  # of one picture, for detectors

    def files(self) -> dict[str, Path]:
        return {"model": self.file()}

    def calibration_by_file(self, floats: dict[str, Run]) -> dict[str, Sequence[Feeds]]:
        """Calibration samples of each file; a chain makes the later ones with the float models."""
        return {"model": self.calibration(self.calibrate)}

    def answers(self, runs: dict[str, Run], quick: bool) -> list[Any]:
        count = self.quick if quick else self.samples
        return [self.keep(runs["model"](feeds)) for feeds in self.evaluation(count)]
