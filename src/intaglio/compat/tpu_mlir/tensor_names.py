"""Names of tensors as tpu-mlir writes them: that of the ONNX tensor, then its operator: y_Conv."""

from __future__ import annotations

from pathlib import Path

from intaglio.compat.onnx_file import read_proto
from intaglio.frontends import sniff
from intaglio.ir import Graph


def vendor_names(path: str | Path) -> dict[str, str]:
    """The vendor's name of every result in an ONNX file, by its own; of other formats, none."""
    if sniff(Path(path)) != "ONNX":
        return {}
    proto = read_proto(path)
    return {name: f"{name}_{n.op_type}" for n in proto.graph.node for name in n.output if name}


def rename(graph: Graph, names: dict[str, str]) -> None:
    """Give the results of nodes and the outputs of a graph these names."""
    for node in graph.nodes():
        for v in node.outputs:
            v.name = names.get(v.name, v.name)
    graph.output_names = [names.get(n, n) for n in graph.output_names]
