"""Calibration samples in the forms that `set_tensor_data` takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.compat.nncase.refusals import LOG
from intaglio.errors import BadInput
from intaglio.ir import Array, Type

Sample = dict[str, Array]


class Samples:
    """Samples as the user gave them, in order of the model's inputs."""

    def __init__(self, given: Any, count: Any):
        self.given = given
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
            raise BadInput(f"samples_count is {count!r}; give the number of samples")
        self.count = int(count)
        self.packed = isinstance(given, bytes | bytearray | memoryview)

    @property
    def empty(self) -> bool:
        return self.given is None or len(self.given) == 0

    def shapes(self, names: Sequence[str]) -> dict[str, Sequence[int]]:
        """Shapes of the first sample; none of bytes, which have no shape."""
        if self.empty or self.packed:
            return {}
        rows = self._rows(len(names), None)
        return {n: np.shape(one) for n, one in zip(names, rows[0], strict=True)} if rows else {}

    def read(self, types: Mapping[str, Type]) -> list[Sample]:
        """The samples by input name, checked against the inputs' types."""
        if self.empty:
            return []
        if self.packed:
            return self._unpacked(types)
        rows = self._rows(len(types), list(types.values()))
        if self.count and self.count < len(rows):
            LOG.warning(f"samples_count is {self.count}: only these of {len(rows)} samples count")
            rows = rows[: self.count]
        elif self.count > len(rows):
            LOG.warning(
                f"samples_count is {self.count}, but set_tensor_data got {len(rows)} samples; "
                f"{len(rows)} are used"
            )
        return [
            {n: _fitted(i, n, t, one) for (n, t), one in zip(types.items(), row, strict=True)}
            for i, row in enumerate(rows)
        ]

    def _rows(self, inputs: int, types: list[Type] | None) -> list[list[Any]]:
        """One list for each sample, with an array for each input."""
        if isinstance(self.given, np.ndarray) and self.given.dtype != object:
            listed: list[Any] = list(self.given)
        elif isinstance(self.given, Iterable) and not isinstance(self.given, str):
            listed = list(self.given)
        else:
            raise BadInput(
                f"set_tensor_data got {type(self.given).__name__}; give a list of arrays for each "
                "input: [[x1, x2], [y1, y2]]"
            )
        ranks = [t.rank for t in types] if types else None
        if inputs == 1 and self._are_samples(listed, ranks):
            return [[one] for one in listed]
        try:
            grid = [list(row) for row in listed]
        except TypeError:
            raise BadInput(
                "set_tensor_data got numbers in place of arrays; give a list of arrays for each "
                "input: [[x1, x2], [y1, y2]]"
            ) from None
        by_input = len(grid) == inputs and len({len(r) for r in grid}) == 1
        by_sample = all(len(r) == inputs for r in grid)
        if by_input and by_sample and types and not _fits(grid, types):
            by_input = not _fits([list(r) for r in zip(*grid, strict=True)], types)
        if by_input:
            return [list(row) for row in zip(*grid, strict=True)]
        if by_sample:
            return grid
        raise BadInput(
            f"set_tensor_data got {len(grid)} lists of {sorted({len(r) for r in grid})} arrays, "
            f"the model has {inputs} inputs; give one list for each input: [[x1, x2], [y1, y2]]"
        )

    def _are_samples(self, listed: list[Any], ranks: list[int] | None) -> bool:
        """Whether the only input's samples are given without the list around them."""
        if not listed or not all(isinstance(one, np.ndarray) for one in listed):
            return False
        rank = listed[0].ndim
        if ranks is not None:
            return bool(rank in (ranks[0], ranks[0] - 1) and listed[0].dtype != object)
        return bool(rank <= 4)

    def _unpacked(self, types: Mapping[str, Type]) -> list[Sample]:
        """Samples from bytes: all of the first input, then all of the next."""
        data = np.frombuffer(self.given, np.uint8)
        each = sum(t.size * np.dtype(dtypes.numpy_of(t.dtype)).itemsize for t in types.values())
        count, rest = divmod(data.size, each)
        if rest or not count:
            wanted = ", ".join(f"'{n}' {t}" for n, t in types.items())
            raise BadInput(
                f"set_tensor_data got {data.size} bytes, a sample has {each} ({wanted}); check the "
                "type and the shape of the arrays"
            )
        if count != self.count:
            LOG.warning(f"samples_count is {self.count}, but the bytes are {count} samples")
        found: list[Sample] = [{} for _ in range(count)]
        start = 0
        for name, t in types.items():
            kind = np.dtype(dtypes.numpy_of(t.dtype))
            size = t.size * kind.itemsize
            for sample in found:
                sample[name] = data[start : start + size].view(kind).reshape(t.shape)
                start += size
        return found


def _fits(grid: list[list[Any]], types: list[Type]) -> bool:
    return all(np.shape(row[0]) == t.shape for row, t in zip(grid, types, strict=True))


def _fitted(index: int, name: str, t: Type, given: Any) -> Array:
    """One array of a sample with the type and shape of its input."""
    array = given.to_numpy() if hasattr(given, "to_numpy") else np.asarray(given)
    if array.ndim == t.rank - 1 and array.shape == t.shape[1:]:
        array = array[None]
    if array.shape != t.shape:
        raise BadInput(
            f"sample {index} has shape {list(array.shape)}, input '{name}' needs {list(t.shape)}; "
            "resize it, or change input_shape and input_layout"
        )
    kind = np.dtype(dtypes.numpy_of(t.dtype))
    if array.dtype != kind and array.dtype.kind == "f" and kind.kind in "iu":
        raise BadInput(
            f"sample {index} is {array.dtype}, input '{name}' takes {kind}; convert it with "
            f".astype(np.{kind})"
        )
    return np.ascontiguousarray(array, kind)
