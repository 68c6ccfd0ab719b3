"""Concatenations whose parts have very different ranges: each part keeps its own scale.

With one scale for all, a part k times narrower than the whole loses log2(k) bits. If only products
read the concatenation, the part is multiplied by k and its weights in the products are divided by
k: the result is the same, and every part uses the full range. If other ops read it, its readers
compute in floats.
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

MAX_RATIO = 8.0  # a part may be this much narrower than the whole: it loses three bits


@dataclass(frozen=True)
class SeparatedConcat:
    """One concatenation whose parts keep their own scales."""

    tensor: str
    ratios: tuple[float, ...]  # width of the whole / width of the part
    floats: tuple[str, ...] = ()  # readers in floats; empty: their weights are rescaled

    def __str__(self) -> str:
        wide = ", ".join(f"{r:.3g}" for r in self.ratios)
        how = (
            f"{', '.join(self.floats)} compute in floats" if self.floats else "weights are rescaled"
        )
        return (
            f"concat '{self.tensor}': its parts are {wide} times narrower than the whole and keep "
            f"scales of their own: {how}"
        )


def concat_tensors(placement: Placement) -> list[Value]:
    """The results and parts of all quantised concatenations."""
    return [v for n in _quantized_concats(placement) for v in (n.outputs[0], *_parts(n))]


def _quantized_concats(placement: Placement) -> list[Node]:
    return [n for n in placement.nodes if n.op == "concat" and placement.quantized(n.outputs[0])]


def separate_concat_ranges(
    graph: Graph, placement: Placement, ranges: Mapping[Value, Range]
) -> list[SeparatedConcat]:
    """Rescale the parts in place, or name the readers that must compute in floats.

    The graph has new nodes afterwards, which `placement` does not know.
    """
    results = []
    for node in _quantized_concats(placement):
        whole = node.outputs[0]
        ratios = tuple(_width(ranges[whole]) / (_width(ranges[v]) or 1.0) for v in _parts(node))
        if max(ratios) <= MAX_RATIO:
            continue
        readers = [n for n in whole.uses if n in placement.nodes]
        if all(_takes_channels(n, node) for n in whole.uses):
            _rescale(graph, node, [2.0 ** round(np.log2(r)) if r > 1 else 1.0 for r in ratios])
            results.append(SeparatedConcat(whole.name, ratios))
        else:
            results.append(SeparatedConcat(whole.name, ratios, tuple(layer(n) for n in readers)))
    return results


def _parts(concat: Node) -> list[Value]:
    return [v for v in concat.inputs if v is not None]


def _width(r: Range) -> float:
    return max(r[1], 0.0) - min(r[0], 0.0)


def _takes_channels(node: Node, concat: Node) -> bool:
    """Does it multiply every channel of the concatenation by its own weights?"""
    whole = concat.outputs[0]
    axis = normalize_axis(concat.attrs["axis"], whole.type.rank)
    w = node.inputs[1] if len(node.inputs) > 1 else None
    if w is None or w.data is None or node.inputs[0] is not whole or len(w.uses) != 1:
        return False
    if node.op == "conv":
        return axis == 1 and node.attrs["groups"] == 1
    return node.op in ("gemm", "matmul") and w.type.rank == 2 and axis == whole.type.rank - 1


def _rescale(graph: Graph, concat: Node, factors: list[float]) -> None:
    """Multiply the parts by `factors` and divide the readers' weights by them.

    The factors are powers of two, so the products stay exact.
    """
    axis = normalize_axis(concat.attrs["axis"], concat.outputs[0].type.rank)
    each = np.repeat(factors, [v.shape[axis] for v in _parts(concat)]).astype(np.float32)
    parts = []
    for v, k in zip(_parts(concat), factors, strict=True):
        result: Value = v if k == 1 else ops.mul(v, constant(k, dtype="f32"))
        result.name = result.name or f"{v.name}_times_{k:g}"
        parts.append(result)
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
