"""`tools.model_runner` of tpu-mlir: functions that run model files on arrays, as samples use them.

Arrays go in by the names of the inputs; the only array goes to the only input. Results are by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from intaglio.compat.tpu_mlir.runner import kind_of, run_file, run_model, run_package
from intaglio.errors import BadFile
from intaglio.ir import Array

INPUTS = "inputs"


def _checked(file: Any) -> Path:
    path = Path(file)
    if not path.exists():
        raise BadFile(f"there is no file '{path}' (in {Path.cwd()}); check the path")
    return path


def model_inference(
    inputs: Mapping[str, Array],
    model_file: Any,
    dump_all: bool = True,
    mute: bool = False,
    out_fixed: bool = False,
    decrypt_lib: str = "",
    log_level: str = "normal",
) -> dict[str, Array]:
    """The outputs of a .bmodel or .cvimodel in the simulator; real numbers unless `out_fixed`."""
    path = _checked(model_file)
    if kind_of(path) is None:
        raise BadFile(f"{path} is no .bmodel, .cvimodel or package; model_deploy writes one")
    if kind_of(path) == "package":
        return run_package(path, inputs, INPUTS)
    return run_file(path, inputs, out_fixed)


def mlir_inference(
    inputs: Mapping[str, Array], mlir_file: Any, dump_all: bool = True, *others: Any, **more: Any
) -> dict[str, Array]:
    """The tensors of an .mlir that model_transform wrote; only outputs without `dump_all`."""
    return run_model(_checked(mlir_file), inputs, "", INPUTS, dump_all)


def onnx_inference(
    inputs: Mapping[str, Array], onnx_file: Any, dump_all: bool = True
) -> dict[str, Array]:
    """The tensors of an ONNX model."""
    return run_model(_checked(onnx_file), inputs, "", INPUTS, dump_all)


def caffe_inference(
    inputs: Mapping[str, Array], prototxt: Any, caffemodel: Any, dump_all: bool = True
) -> dict[str, Array]:
    """The tensors of a Caffe model."""
    return run_model(_checked(prototxt), inputs, str(_checked(caffemodel)), INPUTS, dump_all)


def tflite_inference(
    inputs: Mapping[str, Array], tflite_file: Any, dump_all: bool = True, *others: Any, **more: Any
) -> dict[str, Array]:
    """The tensors of a TFLite model."""
    return run_model(_checked(tflite_file), inputs, "", INPUTS, dump_all)


def torch_inference(
    inputs: Mapping[str, Array], model: Any, dump_all: bool = True
) -> dict[str, Array]:
    """The tensors of a TorchScript model."""
    return run_model(_checked(model), inputs, "", INPUTS, dump_all)
