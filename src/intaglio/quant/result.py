"""The result of quantisation: the graph, its scheme and what was observed."""

from __future__ import annotations

from dataclasses import dataclass, field

from intaglio.ir import Graph
from intaglio.quant.placement.scheme import Scheme
from intaglio.quant.ranges.observe import Observation
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
    curve: list[Point] = field(
        default_factory=list, repr=False
    )  # layers in floats against accuracy
    samples: int = 0  # number of samples that were observed
