"""Runs of a package with arrays as the RKNN API takes them: NHWC by default, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import intaglio
from intaglio.compat.log import Log
from intaglio.compat.rknn.inputs import FORMATS, TAKEN, InputInfo
from intaglio.errors import BadInput
from intaglio.ir import Array
from intaglio.package import Package

Shape = tuple[int, ...]


class Runtime:
    """A session and the shapes that it takes, by input."""

    def __init__(self, package: Package, infos: Sequence[InputInfo]):
        self.session = intaglio.open(package)
        self.infos = list(infos)
        self.frames = 0  # runs so far
        known = [
            {t.name: tuple(t.type.shape) for t in plan.inputs if t is not None}
            for plan in package.plans
        ]
        self.shapes: dict[str, list[Shape]] = {
            i.name: [one[i.name] for one in known if i.name in one] for i in infos
        }
        self.order = list(package.outputs)

    def close(self) -> None:
        self.session.close()

    def run(self, inputs: Any, formats: Any, pass_through: Any, log: Log) -> list[Array]:
        """The outputs in the model's order, floats as float32."""
        arrays = self._listed(inputs, log)
        names = _formats(formats, len(self.infos), log)
        through = _flags(pass_through, len(self.infos))
        feeds = {}
        for i, info in enumerate(self.infos):
            feeds[info.name] = self._fitted(i, arrays[i], info, names[i], through[i], log)
        results = self.session.run(feeds)
        self.frames += 1
        return [_plain(results[name]) for name in self.order]

    def _listed(self, inputs: Any, log: Log) -> list[Any]:
        if isinstance(inputs, np.ndarray):
            log.warning("inference: inputs is one array; give a list, as in inputs=[array]")
            inputs = [inputs]
        if not isinstance(inputs, Sequence) or not inputs:
            raise BadInput("inputs is empty; give a list with an array for each input")
        if len(inputs) < len(self.infos):
            names = ", ".join(i.name for i in self.infos)
            raise BadInput(f"{len(inputs)} inputs, the model has {len(self.infos)}: {names}")
        if len(inputs) > len(self.infos):
            log.warning(
                f"inference: {len(inputs)} inputs, the model has {len(self.infos)}; the rest is "
                "ignored"
            )
        return list(inputs)

    def _fitted(
        self, index: int, given: Any, info: InputInfo, layout: str, through: bool, log: Log
    ) -> Array:
        """One input with the axes and the element type of the graph."""
        if not isinstance(given, np.ndarray):
            raise BadInput(
                f"inputs[{index}] is {type(given).__name__}; give a numpy array "
                "(cv2.imread returns None if there is no such picture)"
            )
        if given.dtype.name not in TAKEN:
            raise BadInput(
                f"inputs[{index}] has element type {given.dtype}; known are {', '.join(TAKEN)}; "
                "convert it with .astype(np.float32)"
            )
        layout = info.layout if through else layout
        if given.ndim == 3 and len(info.shape) == 4:
            log.warning(f"inference: inputs[{index}] has 3 axes; it is taken as a batch of one")
            given = given[None]
        array = self._turned(index, self._repeated(index, given, info, log), info, layout)
        if through and info.normalizes:
            array = info.raw(array)  # the graph normalises it again
        return info.stored(array)

    def _repeated(self, index: int, given: Array, info: InputInfo, log: Log) -> Array:
        """One sample for a model with a batch is taken as all of its samples."""
        batches = {s[0] for s in self.shapes[info.name] if len(s) == given.ndim}
        if given.ndim != 4 or given.shape[0] != 1 or len(batches) != 1 or batches == {1}:
            return given
        (batch,) = batches
        log.warning(f"inference: inputs[{index}] is repeated {batch} times, the batch of the model")
        return np.repeat(given, batch, axis=0)

    def _turned(self, index: int, given: Array, info: InputInfo, layout: str) -> Array:
        shapes = self.shapes[info.name]
        wanted = [info.shape_in(layout, s) for s in shapes]
        if given.shape in wanted:
            return info.to_model(given, layout)
        if len(info.shape) != 4:
            for shape in shapes:
                if _extents(given.shape) == _extents(shape) or given.shape == (
                    int(np.prod(shape)),
                ):
                    return given.reshape(shape)
        words = f"inputs[{index}] has shape {list(given.shape)}, '{info.name}' needs "
        words += " or ".join(str(list(w)) for w in wanted)
        if len(info.shape) == 4:
            words += f" ({layout})"
        other = FORMATS[1 - FORMATS.index(layout)]
        if given.shape in [info.shape_in(other, s) for s in shapes]:
            raise BadInput(f"{words}; it is in {other}: add data_format=['{other}']")
        raise BadInput(f"{words}; resize it first")


def _extents(shape: Shape) -> list[int]:
    """The extents but for axes of 1, which may be left out or added."""
    return [d for d in shape if d != 1]


def _formats(given: Any, count: int, log: Log) -> list[str]:
    """The layout of each input: nhwc unless another is given."""
    if given is None:
        return ["nhwc"] * count
    each = [given] if isinstance(given, str) else list(given)
    each = each * count if len(each) == 1 else each
    found = [str(one).lower() if one is not None else "nhwc" for one in each]
    for one in found:
        if one not in FORMATS:
            raise BadInput(f"data_format is {given!r}; it is 'nhwc' or 'nchw', or a list of these")
    if len(found) < count:
        raise BadInput(f"data_format has {len(found)} words, the model has {count} inputs")
    return found


def _flags(given: Any, count: int) -> list[bool]:
    if given is None:
        return [False] * count
    if not isinstance(given, Sequence) or len(given) < count:
        raise BadInput(f"inputs_pass_through is {given!r}; give a list of {count} times 0 or 1")
    return [bool(one) for one in given]


def _plain(array: Array) -> Array:
    """A C-contiguous copy; floats of 16 bits become float32."""
    if array.dtype.kind in "iub":
        return np.ascontiguousarray(array)
    return np.ascontiguousarray(array, np.float32)
