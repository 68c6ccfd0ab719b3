"""Graphs as ONNX models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from intaglio.errors import IntaglioError
from intaglio.ir import Graph

EXTERNAL = 1 << 31  # bytes of weights that one ONNX file cannot hold
INLINE = 1 << 10  # bytes of a tensor that stays in the model even so
ALIGNMENT = 4096  # of tensors in an external file, so that they can be mapped


def to_onnx(
    graph: Graph, opset: int | None = None, ir_version: int | None = None, contrib: bool = False
) -> Any:
    """The graph as an ONNX ModelProto.

    Without `opset` it is the one that says the graph in the fewest nodes; the oldest of those, so
    that most runtimes read it. `contrib` also uses the operators that only onnxruntime has (domain
    com.microsoft). Names of inputs, outputs and tensors stay, metadata too.
    """
    model, tensors = _assembled(graph, opset, ir_version, contrib)
    from intaglio.export.onnx.model_proto import inline

    inline(model, tensors)
    return model


def save_onnx(
    graph: Graph,
    path: str | Path,
    opset: int | None = None,
    ir_version: int | None = None,
    contrib: bool = False,
    external: bool | None = None,
) -> None:
    """Write the graph as an ONNX file, whole or not at all; see `to_onnx`.

    Weights of more than 2 GB go to a file of their own beside it, NAME.onnx.data; `external` says
    yes or no to that whatever their size.
    """
    from intaglio.export.onnx import model_proto
    from intaglio.files import write_atomically

    path = Path(path)
    model, tensors = _assembled(graph, opset, ir_version, contrib)
    apart = tensors.bytes >= EXTERNAL - (1 << 24) if external is None else external
    if apart:
        data = path.with_name(path.name + ".data")
        write_atomically(data, model_proto.outside(model, tensors, data.name, INLINE, ALIGNMENT))
    else:
        model_proto.inline(model, tensors)
    write_atomically(path, model.SerializeToString(deterministic=True))


def count_nodes(model: Any) -> int:
    """How many nodes an ONNX file or ModelProto has, those of its sub-graphs included."""
    import onnx

    if isinstance(model, str | Path):
        model = onnx.load(model, load_external_data=False)

    def inside(graph: Any) -> int:
        return sum(1 + sum(map(inside, _graphs(n))) for n in graph.node)

    return inside(model.graph)


def _graphs(node: Any) -> list[Any]:
    return [g for a in node.attribute for g in ([a.g] if a.HasField("g") else a.graphs)]


def _assembled(
    graph: Graph, opset: int | None, ir_version: int | None, contrib: bool
) -> tuple[Any, Any]:
    try:
        from intaglio.export.onnx.export_rules import rewrite_for_onnx
        from intaglio.export.onnx.model_proto import assemble
    except ImportError:
        raise IntaglioError(
            "ONNX models need the onnx package, which is missing: pip install intaglio[onnx]"
        ) from None
    spelled, opset = rewrite_for_onnx(graph, opset, contrib)
    return assemble(spelled, opset, ir_version)
