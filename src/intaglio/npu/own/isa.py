"""The instruction set of NPU programs: records as numpy dtypes, encoding and decoding.

csrc/npu/isa.h declares the same records as C structs; a test compares them. docs/npu-isa.md says
what each instruction computes. A program is a `PROGRAM` record, a `PORT` per input and output, and
the instructions of all cores in an order in which they could run one by one.

Each core has three queues that run in parallel: `load` moves bytes from DDR into the core's SRAM,
`compute` works in SRAM, `store` moves bytes to DDR. An instruction starts when the one before it in
its queue has ended, and at least `wait[q]` instructions of every queue q of its core have ended.
Nothing else orders two instructions, so a reader has to wait for the writer of its operand. A
program that lacks such a wait is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile
from intaglio.ir import Array

MAGIC = b"NPU1"
VERSION = 2
QUEUES = ("load", "compute", "store")
SPACES = ("sram", "weights", "internal", "input", "output")  # the memories, by code

PROGRAM = np.dtype(
    [
        ("magic", "S4"),
        ("version", "<u4"),
        ("cores", "<u4"),
        ("inputs", "<u4"),
        ("outputs", "<u4"),
        ("instructions", "<u4"),
        ("sram", "<u8"),  # bytes of each core
        ("internal", "<u8"),  # bytes of memory for maps between groups, in DDR or shared SRAM
        ("weights", "<u8"),  # bytes of constants
        ("near", "<u8"),  # leading bytes of `internal` that are in the chip's shared SRAM
        ("align", "<u4"),  # alignment of addresses in SRAM
        ("chip_cores", "<u4"),  # cores of the chip; 0: not known
        ("chip", "S16"),
    ]
)
COUNTS = ("cores", "sram", "internal", "weights", "near", "align", "chip_cores")  # of PROGRAM
PORT = np.dtype([("dtype", "u1"), ("rank", "u1"), ("reserved", "u1", (6,)), ("shape", "<i8", (8,))])
HEAD = np.dtype(
    [
        ("op", "u1"),
        ("core", "u1"),
        ("bytes", "<u2"),  # of the whole record
        ("layer", "<u4"),  # number of the layer, for reports
        ("wait", "<u4", (3,)),  # instructions of each queue of this core that must have ended
        ("barrier", "<u4"),  # barriers that all cores must have passed
    ]
)
FEATURE = np.dtype(
    [
        ("offset", "<u8"),  # address of the block with channel 0, row 0, column 0
        ("plane", "<u4"),  # bytes from one block of c2 channels to the next
        ("row", "<u4"),
        ("pixel", "<u4"),
        ("channels", "<u4"),
        ("height", "<u4"),
        ("width", "<u4"),
        ("c2", "<u2"),  # channels per block
        ("first", "<u2"),  # position of channel 0 in its block
        ("space", "u1"),
        ("slot", "u1"),  # number of the input or output
        ("dtype", "u1"),
        ("reserved", "u1"),
    ]
)
_MOVE = [("src", FEATURE), ("dst", FEATURE)]
_WINDOW = [
    ("kernel", "<u2", (2,)),
    ("stride", "<u2", (2,)),
    ("dilation", "<u2", (2,)),
    ("pad", "<i4", (2,)),  # rows above and columns left of src that are padding
]
_ROUND = [
    ("y_zero", "<i4"),
    ("low", "<i4"),
    ("high", "<i4"),
    ("least", "<f4"),  # bounds of float results
    ("most", "<f4"),
]
_TABLE = [("table", "<u4"), ("entries", "<u4"), ("base", "<i4")]  # in SRAM; 0 entries: none
_PRODUCT = [
    *_MOVE,
    ("residual", FEATURE),  # 0 channels: none
    *_WINDOW,
    ("weights", "<u4"),  # in SRAM
    ("weight_bytes", "<u4"),
    ("params", "<u4"),  # in SRAM: f32 scales and i32 (f32) biases of all output channels
    ("in_atom", "<u2"),  # input and output channels of a block of packed weights
    ("out_atom", "<u2"),
    ("x_zero", "<i4"),
    ("r_zero", "<i4"),
    ("r_factor", "<f4"),
    *_ROUND,
    *_TABLE,
    ("sparse", "<u4"),  # 0 dense, 1: 2 of 4 input channels, 2: 2 of 4 outputs, 3: 16:4
    ("weight_type", "<u4"),  # code of an element type
    ("one_scale", "<u4"),  # 1: all channels share one scale, which is stored once
]
_FIELDS: dict[str, tuple[str, list[Any]]] = {
    "load": ("load", _MOVE),
    "store": ("store", _MOVE),
    "copy": ("compute", _MOVE),
    "conv": ("compute", _PRODUCT),
    "depthwise": ("compute", _PRODUCT),
    "pool": (
        "compute",
        [
            *_MOVE,
            *_WINDOW,
            ("kind", "<u4"),
            ("count_pad", "<u4"),
            ("x_scale", "<f4"),
            ("y_scale", "<f4"),
            ("x_zero", "<i4"),
            *_ROUND,
        ],
    ),
    "eltwise": (
        "compute",
        [
            *_MOVE,
            ("other", FEATURE),
            ("kind", "<u4"),
            ("a_zero", "<i4"),
            ("b_zero", "<i4"),
            ("a_factor", "<f4"),
            ("b_factor", "<f4"),
            *_ROUND,
            *_TABLE,
        ],
    ),
    "lut": ("compute", [*_MOVE, *_TABLE]),
    "resize": ("compute", [*_MOVE, ("factor", "<u2", (2,)), ("phase", "<u2", (2,))]),
    "matmul": (
        "compute",
        [
            *_MOVE,
            ("other", FEATURE),
            ("turned", "<u4"),
            ("a_zero", "<i4"),
            ("b_zero", "<i4"),
            ("factor", "<f4"),
            *_ROUND,
        ],
    ),
    "barrier": ("store", []),
}
POOLS = ("max", "avg")
ELTWISE = ("add", "mul")


def _record(fields: list[Any]) -> np.dtype[Any]:
    """The record of HEAD and `fields`, padded to a multiple of 8 bytes as in C."""
    result = np.dtype([("head", HEAD), *fields])
    rest = -result.itemsize % 8
    return np.dtype([("head", HEAD), *fields, ("pad_", "u1", (rest,))]) if rest else result


OPS = {name: _record(fields) for name, (_, fields) in _FIELDS.items()}
CODES = {name: i + 1 for i, name in enumerate(OPS)}
NAMES = {i: name for name, i in CODES.items()}
QUEUE = {name: queue for name, (queue, _) in _FIELDS.items()}
# Instructions of layers that only encoders of real chips have: they have no record.
OF_ENCODERS = {"matmul": ("table", "entries", "base")}  # fields that only they read
QUEUE |= dict.fromkeys(
    (
        *("float_matmul", "layer_norm", "softmax", "arithmetic", "quantize", "dequantize"),
        *("cast", "bound", "function"),
    ),
    "compute",
)


@dataclass(slots=True)
class Feature:
    """A box of a feature map. The address of its channel c, row y, column x is

    offset + (first + c) // c2 * plane + y * row + x * pixel + (first + c) % c2 * item

    A stride of 0 repeats the same bytes.
    """

    space: str
    offset: int
    dtype: str
    channels: int
    height: int
    width: int
    c2: int
    plane: int
    row: int
    pixel: int
    first: int = 0
    slot: int = 0

    def record(self) -> tuple[Any, ...]:
        code = dtypes.TABLE[self.dtype].code
        return (
            self.offset,
            self.plane,
            self.row,
            self.pixel,
            self.channels,
            self.height,
            self.width,
            self.c2,
            self.first,
            SPACES.index(self.space),
            self.slot,
            code,
            0,
        )

    @classmethod
    def read(cls, row: Any) -> Feature | None:
        """The feature of a record; None if it has no channels."""
        if not row["channels"]:
            return None
        names = ("channels", "height", "width", "c2", "plane", "row", "pixel", "first", "slot")
        space = int(row["space"])
        if space >= len(SPACES):
            raise BadFile(f"NPU program: {space} is not the code of a memory")
        rest = {n: int(row[n]) for n in names}
        return cls(SPACES[space], int(row["offset"]), _dtype(row["dtype"]), **rest)


@dataclass(slots=True)
class Instruction:
    """One instruction; `fields` are those of its record, features as `Feature`."""

    op: str
    fields: dict[str, Any]
    core: int = 0
    layer: int = 0
    wait: tuple[int, int, int] = (0, 0, 0)
    barrier: int = 0
    scratch: int = -1  # SRAM for temporary results, which only encoders of real chips use

    @property
    def queue(self) -> str:
        return QUEUE[self.op]

    def encode(self) -> bytes:
        dtype = OPS[self.op]
        record = np.zeros((), dtype)
        head = (CODES[self.op], self.core, dtype.itemsize, self.layer, self.wait, self.barrier)
        record["head"] = head
        for name, value in self.fields.items():
            if value is None or name in OF_ENCODERS.get(self.op, ()):  # absent: all zeros
                continue
            record[name] = value.record() if isinstance(value, Feature) else value
        return record.tobytes()


@dataclass(slots=True)
class Port:
    """An input or output of a program."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(slots=True)
class Program:
    """An NPU program, as the CODE section of a package stores it."""

    chip: str
    cores: int
    sram: int
    internal: int
    weights: int
    inputs: list[Port]
    outputs: list[Port]
    instructions: list[Instruction] = field(default_factory=list)
    near: int = 0
    align: int = 1
    chip_cores: int = 0  # 0: not known

    def encode(self) -> Array:
        """The bytes of the program, as a row of u8."""
        head = np.zeros((), PROGRAM)
        for name in COUNTS:
            head[name] = getattr(self, name)
        head["magic"], head["version"], head["chip"] = MAGIC, VERSION, self.chip.encode()
        head["inputs"], head["outputs"] = len(self.inputs), len(self.outputs)
        head["instructions"] = len(self.instructions)
        ports = np.zeros(len(self.inputs) + len(self.outputs), PORT)
        for row, port in zip(ports, [*self.inputs, *self.outputs], strict=True):
            row["dtype"], row["rank"] = dtypes.TABLE[port.dtype].code, len(port.shape)
            row["shape"][: len(port.shape)] = port.shape
        parts = [head.tobytes(), ports.tobytes(), *(i.encode() for i in self.instructions)]
        return np.frombuffer(b"".join(parts), np.uint8)

    @classmethod
    def decode(cls, data: Array) -> Program:
        """The program in `data`; BadFile if it is not one."""
        raw = data.tobytes()
        if len(raw) < PROGRAM.itemsize:
            raise BadFile(f"NPU program: {len(raw)} bytes; its head alone has {PROGRAM.itemsize}")
        head = np.frombuffer(raw, PROGRAM, 1)[0]
        if head["magic"] != MAGIC or head["version"] != VERSION:
            raise BadFile(
                f"NPU program: magic {head['magic']!r} version {head['version']}; "
                f"this release reads {MAGIC!r} version {VERSION}"
            )
        at, ports = PROGRAM.itemsize, []
        for _ in range(int(head["inputs"]) + int(head["outputs"])):
            row = np.frombuffer(_take(raw, at, PORT.itemsize), PORT)[0]
            if row["rank"] > 8:
                raise BadFile(f"NPU program: a port has rank {row['rank']}; at most 8 is allowed")
            shape = tuple(int(d) for d in row["shape"][: row["rank"]])
            ports.append(Port(_dtype(row["dtype"]), shape))
            at += PORT.itemsize
        n = int(head["inputs"])
        named = {k: int(head[k]) for k in COUNTS}
        chip = bytes(head["chip"]).decode("ascii", "replace")
        instructions = list(_read(raw, at, int(head["instructions"])))
        return cls(
            chip=chip, inputs=ports[:n], outputs=ports[n:], instructions=instructions, **named
        )


def _dtype(code: Any) -> str:
    found = dtypes.BY_CODE.get(int(code))
    if found is None:
        raise BadFile(f"NPU program: {code} is not the code of an element type")
    return found.name


def _take(raw: bytes, at: int, size: int) -> bytes:
    if at + size > len(raw):
        raise BadFile(f"NPU program: it ends at byte {len(raw)}, inside the record at {at}")
    return raw[at : at + size]


def _read(raw: bytes, at: int, count: int) -> Iterator[Instruction]:
    for _ in range(count):
        head = np.frombuffer(_take(raw, at, HEAD.itemsize), HEAD)[0]
        name = NAMES.get(int(head["op"]))
        if name is None or head["bytes"] != OPS[name].itemsize:
            raise BadFile(
                f"NPU program: the instruction at {at} has code {head['op']} and "
                f"{head['bytes']} bytes; there is no such instruction"
            )
        record = np.frombuffer(_take(raw, at, OPS[name].itemsize), OPS[name])[0]
        fields = {k: _value(record[k]) for k in OPS[name].names or () if k not in ("head", "pad_")}
        wait = tuple(int(w) for w in head["wait"])
        assert len(wait) == 3
        yield Instruction(
            name, fields, int(head["core"]), int(head["layer"]), wait, int(head["barrier"])
        )
        at += OPS[name].itemsize
    if at != len(raw):
        raise BadFile(f"NPU program: {len(raw) - at} bytes follow the last instruction; none may")


def _value(raw: Any) -> Any:
    if raw.dtype == FEATURE:
        return Feature.read(raw)
    return raw.tolist() if raw.ndim == 0 else tuple(raw.tolist())
