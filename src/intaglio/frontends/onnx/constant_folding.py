"""Constant folding during the import.

Small constant expressions are computed at once, so that importers find shape arithmetic constant.
Large results, and ops that must stay visible (dequantize), are computed on demand; the fold pass
computes the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from intaglio.frontends.onnx.open_shapes import OpenShapes
from intaglio.frontends.symbolic_values import SymbolicValues
from intaglio.ir import Array, Graph, Node, Type, Value, detach, symbolic
from intaglio.ops.registry import REGISTRY, evaluate_node

EAGER_LIMIT = 1 << 20  # bytes of a result that is computed immediately
FORCE_LIMIT = 1 << 30  # bytes of a result that is computed on demand


class Folder:
    """Folds constants during the import; remembers constant values that are not computed yet."""

    def __init__(self) -> None:
        self._waiting: set[Value] = set()
        self.symbolic = SymbolicValues()
        self.open: OpenShapes | None = None  # of an import with open dimensions

    def settle(self, results: Iterable[Value | None], origin: str) -> None:
        """Set the origin of the nodes just made, and compute small constant results."""
        for node in _new_nodes(results):
            node.origin = origin
            inputs = [v for v in node.inputs if v is not None]
            if all(v.data is not None for v in inputs) and _cheap(node):
                _compute(node)
            elif not symbolic(node) and all(
                v.data is not None or v in self._waiting for v in inputs
            ):
                self._waiting.update(node.outputs)
            elif (known := self.symbolic.follow(node)) is not None:
                _store(node, known)
            elif self.open is not None and (arrays := self.open.follow(node)) is not None:
                _store(node, arrays)

    def force(self, value: Value | None) -> Array | None:
        """The array of a constant expression; None if `value` is not constant or too large."""
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
    """The nodes that an importer just made (those without an origin), producers first."""
    order: dict[Node, bool] = {}
    stack = [v.producer for v in results if v is not None]
    while stack:
        node = stack[-1]
        if node is None or node.origin or order.get(node):
            stack.pop()
        elif node in order:
            stack.pop()
            order[node] = True
            order[node] = order.pop(node)  # finished: move to the end
        else:
            order[node] = False
            stack.extend(v.producer for v in node.inputs if v is not None)
    return list(order)


def _cheap(node: Node) -> bool:
    small = all(v.type.bytes <= EAGER_LIMIT for v in node.outputs)
    bodies = any(isinstance(a, Graph) for a in node.attrs.values())  # a loop may run very long
    return small and not bodies and not symbolic(node) and REGISTRY[node.op].foldable


def _compute(node: Node) -> None:
    """Turn the outputs of `node` into constants in place; readers keep the same Values."""
    _store(node, evaluate_node(node, [None if v is None else v.data for v in node.inputs]))


def _store(node: Node, arrays: Sequence[Array]) -> None:
    for v, a in zip(node.outputs, arrays, strict=True):
        # a data-dependent extent is known now
        v.type, v.data, v.producer = Type(v.dtype, a.shape, v.type.quant), a, None
    detach(node)
