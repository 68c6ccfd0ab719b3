"""Readers of prototxt (protobuf text format) and caffemodel (protobuf) files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.errors import BadFile
from intaglio.files import read_regular
from intaglio.frontends import protobuf
from intaglio.ir import Array

MAX_DEPTH = 32  # of nested messages
OLD = {
    "RELU": "ReLU",
    "LRN": "LRN",
    "TANH": "TanH",
    "INNER_PRODUCT": "InnerProduct",
    "BNLL": "BNLL",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "ABSVAL": "AbsVal",
    "ARGMAX": "ArgMax",
    "MVN": "MVN",
}


class Message(dict[str, list[Any]]):
    """A message in text format: all values of each field name, in order."""

    def one(self, name: str, default: Any = None) -> Any:
        return self[name][-1] if name in self else default

    def number(self, name: str, default: float) -> float:
        value = self.one(name, default)
        try:
            result = float(value)
        except (TypeError, ValueError):
            result = float("nan")
        if not abs(result) < 2**31:
            raise BadFile(f"caffe: {name}: {value} is not a number")
        return result

    def whole(self, name: str, default: int) -> int:
        return int(self.number(name, default))

    def wholes(self, name: str) -> list[int]:
        return [Message({name: [v]}).whole(name, 0) for v in self.get(name, [])]

    def flag(self, name: str, default: bool) -> bool:
        return str(self.one(name, default)).lower() in ("true", "1")

    def inner(self, name: str) -> Message:
        value = self.one(name)
        return value if isinstance(value, Message) else Message()

    def words(self, name: str) -> list[str]:
        return [str(v) for v in self.get(name, [])]


_TOKEN = re.compile(
    r"""\s+|\#[^\n]*|(?P<string>"(?:[^"\\\n]++|\\.)*+"|'(?:[^'\\\n]++|\\.)*+')"""
    r"""|(?P<sign>[{}<>:;,\[\]])|(?P<word>[^\s{}<>:;,\[\]#"']+)"""
)


def _tokens(text: str, what: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            line = text.count("\n", 0, at) + 1
            raise BadFile(f"caffe: line {line} of {what} is not valid text format")
        at = found.end()
        if found.lastgroup:
            yield found.group()


def parse_text(text: str, what: str) -> Message:
    """A prototxt file."""
    tokens = list(_tokens(text, what))
    return _message(tokens, 0, what, "", 0)[0]


def _message(tokens: list[str], at: int, what: str, close: str, depth: int) -> tuple[Message, int]:
    if depth > MAX_DEPTH:
        raise BadFile(f"caffe: {what} has messages nested {depth} deep")
    result = Message()
    while at < len(tokens) and tokens[at] != close:
        name = tokens[at]
        at += 1
        if name in ";,":
            continue
        if at < len(tokens) and tokens[at] == ":":
            at += 1
        if at >= len(tokens) or name in "{}<>:[]":
            raise BadFile(f"caffe: {what} is truncated or invalid at '{name}'")
        value = tokens[at]
        at += 1
        if value in "{<":
            inner, at = _message(tokens, at, what, "}" if value == "{" else ">", depth + 1)
            if at >= len(tokens):
                raise BadFile(f"caffe: a message '{name}' of {what} is not closed")
            at += 1
            result.setdefault(name, []).append(inner)
        elif value == "[":
            while at < len(tokens) and tokens[at] != "]":
                if tokens[at] != ",":
                    result.setdefault(name, []).append(_plain(tokens[at]))
                at += 1
            if at >= len(tokens):
                raise BadFile(f"caffe: a list '{name}' of {what} is not closed")
            at += 1
        else:
            result.setdefault(name, []).append(_plain(value))
    return result, at


def _plain(token: str) -> str:
    return token[1:-1] if token[0] in "\"'" else token


@dataclass(slots=True)
class Layer:
    """One layer of a net."""

    name: str
    type: str
    bottoms: list[str]
    tops: list[str]
    settings: Message = field(default_factory=Message)
    blobs: list[Array] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.type} '{self.name}'"


def _has_phase(layer: Message, rule: str, phase: str) -> bool:
    return any(isinstance(i, Message) and i.one("phase") == phase for i in layer.get(rule, []))


def layers_of(net: Message) -> list[Layer]:
    """The layers of the TEST phase."""
    results = []
    for old, one in [(k == "layers", m) for k in ("layer", "layers") for m in net.get(k, [])]:
        if not isinstance(one, Message):
            raise BadFile("caffe: a layer is not a message")
        if _has_phase(one, "include", "TRAIN") or _has_phase(one, "exclude", "TEST"):
            continue
        kind = str(one.one("type", ""))
        if old:
            kind = OLD.get(kind) or kind.title().replace("_", "")
        results.append(
            Layer(str(one.one("name", kind)), kind, one.words("bottom"), one.words("top"), one)
        )
    return results


def read_weights(path: Path) -> dict[str, list[Array]]:
    """The blobs of each layer in a caffemodel, by the layer's name."""
    what = f"caffe: '{path}'"
    try:
        data = memoryview(read_regular(path))
    except OSError as e:
        raise BadFile(f"cannot read '{path}': {(e.strerror or str(e)).lower()}") from None
    found: dict[str, list[Array]] = {}
    for number, _, value in protobuf.fields(data, what):
        if number in (2, 100):  # old and current layers
            names, blobs = (4, 6) if number == 2 else (1, 7)
            name, held = "", []
            for n, _, v in protobuf.fields(protobuf.inside(value, what), what):
                if n == names:
                    name = protobuf.text(v)
                elif n == blobs:
                    held.append(_blob(protobuf.inside(v, what), what))
            if held:
                found[name] = held
    if not found:
        raise BadFile(f"{what} holds no weights")
    return found


def _blob(data: memoryview, what: str) -> Array:
    shape: list[int] = []
    old = {1: 0, 2: 0, 3: 0, 4: 0}
    parts: list[Array] = []
    for number, _, value in protobuf.fields(data, what):
        if number in old:
            old[number] = protobuf.whole(value, what)
        elif number == 5:
            parts.append(protobuf.floats(value, what))
        elif number == 8:
            parts.append(protobuf.floats(value, what, "<f8"))
        elif number == 7:
            for n, _, v in protobuf.fields(protobuf.inside(value, what), what):
                shape += protobuf.wholes(v, what) if n == 1 else []
    result = np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, np.float32)
    if not shape and any(old.values()):
        shape = [max(old[n], 1) for n in sorted(old)]
    shape = shape or [result.size]
    count = 1
    for extent in shape:
        count *= extent
    if count != result.size or min(shape, default=1) < 0:
        raise BadFile(f"{what}: a blob of shape {shape} holds {result.size} numbers")
    return result.reshape(shape)
