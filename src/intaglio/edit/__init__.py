"""Model surgery: edits of an ONNX model, in Python or by a script.

editor = intaglio.edit("model.onnx")
editor.remove("every Dropout").change_input("image", "uint8 NHWC").save("edited.onnx")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from intaglio.edit.check_result import Check as Check
    from intaglio.edit.editor import Editor as Editor
    from intaglio.edit.formula import Formula as Formula

_LAZY = {  # so that `import intaglio` is fast
    "Check": "intaglio.edit.check_result",
    "Editor": "intaglio.edit.editor",
    "Formula": "intaglio.edit.formula",
}


def edit(model: Any) -> Editor:
    """An Editor of a model: the path of an ONNX file, its bytes or ModelProto.

    A Graph, or a file of another format that `intaglio.load` reads, is converted to ONNX first.
    The file itself is never changed: `Editor.save` writes another one.
    """
    from intaglio.edit.editor import Editor
    from intaglio.edit.model_file import read

    return Editor(read(model))


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'intaglio.edit' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
