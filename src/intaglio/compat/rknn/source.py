"""Model files: from the arguments of `load_onnx` and its relatives to the keywords of the core."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import intaglio
from intaglio.compat.onnx_file import onnx_inputs
from intaglio.errors import BadFile, BadInput
from intaglio.frontends import sniff
from intaglio.ir import Graph

METHODS = {  # by format
    "ONNX": "load_onnx",
    "TFLite": "load_tflite",
    "TensorFlow": "load_tensorflow",
    "TensorFlow SavedModel": "load_tensorflow",
    "Caffe": "load_caffe",
    "Darknet": "load_darknet",
    "TorchScript": "load_pytorch",
    "torch.export": "load_pytorch",
    "PyTorch": "load_pytorch",
    "RKNN": "load_rknn",
}


@dataclass(frozen=True)
class Source:
    """A model file, with the keywords of `intaglio.load` for it."""

    path: Path
    keywords: dict[str, Any] = field(default_factory=dict)
    channels_last: bool = False  # the layout of its inputs with four axes

    @property
    def name(self) -> str:
        return self.path.stem

    def load(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Graph:
        """The graph, at these shapes of inputs instead of the file's."""
        known = {**self.keywords.get("shapes", {}), **(shapes or {})}
        return intaglio.load(self.path, **{**self.keywords, "shapes": known})

    def at(self, shape_set: Sequence[Sequence[int]], names: Sequence[str]) -> Source:
        """The source with the shapes of one set, in the order of the inputs."""
        if len(shape_set) != len(names):
            raise BadInput(
                f"dynamic_input has {len(shape_set)} shapes in a set, the model's inputs are "
                f"{len(names)}: {', '.join(names)}; give a shape for each"
            )
        shapes = {n: tuple(s) for n, s in zip(names, shape_set, strict=True)}
        known = {**self.keywords.get("shapes", {}), **shapes}
        return replace(self, keywords={**self.keywords, "shapes": known})


def model_path(model: Any, method: str, argument: str = "model") -> Path:
    """The path of an existing file of the format that `method` loads; BadInput otherwise."""
    if not isinstance(model, str | os.PathLike):
        raise BadInput(f"{argument} is {model!r}; give the path of a model file")
    path = Path(model)
    if not path.exists():
        raise BadFile(f"there is no file '{path}' (in {Path.cwd()}); check the path")
    found = METHODS.get(sniff(path), method)
    if found != method:
        raise BadInput(f"'{path}' is a file for {found}, not for {method}; call {found}")
    return path


def second_file(given: Any, argument: str) -> Path:
    """The path of the file with the weights; BadFile if there is none."""
    if not isinstance(given, str | os.PathLike):
        raise BadInput(f"{argument} is {given!r}; give the path of the file with the weights")
    path = Path(given)
    if not path.exists():
        raise BadFile(f"{argument}: there is no file '{path}' (in {Path.cwd()}); check the path")
    return path


def by_name(
    names: Sequence[str], shapes: Any, argument: str = "input_size_list"
) -> dict[str, tuple[int, ...]]:
    """Shapes by the names of the inputs; BadInput if there are more or fewer."""
    if not isinstance(shapes, Sequence) or isinstance(shapes, str):
        raise BadInput(f"{argument} is {shapes!r}; give a shape for each input: [[1, 3, 224, 224]]")
    if shapes and all(isinstance(d, int) for d in shapes):
        shapes = [shapes]
    if len(shapes) != len(names):
        raise BadInput(
            f"{argument} has {len(shapes)} shapes, the inputs are {len(names)}: "
            f"{', '.join(names)}; give a shape for each, in this order"
        )
    try:
        return {n: tuple(int(d) for d in s) for n, s in zip(names, shapes, strict=True)}
    except (TypeError, ValueError):
        raise BadInput(f"{argument} is {shapes!r}; extents are whole numbers") from None


def onnx_source(
    model: Any,
    inputs: Sequence[str] | None,
    input_size_list: Any,
    input_initial_val: Any,
    outputs: Sequence[str] | None,
    dynamic: Sequence[Sequence[int]] | None,
) -> Source:
    """The arguments of `load_onnx`."""
    path = model_path(model, "load_onnx")
    declared = onnx_inputs(path)
    inputs, outputs = ([n] if isinstance(n, str) else n for n in (inputs, outputs))
    names = list(declared) if inputs is None else list(inputs)
    keywords: dict[str, Any] = {}
    if inputs is not None and names != list(declared):
        keywords["inputs"] = names
    if outputs is not None:
        keywords["outputs"] = list(outputs)
    if input_size_list is not None:
        shapes = by_name(names, input_size_list)
        keywords["shapes"] = {n: _batched(s, declared.get(n)) for n, s in shapes.items()}
    if input_initial_val is not None:
        if len(input_initial_val) != len(names):
            raise BadInput(
                f"input_initial_val has {len(input_initial_val)} values, the inputs are "
                f"{len(names)}: {', '.join(names)}; give None for an input that stays"
            )
        pairs = zip(names, input_initial_val, strict=True)
        keywords["values"] = {n: v for n, v in pairs if v is not None}
    source = Source(path, keywords)
    stay = [n for n in names if n not in keywords.get("values", {})]
    if dynamic is not None:
        return source.at(dynamic, stay)
    open_ones = [n for n in stay if n in declared and None in declared[n]]
    open_ones = [n for n in open_ones if n not in keywords.get("shapes", {})]
    if open_ones:
        shown = "; ".join(f"'{n}' {_shape_text(declared[n])}" for n in open_ones)
        example = [[d or 1 for d in declared[n]] for n in names if n in declared]
        raise BadInput(
            f"inputs have open dimensions: {shown}; the NPU runs fixed shapes; give "
            f"load_onnx(inputs={names}, input_size_list={example}) with your sizes, or several "
            "sets of shapes by config(dynamic_input=...)"
        )
    return source


def _batched(shape: tuple[int, ...], declared: Sequence[int | None] | None) -> tuple[int, ...]:
    """A shape of three extents for an input of four: a batch of one, as older scripts give it."""
    open_batch = declared is not None and len(declared) == 4 and declared[0] in (1, None)
    return (1, *shape) if open_batch and len(shape) == 3 else shape


def torch_source(model: Any, input_size_list: Any) -> Source:
    """The arguments of `load_pytorch`; shapes belong to the arguments of `forward` by order."""
    path = model_path(model, "load_pytorch")
    if input_size_list is None:
        return Source(path)
    if sniff(path) == "TorchScript":
        from intaglio.frontends.torch.archive import Archive
        from intaglio.frontends.torch.script import Script

        forward = Script(Archive(path, f"'{path}'")).forward()
        names = [a.arg for a in forward.args.args[1:]]
        names = names[: max(len(names) - len(forward.args.defaults), len(input_size_list))]
    else:
        names = [v.name for v in intaglio.load(path).inputs]
    return Source(path, {"shapes": by_name(names, input_size_list)})


def tensorflow_source(
    tf_pb: Any, inputs: Any, input_size_list: Any, outputs: Any, input_is_nchw: bool
) -> Source:
    """The arguments of `load_tensorflow`."""
    path = model_path(tf_pb, "load_tensorflow", "tf_pb")
    for argument, given in (("inputs", inputs), ("outputs", outputs)):
        if not isinstance(given, Sequence) or isinstance(given, str) or not given:
            raise BadInput(f"{argument} is {given!r}; give a list of names of tensors")
    keywords = {
        "inputs": list(inputs),
        "outputs": list(outputs),
        "shapes": by_name(list(inputs), input_size_list),
    }
    return Source(path, keywords, channels_last=not input_is_nchw)


def _shape_text(shape: Sequence[int | None]) -> str:
    return "x".join("?" if d is None else str(d) for d in shape)
