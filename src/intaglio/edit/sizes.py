"""Sizes at which a model with open dimensions is run to check it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from intaglio.edit.origin import View
from intaglio.edit.tensor_types import tensor_type
from intaglio.errors import BadInput, IntaglioError
from intaglio.frontends.onnx import OnnxModel, load_onnx
from intaglio.frontends.onnx.input_binding import open_shape
from intaglio.frontends.onnx.open_dims import OpenDim, bound, open_dims, open_inputs
from intaglio.frontends.options import NO_OPTIONS, ImportOptions

BATCHES = (1, 4)  # one run for each
# Extents of other open dimensions. Networks for pictures need multiples of 32, others limits.
EXTENTS = (12, 24, 48, 32, 64, 96, 160, 224, 320, 512, 1024, 5, 1)
MAX_ELEMENTS = 1 << 24  # of an input


def run_sizes(
    edited: OnnxModel, original: OnnxModel, views: dict[str, View]
) -> tuple[list[ImportOptions], str]:
    """Options that bind the open dimensions of the edited model, for each run.

    The second result says at which batch the model cannot be imported, and why. BadInput with the
    reason if it cannot at any.
    """
    if not open_inputs(edited, NO_OPTIONS):
        load_onnx(edited, NO_OPTIONS)
        return [NO_OPTIONS], ""
    found: list[ImportOptions] = []
    limits = ""
    for batch in BATCHES:
        size = _first(edited, original, views, batch)
        if size is None:
            limits = f"not at batch {batch}: {_reason(edited, batch)}"
        elif size not in found:
            found.append(size)
    if not found:
        raise _reason(edited, BATCHES[0])
    return found, limits


def imported_type(model: OnnxModel, name: str) -> Any:
    """The type of a tensor, by importing the model; extents that may vary are open."""
    sizes, _ = run_sizes(model, model, {})
    opened = open_dims(open_inputs(model, NO_OPTIONS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the import, which is repeated for use
        made = [load_onnx(model, replace(s, outputs=[name])).outputs[0].type for s in sizes]
    first, last = made[0], made[-1]
    certain = not opened or (len(made) > 1 and all(d.batch for d in opened))
    shape = [
        d if certain and d == other and i not in first.dynamic else ""
        for i, (d, other) in enumerate(zip(first.shape, last.shape, strict=True))
    ]
    return tensor_type(first.dtype, shape)


def _first(
    edited: OnnxModel, original: OnnxModel, views: dict[str, View], batch: int
) -> ImportOptions | None:
    """The first size at which the edited model can be imported.

    Sizes of the original's inputs are tried first: a merged dimension must be a multiple.
    """
    moved = (_moved(o, edited, views) for o in _candidates(original, batch))
    for options in (*(m for m in moved if m is not None), *_candidates(edited, batch)):
        try:
            load_onnx(edited, options)
            return options
        except IntaglioError:
            continue
    return None


def _candidates(model: OnnxModel, batch: int) -> Iterator[ImportOptions]:
    declared = open_inputs(model, NO_OPTIONS)
    for way in ("", "all"):
        dims = open_dims(declared, way)
        for extents in dict.fromkeys(_extents(dims, batch)):
            options = bound(dims, declared, list(extents), NO_OPTIONS)
            if all(math.prod(s) <= MAX_ELEMENTS for s in options.shapes.values()):
                yield options


def _extents(dims: Sequence[OpenDim], batch: int) -> Iterator[tuple[int, ...]]:
    """Extents that differ between dimensions, and then equal ones."""
    for extent in EXTENTS:
        for step in (1, 0):
            yield tuple(batch if d.batch else extent * (1 + i * step) for i, d in enumerate(dims))


def _moved(
    options: ImportOptions, edited: OnnxModel, views: dict[str, View]
) -> ImportOptions | None:
    """Shapes of the original's inputs as shapes of the edited model's; None if they do not fit."""
    shapes = {}
    for name, declared in _declared(edited).items():
        view = views.get(name)
        if view is None or view.tensor not in options.shapes:
            if any(isinstance(d, str) for d in declared):
                return None
            continue
        try:
            shapes[name] = view.forward(np.empty(options.shapes[view.tensor], np.bool_)).shape
        except BadInput:
            return None
        pairs = zip(declared, shapes[name], strict=False)
        if not all(isinstance(d, str) or d == n for d, n in pairs):
            return None
    return ImportOptions(shapes=shapes)


def _declared(model: OnnxModel) -> dict[str, tuple[int | str, ...]]:
    graph = model.proto.graph
    stored = {t.name for t in graph.initializer}
    return {i.name: open_shape(i) or () for i in graph.input if i.name not in stored}


def _reason(edited: OnnxModel, batch: int) -> BadInput:
    """The error of the first size."""
    try:
        load_onnx(edited, next(_candidates(edited, batch), NO_OPTIONS))
    except IntaglioError as e:
        return BadInput(str(e))
    return BadInput("no size was found for its open dimensions")
