"""`rknn.utils.onnx_edit`: permute, merge and split axes of the inputs and outputs of a model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from intaglio.compat.log import Log
from intaglio.compat.rknn.config import Config
from intaglio.compat.rknn.dataset import read_list, read_sample
from intaglio.compat.rknn.inputs import InputInfo
from intaglio.edit import Formula
from intaglio.errors import BadInput, IntaglioError
from intaglio.files import write_atomically


def onnx_edit(
    model: Any,
    export_path: Any,
    inputs_transform: Mapping[str, str] | None = None,
    outputs_transform: Mapping[str, str] | None = None,
    dataset: Any = None,
) -> int:
    """Write the model with other axes of inputs and outputs; 0, or -1 and a logged line.

    A formula such as `a,b,c,d->1,ad,b,c` names the axes before and after. With `dataset`, its
    samples are converted too: dataset_for_NAME.txt beside the new model lists them.
    """
    log = Log()
    try:
        _edit(model, export_path, inputs_transform or {}, outputs_transform or {}, dataset, log)
    except IntaglioError as e:
        log.error(f"onnx_edit: {' '.join(str(e).split())}")
        return -1
    except OSError as e:
        log.error(f"onnx_edit: {e.filename or ''}: {e.strerror or e}")
        return -1
    return 0


def _edit(
    model: Any,
    export_path: Any,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    dataset: Any,
    log: Log,
) -> None:
    for name, given in (("model", model), ("export_path", export_path)):
        if not isinstance(given, str | os.PathLike):
            raise BadInput(f"{name} is {given!r}; give the path of an ONNX file")
    for name, given in (("inputs_transform", inputs), ("outputs_transform", outputs)):
        if not isinstance(given, Mapping):
            raise BadInput(f"{name} is {given!r}; give a dict: {{'x': 'a,b,c,d->a,c,d,b'}}")
    editor = intaglio.edit(model)
    before = {v.name: (v.type.shape, v.dtype) for v in editor.graph().inputs}
    with log.collecting():
        for name, formula in inputs.items():
            editor.change_input(name, formula)
        for name, formula in outputs.items():
            editor.change_output(name, formula)
        editor.save(export_path)
    log.info(f"onnx_edit: wrote {export_path}")
    if dataset is not None:
        infos = [InputInfo(n, shape, kind, False) for n, (shape, kind) in before.items()]
        listed = _convert(dataset, infos, inputs, Path(export_path))
        log.info(f"onnx_edit: wrote {listed}")


def _convert(
    dataset: Any, infos: Sequence[InputInfo], formulas: Mapping[str, str], path: Path
) -> Path:
    """Write the samples of a dataset as .npy files for the new model, and their list."""
    folder = path.parent / f"dataset_for_{path.stem}"
    folder.mkdir(exist_ok=True)
    lines = []
    for k, files in enumerate(read_list(dataset, len(infos))):
        sample, names = read_sample(files, infos, Config(target_platform="rk3588")), []
        for i, info in enumerate(infos):
            array = sample[info.name]
            if info.name in formulas:
                array = Formula.parse(formulas[info.name]).apply(array)
            np.save(folder / f"{k}_{i}.npy", array)
            names.append(f"{folder.name}/{k}_{i}.npy")
        lines.append(" ".join(names) + "\n")
    listed = path.parent / f"dataset_for_{path.stem}.txt"
    write_atomically(listed, "".join(lines).encode())
    return listed
