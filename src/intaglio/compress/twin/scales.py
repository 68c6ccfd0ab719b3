"""Groups of quantised tensors that share one scale: what training may change together.

In an integer graph the maker of a tensor rounds to a scale, and every reader multiplies by it.
Ops that only move values hand the scale on. A group is free if all its makers and readers hold the
same constants and none of them is a table, whose entries were made for these scales.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from intaglio import dtypes
from intaglio.ir import Graph, Node, Value

# op -> triples of operands: integers, scale, zero point
READS = {
    "qlinear_conv": ((0, 1, 2), (9, 10, 11)),
    "qlinear_matmul": ((0, 1, 2), (3, 4, 5)),
    "qlinear_add": ((0, 1, 2), (3, 4, 5)),
    "qlinear_mul": ((0, 1, 2), (3, 4, 5)),
    "qlinear_mean": ((0, 1, 2),),
    "qlinear_avg_pool": ((0, 1, 2),),
    "qlinear_resize": ((0, 1, 2),),
    "dequantize_linear": ((0, 1, 2),),
}
# op -> scale and zero point of the result
MAKES = {
    "qlinear_conv": (6, 7),
    "qlinear_matmul": (6, 7),
    "qlinear_add": (6, 7),
    "qlinear_mul": (6, 7),
    "qlinear_mean": (3, 4),
    "qlinear_avg_pool": (3, 4),
    "qlinear_resize": (3, 4),
    "quantize_linear": (1, 2),
}
MOVES = (
    "reshape", "transpose", "slice", "concat", "max_pool", "clip", "relu", "channel_shuffle",
    "depth_to_space", "space_to_depth", "expand", "tile", "pad", "gather", "resize",
)  # fmt: skip
INTEGERS = ("i8", "u8", "i16")
APART = "its readers hold different scales"


@dataclass
class Group:
    """Tensors of one scale, with the operands that hold it."""

    tensors: list[Value] = field(default_factory=list)
    holders: list[tuple[Node, int, int]] = field(default_factory=list)  # of scale and zero point
    fixed: str = ""  # why training must leave the scale alone; empty: it is free

    @property
    def name(self) -> str:
        named = [v.name for v in self.tensors if v.name]
        return named[0] if named else "tensor"

    @property
    def scale(self) -> float:
        node, scale, _ = self.holders[0]
        return float(_number(node.inputs[scale]))

    @property
    def zero(self) -> int:
        return self.zeros()[0]

    def zeros(self) -> list[int]:
        """The zero point that each holder has; one that is left out is 0."""
        return [0 if (v := n.inputs[z]) is None else int(_number(v)) for n, _, z in self.holders]

    @property
    def levels(self) -> tuple[int, int]:
        return dtypes.limits(self.tensors[0].dtype)

    def slots(self) -> list[tuple[Node, int]]:
        """The operands that hold the scale."""
        return [(n, scale) for n, scale, _ in self.holders]


def is_moved(v: Value | None) -> bool:
    """Is it a quantised tensor that the graph computes?"""
    return v is not None and v.data is None and v.dtype in INTEGERS


def groups(graph: Graph) -> list[Group]:
    """The groups of a graph, in the order of their first tensors."""
    parent: dict[Value, Value] = {}

    def root(v: Value) -> Value:
        while parent.setdefault(v, v) is not v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    nodes = list(graph.nodes())
    for n in nodes:
        around = [v for v in (*n.inputs, *n.outputs) if v is not None and is_moved(v)]
        if n.op in MOVES and around:
            for v in around[1:]:
                parent[root(v)] = root(around[0])
    found: dict[Value, Group] = {}

    def of(v: Value) -> Group:
        g = found.setdefault(root(v), Group())
        if v not in g.tensors:
            g.tensors.append(v)
        return g

    for v in graph.inputs:
        if is_moved(v):
            of(v).fixed = "it is an input of the model"
    for n in nodes:
        _visit(n, of)
    for v in graph.outputs:
        if is_moved(v):
            of(v).fixed = "it is an output of the model"
    for g in found.values():
        g.fixed = _disagrees(g) or g.fixed
    return list(found.values())


def _visit(n: Node, group: Callable[[Value], Group]) -> None:
    known = set[int]()
    for q, scale, zero in READS.get(n.op, ()):
        x = n.inputs[q] if q < len(n.inputs) else None
        if x is not None and is_moved(x):
            _note(group(x), n, scale, zero)
            known.add(q)
    for i, x in enumerate(n.inputs):
        if x is not None and is_moved(x) and i not in known and n.op not in MOVES:
            group(x).fixed = f"{n.op} '{n.origin}' reads it through a table or as plain numbers"
    for y in n.outputs:
        if not is_moved(y):
            continue
        if n.op in MAKES:
            _note(group(y), n, *MAKES[n.op])
        elif n.op not in MOVES:
            group(y).fixed = f"{n.op} '{n.origin}' makes it with a table or as plain numbers"


def _note(g: Group, n: Node, scale: int, zero: int) -> None:
    held = [n.inputs[scale], n.inputs[zero]]
    if held[0] is None or any(v is not None and v.data is None for v in held):
        g.fixed = "its scale is not constant"
    elif any(v is not None and v.type.size != 1 for v in held):
        g.fixed = "it has a scale for each channel"
    else:
        g.holders.append((n, scale, zero))


def _disagrees(g: Group) -> str:
    """Why the constants of a group are not one scale and one zero point."""
    if not g.holders:
        return "no op holds its scale"
    if len({_number(n.inputs[scale]) for n, scale, _ in g.holders}) > 1:
        return APART
    return APART if len(set(g.zeros())) > 1 else ""


def _number(v: Value | None) -> float:
    assert v is not None
    assert v.data is not None
    return v.data.reshape(-1)[0].item()


def products(graph: Graph) -> Iterator[Node]:
    """Integer products with constant weights, which training changes."""
    for n in graph.nodes():
        if n.op in ("qlinear_conv", "qlinear_matmul") and is_moved(n.inputs[0]):
            w = n.inputs[3]
            if w is not None and w.data is not None and w.dtype in INTEGERS:
                yield n
