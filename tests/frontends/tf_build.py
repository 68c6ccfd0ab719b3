"""GraphDefs, functions, SavedModels and checkpoints, written byte by byte without TensorFlow."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from intaglio.frontends.tensorflow.checksum import crc32c, masked

CODES = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "string": 7,
    "int64": 9,
    "bool": 10,
    "quint8": 12,
    "float16": 19,
    "resource": 20,
    "variant": 21,
}
MAGIC = 0xDB4775248B80FB57


# ---- protocol buffers ----------------------------------------------------------------------------
def varint(n: int) -> bytes:
    n &= (1 << 64) - 1
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def part(number: int, data: bytes | str) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def whole(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def shape(dims: Any) -> bytes:
    if dims is None:
        return whole(3, 1)
    return b"".join(part(2, whole(1, d)) for d in dims)


class Bytes(list[int]):
    """A vector of TensorFlow's quantised bytes."""


def tensor(array: Any) -> bytes:
    """A TensorProto: numbers as bytes, strings one by one."""
    if isinstance(array, list) and not isinstance(array, Bytes):  # of strings
        head = whole(1, 7) + part(2, shape([len(array)]))
        return head + b"".join(part(8, s) for s in array)
    if isinstance(array, Bytes):
        return whole(1, 12) + part(2, shape([len(array)])) + part(4, bytes(array))
    array = np.asarray(array)
    head = whole(1, CODES[array.dtype.name]) + part(2, shape(array.shape))
    return head + part(4, array.tobytes())


@dataclass(frozen=True)
class Kind:
    """An attribute that is an element type."""

    name: str


@dataclass(frozen=True)
class Call:
    """An attribute that names a function."""

    name: str


@dataclass(frozen=True)
class Shape:
    """An attribute that is a shape; None if it is unknown."""

    dims: tuple[int, ...] | None


def attribute(value: Any) -> bytes:
    match value:
        case np.ndarray() | np.generic():
            return part(8, tensor(value))
        case Bytes():
            return part(8, tensor(value))
        case bool():
            return whole(5, value)
        case int():
            return whole(3, value)
        case float():
            return varint(4 << 3 | 5) + struct.pack("<f", value)
        case str():
            return part(2, value)
        case Kind():
            return whole(6, CODES[value.name])
        case Call():
            return part(10, part(1, value.name))
        case Shape():
            return part(7, shape(value.dims))
        case list() if value and isinstance(value[0], Kind):
            return part(1, part(6, b"".join(varint(CODES[k.name]) for k in value)))
        case list() if value and isinstance(value[0], str):
            return part(8, tensor(value))
        case list():
            return part(1, part(3, b"".join(varint(k) for k in value)))
    raise TypeError(value)


def node(name: str, op: str, inputs: str = "", **attrs: Any) -> bytes:
    out = part(1, name) + part(2, op) + b"".join(part(3, i) for i in inputs.split())
    return out + b"".join(part(5, part(1, k) + part(2, attribute(v))) for k, v in attrs.items())


# ---- graphs --------------------------------------------------------------------------------------
@dataclass
class GraphDef:
    """Nodes and functions, in the order in which they were added."""

    nodes: list[bytes] = field(default_factory=list)
    functions: list[bytes] = field(default_factory=list)

    def add(self, name: str, op: str, inputs: str = "", **attrs: Any) -> str:
        self.nodes.append(node(name, op, inputs, **attrs))
        return name

    def const(self, name: str, array: Any) -> str:
        held = array if isinstance(array, list) else np.asarray(array)
        if isinstance(array, Bytes):
            return self.add(name, "Const", dtype=Kind("quint8"), value=array)
        kind = "string" if isinstance(array, list) else held.dtype.name  # type: ignore[union-attr]
        return self.add(name, "Const", dtype=Kind(kind), value=held)

    def placeholder(self, name: str, dims: Any, dtype: str = "float32") -> str:
        return self.add(name, "Placeholder", dtype=Kind(dtype), shape=Shape(dims))

    def function(
        self,
        name: str,
        args: dict[str, str],
        results: dict[str, tuple[str, str]],
        nodes: list[bytes],
    ) -> Call:
        """Add a function: arguments and results by name with their element types and sources."""
        signature = part(1, name)
        signature += b"".join(part(2, part(1, a) + whole(3, CODES[k])) for a, k in args.items())
        signature += b"".join(
            part(3, part(1, r) + whole(3, CODES[k])) for r, (_, k) in results.items()
        )
        body = part(1, signature) + b"".join(part(3, n) for n in nodes)
        body += b"".join(part(4, part(1, r) + part(2, ref)) for r, (ref, _) in results.items())
        self.functions.append(body)
        return Call(name)

    def bytes(self) -> bytes:
        library = b"".join(part(1, f) for f in self.functions)
        return b"".join(part(1, n) for n in self.nodes) + (part(2, library) if library else b"")

    def save(self, path: Path) -> Path:
        path.write_bytes(self.bytes())
        return path


# ---- SavedModels ---------------------------------------------------------------------------------
Ports = dict[str, tuple[str, str, Any]]  # name -> tensor, element type, shape


def _ports(number: int, ports: Ports) -> bytes:
    out = b""
    for name, (ref, kind, dims) in ports.items():
        info = part(1, ref) + whole(2, CODES[kind]) + part(3, shape(dims))
        out += part(number, part(1, name) + part(2, info))
    return out


def saved_model(
    folder: Path,
    graph: GraphDef,
    signatures: dict[str, tuple[Ports, Ports]],
    variables: dict[str, np.ndarray] | None = None,
) -> Path:
    """Write a SavedModel folder."""
    meta = part(1, part(4, "serve")) + part(2, graph.bytes())
    for name, (inputs, outputs) in signatures.items():
        meta += part(5, part(1, name) + part(2, _ports(1, inputs) + _ports(2, outputs)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "saved_model.pb").write_bytes(whole(1, 1) + part(2, meta))
    if variables is not None:
        (folder / "variables").mkdir(exist_ok=True)
        checkpoint(folder / "variables" / "variables", variables)
    return folder


def _block(rows: list[tuple[bytes, bytes]]) -> bytes:
    """A block of prefix-compressed keys with one restart."""
    out, last = b"", b""
    for key, value in rows:
        shared = 0
        while shared < min(len(key), len(last)) and key[shared] == last[shared]:
            shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value))
        out += key[shared:] + value
        last = key
    return out + struct.pack("<II", 0, 1)


def checkpoint(prefix: Path, tensors: dict[str, np.ndarray]) -> None:
    """An index in two data blocks and one shard."""
    rows, data = [(b"", whole(1, 1))], b""
    for name, given in sorted(tensors.items()):
        a = np.asarray(given)
        raw = a.tobytes()
        entry = whole(1, CODES[a.dtype.name]) + part(2, shape(a.shape)) + whole(4, len(data))
        entry += whole(5, len(raw)) + varint(6 << 3 | 5) + struct.pack("<I", masked(crc32c(raw)))
        rows.append((name.encode(), entry))
        data += raw
    file, places = b"", []
    half = max(len(rows) // 2, 1)
    for block in (rows[:half], rows[half:]):
        if block:
            places.append((block[-1][0], varint(len(file)) + varint(len(_block(block)))))
            file += _sealed(_block(block))
    handles = b""
    for block in ([], places):
        handles += varint(len(file)) + varint(len(_block(block)))
        file += _sealed(_block(block))
    file += handles.ljust(40, b"\0") + struct.pack("<Q", MAGIC)
    prefix.with_name(prefix.name + ".index").write_bytes(file)
    prefix.with_name(prefix.name + ".data-00000-of-00001").write_bytes(data)


def _sealed(block: bytes) -> bytes:
    return block + b"\0" + struct.pack("<I", masked(crc32c(block + b"\0")))


# ---- running them --------------------------------------------------------------------------------
def normal(*dims: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=dims).astype(np.float32)


def run(path: Path, feeds: dict[str, np.ndarray], **load: Any) -> dict[str, np.ndarray]:
    """Outputs of the compiled model, which must equal those of the interpreter."""
    graph = intaglio.load(path, **load)
    want = intaglio.interpret(graph, feeds)
    with intaglio.open(intaglio.compile(graph)) as session:
        got = {k: np.array(v) for k, v in session.run(feeds).items()}
    for name, a in want.items():
        np.testing.assert_allclose(got[name], a, atol=1e-5)
    return got
