"""Inputs of networks from files: pictures, .npy and .npz, one by one or as a dataset."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from intaglio import dtypes
from intaglio.array_files import read_npy, read_npz
from intaglio.compat.tpu_mlir.module_file import Module
from intaglio.compat.tpu_mlir.option_table import words
from intaglio.compat.tpu_mlir.pictures import is_picture, read_picture
from intaglio.errors import BadFile, BadInput
from intaglio.ir import Array, Graph, Value

Sample = dict[str, Array]
ARRAYS = (".npy", ".npz")
SEED = 1684  # chooses the files of a folder, the same in every run


def read_sample(files: Sequence[str], module: Module) -> Sample:
    """The inputs of a module from one .npz, or from one picture or .npy for each input."""
    inputs = inputs_of(module.graph)
    if len(files) == 1 and files[0].lower().endswith(".npz"):
        return from_arrays(read_npz(files[0]), inputs, files[0])
    if all(is_picture(f) for f in files):
        return _pictures(files, module)
    if len(files) != len(inputs):
        names = ", ".join(v.name for v in inputs)
        raise BadInput(f"{len(files)} files for {len(inputs)} inputs ({names}); give one for each")
    arrays = {}
    for file, v in zip(files, inputs, strict=True):
        if is_picture(file):
            arrays[v.name] = read_picture(file, module.pictures, v.shape)
        elif file.lower().endswith(".npy"):
            arrays[v.name] = np.asarray(read_npy(file))
        else:
            raise BadInput(f"'{file}' is no picture, .npy or .npz; convert it")
    return from_arrays(arrays, inputs, ", ".join(files))


def inputs_of(graph: Graph) -> list[Value]:
    """The inputs without states."""
    return [v for v in graph.inputs if v.name not in graph.state]


def _pictures(files: Sequence[str], module: Module) -> Sample:
    """A picture for every input; the last one is for all that follow."""
    found, inputs = {}, inputs_of(module.graph)
    chosen = module.pictures.preprocess_list or range(1, len(inputs) + 1)
    for i, v in enumerate(inputs):
        if i + 1 not in chosen or module.pictures.channel_format == "none":
            raise BadInput(
                f"input '{v.name}' takes no pictures (--preprocess_list, --channel_format); give "
                "an .npz"
            )
        found[v.name] = read_picture(files[min(i, len(files) - 1)], module.pictures, v.shape)
    return found


def from_arrays(arrays: Mapping[str, Array], inputs: Sequence[Value], where: str) -> Sample:
    """Arrays by the names of inputs, in their types; a row is repeated along the batch."""
    given = dict(arrays)
    if len(given) == 1 == len(inputs):
        given = {inputs[0].name: next(iter(given.values()))}
    found = {}
    for v in inputs:
        if v.name not in given:
            raise BadInput(f"{where} has no array '{v.name}'; it has {', '.join(given) or 'none'}")
        found[v.name] = _shaped(np.asarray(given[v.name]), v, where)
    return found


def _shaped(array: Array, v: Value, where: str) -> Array:
    if array.shape != v.shape:
        if array.ndim == v.type.rank and array.shape[:1] == (1,) and v.shape[1:] == array.shape[1:]:
            array = np.repeat(array, v.shape[0], axis=0)
        elif array.size == v.type.size:
            array = array.reshape(v.shape)
        else:
            raise BadInput(
                f"{where}: '{v.name}' has shape {list(array.shape)}, the input {list(v.shape)}; "
                "save it in that shape"
            )
    return np.ascontiguousarray(array, dtypes.numpy_of(v.dtype))


class Dataset:
    """Samples of a folder or list, read one by one."""

    def __init__(self, lines: Sequence[Sequence[str]], module: Module):
        self.lines, self.module = lines, module

    def __len__(self) -> int:
        return len(self.lines)

    def __iter__(self) -> Iterator[Sample]:
        for files in self.lines:
            yield read_sample(files, self.module)


def dataset(module: Module, folder: str | None, listed: str | None, count: int) -> Dataset:
    """The samples that --dataset, --data_list and --input_num choose."""
    if count < 0:
        raise BadInput(f"--input_num is {count}; give the number of samples, or 0 for all")
    if listed:
        lines = _listed(Path(listed))
        return Dataset(lines[: count or None], module)
    if not folder:
        raise BadInput("--dataset is missing; give a folder of samples, or --data_list FILE")
    root = Path(folder)
    if not root.is_dir():
        raise BadInput(f"--dataset: there is no folder '{folder}'; check the path")
    files = [str(p) for p in root.rglob("*") if p.suffix.lower() in ARRAYS or is_picture(p)]
    if not files:
        raise BadInput(f"--dataset: '{folder}' has no pictures, .npy or .npz files")
    files.sort()
    random.Random(SEED).shuffle(files)
    return Dataset([[f] for f in files[: count or None]], module)


def _listed(path: Path) -> list[list[str]]:
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise BadFile(f"--data_list: '{path}' is no text file; write the paths into one") from None
    except OSError as e:
        raise BadFile(f"--data_list: cannot read '{path}': {(e.strerror or '').lower()}") from None
    lines = [words(line) for line in text.splitlines() if line.strip()]
    if not lines:
        raise BadInput(f"--data_list: '{path}' lists no files; write a line for each sample")
    for number, files in enumerate(lines, 1):
        for i, file in enumerate(files):
            beside = path.parent / file
            if not Path(file).is_file() and beside.is_file():
                files[i] = str(beside)
            elif not Path(file).is_file():
                raise BadFile(f"--data_list: {path}, line {number}: there is no file '{file}'")
    return lines
