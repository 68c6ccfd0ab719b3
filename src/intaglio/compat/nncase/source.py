"""An imported model: its bytes, its open dimensions, and the graph at given sizes."""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import intaglio
from intaglio.errors import BadFile, BadInput
from intaglio.frontends.ncnn import MAGIC, read_ncnn
from intaglio.frontends.onnx import parse_onnx
from intaglio.frontends.onnx.input_binding import open_shape
from intaglio.ir import Graph

Extent = int | str
ENDINGS = {"tflite": ".tflite", "caffe": ".prototxt", "onnx": ".onnx"}
TFLITE_MARK = b"TFL3"  # bytes 4 to 8 of the file
UNNAMED = "-1"  # nncase's name of an open dimension of a TFLite file


@dataclass(frozen=True)
class Source:
    """A model that can be loaded at several sizes."""

    kind: str  # onnx, tflite, caffe or ncnn
    data: bytes
    weights: bytes = b""  # of a Caffe or ncnn model
    outputs: tuple[str, ...] = ()
    external: Path | None = None  # file with the weights of an ONNX model
    # Extents and names of open dimensions, by input; a dimension without a name is "INPUT.AXIS"
    declared: Mapping[str, tuple[Extent, ...]] = field(default_factory=dict)

    @property
    def layout(self) -> str:
        """The layout of the model's pictures."""
        return "NHWC" if self.kind == "tflite" else "NCHW"

    @property
    def open(self) -> list[str]:
        """The names of open dimensions."""
        return list(
            dict.fromkeys(d for s in self.declared.values() for d in s if isinstance(d, str))
        )

    def load(self, sizes: Mapping[str, Any] | None = None) -> Graph:
        """The graph with these extents of open dimensions; an extent may be a range "1..8"."""
        if self.kind == "ncnn":
            return read_ncnn(self.data, self.weights, self.outputs)
        sizes = sizes or {}
        keywords: dict[str, Any] = {}
        if self.outputs:
            keywords["outputs"] = list(self.outputs)
        named = {d for d in self.open if not _is_place(d, self.declared)}
        dims = {d: sizes[d] for d in named if d in sizes}
        shapes = {
            name: tuple(sizes.get(d, d) if isinstance(d, str) else d for d in shape)
            for name, shape in self.declared.items()
            if any(_is_place(d, self.declared) for d in shape)
        }
        if shapes:  # the extents of named dimensions are in `dims`
            keywords["shapes"] = shapes
        if dims:
            keywords["dims"] = dims
        if self.kind == "onnx" and self.external is None:
            return intaglio.load(self.data, **keywords)
        with tempfile.TemporaryDirectory(prefix="intaglio-") as folder:
            return intaglio.load(self._written(Path(folder), keywords), **keywords)

    def _written(self, folder: Path, keywords: dict[str, Any]) -> Path:
        path = folder / f"model{ENDINGS[self.kind]}"
        path.write_bytes(self.data)
        if self.kind == "caffe":
            keywords["weights"] = folder / "model.caffemodel"
            keywords["weights"].write_bytes(self.weights)
        elif self.external is not None:
            _beside(self.external, folder)
        return path


def _is_place(name: Extent, declared: Mapping[str, Sequence[Extent]]) -> bool:
    """Whether an open dimension has no name of its own."""
    if not isinstance(name, str):
        return False
    owner, _, axis = name.rpartition(".")
    return name == UNNAMED or (owner in declared and axis.isdigit())


def _beside(file: Path, folder: Path) -> None:
    if not file.is_file():
        raise BadFile(f"input_file: there is no file '{file}'; give the file with the weights")
    try:
        os.link(file.resolve(), folder / file.name)
    except OSError:
        shutil.copyfile(file, folder / file.name)


def read_bytes(what: str, given: Any) -> bytes:
    """The content of a model, which is given as bytes or as an open file."""
    if isinstance(given, bytes | bytearray | memoryview):
        data = bytes(given)
    elif hasattr(given, "read"):
        data = given.read()
    else:
        shown = f"'{given}'" if isinstance(given, str) else type(given).__name__
        raise BadInput(f"{what} is {shown}; give the file's content: open(path, 'rb').read()")
    if not data:
        raise BadFile(f"{what} is empty; give the content of a model file")
    return data


def output_names(options: Any) -> tuple[str, ...]:
    """The names in ImportOptions.output_arrays."""
    given = getattr(options, "output_arrays", None) or ""
    names = given.split(",") if isinstance(given, str) else given
    return tuple(str(n).strip() for n in names if str(n).strip())


def onnx_source(model: Any, options: Any, external: Path | None) -> Source:
    """The arguments of `import_onnx`."""
    data = read_bytes("model_content", model)
    parsed = parse_onnx(data)
    held = {t.name for t in parsed.proto.graph.initializer}
    declared = {}
    for info in parsed.proto.graph.input:
        shape = open_shape(info)
        if info.name in held or shape is None or all(isinstance(d, int) for d in shape):
            continue
        named = [d if d != "" else f"{info.name}.{i}" for i, d in enumerate(shape)]
        declared[info.name] = tuple(named)
    return Source("onnx", data, b"", output_names(options), external, declared)


def tflite_source(model: Any, options: Any) -> Source:
    """The arguments of `import_tflite`."""
    data = read_bytes("model_content", model)
    if data[4:8] != TFLITE_MARK:
        raise BadFile("this is no TFLite model; import_onnx is for ONNX models")
    outputs = output_names(options)
    Source("tflite", data, b"", outputs).load()  # refuses damaged files
    try:
        declared = _open_shapes(data)
    except (struct.error, TypeError, ValueError, IndexError, OverflowError):
        declared = {}  # the field for open shapes is damaged; the file has fixed ones too
    return Source("tflite", data, b"", outputs, None, declared)


def _open_shapes(data: bytes) -> dict[str, tuple[Extent, ...]]:
    """Inputs of a TFLite file with dimensions of -1."""
    import tflite

    found: dict[str, tuple[Extent, ...]] = {}
    graph = tflite.Model.GetRootAs(data).Subgraphs(0)
    for i in graph.InputsAsNumpy():
        tensor = graph.Tensors(int(i))
        extents = tensor.ShapeSignatureAsNumpy() if tensor.ShapeSignatureLength() else []
        if any(d < 0 for d in extents):
            name = tensor.Name().decode("utf-8", "replace")
            found[name] = tuple(UNNAMED if d < 0 else int(d) for d in extents)
    return found


def caffe_source(model: Any, prototxt: Any) -> Source:
    """The arguments of `import_caffe`."""
    weights, text = read_bytes("model", model), read_bytes("prototxt", prototxt)
    if weights.lstrip()[:5] in (b"name:", b"layer", b"input"):  # a text in place of the weights
        weights, text = text, weights
    return Source("caffe", text, weights)


def ncnn_source(param: Any, weights: Any, options: Any) -> Source:
    """The arguments of `import_ncnn`."""
    text, data = read_bytes("model_param", param), read_bytes("model_bin", weights)
    if data.startswith(MAGIC) and not text.startswith(MAGIC):  # given in the other order
        text, data = data, text
    return Source("ncnn", text, data, output_names(options))
