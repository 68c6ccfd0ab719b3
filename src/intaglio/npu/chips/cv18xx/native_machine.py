"""Executes decoded commands in C (csrc/compiler/cv18xx.c)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from intaglio import native
from intaglio.errors import BadFile, BadInput, IntaglioError, RunError
from intaglio.ir import Array
from intaglio.npu.chips.cv18xx.commands import Chip
from intaglio.npu.chips.cv18xx.fields import TDMA, TIU, Table

BASES = 8


class _Machine(ctypes.Structure):
    _fields_ = [
        ("local", ctypes.c_void_p),
        ("lanes", ctypes.c_int64),
        ("lane_bytes", ctypes.c_int64),
        ("ddr", ctypes.c_void_p * BASES),
        ("ddr_bytes", ctypes.c_int64 * BASES),
        ("why", ctypes.c_char_p),
    ]


@dataclass(slots=True)
class Stream:
    """The commands of a command buffer, as the C library takes them."""

    is_tiu: Array  # u8 [commands]
    tiu: Array  # u32 [TIU commands, fields]
    tdma: Array  # u32 [TDMA commands, fields]


def prepare(data: bytes, chip: Chip) -> Stream:
    """The fields of every command of a buffer that `decode` takes."""
    raw = np.frombuffer(data, np.uint8)
    starts: dict[int, list[int]] = {TIU.engine: [], TDMA.engine: []}
    order, at = [], 0
    while at < len(raw):
        engine = int(raw[at + 2]) if at + 8 <= len(raw) else -1
        table = {TIU.engine: TIU, TDMA.engine: TDMA}.get(engine)
        if table is None or raw[at] != chip.magic or at + 8 + table.size > len(raw):
            raise BadFile(f"cvimodel: no command at byte {at} of the commands")
        starts[engine].append(at + 8)
        order.append(engine == TIU.engine)
        at += 8 + table.size
    columns = (_columns(raw, starts[t.engine], t) for t in (TIU, TDMA))
    return Stream(np.array(order, np.uint8), *columns)


def _columns(raw: Array, starts: list[int], table: Table) -> Array:
    """The fields of descriptors: [commands, fields]."""
    found = np.zeros((len(starts), len(table.fields)), np.uint32)
    if not starts:
        return found
    rows = raw[np.array(starts)[:, None] + np.arange(table.size)]
    wide = np.zeros((len(starts), table.size + 8), np.uint8)
    wide[:, : table.size] = rows
    for i, field in enumerate(table.fields):
        first = field.low // 8
        words = np.ascontiguousarray(wide[:, first : first + 8]).view("<u8")[:, 0]
        found[:, i] = words >> np.uint64(field.low % 8) & np.uint64(field.largest)
    return found


def execute(stream: Stream, chip: Chip, memory: list[Array | None]) -> None:
    """Run commands on the bytes behind each base register; RunError names a command that fails."""
    try:
        library = native.compiler_library()
    except (IntaglioError, OSError) as e:
        raise BadInput(f"simulating a cvimodel needs the C library: {e}") from None
    local = np.zeros(chip.lanes * chip.lane_bytes + 64, np.uint8)
    machine = _Machine(local.ctypes.data, chip.lanes, chip.lane_bytes)
    for i, part in enumerate(memory):
        if part is not None:
            machine.ddr[i], machine.ddr_bytes[i] = part.ctypes.data, part.nbytes
    count = len(stream.is_tiu)
    run = library.itg_cv18xx_run
    run.restype = ctypes.c_int64
    pointers = (ctypes.c_void_p(a.ctypes.data) for a in (stream.tiu, stream.tdma))
    done = run(
        ctypes.byref(machine),
        ctypes.c_void_p(stream.is_tiu.ctypes.data),
        ctypes.c_int64(count),
        *pointers,
    )
    if done < count:
        raise RunError(f"cvimodel: {_name(stream, done)}: {machine.why.decode()}")


def _name(stream: Stream, index: int) -> str:
    """A command in words."""
    is_tiu = bool(stream.is_tiu[index])
    number = int((stream.is_tiu[:index] == is_tiu).sum())
    if not is_tiu:
        return f"tdma command {number + 1}"
    names = TIU.by_name
    column = list(names).index("tsk_typ")
    kind = stream.tiu[number, column]
    what = {0: "conv", 1: "pool or depthwise", 2: "matmul", 3: "element-wise"}.get(int(kind), "")
    bf16 = " bf16" if stream.tiu[number, list(names).index("opd_typ")] else ""
    return f"tiu command {number + 1} ({what}{bf16})"
