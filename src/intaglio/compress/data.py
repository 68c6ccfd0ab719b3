"""Labelled data for training: arrays, or a folder of pictures with one sub-folder per class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intaglio.array_files import read_npz
from intaglio.errors import BadFile, BadInput
from intaglio.ir import Array

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")


@dataclass
class Labelled:
    """Inputs and labels. Bytes become floats batch by batch: (x - mean) / std."""

    x: Array  # samples × the model's input without its batch axis
    y: Array  # class numbers
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    channel: int = 1  # axis of channels, counted with the batch axis

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise BadInput(f"data: {len(self.x)} inputs and {len(self.y)} labels; give as many")
        if not len(self.x):
            raise BadInput("data: there are no samples; give at least one")
        y = np.asarray(self.y)
        if y.size != len(y) or not (np.isreal(y).all() and np.array_equal(y, np.round(y))):
            raise BadInput(
                f"data: labels are {y.dtype} of shape {y.shape}; give one class number for each "
                "sample, such as scores.argmax(1)"
            )
        self.y = y.reshape(-1).astype(np.int64)
        if self.y.min() < 0:
            raise BadInput(f"data: a label is {self.y.min()}; classes are counted from 0")

    def __len__(self) -> int:
        return len(self.x)

    def floats(self, x: Array) -> Tensor:
        """Some samples as the model takes them."""
        shape = [1] * x.ndim
        shape[self.channel] = -1
        mean = np.asarray(self.mean, np.float32).reshape(shape)
        std = np.asarray(self.std, np.float32).reshape(shape)
        return torch.from_numpy((x.astype(np.float32) - mean) / std)

    def batches(self, size: int, rng: np.random.Generator | None = None, flip: bool = False,
                crop: int = 0) -> Iterator[tuple[Tensor, Tensor]]:  # fmt: skip
        """Batches in order, or shuffled and augmented by `rng`; a last part batch is left out."""
        order = np.arange(len(self)) if rng is None else rng.permutation(len(self))
        last = len(self) if rng is None else max(len(self) // size, 1) * size
        for i in range(0, last, size):
            at = order[i : i + size]
            x = self.x[np.sort(at)] if rng is None else self.x[at]
            if rng is not None:
                x = augmented(x, rng, flip, crop, self.channel)
            yield self.floats(x), torch.from_numpy(self.y[at])


def augmented(x: Array, rng: np.random.Generator, flip: bool, crop: int, channel: int) -> Array:
    """Pictures mirrored at random, and moved by up to `crop` pixels with borders of 0."""
    if not (flip or crop) or x.ndim != 4:
        return x
    rows, columns = (2, 3) if channel == 1 else (1, 2)
    if flip:
        turned = rng.random(len(x)) < 0.5
        x = x.copy()
        x[turned] = np.flip(x[turned], columns)
    if not crop:
        return x
    width = [(0, 0)] * 4
    width[rows] = width[columns] = (crop, crop)
    wide, out = np.pad(x, width), np.empty_like(x)
    by = rng.integers(0, 2 * crop + 1, (len(x), 2))
    for i, (a, b) in enumerate(by):
        at = [slice(None)] * 3
        at[rows - 1], at[columns - 1] = (
            slice(a, a + x.shape[rows]), slice(b, b + x.shape[columns])
        )  # fmt: skip
        out[i] = wide[i][tuple(at)]
    return out


def read(source: Any, shape: tuple[int, ...], channel: int = 1, **scaling: Any) -> Labelled:
    """Data from an .npz file with `x` and `y`, or a folder of pictures in a folder per class.

    `shape` is the model's input with its batch axis. Pictures are resized to it.
    """
    path = Path(source)
    if path.is_dir():
        x, y = _folder(path, shape, channel)
    elif path.suffix == ".npz" and path.exists():
        arrays = read_npz(path)
        missing = [k for k in ("x", "y") if k not in arrays]
        if missing:
            raise BadInput(f"{path}: array '{missing[0]}' is missing; it needs x and y")
        x, y = arrays["x"], arrays["y"]
    else:
        raise BadInput(
            f"data is '{source}'; give an .npz file with x and y, or a folder with one folder of "
            "pictures per class"
        )
    if x.shape[1:] != shape[1:] and x.ndim == 4 and len(shape) == 4:
        turned = x.transpose(0, 3, 1, 2) if channel == 1 else x.transpose(0, 2, 3, 1)
        x = np.ascontiguousarray(turned) if turned.shape[1:] == shape[1:] else x
    if x.shape[1:] != shape[1:]:
        raise BadInput(
            f"{path}: samples are {tuple(x.shape[1:])}, the model takes {tuple(shape[1:])}; give "
            "samples of this shape"
        )
    return Labelled(x, y, channel=channel, **scaling)


def _folder(path: Path, shape: tuple[int, ...], channel: int) -> tuple[Array, Array]:
    from PIL import Image, UnidentifiedImageError

    classes = sorted(p for p in path.iterdir() if p.is_dir())
    if not classes:
        raise BadInput(f"{path}: there is no folder in it; give one folder of pictures per class")
    size = (shape[3], shape[2]) if channel == 1 else (shape[2], shape[1])
    grey = shape[channel] == 1
    x, y = [], []
    for label, folder in enumerate(classes):
        for file in sorted(folder.iterdir()):
            if file.suffix.lower() in PICTURES:
                try:
                    with Image.open(file) as picture:
                        small = picture.convert("L" if grey else "RGB").resize(size)
                except (OSError, ValueError, SyntaxError) as e:
                    words = "no picture" if isinstance(e, UnidentifiedImageError) else str(e)
                    raise BadFile(f"{file}: cannot be read ({words}); remove it") from None
                pixels = np.asarray(small).reshape(size[1], size[0], -1)
                x.append(pixels.transpose(2, 0, 1) if channel == 1 else pixels)
                y.append(label)
    if not x:
        raise BadInput(
            f"{path}: there are no pictures in its folders ({', '.join(PICTURES)}); give one "
            "folder of pictures per class"
        )
    return np.stack(x), np.array(y)
