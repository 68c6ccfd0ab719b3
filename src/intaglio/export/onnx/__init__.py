"""ONNX export: a Graph as a ModelProto or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from intaglio.arguments import file_path, require_graph, whole_number
from intaglio.errors import IntaglioError
from intaglio.extras import install_command
from intaglio.ir import Graph
from intaglio.open_graph import require_fixed

EXTERNAL_FROM = 1 << 31  # bytes of weights from which they go to an external file
INLINE_UP_TO = 1 << 10  # bytes of a tensor that is always stored inside of the model
ALIGNMENT = 4096  # of tensors in an external file, for mmap


def to_onnx(
    graph: Graph, opset: int | None = None, ir_version: int | None = None, contrib: bool = False
) -> Any:
    """The graph as an ONNX ModelProto.

    Without `opset`, the opset with the fewest nodes is chosen, and of those the oldest, which most
    runtimes read. `contrib` also uses operators that only onnxruntime has (domain com.microsoft).
    Metadata and the names of inputs, outputs and tensors are kept.
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
    """Write the graph atomically as an ONNX file; see `to_onnx`.

    Weights of 2 GiB or more go to an external file beside it, NAME.onnx.data; `external` forces or
    forbids that.
    """
    write_model(*_assembled(graph, opset, ir_version, contrib), path, external)


def write_model(model: Any, tensors: Any, path: str | Path, external: bool | None = None) -> None:
    """Write a model without its constants, and its constants, atomically as a file."""
    from intaglio.export.onnx import model_proto
    from intaglio.files import write_atomically

    path = Path(file_path("save_onnx", path, 'a name such as "model.onnx"'))
    separate = tensors.bytes >= EXTERNAL_FROM - (1 << 24) if external is None else external
    if separate:
        data = path.with_name(path.name + ".data")
        write_atomically(
            data, model_proto.outside(model, tensors, data.name, INLINE_UP_TO, ALIGNMENT)
        )
    else:
        model_proto.inline(model, tensors)
    write_atomically(path, model.SerializeToString(deterministic=True))


def count_nodes(model: Any) -> int:
    """The number of nodes of an ONNX file or ModelProto, including those of sub-graphs."""
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
    require_graph(graph, "the export to ONNX")
    require_fixed(graph, "the export to ONNX")
    if ir_version is not None:
        whole_number("ir_version", ir_version, 3)
    try:
        from intaglio.export.onnx.export_rules import rewrite_for_onnx
        from intaglio.export.onnx.model_proto import assemble
    except ImportError:
        raise IntaglioError(
            f"ONNX models need the onnx package, which is missing; {install_command('onnx')}"
        ) from None
    spelled, opset = rewrite_for_onnx(graph, opset, contrib)
    return assemble(spelled, opset, ir_version)[:2]
