"""Constant expressions: the small ones are computed as soon as they are made.

Shape arithmetic is thus constant by the time an importer asks for it. Large results, and ops that
must stay visible (dequantize), are computed only on demand; the rest is left to the fold pass.
"""

from __future__ import annotations

from collections.abc import Iterable

from intaglio.ir import Array, Graph, Node, Type, Value, detach
from intaglio.ops.registry import REGISTRY, evaluate_node

EAGER_LIMIT = 1 << 20  # bytes of a result that is computed at once
FORCE_LIMIT = 1 << 30  # bytes: no model needs a constant this large to decide a shape


class Folder:
    """Folds while a model is imported; remembers which values are constant but not computed."""

    def __init__(self) -> None:
        self._waiting: set[Value] = set()

    def settle(self, results: Iterable[Value | None], origin: str) -> None:
        """Take over the nodes just made: name their origin, compute what is constant and small."""
        for node in _new_nodes(results):
            node.origin = origin
            inputs = [v for v in node.inputs if v is not None]
            if all(v.data is not None for v in inputs) and _cheap(node):
                _compute(node)
            elif all(v.data is not None or v in self._waiting for v in inputs):
                self._waiting.update(node.outputs)

    def force(self, value: Value | None) -> Array | None:
        """The array of a constant expression; None where `value` is none, or is absurdly large."""
        if value is None or value.data is not None or value not in self._waiting:
            return None if value is None else value.data
        todo = [value.producer]
        while todo:
            node = todo[-1]
            if node is None or any(v.type.bytes > FORCE_LIMIT for v in node.outputs):
                return None
            before = [v.producer for v in node.inputs if v is not None and v.data is None]
            if before:
                todo.extend(before)
                continue
            todo.pop()
            if node.outputs[0].data is None:
                _compute(node)
        return value.data


def _new_nodes(results: Iterable[Value | None]) -> list[Node]:
    """The nodes that an importer just made, producers first: those that have no origin yet."""
    order: dict[Node, bool] = {}
    stack = [v.producer for v in results if v is not None]
    while stack:
        node = stack[-1]
        if node is None or node.origin or order.get(node):
            stack.pop()
        elif node in order:
            stack.pop()
            order[node] = True
            order[node] = order.pop(node)  # finished: to the end
        else:
            order[node] = False
            stack.extend(v.producer for v in node.inputs if v is not None)
    return list(order)


def _cheap(node: Node) -> bool:
    small = all(v.type.bytes <= EAGER_LIMIT for v in node.outputs)
    bodies = any(isinstance(a, Graph) for a in node.attrs.values())  # a loop may take for ever
    return small and not bodies and REGISTRY[node.op].foldable


def _compute(node: Node) -> None:
    """Make the outputs of `node` constants; who reads them keeps reading the same Values."""
    arrays = evaluate_node(node, [None if v is None else v.data for v in node.inputs])
    for v, a in zip(node.outputs, arrays, strict=True):
        # an extent that depends on data is known now
        v.type, v.data, v.producer = Type(v.dtype, a.shape, v.type.quant), a, None
    detach(node)
