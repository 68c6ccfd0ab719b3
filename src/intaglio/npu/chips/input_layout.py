"""Transposes of inputs come before tables of them, as files of TFLite with bytes have both.

A file of the chip takes N x C x H x W, and its tables are layers: the caller transposes first.
"""

from __future__ import annotations

from intaglio import ops
from intaglio.ir import Graph, Node, Value
from intaglio.ops.registry import REGISTRY

ELEMENTWISE = ("lookup", "clip", "quantize_linear")  # whose other operands are constants


def transpose_inputs_first(graph: Graph) -> None:
    """Move transposes above element-wise ops, if these read nothing but an input."""
    inputs = set(graph.inputs)
    for node in list(graph.nodes()):
        chain, read = _chain(node.inputs[0]) if node.op == "transpose" else ([], None)
        if not chain or read not in inputs:
            continue
        moved: Value = ops.transpose(read, **node.attrs)
        moved.producer.origin = node.origin  # type: ignore[union-attr]
        for one in reversed(chain):
            made = REGISTRY[one.op].node(moved, *one.inputs[1:], **one.attrs, origin=one.origin)
            moved = made.outputs[0]
        graph.replace(node.outputs[0], moved)


def _chain(v: Value | None) -> tuple[list[Node], Value | None]:
    """The element-wise ops that make a value for one reader, the last first, and what they read."""
    found: list[Node] = []
    while v is not None and v.producer is not None and len(v.uses) == 1:
        node = v.producer
        scales = node.inputs[1:] if node.op == "quantize_linear" else []
        if node.op not in ELEMENTWISE or any(s is not None and s.type.size != 1 for s in scales):
            break
        found.append(node)
        v = node.inputs[0]
    return found, v
