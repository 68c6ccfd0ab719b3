"""A network as the jobs of a board: tasks with their commands, addresses to fill in, weights.

The file has a header, tables of tasks, addresses and ports, their names, the commands and the
weights. csrc/rockchip/job.h declares the same records in C.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np

from intaglio.errors import BadFile
from intaglio.npu.chips.rockchip.dpu_tasks import map_size
from intaglio.npu.chips.rockchip.geometry import DESIGNS, RK3588, Design
from intaglio.npu.chips.rockchip.words import BLOCKS, Word, decode

MAGIC, VERSION = b"RKJ1", 1
WEIGHTS, INTERNAL = 0, 1  # memories: of constants, and of all maps
ALIGNMENT = 64
HEADER = np.dtype(
    [
        ("magic", "S4"),
        ("version", "<u4"),
        ("chip", "S16"),
        ("crc", "<u4"),  # of all bytes behind the header
        ("tasks", "<u4"),
        ("addresses", "<u4"),
        ("ports", "<u4"),
        ("words", "<u4"),
        ("names", "<u4"),  # bytes
        ("weights", "<u8"),  # bytes
        ("internal", "<u8"),
    ]
)
TASK = np.dtype([("first", "<u4"), ("words", "<u4"), ("blocks", "<u4"), ("name", "<u4")])
ADDRESS = np.dtype([("word", "<u4"), ("memory", "<u4"), ("offset", "<u8")])
PORT = np.dtype(
    [
        ("name", "<u4"),
        ("is_output", "u1"),
        ("is_unsigned", "u1"),
        ("is_picture", "u1"),
        ("rank", "u1"),
        ("shape", "<u4", 4),
        ("scale", "<f4"),
        ("zero", "<i4"),
        ("offset", "<u8"),
        ("size", "<u8"),
    ]
)


@dataclass(frozen=True, slots=True)
class Address:
    """A place in a memory."""

    memory: int
    offset: int

    def moved(self, by: int) -> Address:
        """The place `by` bytes further."""
        return Address(self.memory, self.offset + by)


@dataclass(slots=True)
class JobTask:
    """Commands, and which of them hold addresses."""

    words: list[Word]
    addresses: dict[int, Address] = field(default_factory=dict)
    op: str = ""
    name: str = ""

    @property
    def blocks(self) -> int:
        """The mask of the blocks that it starts."""
        return self.words[-1].value


@dataclass(slots=True)
class JobPort:
    """An input or output: real = scale * (byte - zero)."""

    name: str
    is_output: bool
    is_unsigned: bool  # memory holds its bytes with 128 less
    is_picture: bool  # rows of pixels; else blocks of 16 channels
    shape: tuple[int, ...]
    scale: float
    zero: int
    offset: int
    size: int

    @property
    def dtype(self) -> str:
        return "u8" if self.is_unsigned else "i8"


@dataclass(slots=True)
class Job:
    """What a board needs to run a network."""

    chip: str
    tasks: list[JobTask]
    ports: list[JobPort]
    weights: bytes
    internal: int  # bytes of maps

    @property
    def inputs(self) -> list[JobPort]:
        return [p for p in self.ports if not p.is_output]

    @property
    def outputs(self) -> list[JobPort]:
        return [p for p in self.ports if p.is_output]


def write(job: Job) -> bytes:
    """The bytes of a file."""
    names = bytearray()
    seen: dict[str, int] = {}

    def named(text: str) -> int:
        if text not in seen:
            seen[text] = len(names)
            names.extend(text.encode() + b"\0")
        return seen[text]

    tasks: list[tuple[int, ...]] = []
    addresses: list[tuple[int, ...]] = []
    words: list[int] = []
    for task in job.tasks:
        first = len(words)
        tasks.append((first, len(task.words), task.blocks, named(f"{task.op} {task.name}")))
        addresses += [(first + i, a.memory, a.offset) for i, a in sorted(task.addresses.items())]
        words += [w.encode() for w in task.words]
        words += [0] * (-len(words) % (ALIGNMENT // 8))  # tasks begin at multiples of 64 bytes
    ports = []
    for p in job.ports:
        flags = p.is_output, p.is_unsigned, p.is_picture, len(p.shape)
        ports.append((named(p.name), *flags, p.shape, p.scale, p.zero, p.offset, p.size))
    tables = [np.array(tasks, TASK), np.array(addresses, ADDRESS), np.array(ports, PORT)]
    text = bytes(names)
    parts = [*(t.tobytes() for t in tables), text, np.array(words, "<u8").tobytes(), job.weights]
    body, at = bytearray(), HEADER.itemsize
    for part in parts:
        pad = -(at + len(body)) % ALIGNMENT
        body += bytes(pad) + part
    counts = len(tasks), len(addresses), len(ports), len(words), len(text)
    head = (MAGIC, VERSION, job.chip.encode(), zlib.crc32(body), *counts)
    return np.array([(*head, len(job.weights), job.internal)], HEADER).tobytes() + bytes(body)


def read(data: bytes) -> Job:
    """The contents of a file; BadFile where a size or offset is wrong."""
    if len(data) < HEADER.itemsize or data[:4] != MAGIC:
        raise BadFile("rkjob: the file does not begin with RKJ1; write it with intaglio compile")
    head = np.frombuffer(data, HEADER, 1)[0]
    if head["version"] != VERSION:
        raise BadFile(f"rkjob: version {head['version']}; version {VERSION} is known")
    if zlib.crc32(data[HEADER.itemsize :]) != head["crc"]:
        raise BadFile("rkjob: its checksum differs; the file is damaged")
    chip = head["chip"].decode("ascii", "replace")
    if chip not in DESIGNS:
        raise BadFile(f"rkjob: it is for the chip '{chip}'; {', '.join(DESIGNS)} are known")
    at = HEADER.itemsize

    def part(size: int) -> bytes:
        nonlocal at
        at += -at % ALIGNMENT
        if at + size > len(data):
            raise BadFile(f"rkjob: a part of {size} bytes at {at} lies beyond the file")
        at += size
        return data[at - size : at]

    rows = [
        np.frombuffer(part(int(head[name]) * kind.itemsize), kind)
        for name, kind in (("tasks", TASK), ("addresses", ADDRESS), ("ports", PORT))
    ]
    names = part(int(head["names"]))
    words = np.frombuffer(part(8 * int(head["words"])), "<u8")
    weights = part(int(head["weights"]))
    internal = int(head["internal"])
    sizes = {WEIGHTS: len(weights), INTERNAL: internal}
    found: dict[int, Address] = {}
    for word, memory, offset in rows[1].tolist():
        if word >= len(words) or memory not in sizes or offset > sizes[memory]:
            raise BadFile(f"rkjob: word {word} holds offset {offset} of memory {memory}")
        found[word] = Address(memory, offset)
    tasks = []
    for first, count, blocks, name in rows[0].tolist():
        if count < 1 or first + count > len(words) or first % (ALIGNMENT // 8):
            raise BadFile(f"rkjob: a task has words {first} to {first + count} of {len(words)}")
        op, _, title = _text(names, name).partition(" ")
        made = [decode(int(w)) for w in words[first : first + count]]
        places = {i: found[first + i] for i in range(count) if first + i in found}
        tasks.append(JobTask(made, places, op, title))
        if tasks[-1].blocks != blocks or not blocks & sum(BLOCKS):
            raise BadFile(f"rkjob: a task starts blocks {tasks[-1].blocks:#x}, not {blocks:#x}")
    ports = [_port(row, names, internal, DESIGNS[chip]) for row in rows[2]]
    return Job(chip, tasks, ports, weights, internal)


def _port(row: np.void, names: bytes, internal: int, design: Design) -> JobPort:
    shape = tuple(int(n) for n in row["shape"])
    offset, size = int(row["offset"]), int(row["size"])
    name = _text(names, int(row["name"]))
    if row["rank"] != 4 or not all(0 < n < 1 << 16 for n in shape) or shape[0] != 1:
        raise BadFile(f"rkjob: port '{name}' has the shape {shape}")
    if offset + size > internal or size < stored_bytes(shape, bool(row["is_picture"]), design):
        raise BadFile(f"rkjob: port '{name}' has {size} bytes at {offset} of {internal}")
    return JobPort(
        name,
        bool(row["is_output"]),
        bool(row["is_unsigned"]),
        bool(row["is_picture"]),
        shape,
        float(row["scale"]),
        int(row["zero"]),
        offset,
        size,
    )


def stored_bytes(shape: tuple[int, ...], picture: bool, design: Design = RK3588) -> int:
    """Bytes of a port in memory."""
    if picture:
        return shape[1] * shape[2] * shape[3]
    return map_size(shape, design).bytes


def _text(names: bytes, at: int) -> str:
    end = names.find(b"\0", at)
    if end < 0:
        raise BadFile(f"rkjob: a name begins at {at} of {len(names)} bytes")
    return names[at:end].decode("utf-8", "replace")
