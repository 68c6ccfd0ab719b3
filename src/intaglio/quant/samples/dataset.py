"""Calibration samples from any source, as arrays that fit the model's inputs.

Samples are loaded one by one, on demand, in the same order every time.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, option
from intaglio.ir import Array, Type
from intaglio.quant.samples import images, sources
from intaglio.quant.samples.images import Picture
from intaglio.quant.samples.sources import Item, Stream

DEFAULT_LIMIT = 100  # samples; more take time and hardly change the ranges
IN_MEMORY = 256 << 20  # bytes of a generator's samples; the rest goes to a temporary file
LAYOUTS = ("auto", "nchw", "nhwc")


def _warn(words: str) -> None:
    warnings.warn(words, stacklevel=3)


def samples(
    source: Any,
    inputs: Sequence[tuple[str, Type]],
    *,
    mean: Any = None,
    std: Any = None,
    layout: str = "auto",
    color: str = "rgb",
    resize: str = "stretch",
    pad_value: float = 114,
    limit: int | None = None,
    seed: int = 0,
    warn: Callable[[str], None] = _warn,
) -> Samples:
    """Samples for a model with these inputs, from any source.

    `source`: a folder of pictures, of .npy or of .npz files; a .npy, .npz or picture; a text list
    (a line per sample, a file per input); arrays, tuples or dicts of arrays in any iterable. A
    generator is read once and kept: the first 256 MB in memory, the rest in a temporary file.
    `mean` and `std` are per channel, in the model's order, for pixels from 0 to 255; for several
    inputs they may be lists of lists or dicts by name. `limit` samples are taken, evenly spread
    over all (default: 100, with a warning if there are more).
    """
    if isinstance(source, Samples):
        return source
    check_reading(layout, color, resize, pad_value, limit, seed)
    fitting = _Fitting(
        dict(inputs), images.pictures(inputs, mean, std, layout, color == "bgr", resize, pad_value)
    )
    found = sources.find(source, fitting, warn)
    if isinstance(found, Stream):
        return Samples(fitting, _spool(found, fitting, limit, warn), warn, limit is None)
    given = mean is not None or std is not None
    if found[0].picture and not given and fitting.floats:
        warn(
            "pixels are not normalised (0 to 255) because neither mean nor std is given; "
            "give those that the model was trained with"
        )
    elif given and not found[0].picture and not fitting.bytes(found[0]):
        warn("mean and std are for pictures and arrays of bytes; arrays of floats stay unchanged")
    kept = _thinned(found, fitting.rows(found[0]), limit, seed, warn)
    return Samples(fitting, kept, warn, limit is None)


def check_reading(
    layout: str, color: str, resize: str, pad_value: float, limit: int | None, seed: int
) -> None:
    """BadInput if an option of `samples` has a wrong value."""
    for what, choice, known in (
        ("layout", layout, LAYOUTS),
        ("color", color, ("rgb", "bgr")),
        ("resize", resize, images.RESIZES),
    ):
        if choice not in known:
            raise BadInput(f"{what} is {choice!r}; it is one of {', '.join(known)}")
    if limit is not None and (not isinstance(limit, Integral) or limit < 1):
        raise BadInput(f"limit is {limit!r}; give a number of samples from 1 on, or leave it out")
    if not isinstance(seed, Integral) or seed < 0:
        raise BadInput(f"seed is {seed!r}; give a whole number from 0 on")
    if not isinstance(pad_value, Real):
        raise BadInput(f"pad_value is {pad_value!r}; give a pixel value from 0 to 255")
    if not 0 <= pad_value <= 255:
        raise BadInput(f"pad_value is {pad_value:g}; a pixel is from 0 to 255")


class Samples(Sequence[dict[str, Array]]):
    """Samples by number, in order, loaded when asked for: {input: array of its shape and type}."""

    def __init__(
        self,
        fitting: _Fitting,
        items: Sequence[Item],
        warn: Callable[[str], None],
        spare: bool = False,
    ):
        self._fitting, self._items = fitting, items
        self.spare = spare  # no limit was given: calibration may stop early
        self._rows = fitting.rows(items[0])
        if self._rows > 1:
            warn(f"samples are stacked by {self._rows} to fill the model's batch")

    @property
    def inputs(self) -> dict[str, Type]:
        return self._fitting.inputs

    @property
    def pictures(self) -> bool:
        """Are the samples picture files?"""
        return self._items[0].picture

    def __len__(self) -> int:
        return -(-len(self._items) // self._rows)

    def take(self, n: int) -> Samples:
        """At most `n` of the samples, evenly spaced."""
        picked = np.unique(np.linspace(0, len(self) - 1, min(n, len(self))).round().astype(int))
        return self.at(picked.tolist())

    def at(self, numbers: Iterable[int]) -> Samples:
        """The samples with these numbers, in this order."""
        items = [item for i in numbers for item in self._group(i)]
        return Samples(self._fitting, items, lambda words: None)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(f"sample {i} of {len(self)}")
        return self._fitting.sample(self._group(i % len(self)))

    def where(self, i: int) -> str:
        """The source of sample `i`, for messages: its file, for example."""
        return ", ".join(item.where for item in self._group(i))

    def _group(self, i: int) -> list[Item]:
        """The items of one batch; a last batch that is not full repeats the first items."""
        at = range(i * self._rows, (i + 1) * self._rows)
        return [self._items[k % len(self._items)] for k in at]


class _Fitting:
    """Converts arrays to the shape and type of the inputs, or raises BadInput."""

    def __init__(self, inputs: dict[str, Type], pictures: dict[str, Picture | None]):
        self.inputs, self.pictures = inputs, pictures

    def count(self, shape: tuple[int, ...], dtype: Any, name: str, where: str) -> int | None:
        """The number of samples along an array's first axis; None: the array is one sample."""
        t = self.inputs[name]
        if self._one(shape, dtype, name):
            return None
        if shape and self._one(shape[1:], dtype, name):
            return shape[0]
        raise BadInput(f"{where}: {self._misfit(name, t, shape)}")

    def _one(self, shape: tuple[int, ...], dtype: Any, name: str) -> bool:
        t, p = self.inputs[name], self.pictures[name]
        if shape == t.shape or self._is_row(shape, t):
            return True
        return p is not None and dtype == np.uint8 and p.accepts(shape)

    @staticmethod
    def _is_row(shape: tuple[int, ...], t: Type) -> bool:
        """Is it one row of a batch, with or without the batch axis?"""
        if t.rank < 2:
            return t.size == 1 and shape in ((), (1,))
        return shape == t.shape[1:] or shape == (1, *t.shape[1:])

    def _misfit(self, name: str, t: Type, shape: tuple[int, ...]) -> str:
        words = f"input '{name}' has shape {t.shape}, the sample has {shape}"
        if self.pictures[name] is not None:
            return f"{words}; give it that shape, or pictures as bytes"
        return f"{words}; give it that shape, or load the model with {option('shapes')}"

    def array(self, a: Array, name: str, where: str) -> Array:
        """A whole input or one row of it, in the input's element type."""
        t, p = self.inputs[name], self.pictures[name]
        if a.dtype == np.uint8 and p is not None:
            if a.shape == t.shape or self._is_row(a.shape, t):
                return p.normalized(a, p.channels_last)
            if p.accepts(a.shape):
                return p.of_pixels(a)
        if a.shape != t.shape and not self._is_row(a.shape, t):
            raise BadInput(f"{where}: {self._misfit(name, t, a.shape)}")
        result = _cast(a, t, name, where)
        if result.dtype.kind not in "biu" and not np.isfinite(result.astype(np.float32)).all():
            bad = np.argwhere(~np.isfinite(result.astype(np.float32)))[0].tolist()
            raise BadInput(
                f"{where}: input '{name}' holds {result[tuple(bad)]} at {bad}; "
                "a range needs finite values: remove or repair the sample"
            )
        return result

    def rows(self, item: Item) -> int:
        """The number of items that make one sample (one batch)."""
        parts = item.load()
        self._check_names(parts, item.where)
        counts = {
            t.shape[0]
            for n, t in self.inputs.items()
            if t.rank and self.array(parts[n], n, item.where).shape != t.shape
        } - {0, 1}
        if len(counts) > 1:
            several = " and ".join(map(str, sorted(counts)))
            raise BadInput(f"{item.where}: inputs have batches of {several}; give whole batches")
        return counts.pop() if counts else 1

    def _check_names(self, parts: Mapping[str, Array], where: str) -> None:
        names = ", ".join(f"'{n}'" for n in self.inputs)
        if unknown := [n for n in parts if n not in self.inputs]:
            raise BadInput(f"{where}: no input is called '{unknown[0]}'; the model has {names}")
        if missing := [n for n in self.inputs if n not in parts]:
            raise BadInput(f"{where}: input '{missing[0]}' is missing; the model needs {names}")

    def sample(self, items: Sequence[Item]) -> dict[str, Array]:
        """The items as one sample."""
        loaded: list[dict[str, Array]] = []
        for item in items:
            parts = item.load()
            self._check_names(parts, item.where)
            loaded.append({n: self.array(parts[n], n, item.where) for n in self.inputs})
        results = {}
        for n, t in self.inputs.items():
            first = loaded[0][n]
            if first.shape != t.shape and t.rank and t.shape[0] > 1:
                first = np.stack([parts[n].reshape(t.shape[1:]) for parts in loaded])
            results[n] = np.ascontiguousarray(first.reshape(t.shape))
        return results

    @property
    def floats(self) -> bool:
        """Does a float input take pictures?"""
        takers = [p for p in self.pictures.values() if p is not None]
        return any(dtypes.is_float(p.type.dtype) for p in takers)

    def bytes(self, item: Item) -> bool:
        """Does the item hold bytes that are normalised by mean and std?"""
        return any(a.dtype == np.uint8 and self.pictures.get(n) for n, a in item.load().items())


def _cast(a: Array, t: Type, name: str, where: str) -> Array:
    want = dtypes.numpy_of(t.dtype)
    if a.dtype == want:
        return a
    words = f"{where}: input '{name}' is {want}, the sample is {a.dtype}"
    try:
        have = dtypes.name_of(a.dtype)
    except KeyError:
        raise BadInput(f"{words}; give numbers") from None
    if dtypes.is_float(have) and not dtypes.is_float(t.dtype):
        raise BadInput(f"{words}; use .astype('{want}') if its numbers are whole")
    with np.errstate(over="ignore"):
        result = a.astype(want)
    if not dtypes.is_float(t.dtype) and not (result == a).all():
        raise BadInput(f"{words}, and not all of its numbers fit")
    return result


def _thinned(
    items: list[Item], rows: int, limit: int | None, seed: int, warn: Callable[[str], None]
) -> list[Item]:
    """At most `limit` samples: one at random from each of `limit` equal runs."""
    keep = (limit or DEFAULT_LIMIT) * rows
    n = len(items)
    if n <= keep:
        return items
    if limit is None:
        warn(
            f"{n // rows} samples are given; {DEFAULT_LIMIT} of them, evenly spread, are used: "
            "more take time and hardly change the ranges; "
            f"set {option('limit')} to use another number"
        )
    ends = np.linspace(0, n, keep + 1)
    picked = ends[:-1] + np.random.default_rng(seed).random(keep) * np.diff(ends)
    return [items[int(i)] for i in np.minimum(picked, n - 1)]


def _spool(
    stream: Iterable[Item], fitting: _Fitting, limit: int | None, warn: Callable[[str], None]
) -> Sequence[Item]:
    """Read a generator once and keep its items: in memory or, if large, in a temporary file."""
    kept = _Kept()
    rows, most = 0, 0
    for item in stream:
        if not rows:
            rows = fitting.rows(item)
            most = (limit or DEFAULT_LIMIT) * rows
        if len(kept) == most:
            if limit is None:
                warn(
                    f"the data gives more than {DEFAULT_LIMIT} samples; "
                    f"the first {DEFAULT_LIMIT} are used; "
                    f"set {option('limit')} to use another number"
                )
            break
        parts = item.load()
        fitting._check_names(parts, item.where)
        kept.add({n: fitting.array(parts[n], n, item.where) for n in fitting.inputs}, item.where)
    if not len(kept):
        raise BadInput("the data gives no samples; at least one is needed")
    return kept


class _Kept(Sequence[Item]):
    """Items in a spooled file: in memory up to IN_MEMORY bytes, then on disk."""

    def __init__(self) -> None:
        self._tape = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  # closed by __del__
        self._index: list[tuple[str, dict[str, tuple[int, np.dtype[Any], tuple[int, ...]]]]] = []

    def add(self, parts: Mapping[str, Array], where: str) -> None:
        places = {}
        for name, a in parts.items():
            self._tape.seek(0, 2)
            places[name] = (self._tape.tell(), a.dtype, a.shape)
            self._tape.write(np.ascontiguousarray(a).tobytes())
        self._index.append((where, places))

    def __del__(self) -> None:
        self._tape.close()

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, i: Any) -> Any:
        where, places = self._index[i]
        return Item(where, lambda: {n: self._read(*place) for n, place in places.items()})

    def _read(self, at: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        self._tape.seek(at)
        size = dtype.itemsize * int(np.prod(shape))
        return np.frombuffer(self._tape.read(size), dtype).reshape(shape).copy()
