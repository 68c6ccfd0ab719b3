"""What a session tells about its model: inputs, outputs and metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from intaglio import dtypes
from intaglio.ir import Type
from intaglio.ort.element_types import tensor_words
from intaglio.symint import SymInt

Dim = int | str | None


@dataclass(frozen=True)
class NodeArg:
    """An input or output: name, type such as "tensor(float)", and shape.

    An open dimension is its name in the shape, or None if it has none.
    """

    name: str
    type: str
    shape: list[Dim]

    def __str__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"


@dataclass
class ModelMetadata:
    """What the file says about the model."""

    custom_metadata_map: dict[str, str] = field(default_factory=dict)
    description: str = ""
    domain: str = ""
    graph_description: str = ""
    graph_name: str = ""
    producer_name: str = ""
    version: int = 0


def of_types(types: Mapping[str, Type]) -> list[NodeArg]:
    """Inputs or outputs of a package or a graph."""
    return [
        NodeArg(
            name,
            tensor_words(dtypes.numpy_of(t.dtype)),
            [_dim(d, i in t.dynamic) for i, d in enumerate(t.shape)],
        )
        for name, t in types.items()
    ]


def _dim(extent: int, varies: bool) -> Dim:
    if isinstance(extent, SymInt):
        kind, *rest = extent.formula
        return str(rest[0]) if kind == "symbol" else None
    return None if varies else int(extent)


def of_proto(infos: Iterable[Any], dims: Mapping[str, int]) -> list[NodeArg]:
    """Inputs or outputs of an ONNX model; `dims` binds some of its open dimensions."""
    return [NodeArg(i.name, _type_words(i.type), _shape(i.type, dims)) for i in infos]


def _type_words(proto: Any) -> str:
    import onnx

    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        word = onnx.TensorProto.DataType.Name(getattr(proto, kind).elem_type).lower()
        return f"{kind.removesuffix('_type')}({word})"
    if kind == "sequence_type":
        return f"seq({_type_words(proto.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({_type_words(proto.optional_type.elem_type)})"
    if kind == "map_type":
        key = onnx.TensorProto.DataType.Name(proto.map_type.key_type).lower()
        return f"map({key},{_type_words(proto.map_type.value_type)})"
    return ""


def _shape(proto: Any, dims: Mapping[str, int]) -> list[Dim]:
    if proto.WhichOneof("value") != "tensor_type":
        return []
    return [
        int(d.dim_value)
        if d.HasField("dim_value")
        else dims.get(d.dim_param, d.dim_param)
        if d.dim_param
        else None
        for d in proto.tensor_type.shape.dim
    ]


def with_shapes(proto: Any) -> Sequence[Any]:
    """The outputs of an ONNX model; shapes that it does not declare are inferred if possible."""
    outputs: Sequence[Any] = proto.graph.output
    if all(o.type.tensor_type.HasField("shape") for o in outputs if _is_tensor(o)):
        return outputs
    from onnx import shape_inference

    try:
        inferred = shape_inference.infer_shapes(proto).graph.output
    except Exception:  # what onnx refuses may run nevertheless
        return outputs
    return list(inferred)


def _is_tensor(info: Any) -> bool:
    return bool(info.type.WhichOneof("value") == "tensor_type")


def metadata_of_proto(proto: Any) -> ModelMetadata:
    """The metadata of an ONNX model."""
    return ModelMetadata(
        {p.key: p.value for p in proto.metadata_props},
        proto.doc_string,
        proto.domain,
        proto.graph.doc_string,
        proto.graph.name,
        proto.producer_name,
        proto.model_version,
    )


def metadata_of_package(meta: Mapping[str, Any]) -> ModelMetadata:
    """The metadata of a package, or of a model of another format."""
    own = {str(k): str(v) for k, v in (meta.get("metadata") or {}).items()}
    compiler = str(meta.get("compiler", "intaglio"))
    return ModelMetadata(own, graph_name=str(meta.get("name", "")), producer_name=compiler)
