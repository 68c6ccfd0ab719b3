"""Predictions: the detections or classes of a picture, as text, as data and as a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.ir import Array
from intaglio.vision import draw
from intaglio.vision.labels import name_of
from intaglio.vision.masks import overlay, run_lengths, tinted
from intaglio.vision.recognize import CLASSIFIER

SUM_TOLERANCE = 0.15  # of probabilities: int8 rounds small ones to zero


@dataclass(frozen=True)
class Detection:
    """An object in a picture; its box is left, top, right, bottom in pixels of the picture."""

    label: int
    name: str
    score: float
    box: tuple[float, float, float, float]
    mask: Array | None = field(default=None, repr=False, compare=False)  # of the box's pixels

    def to_dict(self) -> dict[str, Any]:
        return {
            "class": self.label,
            "name": self.name,
            "score": round(self.score, 4),
            "box": [round(n, 1) for n in self.box],
        }


@dataclass(frozen=True)
class ClassScore:
    """A class of a picture."""

    label: int
    name: str
    score: float

    def to_dict(self) -> dict[str, Any]:
        return {"class": self.label, "name": self.name, "score": round(self.score, 6)}


@dataclass(frozen=True)
class Prediction:
    """What a model says about one picture."""

    picture: str  # its name
    image: Any = field(repr=False)  # as a Pillow image
    decoder: str | None  # None: the outputs are not decoded
    outputs: dict[str, Array] = field(repr=False)
    detections: list[Detection] = field(default_factory=list)
    classes: list[ClassScore] = field(default_factory=list)
    kind: str = ""  # of class scores: "probabilities", "softmax of logits" or "scores"

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture."""
        width, height = self.image.size
        return width, height

    def to_dict(self) -> dict[str, Any]:
        """The prediction as JSON data."""
        width, height = self.size
        results: dict[str, Any] = {"picture": self.picture, "width": width, "height": height}
        results["decoder"] = self.decoder
        if self.decoder == CLASSIFIER:
            return results | {"scores": self.kind, "classes": [c.to_dict() for c in self.classes]}
        found = [
            d.to_dict()
            | ({} if d.mask is None else {"mask": run_lengths(d.mask, d.box, (height, width))})
            for d in self.detections
        ]
        return results | {"detections": found}

    def __str__(self) -> str:
        head = f"{self.picture} ({self.size[0]}x{self.size[1]}): "
        if self.decoder == CLASSIFIER:
            lines = [f"  {c.name:16} {c.score:.4f}" for c in self.classes]
            return "\n".join([f"{head}top {len(lines)} ({self.kind})", *lines])
        lines = [
            f"  {d.name:16} {d.score:.2f}  " + "{:.0f},{:.0f} to {:.0f},{:.0f}".format(*d.box)
            for d in self.detections
        ]
        count = f"{len(lines)} object{'s' * (len(lines) != 1)}" if lines else "no objects"
        return "\n".join([f"{head}{count}", *lines])

    def draw(self, path: str | Path | None = None) -> Any:
        """The picture with its boxes or classes, as a Pillow image; written to `path` if given."""
        if self.decoder == CLASSIFIER:
            result = draw.draw_lines(self.image, [f"{c.name} {c.score:.2f}" for c in self.classes])
        else:
            boxes = [(d.label, f"{d.name} {d.score:.2f}", d.box) for d in self.detections]
            image = tinted(self.image, self._tints()) if self._tints() else self.image
            result = draw.draw_boxes(image, boxes)
        if path is not None:
            draw.save_picture(result, path)
        return result

    def masks(self) -> Any:
        """The masks of the instances in colours on nothing, as a Pillow image; None without any."""
        found = self._tints()
        return overlay(found, self.size[::-1]) if found else None

    def _tints(self) -> list[tuple[tuple[int, int, int], Array, tuple[float, float, float, float]]]:
        return [
            (draw.colour(d.label), d.mask, d.box) for d in self.detections if d.mask is not None
        ]


def top_classes(
    output: Array, count: int, labels: Sequence[str] | None
) -> tuple[list[ClassScore], str]:
    """The `count` best classes, and what their scores are."""
    scores, kind = probabilities(output)
    best = np.argsort(-scores, kind="stable")[:count]
    return [ClassScore(int(i), name_of(int(i), labels), float(scores[i])) for i in best], kind


def probabilities(output: Array) -> tuple[Array, str]:
    """One score for each class, and what they are; softmax is applied to logits alone."""
    x = output.astype(np.float64).reshape(-1)
    if output.dtype.kind != "f":
        return x, "integers without a scale"
    if x.min() < -1e-3 or x.max() > 1 + 1e-3:
        e = np.exp(x - x.max())
        return e / e.sum(), "softmax of logits"
    return x, "probabilities" if abs(x.sum() - 1) < SUM_TOLERANCE else "scores"
