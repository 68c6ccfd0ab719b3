"""Bounds on the memory and time that a model may ask for.

A file of a few kilobytes can declare terabytes of inputs, or nest functions that expand to a
billion nodes. Such a file is refused in one line, unless the user says `allow_large=True`.
"""

from __future__ import annotations

from intaglio.errors import BadInput, option
from intaglio.ir import Graph, Value

MAX_TENSOR_BYTES = 2 << 30  # of one input or computed tensor, and of all inputs together
MAX_INLINED_NODES = 1 << 17  # nodes that the functions of a file may expand to
REMEDY = f"if you trust the model, allow it with {option('allow_large', True)}"


def refuse_large(graph: Graph) -> None:
    """BadInput if running the graph takes a tensor, or inputs, of more than MAX_TENSOR_BYTES."""
    for v in graph.values():
        if v.data is None and v.type.bytes > MAX_TENSOR_BYTES:
            raise _too_large(_name(v, graph), v.type.bytes)
    whole = sum(v.type.bytes for v in graph.inputs)
    if whole > MAX_TENSOR_BYTES:
        raise _too_large("the inputs together", whole)


def _name(v: Value, graph: Graph) -> str:
    if v in graph.inputs:
        return f"input '{v.name}' ({v.type})"
    place = f" '{v.producer.origin}'" if v.producer and v.producer.origin else ""
    return f"the result of node{place} ({v.type})"


def _too_large(what: str, size: int) -> BadInput:
    return BadInput(
        f"{what} takes {size / 2**30:.1f} GiB; the limit is {MAX_TENSOR_BYTES >> 30} GiB; {REMEDY}"
    )
