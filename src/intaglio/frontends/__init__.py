"""Importers of model formats. `load` recognises a format by the content of the file."""

from __future__ import annotations

import importlib
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from intaglio.errors import BadFile, BadInput, Unsupported, option, unknown_keyword
from intaglio.files import open_regular
from intaglio.frontends import custom_ops
from intaglio.frontends.limits import refuse_large
from intaglio.frontends.model_source import is_live, model_source, named
from intaglio.frontends.options import ImportOptions
from intaglio.frontends.preprocess import OPTIONS, preprocess, split_options
from intaglio.ir import Graph

_HEAD = 4096  # bytes from which the format is recognised
SAVED = "TensorFlow SavedModel"


def load(
    model: Any,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, Any] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    dtypes: Mapping[str, str] | None = None,
    state: bool = False,
    signature: str | None = None,
    weights: str | Path | None = None,
    allow_large: bool = False,
    **preprocessing: Any,
) -> Graph:
    """A Graph from a model: the path of an ONNX, TFLite, TorchScript (.pt), torch.export (.pt2),
    frozen TensorFlow (.pb), Caffe or Darknet file or of a SavedModel's folder, ONNX in memory, or a
    live PyTorch module with `inputs=` examples for it.

    `shapes={"x": (1, 3, 224, 224)}` and `dims={"batch": 1}` bind dimensions that the model leaves
    open. `values={"k": 5}` makes an input constant. `inputs=["a"]` and `outputs=["b"]` cut the
    model at these tensors. `dtypes={"ids": "i64"}` gives the element types of inputs that a PyTorch
    or TensorFlow file does not store. `state=True` makes the state of a PyTorch or Darknet model
    the graph's `state`, which a Session carries from call to call (the state of a TFLite model
    always is). `signature` chooses a signature of a SavedModel (`serving_default`) or TFLite file.
    `weights` is the second file of a Caffe or Darknet model, if the names of the two differ.
    `allow_large=True` allows tensors of more than 2 GiB and functions that expand to more than
    131072 nodes, which are refused otherwise.

    `input_type`, `mean`, `std`, `swap_rb`, `input_layout`, `letterbox`, `output_layout` and other
    options of `frontends.preprocess` add the preprocessing to the graph.
    """
    mine, unknown = split_options(preprocessing)
    if unknown:
        known = (*(f.name for f in fields(ImportOptions)), *OPTIONS)
        raise unknown_keyword("load", next(iter(unknown)), known)
    custom_ops.prepare()
    live = is_live(model)  # `inputs` are examples then, not names
    options = ImportOptions(
        shapes={} if shapes is None else shapes,
        dims={} if dims is None else dims,
        values={} if values is None else values,
        inputs=None if live else inputs,
        outputs=outputs,
        dtypes={} if dtypes is None else dtypes,
        state=bool(state) if state is None else state,
        signature=signature,
        weights=weights,
        allow_large=allow_large,
    )
    return load_with(model, options, mine, inputs)


def load_with(
    model: Any, options: ImportOptions, preprocessing: Mapping[str, Any], examples: Any = None
) -> Graph:
    """`load` with options that are made already; `examples` are the inputs of a live module."""
    if is_live(model):
        from intaglio.frontends.torch.live_module import load_live

        _refuse_signature(options, "the model is in memory")
        graph = load_live(model, examples, options)
    else:
        graph = _read(model_source(model), options)
    if not options.allow_large:
        refuse_large(graph)
    if preprocessing:
        preprocess(graph, **preprocessing)
    return graph


# Options that a format does not have, and the reason that its error message gives.
_NOT_FOR = {
    "TensorFlow": (("dims",), "give the shapes of a TensorFlow model's inputs"),
    SAVED: (("dims",), "give the shapes of a TensorFlow model's inputs"),
    "TFLite": (("dims", "values"), "a TFLite model has no such names"),
    "Darknet": (("dims", "values", "inputs"), "a Darknet model has one input, 'data'"),
    "Caffe": (("dims", "values"), "a Caffe net has no such names"),
}
# Frontends by format: module and function.
_LOADERS = {
    "ONNX": ("onnx", "load_onnx"),
    "TensorFlow": ("tensorflow", "load_tensorflow"),
    SAVED: ("tensorflow", "load_tensorflow"),
    "TFLite": ("tflite", "load_tflite"),
    "Darknet": ("darknet", "load_darknet"),
    "Caffe": ("caffe", "load_caffe"),
    "TorchScript": ("torch", "load_torch"),
    "torch.export": ("torch", "load_torch"),
    "PyTorch": ("torch", "load_torch"),
}


def _read(model: Any, options: ImportOptions) -> Graph:
    if not isinstance(model, Path):
        _refuse_signature(options, "the model is in memory")
        return _read_as("ONNX", model, options)
    kind = sniff(model)
    if kind not in (SAVED, "TFLite"):
        _refuse_signature(options, f"'{model}' is {named(kind)} model")
    if kind not in _LOADERS:
        raise Unsupported(
            f"'{model}' is {named(kind)} model; ONNX, TFLite, PyTorch, TensorFlow, Caffe and "
            "Darknet are supported; convert it to ONNX"
        )
    return _read_as(kind, model, options)


def _refuse_signature(options: ImportOptions, reason: str) -> None:
    if options.signature:
        raise BadInput(
            f"signature is '{options.signature}', but {reason}; only SavedModel folders and TFLite "
            f"files have signatures; leave {option('signature')} out"
        )


def _read_as(kind: str, model: Any, options: ImportOptions) -> Graph:
    names, reason = _NOT_FOR.get(kind, ((), ""))
    if given := [name for name in names if getattr(options, name)]:
        raise BadInput(f"{given[0]} is for ONNX; {reason}")
    if options.weights and kind not in ("Caffe", "Darknet"):
        raise BadInput(
            f"weights is '{options.weights}', but {named(kind)} model is one file; leave "
            f"{option('weights', str(options.weights))} out"
        )
    module, function = _LOADERS[kind]
    result: Graph = getattr(importlib.import_module(f"{__name__}.{module}"), function)(
        model, options
    )
    _refuse_other_types(result, options)
    return result


def _refuse_other_types(graph: Graph, options: ImportOptions) -> None:
    """BadInput if `dtypes` gives another element type than the file has."""
    for v in graph.inputs:
        if (given := options.dtypes.get(v.name, v.dtype)) != v.dtype:
            raise BadInput(
                f"dtypes: input '{v.name}' is {v.dtype} in the file, {given} is given; leave "
                f"{option('dtypes', {v.name: given})} out"
            )


_OTHER_FILES = {  # files that belong to a model, and are mistaken for it, by their first bytes
    b"\x93NUMPY": "a numpy array",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"%PDF": "a PDF document",
    b"\x1f\x8b": "a compressed file",
    b"<!DOCTYPE html": "a web page",
    b"<html": "a web page",
}
_FILES_OF_CHIPS = {  # compiled files, by their first bytes
    b"\xee\xaa\x55\xff": "a bmodel",
    b"CviM": "a cvimodel",
    b"LDMK": "a kmodel",
    b"RKJ1": "an rkjob",
}


def sniff(path: Path) -> str:
    """The format of a model file, by its content; BadFile if it is not a model."""
    try:
        if path.is_dir():
            if (path / "saved_model.pb").exists():
                return SAVED
            raise BadFile(f"'{path}' is a folder; a model file is needed")
        with open_regular(path) as file:
            head = file.read(_HEAD)
    except OSError as e:
        raise BadFile(f"cannot read '{path}': {(e.strerror or str(e)).lower()}") from None
    except ValueError as e:
        raise BadFile(f"cannot read {str(path)!r}: {e}") from None
    if not head:
        raise BadFile(f"'{path}' is empty; a model file is needed")
    if head.startswith(b"ITG1"):
        raise BadFile(
            f"'{path}' is a compiled package; run it with intaglio.open; to change it, load the "
            "model that it was compiled from"
        )
    for magic, what in _FILES_OF_CHIPS.items():
        if head.startswith(magic):
            raise BadFile(
                f"'{path}' is {what}, a compiled file; `intaglio inspect`, `run` and `perf` take "
                "it; elsewhere load the model that it was compiled from"
            )
    for magic, what in _OTHER_FILES.items():
        if head.startswith(magic):
            raise BadFile(f"'{path}' is {what}, not a model; give the path of a model file")
    if head.startswith(b"version https://git-lfs"):
        raise BadFile(f"'{path}' is a Git LFS pointer, not the file itself; run `git lfs pull`")
    return _by_magic(path, head) or _by_text(head) or _by_protobuf(path, head) or "ONNX"


def _by_magic(path: Path, head: bytes) -> str | None:
    if head[4:8] == b"TFL3":
        return "TFLite"
    if head.startswith(b"PK\x03\x04"):
        return _in_archive(path)
    for magic, kind in {
        b"\x89HDF\r\n": "Keras HDF5",
        b"RKNN": "RKNN",
        b"LDMK": "kmodel",
        b"\x80\x02": "PyTorch",
    }.items():
        if head.startswith(magic):
            return kind
    return None


def _in_archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as e:
        raise BadFile(f"'{path}' is a damaged or truncated archive: {e}") from None
    if any(
        n.endswith(("/models/model.json", "serialized_exported_program.json"))
        or (n.split("/")[-2:-1] == ["models"] and n.endswith(".json"))
        for n in names
    ):
        return "torch.export"
    if any(n.endswith("constants.pkl") for n in names):
        return "TorchScript"
    if any(n.endswith("data.pkl") for n in names):
        return "PyTorch"
    if "model.weights.h5" in names:
        return "Keras"
    raise BadFile(f"'{path}' is an archive without a PyTorch or Keras model; unpack it first")


def _by_text(head: bytes) -> str | None:
    if b"\0" in head:
        return None
    text = head.decode("utf-8", "ignore")
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    first = next((line for line in lines if line), "")
    if first in ("[net]", "[network]"):
        return "Darknet"
    if any(re.match(r"layers?\s*\{", line) for line in lines):
        return "Caffe"
    return None


def _by_protobuf(path: Path, head: bytes) -> str | None:
    """ONNX starts with a version number, Caffe and TensorFlow with a name or a node."""
    if path.suffix == ".caffemodel":
        return "Caffe"
    if _is_node(head) or (head[0] == 0x0A and path.suffix == ".pb"):
        return "TensorFlow"
    if re.match(rb"\x08\x01\x12[\x80-\xff]*[\0-\x7f][\x0a\x12]", head):
        return SAVED  # schema version 1, then a message; ONNX has a string here
    if path.suffix == ".weights":
        return "Darknet"
    return None


def _is_node(head: bytes) -> bool:
    """Whether the first field is a NodeDef: a message that starts with the node's name and op."""
    length = rb"[\x80-\xff]{0,4}[\0-\x7f]"
    found = re.match(rb"\x0a" + length + rb"\x0a([\x01-\x7f])", head)
    if found is None:
        return False
    after = found.end() + found.group(1)[0]
    return head[after : after + 1] == b"\x12" and head[after + 2 : after + 3].isalpha()
