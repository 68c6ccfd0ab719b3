"""Nodes that carry out formulas: Reshape, Transpose and, with open dimensions, Shape and others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from intaglio.edit.formula import BoundFormula, OpenExtent, Transpose
from intaglio.edit.inference import Types
from intaglio.edit.node_builder import Builder
from intaglio.edit.node_expression import NodeExpression, Place
from intaglio.edit.state import State
from intaglio.frontends.onnx.tensors import element_code

Extents = tuple[int | OpenExtent, ...]
INFER, COPY = -1, 0  # in the shape operand of Reshape


class Rearranger:
    """Collects the nodes; the caller adds them to the model."""

    def __init__(self, state: State, types: Types, base: str):
        self.state, self.builder = state, Builder(state, types)
        self.base = base  # of the nodes' names
        self.nodes: list[Any] = []

    def cast(self, tensor: str, dtype: str, result: str) -> str:
        return self._node("Cast", [tensor], result, to=element_code(dtype))

    def rearrange(self, tensor: str, formula: BoundFormula, result: str | None) -> str:
        """Carry out a formula; returns the name of the last tensor."""
        steps = formula.steps()
        if not steps and result is not None:
            return self._node("Identity", [tensor], result)
        for i, step in enumerate(steps):
            name = result if i == len(steps) - 1 else None
            if isinstance(step, Transpose):
                tensor = self._node("Transpose", [tensor], name, perm=list(step.permutation))
            else:
                tensor = self._reshape(tensor, step.extents, name)
        return tensor

    def _reshape(self, tensor: str, extents: Extents, result: str | None) -> str:
        given = [_constant(e, i) for i, e in enumerate(extents)]
        if given.count(None) <= 1:
            shape = [INFER if g is None else g for g in given]
            return self._node("Reshape", [tensor], result, shape=shape)
        whole = self._node("Shape", [tensor])
        parts = [[e] if isinstance(e, int) else self._extent(whole, e) for e in extents]
        return self._node("Reshape", [tensor, self._node("Concat", parts, axis=0)], result)

    def _extent(self, shape: str, e: OpenExtent) -> str:
        """A vector of one element, the extent at run time."""
        found = [self._node("Gather", [shape, [axis]]) for axis in e.axes]
        made = found[0]
        for other in found[1:]:
            made = self._node("Mul", [made, other])
        for op, number in (("Mul", e.factor), ("Div", e.divisor)):
            if number != 1:
                made = self._node(op, [made, [number]])
        return made

    def _node(
        self, op: str, operands: Sequence[Any], result: str | None = None, **keywords: Any
    ) -> str:
        """Build a node; operands are names of tensors, or lists of numbers. Returns its result."""
        tensors = [o for o in operands if isinstance(o, str)]
        spelled = [Place(tensors.index(o)) if isinstance(o, str) else o for o in operands]
        name = self._fresh(f"{self.base}_{op}")
        e = NodeExpression(op, "", spelled, keywords)
        self.nodes.append(self.builder.node(e, name, tensors, [result or name]))
        return result or name

    def _fresh(self, wish: str) -> str:
        """A name that neither the model nor a collected node has."""
        names = [wish, *(f"{wish}_{i}" for i in range(1, len(self.nodes) + 2))]
        return self.state.fresh(*(n for n in names if n not in {m.name for m in self.nodes}))


def _constant(e: int | OpenExtent, axis: int) -> int | None:
    """An extent in the shape operand; None if it is computed."""
    if isinstance(e, int):
        return e
    return COPY if e == OpenExtent((axis,)) else None
