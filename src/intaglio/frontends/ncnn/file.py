"""The two files of an ncnn model: layers as text (.param), numbers as bytes (.bin)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from intaglio.errors import BadFile, Unsupported
from intaglio.ir import Array

MAGIC = b"7767517"  # begins a .param file
LIST, LIST_END = -23300, -23400  # keys of lists: LIST - number
HALF, BYTES, FLOATS = 0x01306B47, 0x000D4B38, 0x0002C056  # types of stored weights
TABLE = 256  # entries of a table of weights
MOST = 1 << 28  # numbers of an array


@dataclass(frozen=True)
class Layer:
    """A line of the .param file."""

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    settings: dict[int, tuple[float, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"layer '{self.name}' ({self.kind})"

    def number(self, key: int, default: float) -> float:
        return self.settings[key][0] if key in self.settings else default

    def whole(self, key: int, default: int) -> int:
        found = self.number(key, default)
        if found != int(found):
            raise BadFile(f"ncnn: {self}: setting {key} is {found}; it is a whole number")
        return int(found)

    def count(self, key: int, default: int, least: int = 1) -> int:
        """A size, from `least` on."""
        found = self.whole(key, default)
        if not least <= found <= MOST:
            raise BadFile(f"ncnn: {self}: setting {key} is {found}; it is at least {least}")
        return found

    def several(self, key: int) -> tuple[float, ...]:
        return self.settings.get(key, ())


def read_param(data: bytes) -> list[Layer]:
    """The layers of a .param file."""
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise BadFile("ncnn: this .param file is no text; convert it by ncnn2mem's text") from None
    if lines[0].strip() != MAGIC.decode():
        raise BadFile(f"ncnn: the .param file does not begin with {MAGIC.decode()}")
    found = [_layer(line) for line in lines[2:] if line.strip()]
    if not found:
        raise BadFile("ncnn: the .param file has no layers")
    return found


def _layer(line: str) -> Layer:
    words = line.split()
    try:
        kind, name, ins, outs = words[0], words[1], int(words[2]), int(words[3])
        if ins < 0 or outs < 0 or len(words) < 4 + ins + outs:
            raise ValueError
        settings = dict(_setting(w) for w in words[4 + ins + outs :])
    except (IndexError, ValueError):
        raise BadFile(f"ncnn: the line '{line.strip()[:80]}' of the .param is damaged") from None
    names = words[4 : 4 + ins + outs]
    return Layer(kind, name, tuple(names[:ins]), tuple(names[ins:]), settings)


def _setting(word: str) -> tuple[int, tuple[float, ...]]:
    name, _, text = word.partition("=")
    key = int(name)
    if LIST_END < key <= LIST:
        values = [float(x) for x in text.split(",")]
        if len(values) != int(values[0]) + 1:
            raise ValueError
        found = tuple(values[1:])
        key = LIST - key
    else:
        found = (float(text),)
    if not all(map(math.isfinite, found)):
        raise ValueError
    return key, found


@dataclass
class Weights:
    """The .bin file, read from its beginning to its end."""

    data: bytes
    at: int = 0

    def _bytes(self, count: int, layer: Layer) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise BadFile(f"ncnn: the .bin file ends within {layer}; it has {len(self.data)} bytes")
        found = self.data[self.at : end]
        self.at = end
        return found

    def plain(self, count: int, layer: Layer) -> Array:
        """f32 without a type in front."""
        return np.frombuffer(self._bytes(4 * count, layer), "<f4").astype(np.float32)

    def typed(self, count: int, layer: Layer) -> Array:
        """Numbers behind four bytes that say how they are stored."""
        flag = int.from_bytes(self._bytes(4, layer), "little")
        if flag in (0, FLOATS):
            return self.plain(count, layer)
        if flag == HALF:
            return np.frombuffer(self._aligned(2 * count, layer)[: 2 * count], "<f2").astype(
                np.float32
            )
        if flag == BYTES:
            raise Unsupported(
                f"ncnn: {layer} has weights of 8 bits; import the model before quantisation"
            )
        table = self.plain(TABLE, layer)
        index = np.frombuffer(self._aligned(count, layer)[:count], np.uint8)
        return np.ascontiguousarray(table[index])

    def _aligned(self, count: int, layer: Layer) -> bytes:
        return self._bytes(count + -count % 4, layer)
