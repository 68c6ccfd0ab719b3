"""Datasets of `ncc`: a folder of pictures, or of raw tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, BadInput
from intaglio.ir import Array, Type
from intaglio.quant.samples.images import open_picture, pillow

FORMATS = ("image", "raw")
CHANNELS = (1, 3)  # of pictures


def files(folder: str) -> list[Path]:
    """The files of a folder, sorted by name."""
    place = Path(folder)
    if not place.is_dir():
        raise BadFile(f"--dataset: there is no folder '{place}'; give a folder of samples")
    found = sorted(p for p in place.iterdir() if p.is_file() and not p.name.startswith("."))
    if not found:
        raise BadFile(f"--dataset: the folder '{place}' is empty; put samples into it")
    return found


def read(folder: str, form: str, types: Mapping[str, Type], layout: str) -> list[dict[str, Array]]:
    """All samples of a folder."""
    return [one(path, form, types, layout) for path in files(folder)]


def one(path: Path, form: str, types: Mapping[str, Type], layout: str) -> dict[str, Array]:
    """The inputs in one file."""
    if form == "raw":
        return _raw(path, types)
    if len(types) != 1:
        raise BadInput(
            f"--dataset-format image is for models with one input, this one has {len(types)}; "
            "use raw"
        )
    name, t = next(iter(types.items()))
    return {name: _picture(path, name, t, layout)}


def _raw(path: Path, types: Mapping[str, Type]) -> dict[str, Array]:
    data = np.fromfile(path, np.uint8)
    kinds = {n: np.dtype(dtypes.numpy_of(t.dtype)) for n, t in types.items()}
    needed = sum(t.size * kinds[n].itemsize for n, t in types.items())
    if data.size != needed:
        wanted = ", ".join(f"'{n}' {t}" for n, t in types.items())
        raise BadFile(f"'{path}' has {data.size} bytes, the model takes {needed}: {wanted}")
    found, start = {}, 0
    for name, t in types.items():
        size = t.size * kinds[name].itemsize
        found[name] = data[start : start + size].view(kinds[name]).reshape(t.shape)
        start += size
    return found


def _picture(path: Path, name: str, t: Type, layout: str) -> Array:
    """A picture in RGB or grey, resized: bytes, or floats from 0 to 1."""
    last = _is_last(name, t, layout)
    height, width = t.shape[1:3] if last else t.shape[2:]
    picture = open_picture(path, t.shape[3] if last else t.shape[1])
    resized = picture.resize((width, height), pillow().Resampling.BILINEAR)
    pixels = np.asarray(resized, np.uint8).reshape(height, width, -1)
    array = pixels[None] if last else pixels.transpose(2, 0, 1)[None]
    if dtypes.is_float(t.dtype):
        return np.ascontiguousarray(array / np.float32(255), np.float32)
    if t.dtype == "i8":
        return (array.astype(np.int16) - 128).astype(np.int8)
    return np.ascontiguousarray(array)


def _is_last(name: str, t: Type, layout: str) -> bool:
    """Whether the channels are the last axis."""
    if t.rank == 4:
        order = (3, 1) if layout == "NHWC" else (1, 3)
        for axis in order:
            if t.shape[axis] in CHANNELS:
                return axis == 3
    raise BadInput(
        f"input '{name}' {t} is no picture with 1 or 3 channels; use --dataset-format raw"
    )
