"""The .mlir file that model_transform writes: a float network with its picture settings.

It begins with lines of text that say what it is; the network follows as ONNX.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import intaglio
from intaglio.compat.tpu_mlir.yolo_post import KINDS, with_boxes
from intaglio.errors import BadFile, BadInput
from intaglio.export.onnx import to_onnx
from intaglio.files import write_atomically
from intaglio.ir import Graph

FIRST = b"// Intaglio module 1: a float network for `intaglio compat`; ONNX follows the line of -"
END = b"\n// " + b"-" * 32 + b"\n"
LONGEST_HEAD = 1 << 16


@dataclass(frozen=True)
class Pictures:
    """How pictures become inputs, in the words of model_transform."""

    resize_dims: list[int] | None = None
    keep_aspect_ratio: bool = False
    keep_ratio_mode: str = "letterbox"
    mean: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    scale: list[float] = field(default_factory=lambda: [1.0, 1.0, 1.0])
    pixel_format: str = "bgr"
    channel_format: str = "nchw"
    pad_value: int = 0
    pad_type: str = "center"
    preprocess_list: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Module:
    """A network, its name, the file that it came from, and its picture settings.

    `boxes` is the kind of detector whose boxes --add_postprocess wants from the outputs.
    """

    name: str
    graph: Graph
    source: str = ""
    pictures: Pictures = Pictures()
    boxes: str = ""

    @property
    def whole(self) -> Graph:
        """The network, with its boxes if it has any."""
        return with_boxes(self.graph.copy(), self.boxes) if self.boxes else self.graph

    def save(self, path: str | Path) -> None:
        """Write the file."""
        about: dict[str, Any] = {"name": self.name, "source": self.source}
        about |= {"pictures": asdict(self.pictures), "boxes": self.boxes}
        head = FIRST + b"\n// " + json.dumps(about).encode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = to_onnx(self.graph)
        write_atomically(path, head + END + model.SerializeToString())


def read(path: str | Path) -> Module:
    """The module in a file; BadFile says what it is instead."""
    try:
        data = Path(path).read_bytes()
    except OSError as e:
        raise BadFile(f"cannot read '{path}': {(e.strerror or str(e)).lower()}") from None
    if not data.startswith(FIRST[:18]):
        if data.lstrip()[:7] == b"module " or b"module @" in data[:4096]:
            raise BadFile(
                f"'{path}' was written by tpu-mlir; run `intaglio compat model_transform` on the "
                "original model to make one that this tool reads"
            )
        raise BadFile(f"'{path}' is no file of model_transform; run model_transform first")
    head, found, model = data.partition(END)
    if not found or len(head) > LONGEST_HEAD:
        raise BadFile(f"'{path}' is damaged: its head has no end; run model_transform again")
    name, source, pictures, boxes = _about(head, path)
    try:
        graph = intaglio.load(model)
    except BadInput as e:
        raise BadFile(f"'{path}' is damaged: {e}; run model_transform again") from None
    graph.name = name
    return Module(name, graph, source, pictures, boxes)


def is_module(path: str | Path) -> bool:
    """Whether a file begins as these files do."""
    try:
        with Path(path).open("rb") as file:
            return file.read(18) == FIRST[:18]
    except OSError:
        return False


def _about(head: bytes, path: str | Path) -> tuple[str, str, Pictures, str]:
    """The settings in the second line, with their types checked."""
    try:
        about = json.loads(head.splitlines()[1].removeprefix(b"// "))
        name, source, given = about["name"], about["source"], about["pictures"]
        boxes = about.get("boxes", "")
        usual = asdict(Pictures())
        known = {f.name for f in fields(Pictures)}
        wrong = [k for k, v in given.items() if k not in known or not _like(v, usual[k])]
        texts = isinstance(name, str) and isinstance(source, str)
        if wrong or not texts or boxes not in ("", *KINDS):
            raise ValueError(wrong)
        return name, source, Pictures(**given), boxes
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise BadFile(f"'{path}' is damaged: its second line; run model_transform again") from None


def _like(value: Any, usual: Any) -> bool:
    """Whether a value has the type of the default; None is a list of whole numbers."""
    if isinstance(value, list):
        return not isinstance(usual, str | bool | int) and all(
            isinstance(x, int | float) for x in value
        )
    return value is None if usual is None else type(value) is type(usual)
