"""What the facades ask of an ONNX file before the core loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from intaglio.errors import BadFile


def read_proto(path: str | Path) -> Any:
    """The ModelProto without external data; BadFile if the file is none."""
    import onnx

    try:
        return onnx.load(str(path), load_external_data=False)
    except Exception as e:  # protobuf's own errors have no common class
        raise BadFile(
            f"'{path}' is no valid ONNX file ({type(e).__name__}); export it again"
        ) from e


def onnx_inputs(path: str | Path) -> dict[str, list[int | None]]:
    """The declared inputs that are no initialisers; None is an open extent."""
    proto = read_proto(path)
    fixed = {t.name for t in proto.graph.initializer}
    return {
        i.name: [
            d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None
            for d in i.type.tensor_type.shape.dim
        ]
        for i in proto.graph.input
        if i.name not in fixed
    }
