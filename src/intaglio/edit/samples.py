"""Converts data for the original model into data for the edited model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intaglio.edit.correspondence import views_of_inputs
from intaglio.errors import BadInput
from intaglio.feeds import check_inputs
from intaglio.files import write_atomically
from intaglio.frontends.onnx import OnnxModel, load_onnx
from intaglio.frontends.options import ImportOptions
from intaglio.interpret import interpret
from intaglio.ir import Array, Type

if TYPE_CHECKING:
    from intaglio.edit.editor import Editor


def convert(editor: Editor, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs of the edited model for inputs of the original.

    If the model now starts at an inner tensor, the original is run up to it.
    """
    views = views_of_inputs(editor.state)
    lost = [i.name for i in editor.state.inputs if i.name not in views]
    if lost:
        raise BadInput(
            f"input '{lost[0]}' is no tensor of the original model; its data cannot be converted"
        )
    inner = [v.tensor for v in views.values() if v.tensor not in inputs]
    known = dict(inputs)
    if inner:
        known |= _computed(editor, inputs, inner)
    return {name: v.converted(np.asarray(known[v.tensor]), name) for name, v in views.items()}


def _computed(editor: Editor, inputs: Mapping[str, Array], tensors: list[str]) -> dict[str, Array]:
    """Inner tensors of the original model."""
    shapes = {n: np.shape(a) for n, a in inputs.items()}
    model = OnnxModel(editor.source.proto, {}, editor.source.folder)
    graph = load_onnx(model, ImportOptions(shapes=shapes, outputs=tensors))
    missing = [v.name for v in graph.inputs if v.name not in inputs]
    if missing:
        raise BadInput(f"the data has no array for input '{missing[0]}' of the original; add it")
    types = {v.name: v.type for v in graph.inputs}
    return interpret(graph, check_inputs(types, {n: inputs[n] for n in types}))


def convert_files(editor: Editor, source: Any, out: Path) -> tuple[Path, int]:
    """Convert samples (see `intaglio.quantize`) and write them beside the edited model.

    They are .npy files in the folder NAME-data, one for each input and sample, and a list of them,
    NAME-data.txt, which `intaglio quantize --data` reads. Returns the list and the number of
    samples.
    """
    from intaglio.quant.samples.dataset import samples

    found = samples(source, _original_inputs(editor), limit=1 << 31)
    if found.pictures:
        raise BadInput(
            f"{source}: pictures need no conversion; `intaglio quantize` reads them in the layout "
            "of the model; give .npy or .npz files"
        )
    folder = out.with_name(out.stem + "-data")
    folder.mkdir(exist_ok=True)
    lines = []
    for i in range(len(found)):
        files = []
        for k, array in enumerate(convert(editor, found[i]).values()):
            name = f"{i:05}-{k}.npy"
            write_atomically(folder / name, _npy(array))
            files.append(f"{folder.name}/{name}")
        lines.append(" ".join(f'"{f}"' if " " in f else f for f in files))
    listed = out.with_name(out.stem + "-data.txt")
    write_atomically(listed, ("\n".join(lines) + "\n").encode())
    return listed, len(found)


def _npy(array: Array) -> bytes:
    import io

    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(array))
    return file.getvalue()


def _original_inputs(editor: Editor) -> list[tuple[str, Type]]:
    """Names and types of the original's inputs."""
    model = OnnxModel(editor.source.proto, {}, editor.source.folder)
    return [(v.name, v.type) for v in load_onnx(model).inputs]
