"""Reader of GraphDef and SavedModel files: nodes, functions, signatures."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from intaglio.errors import BadFile
from intaglio.files import read_regular
from intaglio.frontends import protobuf
from intaglio.frontends.tensorflow.tensor import DTYPES, Tensor, read_shape

MAX_NODES = 1 << 20  # of one graph
Raw = int | memoryview


@dataclass(frozen=True)
class Function:
    """The name of a function in an attribute."""

    name: str


@dataclass
class Node:
    """One node of a graph; attributes are decoded on demand."""

    name: str = ""
    op: str = ""
    inputs: list[str] = field(default_factory=list)  # without control inputs
    controls: list[str] = field(default_factory=list)
    raw: dict[str, memoryview] = field(default_factory=dict)

    @cached_property
    def attrs(self) -> dict[str, Any]:
        return {k: _attribute(v, f"'{k}' of node '{self.name}'") for k, v in self.raw.items()}


@dataclass
class Body:
    """A function: arguments, nodes, and the tensors that it returns."""

    name: str = ""
    args: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    returns: dict[str, str] = field(default_factory=dict)  # result -> tensor reference
    nodes: dict[str, Node] = field(default_factory=dict)


@dataclass
class Port:
    """An input or output of a signature."""

    tensor: str = ""
    dtype: str | None = None
    shape: tuple[int, ...] | None = None


@dataclass
class Signature:
    """A named set of inputs and outputs of the model."""

    inputs: dict[str, Port] = field(default_factory=dict)
    outputs: dict[str, Port] = field(default_factory=dict)


@dataclass
class File:
    """The content of a model file."""

    nodes: dict[str, Node] = field(default_factory=dict)
    functions: dict[str, Body] = field(default_factory=dict)
    signatures: dict[str, Signature] = field(default_factory=dict)
    producer: int = 0  # GraphDef version of the producer


def read(path: Path) -> bytes:
    try:
        data = read_regular(path)
    except OSError as e:
        raise BadFile(f"cannot read '{path}': {(e.strerror or str(e)).lower()}") from None
    if data.startswith(b"version https://git-lfs"):
        raise BadFile(f"'{path}' is a Git LFS pointer, not the file itself; run `git lfs pull`")
    return data


def parse_graph(data: bytes, what: str) -> File:
    """A frozen graph."""
    file = File()
    _graph(memoryview(data), file, what)
    if not file.nodes:
        raise BadFile(f"{what} has no nodes; a frozen TensorFlow graph is needed")
    return file


def parse_saved(data: bytes, what: str) -> File:
    """The graph of a SavedModel with the tag `serve`, or the first one."""
    graphs = [
        protobuf.inside(value, what)
        for n, _, value in protobuf.fields(memoryview(data), what)
        if n == 2
    ]
    if not graphs:
        raise BadFile(f"{what} has no graph")
    chosen = next((g for g in graphs if "serve" in _tags(g, what)), graphs[0])
    file = File()
    for n, _, value in protobuf.fields(chosen, what):
        if n == 2:
            _graph(protobuf.inside(value, what), file, what)
        elif n == 5:
            name, raw = _entry(value, what)
            file.signatures[name] = _signature(raw, what)
    return file


def _name(value: Raw) -> str:
    """A string made safe for messages: one line, limited length."""
    return re.sub(r"[\0-\x1f]", "?", protobuf.text(value))


def _tags(graph: memoryview, what: str) -> list[str]:
    return [
        _name(tag)
        for n, _, info in protobuf.fields(graph, what)
        if n == 1
        for m, _, tag in protobuf.fields(protobuf.inside(info, what), what)
        if m == 4
    ]


def _texts(message: memoryview, what: str, number: int) -> str:
    return next((_name(v) for n, _, v in protobuf.fields(message, what) if n == number), "")


def _entry(value: Raw, what: str) -> tuple[str, memoryview]:
    """Key and value of a map entry."""
    key, held = "", memoryview(b"")
    for n, _, v in protobuf.fields(protobuf.inside(value, what), what):
        if n == 1:
            key = _name(v)
        elif n == 2:
            held = protobuf.inside(v, what)
    return key, held


def _signature(message: memoryview, what: str) -> Signature:
    result = Signature()
    for n, _, value in protobuf.fields(message, what):
        if n in (1, 2):
            name, raw = _entry(value, what)
            port = Port()
            for m, _, v in protobuf.fields(raw, what):
                if m == 1:
                    port.tensor = _name(v)
                elif m == 2:
                    port.dtype = DTYPES.get(protobuf.whole(v, what))
                elif m == 3:
                    port.shape = read_shape(protobuf.inside(v, what), what)
            (result.inputs if n == 1 else result.outputs)[name] = port
    return result


def _graph(message: memoryview, file: File, what: str) -> None:
    for n, _, value in protobuf.fields(message, what):
        if n == 1:
            node = _node(protobuf.inside(value, what), what)
            if node.name in file.nodes:
                raise BadFile(f"{what}: two nodes are called '{node.name}'")
            file.nodes[node.name] = node
            if len(file.nodes) > MAX_NODES:
                raise BadFile(f"{what} has more than {MAX_NODES} nodes")
        elif n == 2:
            for m, _, function in protobuf.fields(protobuf.inside(value, what), what):
                if m == 1:
                    body = _function(protobuf.inside(function, what), what)
                    file.functions[body.name] = body
        elif n == 4:
            for m, _, version in protobuf.fields(protobuf.inside(value, what), what):
                if m == 1:
                    file.producer = protobuf.whole(version, what)


def _node(message: memoryview, what: str) -> Node:
    node = Node()
    for n, _, value in protobuf.fields(message, what):
        if n == 1:
            node.name = _name(value)
        elif n == 2:
            node.op = _name(value)
        elif n == 3:
            name = _name(value)
            if name.startswith("^"):
                node.controls.append(name[1:])
            else:
                node.inputs.append(name)
        elif n == 5:
            key, raw = _entry(value, what)
            node.raw[key] = raw
    if not node.name or not node.op:
        raise BadFile(
            f"{what}: a node has no name or no op; the file is damaged or not a TensorFlow graph"
        )
    return node


def _function(message: memoryview, what: str) -> Body:
    body = Body()
    for n, _, value in protobuf.fields(message, what):
        if n == 1:
            for m, _, v in protobuf.fields(protobuf.inside(value, what), what):
                if m == 1:
                    body.name = _name(v)
                elif m in (2, 3):
                    name = _texts(protobuf.inside(v, what), what, 1)
                    (body.args if m == 2 else body.results).append(name)
        elif n == 3:
            node = _node(protobuf.inside(value, what), what)
            body.nodes[node.name] = node
        elif n == 4:
            key, raw = _entry(value, what)
            body.returns[key] = _name(raw)
    return body


def _attribute(message: memoryview, what: str) -> Any:
    """An AttrValue as a Python object; None if its type is unknown."""
    for n, _, value in protobuf.fields(message, what):
        if n == 1:
            return _list(protobuf.inside(value, what), what)
        return _single(n, value, what)
    return None


def _single(kind: int, value: Raw, what: str) -> Any:
    match kind:
        case 2:
            return _name(value)
        case 3:
            return protobuf.whole(value, what)
        case 4:
            found = protobuf.floats(value, what)
            return float(found[0]) if len(found) else 0.0
        case 5:
            return bool(protobuf.whole(value, what))
        case 6:
            return DTYPES.get(protobuf.whole(value, what) % 100, "unknown")
        case 7:
            return read_shape(protobuf.inside(value, what), what)
        case 8:
            return Tensor(protobuf.inside(value, what))
        case 10:
            return Function(_texts(protobuf.inside(value, what), what, 1))
    return None


def _list(message: memoryview, what: str) -> list[Any]:
    found: list[Any] = []
    for n, _, value in protobuf.fields(message, what):
        if n in (3, 5, 6):
            numbers = protobuf.wholes(value, what)
            if n == 6:
                found += [DTYPES.get(k % 100, "unknown") for k in numbers]
            else:
                found += [bool(k) if n == 5 else k for k in numbers]
        elif n == 4:
            found += [float(f) for f in protobuf.floats(value, what)]
        elif n == 9:
            found.append(Function(_texts(protobuf.inside(value, what), what, 1)))
        else:
            found.append(_single(n, value, what))
    return found
