"""LSTMs and GRUs of a model that is quantised by samples: rows of bytes, as far as outputs bear it.

What a state holds depends on all that came before, so that ranges from samples mean little; a scale
for each row as it comes costs next to nothing beside the products.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from intaglio.ir import Array, Graph, Node
from intaglio.quant.placement.place import FLOATS, layer
from intaglio.quant.ranges.observe import Progress
from intaglio.quant.samples.subset import some_of
from intaglio.quant.search.output_error import OutputMatch, Reference
from intaglio.quant.weight_only.weights import has_bytes_form, in_bytes
from intaglio.targets import Target

if TYPE_CHECKING:
    from intaglio.quant.result import Quantized

SLACK = 1.2  # times the error of the model without them that they may make of it
COARSE = "its states are too coarse in int8"


def candidates(graph: Graph, wanted: Mapping[str, str], chip: Target) -> list[Node]:
    """The recurrent layers that the target computes from bytes, unless floats are wanted."""
    return [
        n
        for n in graph.nodes()
        if n.op in chip.dynamic and has_bytes_form(n) and wanted.get(layer(n)) not in FLOATS
    ]


def quantize_recurrent(
    made: Quantized,
    names: Sequence[str],
    samples: Sequence[Mapping[str, Array]],
    accuracy: float | None,
    wanted: Collection[str] = (),
    progress: Progress | None = None,
) -> None:
    """Let the layers called `names` compute in bytes, in place, but for those that cost too much.

    The outputs are to keep the cosine `accuracy`, or what they have without it. Layers in `wanted`
    are not asked about.
    """
    taken = list(names)
    if accuracy is not None and set(names) - set(wanted):
        if progress:
            progress("trying recurrent layers in bytes", 0, None)
        reference = Reference.of(made.float_graph, some_of(samples))
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
    """1 - cosine of the worst part of an output."""
    return max((1 - m.cosine for m in found), default=0.0)


def _replaced(graph: Graph, names: Collection[str]) -> Graph:
    """A copy in which these layers are rows of bytes."""
    copy = graph.copy()
    for node in list(copy.nodes()):
        if node.op not in ("lstm", "gru") or layer(node) not in names:
            continue
        for old, new in zip(node.outputs, in_bytes(node), strict=True):
            name = old.name
            copy.replace(old, new)
            new.name = name
    return copy
