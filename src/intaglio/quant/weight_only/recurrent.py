"""LSTMs and GRUs of a calibrated model: dynamic int8 where accuracy allows.

A state depends on all inputs before it, so ranges from samples mean little; a scale for each row at
run time costs next to nothing beside the products.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from intaglio.ir import Array, Graph, Node
from intaglio.quant.placement.place import FLOATS, layer
from intaglio.quant.ranges.observe import Progress
from intaglio.quant.samples.subset import evenly_spaced
from intaglio.quant.search.output_error import OutputMatch, Reference
from intaglio.quant.weight_only.dynamic import dynamic_cell, has_dynamic_form
from intaglio.targets import Target

if TYPE_CHECKING:
    from intaglio.quant.result import Quantized

SLACK = 1.2  # the error may grow by this factor over the model with float LSTMs and GRUs
COARSE = "int8 is too coarse for its states"


def candidates(graph: Graph, wanted: Mapping[str, str], chip: Target) -> list[Node]:
    """Recurrent layers that the target computes in dynamic int8 and nobody fixed in floats."""
    return [
        n
        for n in graph.nodes()
        if n.op in chip.dynamic and has_dynamic_form(n) and wanted.get(layer(n)) not in FLOATS
    ]


def quantize_recurrent(
    made: Quantized,
    names: Sequence[str],
    samples: Sequence[Mapping[str, Array]],
    accuracy: float | None,
    wanted: Collection[str] = (),
    progress: Progress | None = None,
) -> None:
    """Convert the layers `names` to dynamic int8, in place, except those that cost too much.

    The outputs keep the cosine `accuracy` or, if they do not have it before, nearly what they have.
    Layers in `wanted` are fixed by the user and always converted.
    """
    taken = list(names)
    if accuracy is not None and set(names) - set(wanted):
        if progress:
            progress("trying recurrent layers in int8", 0, None)
        reference = Reference.of(made.float_graph, evenly_spaced(samples))
        plain = _worst(reference.compare(made.graph))
        allowed = max(1 - accuracy, SLACK * plain)
        free = [n for n in names if n not in wanted]
        if _loss(made, names, reference) > allowed:
            fixed = [n for n in names if n in wanted]
            alone = {n: _loss(made, [*fixed, n], reference) for n in free}
            taken = list(fixed)
            for n in sorted(free, key=lambda n: alone[n]):
                if _loss(made, [*taken, n], reference) <= allowed:
                    taken.append(n)
    made.graph = _replaced(made.graph, taken)
    for n in names:
        made.scheme.layers[n] = "int8" if n in taken else "f32"
        if n not in taken:
            made.floats[n] = COARSE


def _loss(made: Quantized, names: Collection[str], reference: Reference) -> float:
    return _worst(reference.compare(_replaced(made.graph, names)))


def _worst(found: Sequence[OutputMatch]) -> float:
    """1 - cosine of the worst output part."""
    return max((1 - m.cosine for m in found), default=0.0)


def _replaced(graph: Graph, names: Collection[str]) -> Graph:
    """A copy of the graph with these layers in dynamic int8."""
    copy = graph.copy()
    for node in list(copy.nodes()):
        if node.op not in ("lstm", "gru") or layer(node) not in names:
            continue
        for old, new in zip(node.outputs, dynamic_cell(node), strict=True):
            name = old.name
            copy.replace(old, new)
            new.name = name
    return copy
