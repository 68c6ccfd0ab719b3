"""Sources of calibration samples: folders, text lists, array files, Python objects."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from intaglio.array_files import read_npy, read_npz
from intaglio.errors import BadFile, BadInput, did_you_mean
from intaglio.ir import Array, Type
from intaglio.quant.samples.images import ENDINGS, TAKE_PICTURES, Picture

ARRAYS = (".npy", ".npz")
Parts = dict[str, Array]
Warn = Callable[[str], None]


@dataclass(frozen=True)
class Item:
    """One sample, or one row of a batch, not loaded yet."""

    where: str  # its name in messages
    load: Callable[[], Parts]  # {input: array}
    picture: bool = False


class Stream:
    """Items of a source that can be iterated only once."""

    def __init__(self, items: Iterator[Item]):
        self._items = items

    def __iter__(self) -> Iterator[Item]:
        return self._items


class Model(Protocol):
    """The facts about the model that a source needs."""

    inputs: dict[str, Type]
    pictures: dict[str, Picture | None]

    def count(self, shape: tuple[int, ...], dtype: Any, name: str, where: str) -> int | None:
        """The number of samples along the array's first axis; None: it is one sample."""


def find(source: Any, model: Model, warn: Warn) -> list[Item] | Stream:
    """The items of a source, at least one."""
    if not model.inputs:
        raise BadInput("the model has no inputs; there is nothing to calibrate")
    if source is None:
        raise BadInput(
            "no calibration data is given; give a folder of pictures, a list, "
            ".npy or .npz files, or arrays"
        )
    if isinstance(source, str | Path):
        items = _of_path(Path(source), model, warn)
    elif isinstance(source, Mapping):
        items = _of_mapping(source, model, "the data", warn)
    elif hasattr(source, "__array__"):
        items = _of_array(np.asarray(source), model, "the data")
    elif isinstance(source, Sequence):
        items = [
            i for k, s in enumerate(source) for i in _of_element(s, model, f"sample {k}", warn)
        ]
    elif isinstance(source, Iterable):
        # a re-iterable may shuffle (a data loader), so it is iterated only once
        walk = enumerate(source)
        return Stream(i for k, s in walk for i in _of_element(s, model, f"sample {k}", warn))
    else:
        raise BadInput(f"data is {type(source).__name__}; give a path, arrays, or an iterable")
    if not items:
        named = source if isinstance(source, str | Path) else "the data"
        raise BadInput(f"{named}: no samples; at least one is needed")
    return items


# ---- files ---------------------------------------------------------------------------------------
def _of_path(path: Path, model: Model, warn: Warn) -> list[Item]:
    if path.is_dir():
        return _of_folder(path, model, warn)
    if not path.exists():
        raise BadFile(f"{path}: no such file or folder")
    if path.suffix.lower() in (*ARRAYS, *ENDINGS):
        return _of_file(path, model, warn)
    return _of_list(path, model, warn)


def files_below(folder: Path) -> list[Path]:
    """Every file below a folder except hidden ones, sorted."""
    found = (p for p in folder.rglob("*") if p.is_file())
    return sorted(
        p for p in found if not any(s.startswith(".") for s in p.relative_to(folder).parts)
    )


def _of_folder(folder: Path, model: Model, warn: Warn) -> list[Item]:
    files = files_below(folder)
    pictures = [p for p in files if p.suffix.lower() in ENDINGS]
    arrays = [p for p in files if p.suffix.lower() in ARRAYS]
    if not pictures and not arrays:
        kinds = Counter(p.suffix or p.name for p in files).most_common(3)
        held = ", ".join(f"{n} {kind}" for kind, n in kinds) or "nothing"
        raise BadInput(
            f"{folder}: no pictures ({', '.join(ENDINGS)}), .npy or .npz in it; it holds {held}"
        )
    if pictures and arrays:
        raise BadInput(f"{folder}: holds pictures and arrays; put them into folders of their own")
    return [i for p in pictures or arrays for i in _of_file(p, model, warn)]


def _of_file(path: Path, model: Model, warn: Warn) -> list[Item]:
    """One file: a picture or .npy for a model with one input, .npz for any model."""
    if path.suffix.lower() == ".npz":
        arrays = dict(read_npz(path))
        if len(arrays) == len(model.inputs) == 1:  # its name may be numpy's own, such as arr_0
            arrays = dict(zip(model.inputs, arrays.values(), strict=True))
        return _of_mapping(arrays, model, str(path), warn)
    name = _only_input(model, str(path))
    if path.suffix.lower() in ENDINGS:
        return [
            Item(
                str(path),
                functools.partial(_load, {name: path}, model.pictures, model.inputs),
                True,
            )
        ]
    return _rows(
        {name: functools.partial(read_npy, path)}, {name: read_npy(path)}, model, str(path)
    )


def _only_input(model: Model, where: str) -> str:
    if len(model.inputs) > 1:
        raise BadInput(
            f"{where}: the model has {len(model.inputs)} inputs ({', '.join(model.inputs)}); give "
            "an .npz with these names, or a list with a file for each of them on every line"
        )
    return next(iter(model.inputs))


def _of_list(path: Path, model: Model, warn: Warn) -> list[Item]:
    """A line per sample, a file per input, relative to the list's own folder."""
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        known = ", ".join((*ENDINGS, *ARRAYS))
        raise BadFile(f"{path}: neither a text list nor one of {known}") from None
    except OSError as e:
        raise BadFile(f"{path}: cannot be read ({e.strerror})") from None
    items = []
    for number, line in enumerate(text.splitlines(), 1):
        files = _files_of(line, path.parent, len(model.inputs))
        if files:
            items += _of_files(files, model, f"{path}, line {number}", warn)
    if not items:
        raise BadInput(f"{path}: lists no files; write a line for each sample")
    return items


def _files_of(line: str, folder: Path, inputs: int) -> list[Path]:
    """The paths on a line; # begins a comment, a path with spaces is quoted."""
    words = re.findall(r"\"[^\"]*\"|'[^']*'|\S+", line)
    words = words[: next((i for i, w in enumerate(words) if w.startswith("#")), len(words))]
    if len(words) > 1 and inputs == 1 and (folder / line.strip()).is_file():
        return [folder / line.strip()]
    return [folder / w.strip("\"'") for w in words]


def _of_files(files: Sequence[Path], model: Model, where: str, warn: Warn) -> list[Item]:
    """The files of one sample."""
    for p in files:
        if not p.is_file():
            raise BadFile(f"{where}: {p}: no such file")
        if p.suffix.lower() not in (*ENDINGS, *ARRAYS):
            known = ", ".join((*ENDINGS, *ARRAYS))
            raise BadFile(f"{where}: {p.name}: not one of {known}")
    if len(files) == 1 and (files[0].suffix.lower() == ".npz" or len(model.inputs) == 1):
        return _of_file(files[0], model, warn)
    if len(files) != len(model.inputs):
        raise BadInput(
            f"{where}: {len(files)} files, the model's inputs are {len(model.inputs)}: "
            f"{', '.join(model.inputs)}"
        )
    paths = dict(zip(model.inputs, files, strict=True))
    picture = any(p.suffix.lower() in ENDINGS for p in files)
    words = " ".join(map(str, files))
    return [Item(words, functools.partial(_load, paths, model.pictures, model.inputs), picture)]


def _why(t: Type) -> str:
    """Why an input of this type takes no pictures."""
    if t.dtype not in TAKE_PICTURES:
        return f"its elements are {t.dtype}, pictures are bytes or floats"
    return "it has no axis of 1, 3 or 4 channels where the layout has them"


def _load(
    paths: Mapping[str, Path], pictures: Mapping[str, Picture | None], types: Mapping[str, Type]
) -> Parts:
    """A file per input: the picture or the array in it."""
    results = {}
    for name, path in paths.items():
        if path.suffix.lower() in ENDINGS:
            taker = pictures[name]
            if taker is None:
                raise BadInput(
                    f"{path}: input '{name}' takes no pictures: {_why(types[name])}; give .npy"
                )
            results[name] = taker.of_file(path)
        else:
            results[name] = np.array(read_npy(path))
    return results


# ---- Python --------------------------------------------------------------------------------------
def _of_element(element: Any, model: Model, where: str, warn: Warn) -> list[Item]:
    """One element of a user's list: a dict, a tuple, an array, or a path."""
    if isinstance(element, str | Path):
        return _of_files([Path(element)], model, where, warn)
    if isinstance(element, Mapping):
        return _of_mapping(element, model, where, warn)
    if isinstance(element, tuple | list) and not _is_numbers(element):
        if all(isinstance(e, str | Path) for e in element):
            return _of_files([Path(e) for e in element], model, where, warn)
        if len(element) != len(model.inputs):
            raise BadInput(
                f"{where}: {len(element)} arrays, the model's inputs are {len(model.inputs)}: "
                f"{', '.join(model.inputs)}; give the inputs alone, without labels"
            )
        return _of_mapping(dict(zip(model.inputs, element, strict=True)), model, where, warn)
    return _of_array(_array(element, where), model, where)


def _is_numbers(element: Sequence[Any]) -> bool:
    return bool(element) and all(isinstance(e, int | float) for e in element)


def _array(content: Any, where: str) -> Array:
    try:
        array = np.asarray(content)
    except (ValueError, TypeError) as e:
        raise BadInput(f"{where}: {type(content).__name__} is no array ({e})") from None
    if array.dtype == object:
        raise BadInput(f"{where}: {type(content).__name__} is no array; give numpy arrays")
    return array


def _of_array(array: Array, model: Model, where: str) -> list[Item]:
    name = _only_input(model, where)
    return _rows({name: functools.partial(_same, array)}, {name: array}, model, where)


def _of_mapping(given: Mapping[Any, Any], model: Model, where: str, warn: Warn) -> list[Item]:
    """Arrays by input name."""
    arrays = {str(n): _array(a, where) for n, a in given.items()}
    names = ", ".join(f"'{n}'" for n in model.inputs)
    extra = [n for n in arrays if n not in model.inputs]
    if missing := [n for n in model.inputs if n not in arrays]:
        has = ", ".join(f"'{n}'" for n in arrays) or "nothing"
        near = did_you_mean(extra[0], missing) if extra else ""
        raise BadInput(
            f"{where}: has {has}; the model's inputs are {names}: '{missing[0]}' is missing{near}"
        )
    if extra:
        warn(f"{where}: '{extra[0]}' is no input of the model and is ignored")
    arrays = {n: arrays[n] for n in model.inputs}
    return _rows({n: functools.partial(_same, a) for n, a in arrays.items()}, arrays, model, where)


def _same(a: Array) -> Array:
    return a


def _rows(
    loads: Mapping[str, Callable[[], Array]], arrays: Mapping[str, Array], model: Model, where: str
) -> list[Item]:
    """The samples in arrays: one sample, or one for each index of the first axis."""
    counts = {n: model.count(a.shape, a.dtype, n, where) for n, a in arrays.items()}
    kinds = set(counts.values())
    if len(kinds) > 1:
        each = ", ".join(f"'{n}' {'one sample' if c is None else c}" for n, c in counts.items())
        raise BadInput(f"{where}: arrays hold different numbers of samples: {each}")
    count = kinds.pop()
    if count is None:
        return [Item(where, lambda: {n: np.array(load()) for n, load in loads.items()})]

    def row(i: int) -> Parts:
        return {n: np.array(load()[i]) for n, load in loads.items()}

    return [Item(f"{where}[{i}]", functools.partial(row, i)) for i in range(count)]
