"""Pictures, sounds and sentences, read as each model wants them."""

from __future__ import annotations

import csv
import functools
import gzip
import os
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks.accuracy import Array, Feeds
from benchmarks.accuracy.files import shared

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
IMAGENET_SPLIT = 10  # every tenth picture is for calibration
COCO_SPLIT = 4  # every fourth
RATE = 16000  # of all sounds, in Hz
T = TypeVar("T")


def picture(file: Path, size: tuple[int, int] | None = None) -> Array:
    """A picture as float32 height x width x RGB, 0..255, resized to (width, height)."""
    from PIL import Image

    with Image.open(file) as opened:
        image = opened.convert("RGB")
        return np.asarray(image.resize(size, Image.Resampling.BILINEAR) if size else image, "f4")


def nchw(image: Array) -> Array:
    return np.ascontiguousarray(image.transpose(2, 0, 1)[None], np.float32)


def letterbox(image: Array, size: int, fill: float = 114) -> tuple[Array, float]:
    """The picture in the upper left corner of a square, and the factor it was resized by."""
    from PIL import Image

    factor = size / max(image.shape[:2])
    height, width = (round(e * factor) for e in image.shape[:2])
    small = Image.fromarray(image.astype(np.uint8)).resize((width, height))
    square = np.full((size, size, 3), fill, np.float32)
    square[:height, :width] = np.asarray(small, np.float32)
    return square, factor


# ---- ImageNet ------------------------------------------------------------------------------------
@functools.cache
def imagenet() -> list[tuple[Path, int]]:
    """Every picture with its class, of ../shared or of the folder that INTAGLIO_IMAGENET names."""
    own = os.environ.get("INTAGLIO_IMAGENET")
    folder = Path(own) if own else shared("data/imagenet_val1000_256")
    with (folder / "labels.csv").open() as file:
        return [(folder / name, int(label)) for name, label in csv.reader(file)]


def imagenet_split(calibration: bool, count: int) -> list[tuple[Path, int]]:
    """At most `count` of the pictures to calibrate with, or of the others, spread over all."""
    kept = [p for i, p in enumerate(imagenet()) if (i % IMAGENET_SPLIT == 0) == calibration]
    return spread(kept, count)


def spread(items: Sequence[T], count: int) -> list[T]:
    """`count` of the items at equal distances; all if there are not more."""
    if count >= len(items):
        return list(items)
    return [items[i * len(items) // count] for i in range(count)]


def crop(file: Path, size: int) -> Array:
    """The middle of a picture whose short side becomes size / 0.875."""
    from PIL import Image

    with Image.open(file) as opened:
        image = opened.convert("RGB")
        short = round(size / 0.875)
        if min(image.size) != short:
            factor = short / min(image.size)
            image = image.resize((round(image.width * factor), round(image.height * factor)))
        left, top = (image.width - size) // 2, (image.height - size) // 2
        return np.asarray(image.crop((left, top, left + size, top + size)), np.float32)


# ---- COCO ----------------------------------------------------------------------------------------
@functools.cache
def coco() -> list[tuple[Path, Array]]:
    """Every picture with its boxes: class, left, top, right, bottom in pixels."""
    folder, found = shared("data/coco128_val"), []
    for file in sorted((folder / "images" / "val2017").glob("*.jpg")):
        labels = folder / "labels" / "val2017" / f"{file.stem}.txt"
        text = labels.read_text() if labels.exists() else ""
        rows = np.array([line.split() for line in text.splitlines() if line], np.float64)
        found.append((file, _pixels(rows.reshape(-1, 5), *picture(file).shape[:2])))
    return found


def _pixels(rows: Array, height: int, width: int) -> Array:
    label, x, y, w, h = rows.T
    corners = [(x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height]
    return np.stack([label, *corners], 1)


def coco_split(calibration: bool, count: int = 64) -> list[tuple[Path, Array]]:
    """Those to calibrate with, or the others."""
    kept = [p for i, p in enumerate(coco()) if (i % COCO_SPLIT == 0) == calibration]
    return spread(kept, count)


# ---- digits, MLPerf Tiny -------------------------------------------------------------------------
@functools.cache
def mnist() -> tuple[Array, Array]:
    """The test set: 10,000 pictures 28 x 28, 0..255, and their digits."""
    images, labels = (
        gzip.decompress(shared(f"data/mnist/t10k-{what}-ubyte.gz").read_bytes())
        for what in ("images-idx3", "labels-idx1")
    )
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28)
    return pixels, np.frombuffer(labels, np.uint8, offset=8)


@functools.cache
def arrays(name: str) -> tuple[Array, Array]:
    """x and y of an npz file of ../shared/data."""
    with np.load(shared(f"data/{name}.npz")) as file:
        return file["x"], file["y"]


@functools.cache
def tiny(name: str, shape: tuple[int, ...], dtype: str) -> tuple[Array, Array]:
    """A data set of MLPerf Tiny that is a folder of raw files with a list of labels."""
    folder = shared(f"data/mlperf_tiny/{name}")
    with (folder / "y_labels.csv").open() as file:
        rows = [(row[0], int(row[2])) for row in csv.reader(file)]
    made = [np.fromfile(folder / name, dtype).reshape(shape) for name, _ in rows]
    return np.stack(made), np.array([label for _, label in rows])


# ---- sounds --------------------------------------------------------------------------------------
@functools.cache
def sentence() -> Array:
    """A spoken sentence, -1..1."""
    with wave.open(str(shared("data/audio/speech.wav"))) as file:
        raw = file.readframes(file.getnframes())
    return np.frombuffer(raw, np.int16).astype(np.float32) / 32768


def words(first: int, count: int) -> Array:
    """Spoken commands one after another, -1..1."""
    x, _ = arrays("speech_commands_300")
    return x[first : first + count].astype(np.float32).ravel() / 32768


def with_noise(clean: Array, decibels: float, seed: int) -> Array:
    """The sound with pinkish noise at that distance below it."""
    rng = np.random.default_rng(seed)
    noise = np.convolve(rng.standard_normal(len(clean) + 7), np.ones(8) / 8, "valid")
    noise *= np.sqrt((clean**2).mean() / (noise**2).mean()) * 10 ** (-decibels / 20)
    return (clean + noise).astype(np.float32)


# ---- sentences -----------------------------------------------------------------------------------
@functools.cache
def tokens() -> list[tuple[str, list[int]]]:
    """English sentences with their WordPiece numbers (BERT, uncased)."""
    lines = Path(__file__).with_name("sentences.txt").read_text().splitlines()
    return [(text, list(map(int, ids.split()))) for text, ids in (s.split("|") for s in lines)]


def padded(ids: Sequence[int], length: int) -> Feeds:
    made = np.zeros((2, 1, length), np.int64)
    made[0, 0, : len(ids)], made[1, 0, : len(ids)] = ids, 1
    return {"input_ids": made[0], "attention_mask": made[1]}
