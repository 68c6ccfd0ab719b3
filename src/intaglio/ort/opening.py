"""Opens what InferenceSession is given: an ONNX model, a package, or a model of another format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intaglio.arguments import described
from intaglio.errors import BadFile, IntaglioError
from intaglio.frontends import sniff
from intaglio.frontends.model_source import is_live
from intaglio.frontends.onnx import OnnxModel, parse_onnx
from intaglio.ir import Graph
from intaglio.model_session import ModelSession
from intaglio.ort.check_operators import check_operators
from intaglio.ort.errors import InvalidProtobuf, NoSuchFile, WrongType, translated, unsupported
from intaglio.ort.optimized_model import write_optimized
from intaglio.ort.options import SessionOptions
from intaglio.package_source import is_package
from intaglio.session import Session

ORT_FORMAT = b"ORTM"  # bytes 4 to 8 of onnxruntime's own format
IGNORED = ("disabled_optimizers", "enable_fallback", "read_config_from_model")


@dataclass(frozen=True)
class Opened:
    """A session and, of an ONNX model, the file that it was made from."""

    session: Session
    onnx: OnnxModel | None = None
    dims: Mapping[str, int] | None = None  # open dimensions that are bound


def open_model(source: Any, options: SessionOptions, keywords: Mapping[str, Any]) -> Opened:
    """A session for a path, bytes or a ModelProto; raises onnxruntime's exceptions."""
    given = {k: v for k, v in keywords.items() if k not in IGNORED}
    given.setdefault("threads", max(options.intra_op_num_threads, 0) or None)
    given.setdefault("profile", options.enable_profiling)
    _check_source(source)
    try:
        if not isinstance(source, Graph) and not is_live(source) and is_package(source):
            return Opened(Session(source, **given))
        given.setdefault("level", options.graph_optimization_level.level)
        if not _is_onnx(source):
            return Opened(ModelSession(source, **given))
        return _open_onnx(_parsed(source), options, given)
    except IntaglioError as e:
        raise translated(e) from None


def _check_source(source: Any) -> None:
    """NoSuchFile or NotImplemented for what cannot be opened at all."""
    head = b""
    if isinstance(source, str | os.PathLike):
        if not Path(source).exists():
            raise NoSuchFile(f"'{os.fspath(source)}' does not exist; give the path of a model file")
        if Path(source).is_file():
            with open(source, "rb") as file:
                head = file.read(8)
    elif isinstance(source, bytes | bytearray | memoryview):
        head = bytes(source[:8])
    elif not (hasattr(source, "SerializeToString") or isinstance(source, Graph) or is_live(source)):
        raise WrongType(
            f"the model is {described(source)}; give a path, bytes or an ONNX ModelProto"
        )
    if head[4:8] == ORT_FORMAT:
        raise unsupported(
            "the model has onnxruntime's own format (.ort), which only onnxruntime reads; give the "
            ".onnx file that it was converted from"
        )


def _is_onnx(source: Any) -> bool:
    if isinstance(source, Graph) or is_live(source):
        return False
    if not isinstance(source, str | os.PathLike):
        return True
    try:
        return sniff(Path(source)) == "ONNX"
    except BadFile as e:
        raise InvalidProtobuf(str(e)) from None


def _parsed(source: Any) -> OnnxModel:
    try:
        return parse_onnx(bytes(source) if isinstance(source, bytearray | memoryview) else source)
    except BadFile as e:
        raise InvalidProtobuf(str(e)) from None


def _open_onnx(model: OnnxModel, options: SessionOptions, given: dict[str, Any]) -> Opened:
    dims = {**_overrides(model, options), **(given.get("dims") or {})}
    if dims:
        given["dims"] = dims
    if options.initializers:
        given["values"] = {**options.initializers, **(given.get("values") or {})}
    session = ModelSession(model, **given)
    check_operators(model, session.output_names)
    if options.optimized_model_filepath:
        kept = {k: v for k, v in given.items() if k in ("dims", "values")}
        write_optimized(model, options.optimized_model_filepath, given["level"], kept)
    session.prepare()
    return Opened(session, model, dims)


def _overrides(model: OnnxModel, options: SessionOptions) -> dict[str, int]:
    """Extents of the open dimensions that the options bind; other names are ignored."""
    found: dict[str, int] = {}
    for info in model.proto.graph.input:
        for axis, d in enumerate(info.type.tensor_type.shape.dim):
            extent = options.dims.get(d.dim_param) if d.dim_param else None
            if extent is None and d.denotation and not d.HasField("dim_value"):
                extent = options.denotations.get(d.denotation)
            if extent is None or extent < 0:
                continue
            if not d.dim_param:
                raise unsupported(
                    f"dimension {axis} of input '{info.name}' has the denotation '{d.denotation}' "
                    "but no name; name it in the model, or give shapes="
                )
            found[d.dim_param] = extent
    return found
