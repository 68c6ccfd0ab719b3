"""model_runner: runs model files of any kind on the arrays of an .npz."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from intaglio.array_files import read_npz, write_npz
from intaglio.compat.log import Log
from intaglio.compat.tpu_mlir import evaluate, module_file
from intaglio.compat.tpu_mlir.chip_file import Port
from intaglio.compat.tpu_mlir.runner_options import RUNNER
from intaglio.compat.tpu_mlir.samples import Sample, from_arrays, inputs_of
from intaglio.compat.tpu_mlir.tensor_names import rename, vendor_names
from intaglio.errors import BadFile, BadInput
from intaglio.files import read_regular, refuse_unwritable
from intaglio.ir import Array
from intaglio.npu.chips.bm1684.simulate import machine_of
from intaglio.npu.chips.bm1684x import bmodel
from intaglio.npu.chips.cv18xx import cvimodel
from intaglio.npu.chips.cv18xx import simulate as cv_simulate

PACKAGE = b"ITG1"


def main(arguments: Sequence[str], log: Log) -> int:
    """Write the outputs."""
    given = RUNNER.parse(arguments, log)
    path = Path(given.model)
    if not path.exists():
        raise BadFile(f"--model: there is no file '{path}'; check the path")
    refuse_unwritable(given.output)
    arrays = read_npz(given.input)
    kind = kind_of(path)
    if kind and given.dump_all_tensors:
        log.warning(f"--dump_all_tensors is ignored: a {kind} has its outputs only")
    if kind == "package":
        outputs = run_package(path, arrays, given.input)
    elif kind:
        outputs = run_file(path, arrays, given.out_fixed)
    else:
        outputs = run_model(path, arrays, given.weight, given.input, given.dump_all_tensors)
    write_npz(given.output, outputs)
    for name, a in outputs.items():
        log.info(f"{name} {a.dtype}{list(a.shape)}")
    log.info(f"Saving {given.output}: {len(outputs)} tensors")
    return 0


def kind_of(path: Path) -> str | None:
    """bmodel, cvimodel or package by the first bytes of a file; None: a model or .mlir."""
    if path.is_dir():
        return None
    with path.open("rb") as file:
        head = file.read(8)
    if bmodel.is_bmodel(head):
        return "bmodel"
    if head == cvimodel.MAGIC:
        return "cvimodel"
    return "package" if head[:4] == PACKAGE else None


def run_file(path: Path, arrays: Mapping[str, Array], fixed: bool) -> dict[str, Array]:
    """The outputs of a file of a chip, simulated; real numbers unless `fixed`."""
    data = read_regular(path)
    machine: Any
    if bmodel.is_bmodel(data):
        machine = machine_of(bmodel.read(data))
        stage = machine.stage
        inputs = [_bm_port(t, 1 / t.scale if t.scale else 1.0) for t in stage.inputs]
        outputs = [_bm_port(t, t.scale) for t in stage.outputs]
    else:
        machine = cv_simulate.Machine(cvimodel.read(data))
        inputs = [_cv_port(t, 1 / t.scale if t.scale else 1.0) for t in machine.inputs]
        outputs = [_cv_port(t, t.scale or 1.0) for t in machine.outputs]
    if len(arrays) == 1 == len(inputs):
        arrays = {inputs[0].name: next(iter(arrays.values()))}
    feeds = {p.name: _fed(p, arrays, path) for p in inputs}
    found = machine.run(feeds)
    return {p.name: found[p.name] if fixed else p.real(found[p.name]) for p in outputs}


def _bm_port(t: bmodel.Tensor, scale: float) -> Port:
    return Port(t.name, t.name, bmodel.TYPES[t.type][0], t.shape, scale, t.zero)


def _cv_port(t: cvimodel.Tensor, scale: float) -> Port:
    return Port(t.name, t.name, t.dtype, t.shape, scale, 0)


def _fed(port: Port, arrays: Mapping[str, Array], path: Path) -> Array:
    if port.name not in arrays:
        raise BadInput(f"--input has no array '{port.name}'; it has {', '.join(arrays) or 'none'}")
    array = np.asarray(arrays[port.name])
    if array.size != int(np.prod(port.shape)):
        raise BadInput(
            f"--input: '{port.name}' has shape {list(array.shape)}, {path} takes "
            f"{list(port.shape)}; save it in that shape"
        )
    return port.stored(array)


def run_package(path: Path, arrays: Mapping[str, Array], where: str) -> dict[str, Array]:
    """The outputs of a package; `where` names the arrays in messages."""
    with intaglio.open(path) as session:
        names = list(session.inputs)
        if len(arrays) == 1 == len(names):
            arrays = {names[0]: next(iter(arrays.values()))}
        if missing := [n for n in names if n not in arrays]:
            raise BadInput(f"{where} has no array '{missing[0]}'; it has {', '.join(arrays)}")
        return dict(session.run({n: arrays[n] for n in names}))


def run_model(
    path: Path, arrays: Mapping[str, Array], weight: str, where: str, all_tensors: bool
) -> dict[str, Array]:
    """A model of a framework, or an .mlir, on this machine's CPU."""
    if path.suffix == ".mlir" or module_file.is_module(path):
        graph = module_file.read(path).whole
    else:
        graph = intaglio.load(path, shapes=_shapes(path, arrays), weights=weight or None)
        rename(graph, vendor_names(path))
    sample: Sample = from_arrays(arrays, inputs_of(graph), where)
    if not all_tensors:
        return evaluate.run(graph, sample)
    return evaluate.run_all(graph, sample)


def _shapes(path: Path, arrays: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    """The shapes of the given arrays, for inputs of ONNX files with open dimensions."""
    from intaglio.compat.onnx_file import onnx_inputs
    from intaglio.frontends import sniff

    if sniff(path) != "ONNX":
        return {}
    declared = onnx_inputs(path)
    if len(declared) == 1 == len(arrays):
        arrays = {next(iter(declared)): next(iter(arrays.values()))}
    return {n: arrays[n].shape for n, dims in declared.items() if None in dims and n in arrays}
