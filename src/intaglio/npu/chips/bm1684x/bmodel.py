"""bmodel files: a header of 64 bytes, a FlatBuffer `Model`, and binaries that it points to."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from intaglio.errors import BadFile
from intaglio.npu.chips import flatbuffer

MAGIC = 0xFF55AAEE
HEADER = struct.Struct("<IIIQ44x")  # magic, bytes of the header, of the FlatBuffer, of binaries
PAGE = 4096  # binaries begin at multiples of this
COEFFICIENTS = 0x1_0000_0000  # where DDR begins in a file's addresses
INPUT, OUTPUT = 1, 2  # Tensor.hidden
TYPES = {  # of tensors: name and bytes
    0: ("f32", 4),
    1: ("f16", 2),
    2: ("i8", 1),
    3: ("u8", 1),
    4: ("i16", 2),
    5: ("u16", 2),
    6: ("i32", 4),
    7: ("u32", 4),
    8: ("bf16", 2),
    9: ("i4", 1),
    10: ("u4", 1),
}
VERSION = "2.2"
LONGEST_NAME = 1000

SCHEMA = flatbuffer.Schema(
    {
        "Shape": "dim:[u64]",
        "CmdGroup": "bdc_num:u32 gdma_num:u32 binary_bdc:Binary binary_gdma:Binary "
        "bdc_cmd_byte:u32 gdma_cmd_byte:u32 reloc_entries:[RelEntry]",
        "CoreCommands": "gdma_tiu_commands:[CmdGroup] sdma_commands:[Binary] hau_commands:[Binary] "
        "cdma_commands:[Binary]",
        "Empty": "",
        "Location": "name:str offset:u64 size:u64",
        "CoeffMem": "address:u64 check_code:[u8] binary_coeff:Binary location:[Location] "
        "encrypt_mode:i32 decrypt_size:u64",
        "Tensor": "name:str data_type:u32 gmem_stmode:i32 device_addr:u64 size:u64 shape:[Shape] "
        "mem_type:u32 scale:f32=1 cpu_addr:u32 pad_h:u32 zero_point:i32 hidden:i32 index:i32 "
        "relentry:RelEntry",
        "SubNet": "subnet_mode:i32 cmd_group:[CmdGroup] cpu_param:[Empty] input_tensor:[Tensor] "
        "output_tensor:[Tensor] is_dynamic:i32 ir_offset:u32 ir_len:u32 n_dynamic:i32 "
        "h_w_dynamic:i32 id:i32=-1 next_subnet_ids:[i32] merge_param:Empty switch_param:Empty "
        "core_commands:[CoreCommands] run_core:u32",
        "NetParameter": "input_tensor:[Tensor] output_tensor:[Tensor] ctx_addr:u64 ctx_size:u64 "
        "coeff_mem:CoeffMem is_dynamic:i32 n_dynamic:i32 h_w_dynamic:i32 cmd_group:[CmdGroup] "
        "net_profile:Binary stage_ir:[Empty] binary_ir:Binary sub_net:[SubNet] cpu_mem_size:u32 "
        "ctx_sizes:[u64] net_stat:Binary core_num:u32 io_addr:u64 io_size:u64",
        "Net": "name:str net_static:[Empty] net_dynamic:[Empty] parameter:[NetParameter] "
        "cascade:Empty addr_mode:i32",
        "KernelModule": "file_name:str binary:Binary mode:i32",
        "Model": "type:str version:str time:str chip:str net:[Net] neuron_size:u64 "
        "kernel_module:KernelModule device_num:u32",
    },
    {"Binary": "start:u64 size:u64", "RelEntry": "base:u32 offset:u32 at:u32"},
)


@dataclass(slots=True)
class Tensor:
    """An input or output in DDR."""

    name: str
    type: int  # key of TYPES
    shape: tuple[int, ...]
    address: int
    size: int = 0  # bytes; 0: of the shape
    scale: float = 1.0
    zero: int = 0
    hidden: int = 0  # INPUT or OUTPUT
    index: int = 0

    def __post_init__(self) -> None:
        if not self.size and self.type in TYPES:
            self.size = math.prod(self.shape) * TYPES[self.type][1]


@dataclass(slots=True)
class Group:
    """The commands of both engines, whose numbers begin at 1."""

    tiu: bytes
    dma: bytes
    tiu_count: int  # with the end commands
    dma_count: int


@dataclass(slots=True)
class Subnet:
    """A part of a net that one engine runs: mode 0 is the TPU, 1 the CPU."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    groups: list[Group]
    cores: list[list[Group]] = field(default_factory=list)  # chips with several cores
    id: int = 0
    next: tuple[int, ...] = (-1,)
    mode: int = 0
    dynamic: bool = False


@dataclass(slots=True)
class Stage:
    """A net for one set of shapes. Coefficients and neurons lie in DDR."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    subnets: list[Subnet]
    coefficients: bytes
    address: int = COEFFICIENTS  # of the coefficients
    neurons: int = 0  # address of inputs, outputs and maps
    neuron_bytes: int = 0
    cores: int = 1
    encrypted: int = 0
    io: tuple[int, int] = (0, 0)  # address and bytes of a separate room for inputs and outputs


@dataclass(slots=True)
class Net:
    """A network, with one stage for each set of shapes."""

    name: str
    stages: list[Stage]
    address_mode: int = 0


@dataclass(slots=True)
class Bmodel:
    """The contents of a bmodel file."""

    nets: list[Net]
    chip: str = "BM1684X"
    version: str = VERSION
    time: str = ""
    kernel: tuple[str, bytes] | None = None  # the firmware that the file brings along
    kernel_mode: int = 0


def write(model: Bmodel) -> bytes:
    """The bytes of a bmodel file."""
    binaries = bytearray()

    def put(data: bytes) -> dict[str, int]:
        start = len(binaries)
        binaries.extend(data + bytes(-len(data) % PAGE))
        return {"start": start, "size": len(data)}

    root: dict[str, Any] = {"type": "B", "version": model.version, "time": model.time}
    if model.kernel:
        name, code = model.kernel
        root["kernel_module"] = {"file_name": name, "binary": put(code), "mode": model.kernel_mode}
    stages = [stage for net in model.nets for stage in net.stages]
    root |= {"chip": model.chip, "device_num": 1}
    root["neuron_size"] = max((s.neuron_bytes for s in stages), default=0)
    root["net"] = [
        {
            "name": net.name,
            "parameter": [_stage_table(s, put) for s in net.stages],
            "addr_mode": net.address_mode,
        }
        for net in model.nets
    ]
    table = flatbuffer.write(root, SCHEMA, "Model")
    header = HEADER.pack(MAGIC, HEADER.size, len(table), len(binaries))
    return header + table + bytes(binaries)


def _stage_table(stage: Stage, put: Any) -> dict[str, Any]:
    coefficients = {
        "address": stage.address,
        "check_code": list(hashlib.sha256(stage.coefficients).digest()),
        "binary_coeff": put(stage.coefficients),
        "encrypt_mode": stage.encrypted,
    }

    def groups(of: list[Group]) -> list[dict[str, Any]]:
        return [
            {
                "bdc_num": g.tiu_count,
                "gdma_num": g.dma_count,
                "binary_bdc": put(g.tiu),
                "binary_gdma": put(g.dma),
                "bdc_cmd_byte": len(g.tiu),
                "gdma_cmd_byte": len(g.dma),
            }
            for g in of
        ]

    subnets: list[dict[str, Any]] = []
    for s in stage.subnets:
        subnets.append(
            {
                "subnet_mode": s.mode,
                "cmd_group": groups(s.groups),
                "input_tensor": [_tensor_table(t) for t in s.inputs],
                "output_tensor": [_tensor_table(t) for t in s.outputs],
                "is_dynamic": int(s.dynamic),
                "id": s.id,
                "next_subnet_ids": list(s.next),
                "core_commands": [{"gdma_tiu_commands": groups(core)} for core in s.cores],
                "run_core": max(1, len(s.cores)),
            }
        )
    return {
        "input_tensor": [_tensor_table(t) for t in stage.inputs],
        "output_tensor": [_tensor_table(t) for t in stage.outputs],
        "ctx_addr": stage.neurons,
        "ctx_size": stage.neuron_bytes,
        "coeff_mem": coefficients if stage.coefficients else None,
        "cmd_group": [g for s in subnets for g in s["cmd_group"]],
        "sub_net": subnets,
        "ctx_sizes": [stage.neuron_bytes],
        "core_num": stage.cores,
        "io_addr": stage.io[0],
        "io_size": stage.io[1],
    }


def _tensor_table(t: Tensor) -> dict[str, Any]:
    return {
        "name": t.name,
        "data_type": t.type,
        "device_addr": t.address,
        "size": t.size,
        "shape": [{"dim": list(t.shape)}],
        "mem_type": 1,
        "scale": t.scale,
        "zero_point": t.zero,
        "hidden": t.hidden,
        "index": t.index,
    }


def is_bmodel(data: bytes) -> bool:
    """Whether some bytes begin as a bmodel file does."""
    return data[:4] == MAGIC.to_bytes(4, "little")


def read(data: bytes) -> Bmodel:
    """The contents of a bmodel file; BadFile where it is damaged."""
    if len(data) < HEADER.size:
        raise BadFile(f"bmodel: {len(data)} bytes; its header alone has {HEADER.size}")
    magic, header, table, binaries = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise BadFile(f"bmodel: it begins with {magic:#010x}; a bmodel begins with {MAGIC:#010x}")
    if header < HEADER.size or header + table + binaries > len(data):
        raise BadFile(
            f"bmodel: its parts have {header} + {table} + {binaries} bytes; there are {len(data)}"
        )
    root = flatbuffer.read(data[header : header + table], SCHEMA, "Model", "bmodel")
    files = _Binaries(memoryview(data)[header + table : header + table + binaries])
    kernel = None
    if module := root["kernel_module"]:
        kernel = _name(module["file_name"]), files.take(module["binary"], "the firmware")
    return Bmodel(
        [_read_net(net, files) for net in root["net"]],
        _name(root["chip"]),
        _name(root["version"]),
        _name(root["time"].strip()),
        kernel,
        module["mode"] if module else 0,
    )


class _Binaries:
    """The part of the file behind the tables; what is taken twice counts twice."""

    def __init__(self, data: memoryview):
        self.data = data
        self.left = 4 * len(data) + PAGE

    def take(self, binary: Mapping[str, int] | None, what: str) -> bytes:
        if not binary:
            return b""
        start, size = binary["start"], binary["size"]
        if start + size > len(self.data):
            raise BadFile(
                f"bmodel: {what} lies at bytes {start} to {start + size} of the binaries; "
                f"there are {len(self.data)}"
            )
        self.left -= size
        if self.left < 0:
            raise BadFile(f"bmodel: {what} overlaps other binaries")
        return bytes(self.data[start : start + size])


def _read_net(net: dict[str, Any], files: _Binaries) -> Net:
    name = _name(net["name"])
    return Net(name, [_read_stage(s, name, files) for s in net["parameter"]], net["addr_mode"])


def _name(text: str) -> str:
    if not text.isprintable() or len(text) > LONGEST_NAME:
        raise BadFile(f"bmodel: a name is not printable, or longer than {LONGEST_NAME} characters")
    return text


def _read_stage(s: dict[str, Any], name: str, files: _Binaries) -> Stage:
    coefficients = s["coeff_mem"] or {"address": COEFFICIENTS, "binary_coeff": None}

    def groups(of: list[dict[str, Any]]) -> list[Group]:
        return [
            Group(
                files.take(g["binary_bdc"], f"a stream of commands of '{name}'"),
                files.take(g["binary_gdma"], f"a stream of commands of '{name}'"),
                g["bdc_num"],
                g["gdma_num"],
            )
            for g in of
        ]

    subnets = [
        Subnet(
            [_read_tensor(t) for t in n["input_tensor"]],
            [_read_tensor(t) for t in n["output_tensor"]],
            groups(n["cmd_group"]),
            [groups(core["gdma_tiu_commands"]) for core in n["core_commands"]],
            n["id"],
            tuple(n["next_subnet_ids"]),
            n["subnet_mode"],
            bool(n["is_dynamic"]),
        )
        for n in s["sub_net"]
    ]
    return Stage(
        [_read_tensor(t) for t in s["input_tensor"]],
        [_read_tensor(t) for t in s["output_tensor"]],
        subnets,
        files.take(coefficients["binary_coeff"], f"the coefficients of '{name}'"),
        coefficients["address"],
        s["ctx_addr"],
        sum(s["ctx_sizes"]) or s["ctx_size"],
        s["core_num"],
        coefficients.get("encrypt_mode", 0),
        (s["io_addr"], s["io_size"]),
    )


def _read_tensor(t: dict[str, Any]) -> Tensor:
    shape = tuple(t["shape"][0]["dim"]) if t["shape"] else ()
    found = Tensor(_name(t["name"]), t["data_type"], shape, t["device_addr"], t["size"], t["scale"])
    found.zero, found.hidden, found.index = t["zero_point"], t["hidden"], t["index"]
    return found
