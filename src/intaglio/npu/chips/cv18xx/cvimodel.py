"""The cvimodel container: a header, a flatbuffer that describes the model, and its sections."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from math import prod
from typing import Any

from intaglio.errors import BadFile, BadInput
from intaglio.npu.chips import flatbuffer
from intaglio.npu.chips.cv18xx.commands import CHIPS

MAGIC = b"CviModel"
HEADER = struct.Struct("<8sIBB16s16s2s")  # magic, bytes of the flatbuffer, version, md5, chip, -
VERSION = bytes((1, 4, 0))
DTYPES = ("f32", "i32", "u32", "bf16", "i16", "u16", "i8", "u8")
SIZES = {"f32": 4, "i32": 4, "u32": 4, "bf16": 2, "i16": 2, "u16": 2, "i8": 1, "u8": 1}
WEIGHT, CMDBUF = 0, 1  # kinds of sections
SECTIONS = ("weight", "cmdbuf", "x86 functions", "arm64 functions", "dmabuf")
# Memory by base register; inputs and outputs have one of their own each, from 3.
SHARED, WEIGHTS, PRIVATE, FIRST_IO = 0, 1, 2, 3
BASE_SHIFT = 40  # offset of a tensor = base register << 40 | byte
MOST_BYTES = 1 << 30  # of the memory of a program; the chips have at most 512 MiB
MOST_DIMS = 8

SCHEMA = flatbuffer.Schema(
    {
        "Model": "version:Version name:str build_time:str preprocess_hints:Pre "
        "postprocess_hints:Post weight_map:[Weight] programs:[Program] sections:[Section] "
        "target:str mlir_version:str",
        "Pre": "color:str raw_scale:f32 mean:str std:str input_scale:f32 data_format:str",
        "Post": "done_softmax:bool",
        "Shape": "dim:[i64]",
        "Quant": "type:u8 max_value:f32 min_value:f32 zero_point:f32 qscale:f32",
        "Tensor": "tensor_id:u32 name:str offset:i64 dtype:u8 shape:Shape stride:Shape "
        "quant:Quant overwrote:bool scale:[f32] mean:[f32] pixel_format:str aligned:bool size:u32",
        "Weight": "name:str offset:i64 size:u32 shape:Shape type:u8",
        "Tpu": "cmdbuf_section:str dmabuf_section:str",
        "Cpu": "function_section:str function_args:[u8]",
        "Routine": "type:u8 in_tensors:[str] out_tensors:[str] tpu_routine:Tpu cpu_routine:Cpu",
        "Program": "batch_num:u32 neuron_size:u32 input_tensors:[str] output_tensors:[str] "
        "tensor_map:[Tensor] routines:[Routine] shared_gmem:u32 private_gmem:u32",
        "Section": "type:u8 name:str size:u32 offset:u32 encrypt:bool compress:bool "
        "decompressed_size:u32",
    },
    {"Version": "major:u8 minor:u8 patch:u8"},
)


@dataclass(slots=True)
class Tensor:
    """A tensor in DDR; real = value * scale for results, real = value / scale for inputs."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    base: int = 0  # base register
    offset: int = 0  # bytes from it
    scale: float = 1.0
    size: int = 0  # in bytes; 0: by shape and type
    overwritten: bool = False  # another tensor uses its memory later
    factors: tuple[float, ...] = ()  # of the preprocessing that the file holds
    means: tuple[float, ...] = ()
    pixel_format: str = ""
    aligned: bool = False

    @property
    def bytes(self) -> int:
        """Its bytes in memory."""
        return self.size or prod(self.shape) * SIZES[self.dtype]


@dataclass(slots=True)
class Weight:
    """A constant in the section of weights."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int  # in the section
    size: int


@dataclass(slots=True)
class Routine:
    """A command buffer that runs on the TPU, or a function of the runtime that runs on the CPU."""

    kind: str  # "tpu" or "cpu"
    inputs: list[str]
    outputs: list[str]
    name: str  # of the section with the commands, or of the function
    arguments: bytes = b""  # of the function: a flatbuffer


@dataclass(slots=True)
class Program:
    """The tensors and routines of one batch size."""

    inputs: list[str]
    outputs: list[str]
    tensors: list[Tensor]
    routines: list[Routine]
    shared: int = 0  # bytes of memory that models may share
    private: int = 0
    batch: int = 1

    def tensor(self, name: str) -> Tensor:
        """A tensor by its name."""
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise BadFile(f"cvimodel: it has no tensor '{name}'")


@dataclass(slots=True)
class Section:
    """A named piece of the file: weights or commands."""

    kind: int
    name: str
    data: bytes


@dataclass(slots=True)
class Cvimodel:
    """All of a cvimodel."""

    name: str
    chip: str
    programs: list[Program]
    sections: list[Section]
    weights: list[Weight] = field(default_factory=list)
    build_time: str = ""
    made_by: str = ""
    version: bytes = VERSION

    def section(self, kind: int, name: str | None = None) -> bytes:
        """The bytes of a section; those of the first one without a name."""
        for section in self.sections:
            if section.kind == kind and name in (None, section.name):
                return section.data
        raise BadFile(f"cvimodel: it has no section '{name or SECTIONS[kind]}'")


def write(model: Cvimodel) -> bytes:
    """The bytes of a file."""
    if model.chip not in CHIPS:
        raise BadInput(f"cvimodel: there is no chip '{model.chip}'; {', '.join(CHIPS)} are known")
    sections, binary = [], b""
    for s in model.sections:
        sections.append({"type": s.kind, "name": s.name, "size": len(s.data)})
        sections[-1]["offset"] = len(binary)
        binary += s.data
    root = {
        "version": dict(zip(("major", "minor", "patch"), model.version, strict=True)),
        "name": model.name,
        "build_time": model.build_time,
        "weight_map": [_weight_table(w) for w in model.weights],
        "programs": [_program_table(p) for p in model.programs],
        "sections": sections,
        "target": model.chip,
        "mlir_version": model.made_by,
    }
    body = flatbuffer.write(root, SCHEMA, "Model")
    md5 = hashlib.md5(body + binary, usedforsecurity=False).digest()
    major, minor = model.version[:2]
    head = HEADER.pack(MAGIC, len(body), major, minor, md5, model.chip.encode(), b"Cv")
    return head + body + binary


def _weight_table(w: Weight) -> dict[str, Any]:
    return {
        "name": w.name,
        "offset": WEIGHTS << BASE_SHIFT | w.offset,
        "size": w.size,
        "shape": {"dim": list(w.shape)},
        "type": DTYPES.index(w.dtype),
    }


def _program_table(p: Program) -> dict[str, Any]:
    return {
        "batch_num": p.batch,
        "input_tensors": p.inputs,
        "output_tensors": p.outputs,
        "tensor_map": [_tensor_table(t) for t in p.tensors],
        "routines": [_routine_table(r) for r in p.routines],
        "shared_gmem": p.shared,
        "private_gmem": p.private,
    }


def _tensor_table(t: Tensor) -> dict[str, Any]:
    return {
        "name": t.name,
        "offset": t.base << BASE_SHIFT | t.offset,
        "dtype": DTYPES.index(t.dtype),
        "shape": {"dim": list(t.shape)},
        "quant": {"qscale": t.scale},
        "overwrote": t.overwritten,
        "scale": list(t.factors),
        "mean": list(t.means),
        "pixel_format": t.pixel_format or None,
        "aligned": t.aligned,
        "size": t.bytes,
    }


def _routine_table(r: Routine) -> dict[str, Any]:
    own: dict[str, Any] = {"tpu_routine": {"cmdbuf_section": r.name}}
    if r.kind == "cpu":
        own = {"cpu_routine": {"function_section": r.name, "function_args": list(r.arguments)}}
    kind = int(r.kind == "cpu")
    return {"type": kind, "in_tensors": r.inputs, "out_tensors": r.outputs} | own


def read(data: bytes) -> Cvimodel:
    """The model in the bytes of a file; BadFile where it is not one."""
    if len(data) < HEADER.size or not data.startswith(MAGIC):
        raise BadFile("not a cvimodel: the file does not begin with CviModel")
    _, size, major, minor, _, chip, _ = HEADER.unpack_from(data)
    if major != VERSION[0]:
        raise BadFile(f"cvimodel: version {major}.{minor}; 1 is readable")
    if HEADER.size + size > len(data):
        raise BadFile(f"cvimodel: its tables have {size} bytes; the file has {len(data)}")
    body = data[HEADER.size : HEADER.size + size]
    table = flatbuffer.read(body, SCHEMA, "Model", "cvimodel")
    _refuse_control_characters(table)
    version = table["version"] or {}
    name = chip.rstrip(b"\0").decode("ascii", "replace")
    binary = memoryview(data)[HEADER.size + size :]
    model = Cvimodel(
        table["name"],
        name,
        [_program(p) for p in table["programs"]],
        [_section(s, binary) for s in table["sections"]],
        [_weight(w) for w in table["weight_map"]],
        table["build_time"],
        table["mlir_version"],
        bytes(version.values()) or VERSION,
    )
    if name not in CHIPS:
        raise BadFile(f"cvimodel: it is for the chip '{name}'; {', '.join(CHIPS)} are known")
    if not model.programs:
        raise BadFile("cvimodel: it has no program")
    return model


def _refuse_control_characters(value: Any) -> None:
    """Names appear in messages, which have one line."""
    if isinstance(value, str):
        if not value.isprintable():
            raise BadFile(f"cvimodel: the name {value[:40]!r} has control characters")
    elif isinstance(value, dict):
        for one in value.values():
            _refuse_control_characters(one)
    elif isinstance(value, list) and value and not isinstance(value[0], int | float):
        for one in value:
            _refuse_control_characters(one)


def _section(table: dict[str, Any], binary: memoryview) -> Section:
    name, start, size = table["name"], table["offset"], table["size"]
    if start + size > len(binary):
        raise BadFile(
            f"cvimodel: section '{name}' lies at bytes {start} to {start + size}; "
            f"there are {len(binary)}"
        )
    for flag in ("encrypt", "compress"):
        if table[flag]:
            raise BadFile(f"cvimodel: section '{name}' is {flag}ed; only plain ones are readable")
    return Section(table["type"], name, bytes(binary[start : start + size]))


def _program(table: dict[str, Any]) -> Program:
    shared, private = table["shared_gmem"], table["private_gmem"]
    if shared + private > MOST_BYTES:
        raise BadFile(
            f"cvimodel: it wants {shared + private} bytes of memory; {MOST_BYTES} are the most"
        )
    tensors = [_tensor(t) for t in table["tensor_map"]]
    routines = [_routine(r) for r in table["routines"]]
    ends = table["input_tensors"], table["output_tensors"]
    return Program(*ends, tensors, routines, shared, private, table["batch_num"])


def _tensor(table: dict[str, Any]) -> Tensor:
    name, offset, quant = table["name"], table["offset"], table["quant"] or {}
    if not 0 <= offset < 8 << BASE_SHIFT:
        raise BadFile(f"cvimodel: tensor '{name}' has the offset {offset}; it is out of range")
    dtype, shape = _described(name, table["dtype"], table["shape"])
    tensor = Tensor(
        name,
        dtype,
        shape,
        offset >> BASE_SHIFT,
        offset & ((1 << BASE_SHIFT) - 1),
        quant.get("qscale", 1.0),
        table["size"],
        table["overwrote"],
        tuple(table["scale"]),
        tuple(table["mean"]),
        table["pixel_format"],
        table["aligned"],
    )
    if tensor.bytes > MOST_BYTES or prod(shape) * SIZES[dtype] > MOST_BYTES:
        raise BadFile(f"cvimodel: tensor '{name}' has more than {MOST_BYTES} bytes")
    return tensor


def _weight(table: dict[str, Any]) -> Weight:
    name = table["name"]
    dtype, shape = _described(name, table["type"], table["shape"])
    return Weight(name, dtype, shape, table["offset"] & ((1 << BASE_SHIFT) - 1), table["size"])


def _described(name: str, dtype: int, shape: dict[str, Any] | None) -> tuple[str, tuple[int, ...]]:
    dims = tuple(shape["dim"]) if shape else ()
    if dtype >= len(DTYPES):
        raise BadFile(f"cvimodel: '{name}' has the type {dtype}; there are {len(DTYPES)}")
    if len(dims) > MOST_DIMS or min(dims, default=0) < 0:
        raise BadFile(f"cvimodel: '{name}' has the shape {list(dims[:MOST_DIMS])}; it is not valid")
    return DTYPES[dtype], dims


def _routine(table: dict[str, Any]) -> Routine:
    ends = table["in_tensors"], table["out_tensors"]
    tpu, cpu = table["tpu_routine"], table["cpu_routine"]
    if table["type"] == 0 and tpu and tpu["cmdbuf_section"]:
        return Routine("tpu", *ends, tpu["cmdbuf_section"])
    if table["type"] == 1 and cpu:
        return Routine("cpu", *ends, cpu["function_section"], bytes(cpu["function_args"]))
    raise BadFile("cvimodel: a routine has neither commands nor a function")
