"""Where a graph can be cut: tensors of one byte an element that alone cross the cut."""

from __future__ import annotations

from dataclasses import dataclass

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Graph, Value


@dataclass(frozen=True)
class Cut:
    """A tensor that every path from the inputs to the outputs passes."""

    tensor: str
    position: int  # nodes up to this one, in the order of `Graph.nodes`, run on the device
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    at_input: bool  # only quantisation comes before it


def single_tensor_cuts(graph: Graph) -> list[Cut]:
    """The cuts of a quantised graph, from its inputs to its outputs.

    Every path must pass the tensor, so that it is all that is sent. It must have integers of one
    byte: the quantised graph has rounded it anyway, and sending it costs no accuracy.
    """
    found = []
    last_use: dict[Value, int] = {}
    nodes = list(graph.nodes())
    for i, node in enumerate(nodes):
        for v in node.inputs:
            if v is not None:
                last_use[v] = i
    for v in graph.outputs:
        last_use[v] = len(nodes)
    varying = set(graph.inputs)
    live = {v for v in graph.inputs if v in last_use}
    work = 0  # nodes so far that do more than quantise
    for i, node in enumerate(nodes):
        if not any(v in varying for v in node.inputs):
            continue  # of constants only: both sides can have it
        varying.update(node.outputs)
        live.update(v for v in node.outputs if v in last_use)
        live -= {v for v in live if last_use[v] <= i}
        work += node.op not in ("quantize_linear", "dequantize_linear", "cast")
        if len(live) != 1:
            continue
        (v,) = live
        if v in graph.outputs or not v.type.fixed or not v.name or v.producer is None:
            continue
        if dtypes.itemsize(v.dtype) == 1 and not dtypes.is_float(v.dtype):
            found.append(Cut(v.name, i, v.shape, v.dtype, v.type.bytes, work == 0))
    return _distinct(found)


def _distinct(cuts: list[Cut]) -> list[Cut]:
    """Each tensor once, at its first position."""
    seen: set[str] = set()
    return [c for c in cuts if not (c.tensor in seen or seen.add(c.tensor))]  # type: ignore[func-returns-value]


def parts(graph: Graph, tensor: str) -> tuple[Graph, Graph]:
    """The graph before and after a tensor: its output is the input of the other."""
    if graph.state:
        raise BadInput("the model has a state, which one side would have to keep; it is not split")
    before, after = graph.copy(), graph.copy()
    cut = _named(before, tensor)
    device = Graph(before.inputs, [cut], [tensor], graph.name, graph.metadata)
    device.tidy()
    cut = _named(after, tensor)
    given = Value(cut.type, tensor)
    after.replace(cut, given)
    server = Graph([given], after.outputs, after.output_names, graph.name)
    server.tidy()
    return device, server


def _named(graph: Graph, tensor: str) -> Value:
    for v in graph.values():
        if v.name == tensor and v.producer is not None:
            return v
    raise BadInput(f"the model has no tensor '{tensor}'; `intaglio split` lists the cuts")
