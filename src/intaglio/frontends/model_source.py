"""What `intaglio.load` takes as a model, and the words for everything else."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from intaglio.arguments import described
from intaglio.errors import BadInput
from intaglio.ir import Graph

_ACCEPTED = "the path of a model file, the bytes of an ONNX model, or a PyTorch module"


def is_live(model: Any) -> bool:
    """Whether `model` is a PyTorch module or program; PyTorch is not imported for this."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return False
    return isinstance(model, torch.nn.Module) or type(model).__name__ == "ExportedProgram"


def model_source(model: Any) -> Any:
    """A Path, the bytes of an ONNX file or a ModelProto; BadInput for anything else."""
    kind = type(model).__name__
    if isinstance(model, bytes | bytearray | memoryview) or kind in ("ModelProto", "OnnxModel"):
        return model
    if isinstance(model, str | os.PathLike) and isinstance(path := os.fspath(model), str):
        if not path:
            raise BadInput("the model's path is empty; give the path of a model file")
        if path.startswith(("http://", "https://")):
            raise BadInput(f"'{path}' is an address; download the file, and give its path")
        if path.startswith("~"):
            raise BadInput(f"'{path}' begins with ~, which only shells expand; give the whole path")
        return Path(path)
    raise BadInput(f"the model is {described(model)}; {_remedy(model)}")


def _remedy(model: Any) -> str:
    if isinstance(model, Graph):
        return "it is loaded already; use it as it is"
    if type(model).__name__ in ("Package", "Session"):
        return "it is compiled already; intaglio.open runs a package"
    if isinstance(model, type):
        return f"give an object of it: {model.__name__}()"
    if isinstance(model, Mapping):
        return "weights alone have no layers; give the module that they belong to, or a model file"
    return f"give {_ACCEPTED}"


def named(kind: str) -> str:
    """The name of a format with its article: "an ONNX", "a TFLite"."""
    return f"{'an' if kind[:2] in ('ON', 'RK') else 'a'} {kind}"
