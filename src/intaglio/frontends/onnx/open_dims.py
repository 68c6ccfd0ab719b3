"""The open dimensions of a model, and sizes at which it can be imported."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from intaglio.errors import BadInput, IntaglioError
from intaglio.frontends.onnx import OnnxModel, load_onnx
from intaglio.frontends.onnx.input_binding import Shape, open_shape
from intaglio.frontends.onnx.open_shapes import Seen
from intaglio.frontends.options import ImportOptions

# Extents that are tried for the two sizes, far apart so that limits (`x[:, :512]`) show. They are
# multiples: networks that halve a picture five times may need multiples of 32.
LARGE = (520, 130, 40, 2100, 16000)
SMALL = (190, 60, 20, 800, 4000)
MULTIPLES = (1, 2, 4, 8, 16, 32, 64)
BATCHES = ((11, 2), (13, 3), (17, 5), (19, 7))
CHECKED_EXTENTS = (3, 9, 17, 33, 65, 129, 257, 513, 1025, 4097, 16385)
SAME_ERRORS = 3  # at different sizes, after which the search ends
OUTPUTS = ""  # key of the graph's outputs in what an import sees; no node has this name
CHECKED_BATCHES = (1, 4)


@dataclass(frozen=True)
class OpenDim:
    """One open dimension: a symbol with all of its places, or one nameless axis."""

    name: str  # the symbol; "" if it has none
    places: tuple[tuple[str, int], ...]  # inputs and axes
    batch: bool  # always the first of several axes

    def __str__(self) -> str:
        return self.name or f"{self.places[0][0]}[{self.places[0][1]}]"


@dataclass(frozen=True)
class OpenSizes:
    """The open dimensions, their extents in two imports, and what these imports saw."""

    dims: tuple[OpenDim, ...]
    declared: Mapping[str, Shape]  # inputs with open dimensions
    extents: tuple[tuple[int, int], ...]  # of each dimension
    multiple: int  # of all extents but batches
    seen: tuple[Mapping[str, Seen], Mapping[str, Seen]]
    tiny: Mapping[str, Seen]  # a third import, which shows limits of extents

    def options(self, options: ImportOptions, which: int) -> ImportOptions:
        """Options that bind the open dimensions to their first (0) or second (1) extents."""
        return bound(self.dims, self.declared, [e[which] for e in self.extents], options)

    def smallest_outputs(self) -> list[tuple[int, ...] | None]:
        """Shapes of the outputs at the third size; empty if there is none."""
        return list(self.tiny[OUTPUTS].shapes) if self.tiny else []

    def checks(self, model: OnnxModel, options: ImportOptions) -> Iterator[list[int]]:
        """Two other small sizes at which the model can be imported."""
        search = _Search(model, options, self.declared)
        found = [search.smallest(self.dims, self.multiple, batch)[0] for batch in CHECKED_BATCHES]
        yield from [e for e in found if e] or [[e[1] for e in self.extents]]


def bound(
    dims: tuple[OpenDim, ...],
    declared: Mapping[str, Shape],
    extents: list[int],
    options: ImportOptions,
) -> ImportOptions:
    """Options that bind the open dimensions to these extents."""
    shapes = {name: list(shape) for name, shape in declared.items()}
    for d, extent in zip(dims, extents, strict=True):
        for name, axis in d.places:
            shapes[name][axis] = extent
    fixed = {name: tuple(s) for name, s in shapes.items()}
    return replace(options, shapes={**options.shapes, **fixed}, dims={})  # type: ignore[dict-item]


def open_inputs(model: OnnxModel, options: ImportOptions) -> dict[str, Shape]:
    """Inputs with open dimensions that the options do not bind, with their shapes."""
    graph = model.proto.graph
    stored = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    given = {*options.shapes, *options.values, *stored}
    if options.inputs is not None:
        given |= {i.name for i in graph.input} - set(options.inputs)
    found = {}
    for info in graph.input:
        shape = open_shape(info) if info.type.HasField("tensor_type") else None
        if shape is None or info.name in given:
            continue
        shape = tuple(options.dims.get(d, d) if isinstance(d, str) else d for d in shape)
        if any(isinstance(d, str) for d in shape):
            found[info.name] = shape
    return found


def open_dims(declared: Mapping[str, Shape], one_batch: str = "") -> tuple[OpenDim, ...]:
    """The open dimensions. First axes are one dimension if `one_batch` is "nameless" or "all"."""
    places: dict[Any, list[tuple[str, int]]] = {}
    for name, shape in declared.items():
        for axis, d in enumerate(shape):
            if isinstance(d, str):
                key: Any = d or (name, axis)
                if axis == 0 and (one_batch == "all" or (one_batch and not d)):
                    key = 0
                places.setdefault(key, []).append((name, axis))
    return tuple(
        OpenDim(
            next((str(declared[n][a]) for n, a in at if declared[n][a]), ""),
            tuple(at),
            all(a == 0 and len(declared[n]) > 1 for n, a in at),
        )
        for at in places.values()
    )


def find_sizes(model: OnnxModel, options: ImportOptions) -> OpenSizes:
    """Two sizes at which the model can be imported; BadInput with the last error if none is found.

    Extents differ between dimensions and sizes, and are odd and even multiples, so that equal
    numbers mean equal dimensions.
    """
    declared = open_inputs(model, options)
    search = _Search(model, options, declared)
    for dims in dict.fromkeys(open_dims(declared, way) for way in ("", "nameless", "all")):
        found = search.run(dims)
        if found is not None:
            return found
    raise BadInput(
        f"{search.error}; no size was found at which the model with open dimensions can be read"
    ) from search.error


class _Search:
    def __init__(self, model: OnnxModel, options: ImportOptions, declared: Mapping[str, Shape]):
        self.model, self.options, self.declared = model, options, declared
        self.error: IntaglioError | None = None
        self.repeated = 0  # how often the same error came again

    def run(self, dims: tuple[OpenDim, ...]) -> OpenSizes | None:
        only_batch = all(d.batch for d in dims)
        for multiple in MULTIPLES[:1] if only_batch else MULTIPLES:
            for large in LARGE[:1] if only_batch else LARGE:
                one = [_extent(d, i, 0, large, multiple) for i, d in enumerate(dims)]
                first = self._import(dims, one) if large >= 2 * multiple else None
                if first is None:
                    continue
                for small in SMALL:
                    two = [_extent(d, i, 1, small, multiple) for i, d in enumerate(dims)]
                    second = self._import(dims, two)
                    if second is not None:
                        pairs = tuple(zip(one, two, strict=True))
                        tiny = self.smallest(dims, multiple, CHECKED_BATCHES[0])[1]
                        seen = (first, second)
                        return OpenSizes(dims, self.declared, pairs, multiple, seen, tiny)
        return None

    def smallest(
        self, dims: tuple[OpenDim, ...], multiple: int, batch: int
    ) -> tuple[list[int], dict[str, Seen]]:
        """The smallest extents at which the model can be imported, and what is seen; or nothing."""
        for extent in CHECKED_EXTENTS:
            extents = [
                batch if d.batch else multiple * (extent // multiple + batch + 2 * i)
                for i, d in enumerate(dims)
            ]
            seen = self._import(dims, extents)
            if seen is not None:
                return extents, seen
        return [], {}

    def _import(self, dims: tuple[OpenDim, ...], extents: list[int]) -> dict[str, Seen] | None:
        """What an import at these extents sees; None if it fails."""
        seen: dict[str, Seen] = {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # repeated when the model is loaded for use
                options = bound(dims, self.declared, extents, self.options)
                graph = load_onnx(self.model, options, seen)
        except IntaglioError as e:
            self.repeated = self.repeated + 1 if str(e) == str(self.error) else 0
            self.error = e
            if self.repeated >= SAME_ERRORS:
                raise  # it does not depend on the size
            return None
        seen[OUTPUTS] = Seen(tuple(v.shape for v in graph.outputs), ())
        return seen


def _extent(d: OpenDim, i: int, which: int, extent: int, multiple: int) -> int:
    """An odd multiple at the first size, an even one at the second; no two dimensions are equal."""
    if d.batch:
        return BATCHES[i % len(BATCHES)][which]
    count = extent // multiple
    return multiple * ((count | 1 if which == 0 else count // 2 * 2 + 2) + 2 * i)
