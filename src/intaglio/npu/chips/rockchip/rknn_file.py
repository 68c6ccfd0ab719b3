"""Reads the files of Rockchip's compiler: tensors, operators, tasks and their register commands.

Two containers carry the same tables. RK3588, RK3576, RK356x: 64 bytes of header, then a
flatbuffer that holds everything. RV110x: tasks, commands and weights as they lie in memory, then
the flatbuffer. Both end with a JSON text.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

from intaglio.errors import BadFile
from intaglio.npu.chips import flatbuffer
from intaglio.npu.chips.rockchip.rknn_tables import COMPACT, FULL
from intaglio.npu.chips.rockchip.words import Word, decode

MAGIC = b"RKNN"
HEADER = struct.Struct("<4s4xQQ")  # magic, version, bytes that follow the header
START = 64  # of what follows the header
TABLES, IN_MEMORY = 6, 0x1004  # versions: all in a flatbuffer, or as it lies in memory
MEMORY_HEADER = struct.Struct("<7I")  # bytes of the flatbuffer, of tasks, count of tasks, bytes of
# commands, of memory between layers, of weights, and of constants that the compiler has made
MEMORY_START = 128  # of the tasks, in the file
TASK = struct.Struct("<8IQ")  # flags, operator, blocks, 3 of interrupts, words, offset, address
LISTS = 6  # of tasks: for one core, each of two, each of three
TAIL_WORDS = 4  # that end a task and are not counted: the next task, wait, start
DTYPES = {1: "f32", 2: "u8", 3: "i8", 5: "i16", 6: "i32", 7: "i64", 10: "f16", 13: "u64"}
KINDS = {1: "input", 2: "output", 3: "internal", 4: "constant", 8: "derived"}
COMMANDS, TASKS = 9, 10  # kinds of tensors
NPU = 2  # the device of an operator


@dataclass(slots=True)
class Tensor:
    """A tensor: how it lies in memory, and its quantisation."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    stored: tuple[int, ...]  # blocks of channels: [n, c / c2, h, w, c2]
    scale: float = 0.0
    zero: int = 0
    size: int = 0  # in bytes
    offset: int = 0  # in the memory of its kind
    data: bytes = b""  # of a constant


@dataclass(frozen=True, slots=True)
class Window:
    """How a kernel moves over its input."""

    kernel: tuple[int, ...]  # height, width
    strides: tuple[int, ...]
    pads: tuple[int, ...]  # top, left, bottom, right
    dilations: tuple[int, ...]


@dataclass(slots=True)
class Operator:
    """A layer; `tasks` counts those for one core, then for each of two, of three cores."""

    kind: str
    name: str
    on_npu: bool
    inputs: list[str]
    outputs: list[str]
    tasks: list[int]
    window: Window | None = None  # of a convolution


@dataclass(slots=True)
class Task:
    """Commands that the NPU reads at once."""

    operator: int
    blocks: int  # mask of those that it starts
    offset: int  # of its first command, in bytes
    words: list[Word]


@dataclass(slots=True)
class Relocation:
    """Where commands hold the address of a tensor: (offset in the tensor, word)."""

    tensor: str
    places: list[tuple[int, int]]


@dataclass(slots=True)
class RknnFile:
    """What a file of Rockchip's compiler holds."""

    version: int
    target: str
    compiler: str
    generator: str  # of the NPU
    framework: str
    tensors: list[Tensor]
    operators: list[Operator]
    tasks: list[Task]
    relocations: list[Relocation]
    weight_bytes: int
    internal_bytes: int
    command_bytes: int
    description: dict[str, Any] = field(default_factory=dict)  # the JSON text at the end

    def tensor(self, name: str) -> Tensor:
        """A tensor by its name."""
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise BadFile(f"rknn: it has no tensor '{name}'")


def read(data: bytes) -> RknnFile:
    """The contents of a file; BadFile where a size or offset is wrong."""
    if len(data) < START or data[:4] != MAGIC:
        raise BadFile("rknn: the file does not begin with RKNN; export it with RKNN-Toolkit2")
    _, version, size = HEADER.unpack_from(data)
    if START + size > len(data):
        raise BadFile(
            f"rknn: it says {size} bytes follow its header; there are {len(data) - START}"
        )
    if version == TABLES:
        made = _tables(data[START : START + size])
    elif version == IN_MEMORY:
        made = _in_memory(data, START + size)
    else:
        known = f"{TABLES} and {IN_MEMORY}"
        raise BadFile(f"rknn: its container has version {version}; {known} are known")
    made.version = version
    made.description = _description(data[START + size :])
    return made


def _tables(data: bytes) -> RknnFile:
    root = flatbuffer.read(data, FULL, "Model", "rknn")
    blobs = [b["data"] for b in root["blobs"]]
    graph = _graph(root)
    by_kind = {t["kind"]: _blob(t, blobs) for t in graph["tensors"]}
    commands, tasks = by_kind.get(COMMANDS, b""), by_kind.get(TASKS, b"")
    made = _file(root, graph, commands, _tasks(tasks, commands))
    for tensor, row in zip(made.tensors, _shown(graph), strict=True):
        tensor.data = _blob(row, blobs)
    return made


def _in_memory(data: bytes, end: int) -> RknnFile:
    if len(data) < START + MEMORY_HEADER.size:
        raise BadFile(f"rknn: the file has {len(data)} bytes; its header needs more")
    sizes = MEMORY_HEADER.unpack_from(data, START)
    tables, task_bytes, count, commands, internal, weights, others = sizes
    at = MEMORY_START
    parts = []
    for size in (task_bytes, commands, others, weights):
        parts.append(data[at : at + size])
        at += size
    if at + tables != end or count * TASK.size > task_bytes:
        raise BadFile("rknn: the sizes of its parts do not add up to the file's")
    root = flatbuffer.read(data[at:end], COMPACT, "Model", "rknn")
    graph, tasks = _graph(root), _tasks(parts[0][: count * TASK.size], parts[1])
    made = _file(root, graph, parts[1], tasks)
    made.weight_bytes, made.internal_bytes = weights, internal
    for tensor in made.tensors:
        held = {"derived": parts[2], "constant": parts[3]}.get(tensor.kind, b"")
        tensor.data = held[tensor.offset : tensor.offset + tensor.size]
    return made


def _graph(root: dict[str, Any]) -> dict[str, Any]:
    if len(root["graphs"]) != 1:
        raise BadFile(f"rknn: it has {len(root['graphs'])} graphs; one is read")
    graph: dict[str, Any] = root["graphs"][0]
    return graph


def _shown(graph: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of tensors that hold numbers; the first one is empty."""
    return [t for t in graph["tensors"] if t["name"] and t["kind"] not in (COMMANDS, TASKS)]


def _blob(row: dict[str, Any], blobs: list[bytes]) -> bytes:
    if row["blob"] >= max(1, len(blobs)):
        name = row["name"]
        raise BadFile(f"rknn: tensor '{name}' has blob {row['blob']}; there are {len(blobs)}")
    return blobs[row["blob"]] if row["blob"] else b""


def _file(
    root: dict[str, Any], graph: dict[str, Any], commands: bytes, tasks: list[Task]
) -> RknnFile:
    memory = root.get("memory") or {"weights": 0, "internal": 0}
    count = len(commands) // 8
    relocations = []
    for row in graph.get("relocations", []):
        places = [(p["offset"], p["word"]) for p in row["places"]]
        if any(word >= count for _, word in places):
            name = row["tensor"]
            raise BadFile(f"rknn: an address of '{name}' lies behind the {count} commands")
        relocations.append(Relocation(row["tensor"], places))
    return RknnFile(
        version=0,
        target=root["target"],
        compiler=root["compiler"],
        generator=root["generator"],
        framework=root["framework"],
        tensors=[_tensor(row) for row in _shown(graph)],
        operators=[_operator(row, graph["tensors"]) for row in graph["operators"]],
        tasks=tasks,
        relocations=relocations,
        weight_bytes=memory["weights"],
        internal_bytes=memory["internal"],
        command_bytes=len(commands),
    )


def _tensor(row: dict[str, Any]) -> Tensor:
    dtype = DTYPES.get(row["dtype"], f"type {row['dtype']}")
    return Tensor(
        row["name"],
        KINDS.get(row["kind"], f"kind {row['kind']}"),
        dtype,
        tuple(row["shape"]),
        tuple(row["stored"]),
        scale=row["scale"][0] if row["scale"] else 0.0,
        zero=row["zero"][0] if row["zero"] else 0,
        size=row["bytes"],
        offset=row["offset"],
    )


def _operator(row: dict[str, Any], tensors: list[dict[str, Any]]) -> Operator:
    for index in row["inputs"] + row["outputs"]:
        if index >= len(tensors):
            name = row["name"]
            raise BadFile(f"rknn: '{name}' names tensor {index}; there are {len(tensors)}")
    inputs, outputs = ([tensors[i]["name"] for i in row[k]] for k in ("inputs", "outputs"))
    on_npu = row["device"] == NPU
    window = None
    if found := row.get("window"):
        window = Window(*(tuple(found[k]) for k in ("kernel", "strides", "pads", "dilations")))
    return Operator(row["kind"], row["name"], on_npu, inputs, outputs, row["tasks"], window)


def _tasks(data: bytes, commands: bytes) -> list[Task]:
    if len(data) % TASK.size:
        raise BadFile(f"rknn: its tasks take {len(data)} bytes, not a multiple of {TASK.size}")
    tasks = []
    left = LISTS * (len(commands) // 8)  # lists of tasks may share words, a list does not
    for values in TASK.iter_unpack(data):
        _, operator, blocks, _, _, _, amount, _, start = values
        count = amount + TAIL_WORDS
        left -= count
        if start % 8 or start + 8 * amount > len(commands) or left < 0:
            raise BadFile(f"rknn: a task's {amount} commands at byte {start} are not in the file")
        count = min(count, (len(commands) - start) // 8)
        words = struct.unpack_from(f"<{count}Q", commands, start)
        tasks.append(Task(operator, blocks, start, [decode(w) for w in words]))
    return tasks


def _description(data: bytes) -> dict[str, Any]:
    """The JSON text after the tables; {} if there is none."""
    start = data.find(b"{")
    if start < 0:
        return {}
    try:
        found = json.loads(data[start:].decode("utf-8", "replace").rstrip("\0"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
