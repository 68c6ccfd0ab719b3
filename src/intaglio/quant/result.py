"""The result of quantisation: the graph, its scheme and the observed ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from intaglio.frontends.preprocess import describe, preprocess
from intaglio.ir import Graph
from intaglio.quant.placement.scheme import Scheme
from intaglio.quant.ranges.observe import Observation
from intaglio.quant.samples.dataset import Samples
from intaglio.quant.search.mixed_precision import Point


@dataclass
class Quantized:
    """A quantised graph, and how it was made."""

    graph: Graph  # with explicit quantize_linear and dequantize_linear nodes
    float_graph: Graph  # the float model: optimised, every tensor with a unique name
    scheme: Scheme = field(repr=False)
    floats: dict[str, str]  # products that stay in floats, and why
    observations: dict[str, Observation] = field(repr=False)
    notes: list[str] = field(default_factory=list)  # messages for the user
    # accuracy against the number of layers in wider types
    curve: list[Point] = field(default_factory=list, repr=False)
    samples: int = 0  # number of samples that were observed
    dataset: Samples | None = field(default=None, repr=False)  # all samples that were given
    # `graph` without embedded preprocessing: it takes the float model's inputs
    bare_graph: Graph = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.bare_graph = self.graph

    def embed(self, preprocessing: Mapping[str, Any], reading: Mapping[str, Any]) -> None:
        """Make `preprocessing` part of `graph`, and keep how pictures were read beside it."""
        pictures = self.dataset is not None and self.dataset.pictures
        if pictures or any(reading[k] is not None for k in ("mean", "std")):
            known = ("mean", "std", "layout", "color", "resize", "pad_value")
            describe(self.graph, **{k: reading[k] for k in known})
        self.bare_graph = self.graph.copy() if preprocessing else self.graph
        preprocess(self.graph, **preprocessing)
