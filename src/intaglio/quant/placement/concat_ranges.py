"""Keep the parts of a concatenation apart where one range would leave little of the narrower ones.

A part whose numbers are k times smaller than the whole's would keep log2(k) bits less. Where only
products read the whole, the part is multiplied by k and their weights for it are divided by k:
the sums stay what they were, and every part uses the full range. Where others read it too, the
readers compute in floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from intaglio import ops
from intaglio.ir import Graph, Node, Value, constant
from intaglio.ops.registry import normalize_axis
from intaglio.quant.placement.place import Placement, layer
from intaglio.quant.ranges.assign import Range

FAR = 8.0  # times that a part may be narrower than the whole before it is kept apart: three bits


@dataclass(frozen=True)
class SeparatedConcat:
    """What was done about one concatenation."""

    tensor: str
    ratios: tuple[float, ...]  # how many times narrower each part is
    floats: tuple[str, ...] = ()  # layers that have to read floats; empty: the weights take it

    def __str__(self) -> str:
        wide = ", ".join(f"{r:.3g}" for r in self.ratios)
        done = f"{', '.join(self.floats)} in floats" if self.floats else "by its readers' weights"
        return f"'{self.tensor}': parts are narrower than the whole by {wide}; kept apart {done}"


def concat_tensors(placement: Placement) -> list[Value]:
    """Every quantised concatenation's result and parts."""
    return [v for n in _quantized_concats(placement) for v in (n.outputs[0], *_parts(n))]


def _quantized_concats(placement: Placement) -> list[Node]:
    return [n for n in placement.nodes if n.op == "concat" and placement.quantized(n.outputs[0])]


def separate_concat_ranges(
    graph: Graph, placement: Placement, ranges: Mapping[Value, Range]
) -> list[SeparatedConcat]:
    """Rescale the parts in place, or say which layers must be floats; both are in what it returns.

    Where parts were rescaled, the graph has to be placed and observed anew.
    """
    made = []
    for node in _quantized_concats(placement):
        whole = node.outputs[0]
        ratios = tuple(_width(ranges[whole]) / (_width(ranges[v]) or 1.0) for v in _parts(node))
        if max(ratios) <= FAR:
            continue
        readers = [n for n in whole.uses if n in placement.nodes]
        if all(_takes_channels(n, node) for n in whole.uses):
            _rescale(graph, node, [2.0 ** round(np.log2(r)) if r > 1 else 1.0 for r in ratios])
            made.append(SeparatedConcat(whole.name, ratios))
        else:
            made.append(SeparatedConcat(whole.name, ratios, tuple(layer(n) for n in readers)))
    return made


def _parts(concat: Node) -> list[Value]:
    return [v for v in concat.inputs if v is not None]


def _width(r: Range) -> float:
    return max(r[1], 0.0) - min(r[0], 0.0)


def _takes_channels(node: Node, concat: Node) -> bool:
    """Does it multiply each channel of the concatenation by weights of its own?"""
    whole = concat.outputs[0]
    axis = normalize_axis(concat.attrs["axis"], whole.type.rank)
    w = node.inputs[1] if len(node.inputs) > 1 else None
    if w is None or w.data is None or node.inputs[0] is not whole or len(w.uses) != 1:
        return False
    if node.op == "conv":
        return axis == 1 and node.attrs["groups"] == 1
    return node.op in ("gemm", "matmul") and w.type.rank == 2 and axis == whole.type.rank - 1


def _rescale(graph: Graph, concat: Node, factors: list[float]) -> None:
    """Powers of two: the products change in no bit but those that overflow or vanish."""
    axis = normalize_axis(concat.attrs["axis"], concat.outputs[0].type.rank)
    each = np.repeat(factors, [v.shape[axis] for v in _parts(concat)]).astype(np.float32)
    parts = []
    for v, k in zip(_parts(concat), factors, strict=True):
        made: Value = v if k == 1 else ops.mul(v, constant(k, dtype="f32"))
        made.name = made.name or f"{v.name}_times_{k:g}"
        parts.append(made)
    whole: Value = ops.concat(*parts, **concat.attrs)
    for n in list(concat.outputs[0].uses):
        w = n.inputs[1]
        assert w is not None
        assert w.data is not None
        turned = (n.op == "gemm" and not n.attrs["trans_b"]) or n.op == "matmul"
        shape = (-1, 1) if turned else (1, -1, *[1] * (w.type.rank - 2))
        less = constant(w.data / each.reshape(shape), f"{w.name}_apart")
        graph.set_input(n, 1, less)
    name = concat.outputs[0].name
    graph.replace(concat.outputs[0], whole)
    whole.name = name
