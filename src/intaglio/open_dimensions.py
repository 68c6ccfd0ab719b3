"""Optimises an ONNX model whose dimensions are open, and leaves them open.

The model is imported and optimised at two sizes. The two results must have the same nodes; shapes
that differ are written so that they hold for all sizes. A node that would fix an extent is left as
it is in the file, and the model is optimised again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from intaglio.compiler import Optimized, trace_optimize
from intaglio.errors import Unsupported, option
from intaglio.export.onnx import write_model
from intaglio.export.onnx.export_rules import rewrite_for_onnx
from intaglio.export.onnx.merge_sizes import DiffersBySize, merge_sizes
from intaglio.export.onnx.model_proto import Tensors, assemble, inline
from intaglio.frontends import sniff
from intaglio.frontends.onnx import OnnxModel, load_onnx, parse_onnx
from intaglio.frontends.onnx.input_binding import open_shape
from intaglio.frontends.onnx.open_dims import OpenSizes, bound, find_sizes, open_inputs
from intaglio.frontends.onnx.open_shapes import OpenShapes
from intaglio.frontends.options import ImportOptions
from intaglio.frontends.preprocess import preprocess
from intaglio.ir import Graph

MAX_ATTEMPTS = 8  # at each level


@dataclass
class OpenModel:
    """An optimised model with open dimensions, and how it was made."""

    sizes: OpenSizes
    proto: Any  # without its constants
    tensors: Tensors
    optimized: Optimized  # at the first size
    level: int
    kept: dict[str, str] = field(default_factory=dict)  # nodes that were left, with the reason

    def save(self, path: str | Path) -> None:
        write_model(self._copy(), self.tensors, path)

    def to_onnx(self) -> Any:
        """The ModelProto with its constants."""
        made = self._copy()
        inline(made, self.tensors)
        return made

    def _copy(self) -> Any:
        made = type(self.proto)()
        made.CopyFrom(self.proto)
        return made


@dataclass(frozen=True)
class Settings:
    """Options of the optimiser and the writer."""

    level: int = 3
    disable: Collection[str] = ()
    opset: int | None = None
    contrib: bool = False
    dump_dir: str | Path | None = None


@dataclass(frozen=True)
class Source:
    """A model with open dimensions, and the options of its import."""

    model: OnnxModel
    options: ImportOptions
    preprocessing: dict[str, Any]

    def at(self, sizes: OpenSizes, extents: list[int]) -> Graph:
        """The graph at one size."""
        return self._load(bound(sizes.dims, sizes.declared, extents, self.options))

    def opened(self, sizes: OpenSizes, which: int, kept: Collection[str]) -> Graph:
        """The graph at one of the two sizes, with shapes that are computed at run time."""
        seen = sizes.seen
        shapes = OpenShapes(seen[which], seen[1 - which], sizes.tiny, frozenset(kept))
        return self._load(sizes.options(self.options, which), shapes)

    def _load(self, options: ImportOptions, shapes: OpenShapes | None = None) -> Graph:
        graph = load_onnx(self.model, options, opened=shapes)
        if self.preprocessing:
            preprocess(graph, **self.preprocessing)
        return graph


def find_open(model: Any, keywords: dict[str, Any]) -> Source | None:
    """The model if it is ONNX with open dimensions that the keywords of `load` do not bind."""
    if isinstance(model, str | Path) and sniff(Path(model)) != "ONNX":
        return None
    names = {f.name for f in fields(ImportOptions)}
    own = {k: v for k, v in keywords.items() if k in names and v is not None}
    rest = {k: v for k, v in keywords.items() if k not in names}
    source = Source(parse_onnx(model), ImportOptions(**own), rest)
    return source if open_inputs(source.model, source.options) else None


def optimize_open(source: Source, settings: Settings) -> OpenModel:
    """The optimised model; Unsupported if its structure depends on the open dimensions."""
    sizes = find_sizes(source.model, source.options)
    error: Exception | None = None
    for level in sorted({settings.level, min(settings.level, 1), 0}, reverse=True):
        kept: dict[str, str] = {}
        for _ in range(MAX_ATTEMPTS):
            try:
                return _attempt(source, settings, sizes, level, kept)
            except DiffersBySize as e:
                error = e
                new = {k: v for k, v in e.found.items() if k in sizes.seen[0] and k not in kept}
                if not new:
                    break
                kept.update(new)
    dims = {str(d): ... for d in sizes.dims if d.name}
    raise Unsupported(
        f"onnx: the model's structure depends on its open dimensions ({error}); bind them with "
        f"{option('dims', dims) if dims else option('shapes')}"
    ) from error


def _attempt(
    source: Source, settings: Settings, sizes: OpenSizes, level: int, kept: dict[str, str]
) -> OpenModel:
    """The model optimised at both sizes and merged; DiffersBySize if they do not fit."""
    made = [
        trace_optimize(
            source.opened(sizes, which, kept),
            level,
            settings.disable,
            settings.dump_dir if which == 0 else None,
        )
        for which in (0, 1)
    ]
    _, opset = rewrite_for_onnx(made[0].graph, settings.opset, settings.contrib)
    first, second = (
        assemble(rewrite_for_onnx(m.graph, opset, settings.contrib)[0], opset, None) for m in made
    )
    symbols = {e: d.name for d, e in zip(sizes.dims, sizes.extents, strict=True) if d.name}
    graph = source.model.proto.graph
    declared = {i.name: open_shape(i) for i in (*graph.input, *graph.output)}
    tiny = dict(zip(made[0].graph.output_names, sizes.smallest_outputs(), strict=False))
    proto, tensors = merge_sizes(first, second, symbols, declared, tiny)
    return OpenModel(sizes, proto, tensors, made[0], level, dict(kept))
