"""model_transform: from a model file to an .mlir file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from intaglio.array_files import write_npz
from intaglio.compat.log import Log
from intaglio.compat.onnx_file import onnx_inputs
from intaglio.compat.tpu_mlir import evaluate, module_file
from intaglio.compat.tpu_mlir.compare import Tolerance, compare, report
from intaglio.compat.tpu_mlir.module_file import Module, Pictures
from intaglio.compat.tpu_mlir.option_table import words
from intaglio.compat.tpu_mlir.quantised_model import float_ports
from intaglio.compat.tpu_mlir.samples import inputs_of, read_sample
from intaglio.compat.tpu_mlir.tensor_names import rename, vendor_names
from intaglio.compat.tpu_mlir.transform_options import TRANSFORM
from intaglio.errors import BadFile, BadInput
from intaglio.files import refuse_unwritable
from intaglio.frontends import sniff
from intaglio.ir import Graph

TYPES = {
    "float32": "f32",
    "float16": "f16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
}


def main(arguments: Sequence[str], log: Log) -> int:
    """Write the file; 1 if the comparison with the unoptimised network fails."""
    given = TRANSFORM.parse(arguments, log)
    path = Path(given.model_def)
    if not path.exists():
        raise BadFile(f"--model_def: there is no file '{path}' (in {Path.cwd()}); check the path")
    refuse_unwritable(given.mlir)
    least = Tolerance.of(given.tolerance)
    graph = load(path, given)
    pictures = _pictures(given, graph)
    module = Module(given.model_name, graph, path.name, pictures, given.add_postprocess)
    graph = module.whole
    module.save(given.mlir)
    log.info(f"Mlir file generated: {given.mlir}")
    for v in inputs_of(graph):
        log.info(f"input {v.name} {v.type}")
    for name, v in zip(graph.output_names, graph.outputs, strict=True):
        log.info(f"output {name} {v.type}")
    if not given.test_input or given.not_inference:
        return 0
    return _validate(module, given, least, log)


def load(path: Path, given: argparse.Namespace) -> Graph:
    """The network at the given shapes, with the vendor's names."""
    keywords: dict[str, Any] = {}
    if given.model_data:
        if not Path(given.model_data).exists():
            raise BadFile(f"--model_data: there is no file '{given.model_data}'; check the path")
        keywords["weights"] = given.model_data
    names = vendor_names(path)
    if given.output_names:
        plain = {new: old for old, new in names.items()}
        keywords["outputs"] = [plain.get(n, n) for n in given.output_names]
    if given.input_shapes:
        found = _input_names(path, keywords, given.input_shapes)
        keywords["shapes"] = dict(zip(found, map(tuple, given.input_shapes), strict=True))
        if given.input_types and sniff(path) == "TorchScript":  # other files have types
            keywords["dtypes"] = dict(zip(found, map(_type, given.input_types), strict=False))
    elif sniff(path) == "ONNX":
        _refuse_open(path)
    graph = intaglio.load(path, **keywords)
    graph.name = given.model_name
    float_ports(graph)
    rename(graph, names)
    _check_types(graph, given.input_types)
    return graph


def _input_names(
    path: Path, keywords: dict[str, Any], shapes: Sequence[Sequence[int]]
) -> list[str]:
    """The inputs in order; BadInput if there are more or fewer than shapes."""
    kind = sniff(path)
    if kind == "ONNX":
        names = list(onnx_inputs(path))
    elif kind == "TorchScript":
        from intaglio.compat.rknn.source import torch_source

        return list(torch_source(path, [list(s) for s in shapes]).keywords["shapes"])
    else:
        names = [v.name for v in inputs_of(intaglio.load(path, **keywords))]
    if len(names) != len(shapes):
        raise BadInput(
            f"--input_shapes has {len(shapes)} shapes, the inputs are {len(names)}: "
            f"{', '.join(names)}; give a shape for each, in this order"
        )
    return names


def _refuse_open(path: Path) -> None:
    """BadInput if inputs have open dimensions; shapes are fixed."""
    declared = onnx_inputs(path)
    if any(None in dims for dims in declared.values()):
        shown = ", ".join(
            f"'{n}' {'x'.join('?' if d is None else str(d) for d in dims)}"
            for n, dims in declared.items()
        )
        example = [[d or 1 for d in dims] for dims in declared.values()]
        raise BadInput(
            f"inputs have open dimensions: {shown}; give your sizes, such as --input_shapes "
            f"{str(example).replace(' ', '')}"
        )


def _type(word: str) -> str:
    if word not in TYPES:
        raise BadInput(f"--input_types has '{word}'; it is one of {', '.join(TYPES)}")
    return TYPES[word]


def _check_types(graph: Graph, given: Sequence[str]) -> None:
    """BadInput for a type that is not that of the file; any whole numbers are the same."""
    for v, word in zip(inputs_of(graph), given, strict=False):
        wanted = _type(word)
        whole = wanted[0] in "iu" and v.dtype[0] in "iu"
        if wanted != v.dtype and not whole:
            raise BadInput(
                f"--input_types says {word} for input '{v.name}', whose type is {v.dtype}; "
                "leave it out"
            )


def _pictures(given: argparse.Namespace, graph: Graph) -> Pictures:
    try:
        chosen = [int(w) for w in given.preprocess_list]
    except ValueError:
        raise BadInput(f"--preprocess_list is {given.preprocess_list}; give numbers: 1,3") from None
    count = len(inputs_of(graph))
    if any(not 1 <= i <= count for i in chosen):
        raise BadInput(f"--preprocess_list is {chosen}; the inputs are numbered 1 to {count}")
    for name in ("mean", "scale"):
        if given.mean is None or not np.isfinite(getattr(given, name)).all():
            raise BadInput(f"--{name} has no finite numbers; give one for each channel")
    return Pictures(
        given.resize_dims,
        given.keep_aspect_ratio,
        given.keep_ratio_mode,
        given.mean,
        given.scale,
        given.pixel_format,
        given.channel_format,
        given.pad_value,
        given.pad_type,
        chosen,
    )


def _validate(module: Module, given: argparse.Namespace, least: Tolerance, log: Log) -> int:
    """Run the file that was written and the unoptimised network on the test input."""
    if not given.test_result:
        raise BadInput("--test_input is given without --test_result; name an .npz for the tensors")
    sample = read_sample(given.test_input, module)
    write_npz(f"{module.name}_in_f32.npz", sample)
    made = evaluate.run_all(module_file.read(given.mlir).whole, sample)
    write_npz(given.test_result, made)
    log.info(f"Saving {given.test_result}: {len(made)} tensors")
    reference: dict[str, Any] = {}
    outputs = intaglio.interpret(module.whole, sample, reference)
    verdicts = compare(made, {**reference, **outputs}, least, words(given.excepts))
    titles = given.test_result, f"{given.model_def}, unoptimised"
    return 0 if report(verdicts, log, titles, brief=given.log_level == 1) else 1
