"""Samples of `dataset.txt`: a line per sample, a picture or .npy file for each input."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.array_files import read_npy
from intaglio.compat.rknn.config import Config
from intaglio.compat.rknn.inputs import InputInfo
from intaglio.errors import BadFile, BadInput
from intaglio.ir import Array, Type
from intaglio.quant.samples import images

Sample = dict[str, Array]
WORD = re.compile(r"\"[^\"]*\"|'[^']*'|\S+")


def read_list(dataset: Any, count: int) -> list[list[Path]]:
    """The files of every line, relative to the list's own folder; `count` files on each line."""
    if dataset is None:
        raise BadInput(
            "dataset is not given; quantising needs samples; give dataset='dataset.txt', a text "
            "file with the path of a picture or .npy on each line, or do_quantization=False"
        )
    if not isinstance(dataset, str | os.PathLike):
        raise BadInput(f"dataset is {dataset!r}; give the path of a text file")
    path = Path(dataset)
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise BadFile(f"dataset: '{path}' is no text file; write the paths into one") from None
    except OSError as e:
        raise BadFile(f"dataset: cannot read '{path}': {(e.strerror or '').lower()}") from None
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        if files := _files(line, path.parent, count):
            _check(files, count, f"dataset: {path}, line {number}")
            lines.append(files)
    if not lines:
        raise BadInput(f"dataset: '{path}' lists no files; write a line for each sample")
    return lines


def _files(line: str, folder: Path, count: int) -> list[Path]:
    """The paths on a line; one with blanks may be quoted, or stand alone on its line."""
    whole = folder / line.strip()
    if count == 1 and line.strip() and whole.is_file():
        return [whole]
    words = [word.strip("\"'") for word in WORD.findall(line)]
    here = words and all(Path(w).is_file() and not (folder / w).is_file() for w in words)
    return [Path(w) if here else folder / w for w in words]  # some lists are relative to the cwd


def _check(files: Sequence[Path], count: int, where: str) -> None:
    if len(files) != count:
        raise BadInput(f"{where}: {len(files)} files, the model has {count} inputs; give one each")
    for file in files:
        if not file.is_file():
            raise BadFile(f"{where}: there is no file '{file}'; paths are relative to the list")


class Samples:
    """Normalised samples, loaded one by one: {input: array with the axes of the model}."""

    def __init__(self, lines: Sequence[Sequence[Path]], infos: Sequence[InputInfo], config: Config):
        self.lines, self.infos, self.config = lines, infos, config

    def __len__(self) -> int:
        return len(self.lines)

    def __iter__(self) -> Iterator[Sample]:
        for files in self.lines:
            raw = read_sample(files, self.infos, self.config)
            yield {i.name: _typed(i, i.normalized(raw[i.name])) for i in self.infos}


def _typed(info: InputInfo, array: Array) -> Array:
    from intaglio import dtypes

    return np.ascontiguousarray(array, dtypes.numpy_of(info.dtype))


def read_sample(files: Sequence[Path | str], infos: Sequence[InputInfo], config: Config) -> Sample:
    """One sample before normalisation, with the axes of the model."""
    if len(files) != len(infos):
        names = ", ".join(i.name for i in infos)
        raise BadInput(f"{len(files)} files for {len(infos)} inputs ({names}); give one for each")
    return {
        info.name: _read(Path(file), info, config.is_bgr(i))
        for i, (file, info) in enumerate(zip(files, infos, strict=True))
    }


def _read(path: Path, info: InputInfo, bgr: bool) -> Array:
    if not path.is_file():
        raise BadFile(f"there is no file '{path}'; check the path")
    if path.suffix.lower() in images.ENDINGS:
        return _picture(path, info, bgr)
    if path.suffix.lower() != ".npy":
        known = ", ".join((*images.ENDINGS, ".npy"))
        raise BadInput(f"'{path}' is none of {known}; convert it")
    return _array(path, info)


def _picture(path: Path, info: InputInfo, bgr: bool) -> Array:
    """A picture, resized to the input; repeated along the batch."""
    kind = Type("f32", info.shape)
    found = images.pictures([(info.name, kind)], None, None, info.layout, bgr, "stretch", 0)
    taker = found[info.name]
    if taker is None:
        raise BadInput(
            f"'{path}' is a picture, input '{info.name}' has shape {list(info.shape)}; pictures "
            "are for inputs of 1, 3 or 4 channels; give a .npy file"
        )
    row = taker.of_file(path)
    return np.repeat(row[None], info.shape[0], axis=0)


def _array(path: Path, info: InputInfo) -> Array:
    """An array in NCHW, which the vendor expects for every format, or in the model's axes."""
    given = array = np.asarray(read_npy(path))
    if not info.shape:
        return array.reshape(())
    if array.ndim == len(info.shape) - 1:
        array = array[None]
    batch, rest = array.shape[:1], array.shape[1:]
    nchw = info.shape_in("nchw")
    fits = batch in ((1,), info.shape[:1])
    if fits and rest == nchw[1:]:
        found = info.to_model(array, "nchw")
    elif fits and rest == info.shape[1:]:
        found = array
    else:
        raise BadInput(
            f"'{path}' has shape {list(given.shape)}, input '{info.name}' needs {list(nchw)} "
            f"({'nchw' if len(nchw) == 4 else 'the axes of the model'}); save it in that shape"
        )
    return found if found.shape[0] == info.shape[0] else np.repeat(found, info.shape[0], axis=0)
