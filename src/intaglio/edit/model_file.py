"""Reads the model to edit, and writes the edited one, with external data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intaglio.arguments import file_path
from intaglio.edit.node_names import copy_of
from intaglio.errors import BadInput, IntaglioError
from intaglio.extras import install_command
from intaglio.files import refuse_unwritable, write_atomically
from intaglio.frontends import sniff
from intaglio.frontends.model_source import is_live, model_source, named
from intaglio.frontends.onnx import parse_onnx
from intaglio.frontends.onnx.tensors import to_array, to_bytes
from intaglio.frontends.onnx.topological_order import sub_graphs
from intaglio.ir import Graph

ALIGNMENT = 4096  # of tensors in an external file, for mmap
INLINE_UP_TO = 1 << 10  # bytes of a tensor that stays inside of the model
MAX_MESSAGE = (1 << 31) - (1 << 24)  # bytes of an ONNX file with a margin; larger ones are split
EXTERNAL = 1  # TensorProto.EXTERNAL


@dataclass(frozen=True)
class Source:
    """The original model."""

    proto: Any
    folder: Path | None  # of external data
    path: Path | None
    format: str = "ONNX"  # of the file; others are converted

    def with_data(self, proto: Any) -> Any:
        """The model with its external data inside."""
        if any(t.data_location == EXTERNAL for t in all_tensors(proto)):
            proto = copy_of(proto)
            for t in all_tensors(proto):
                if t.data_location == EXTERNAL:
                    _set_raw(t, to_bytes(to_array(t, self.folder)))
        return proto


def read(model: Any) -> Source:
    """An ONNX file, its bytes or a ModelProto; a Graph or another format is converted."""
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise IntaglioError(
            f"ONNX models need the onnx package, which is missing; {install_command('onnx')}"
        ) from None
    if isinstance(model, Graph):
        return Source(_exported(model), None, None, "Graph")
    if is_live(model):
        raise BadInput(
            "the model is a live PyTorch module; give intaglio.load(module, inputs=...) instead"
        )
    model = model_source(model)
    if not isinstance(model, Path):
        return Source(_whole(model), None, None)
    kind = sniff(model)
    if kind == "ONNX":
        return Source(_whole(model), model.parent, model)
    from intaglio.frontends import load

    try:
        return Source(_exported(load(model)), None, model, kind)
    except IntaglioError as e:
        e.args = (
            f"'{model}' is {named(kind)} model, which is converted to ONNX first: {e}",
            *e.args[1:],
        )
        raise


def _exported(graph: Graph) -> Any:
    from intaglio.export.onnx import to_onnx

    return to_onnx(graph)


def _whole(model: Any) -> Any:
    """The ModelProto with all weights that the file itself holds."""
    parsed = parse_onnx(model)
    if not parsed.raws:
        return parsed.proto
    for t in parsed.proto.graph.initializer:
        if t.name in parsed.raws:
            t.raw_data = bytes(parsed.raws[t.name])
    return parsed.proto


def all_tensors(proto: Any) -> Iterator[Any]:
    """Every TensorProto of a model: initialisers and attributes, also in sub-graphs."""
    yield from _of_graph(proto.graph)
    for function in proto.functions:
        for n in function.node:
            yield from _of_node(n)


def _of_graph(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for n in graph.node:
        yield from _of_node(n)


def _of_node(node: Any) -> Iterator[Any]:
    for a in node.attribute:
        if a.HasField("t"):
            yield a.t
        yield from a.tensors
    for graph in sub_graphs(node):
        yield from _of_graph(graph)


# ---- writing -------------------------------------------------------------------------------------
def save(source: Source, proto: Any, path: str | Path) -> None:
    """Write a model atomically. Tensors in external files are copied to one beside it."""
    out = Path(file_path("save", path, 'a name such as "edited.onnx"'))
    refuse_overwriting(source, out)
    moved = [t for t in all_tensors(proto) if t.data_location == EXTERNAL]
    if proto.ByteSize() > MAX_MESSAGE:
        moved += [t for t in proto.graph.initializer if len(t.raw_data) > INLINE_UP_TO]
    if moved:
        data = out.with_name(out.name + ".data")
        used = {source.folder / _location(t) for t in moved if source.folder and _location(t)}
        if any(_same(data, p) for p in used):
            raise BadInput(
                f"cannot write '{out}': its data would go to '{data.name}', which the original "
                "model uses; give another name"
            )
        refuse_unwritable(out, data)
        write_atomically(data, _chunks(source, moved, data.name))
    write_atomically(out, proto.SerializeToString(deterministic=True))


def refuse_overwriting(source: Source, out: Path) -> None:
    """BadInput if the file is the original model, or no place for an ONNX file."""
    if source.path is not None and _same(source.path, out):
        raise BadInput(f"cannot write '{out}': it is the original model; give another name")
    if out.suffix in (".itg", ".tflite", ".pt", ".pb"):
        raise BadInput(
            f"cannot write '{out}': the edited model is ONNX; give a name that ends in .onnx"
        )


def _same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def _location(tensor: Any) -> str:
    return next((str(e.value) for e in tensor.external_data if e.key == "location"), "")


def _chunks(source: Source, tensors: list[Any], location: str) -> Iterator[bytes]:
    """The bytes of an external file, tensor by tensor; the tensors then refer to it."""
    offset = 0
    for t in tensors:
        raw = to_bytes(to_array(t, source.folder))
        start = -(-offset // ALIGNMENT) * ALIGNMENT
        yield b"\0" * (start - offset)
        yield raw
        offset = start + len(raw)
        _set_external(t, location, start, len(raw))


def _set_external(tensor: Any, location: str, offset: int, length: int) -> None:
    tensor.ClearField("raw_data")
    del tensor.external_data[:]
    tensor.data_location = EXTERNAL
    where = {"location": location, "offset": str(offset), "length": str(length)}
    for key, value in where.items():
        tensor.external_data.add(key=key, value=value)


def _set_raw(tensor: Any, raw: bytes) -> None:
    tensor.ClearField("data_location")
    del tensor.external_data[:]
    tensor.raw_data = raw
