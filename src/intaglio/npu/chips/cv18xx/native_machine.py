"""Executes decoded commands in C (csrc/compiler/cv18xx.c)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import numpy as np

from intaglio import native
from intaglio.errors import BadInput, IntaglioError, RunError
from intaglio.ir import Array
from intaglio.npu.chips.cv18xx.commands import Chip, split
from intaglio.npu.chips.cv18xx.fields import TDMA, TIU

BASES = 8


class _Machine(ctypes.Structure):
    _fields_ = [
        ("local", ctypes.c_void_p),
        ("lanes", ctypes.c_int64),
        ("lane_bytes", ctypes.c_int64),
        ("ddr", ctypes.c_void_p * BASES),
        ("ddr_bytes", ctypes.c_int64 * BASES),
        ("why", ctypes.c_char_p),
        ("scratch", ctypes.c_void_p),
        ("scratch_bytes", ctypes.c_int64),
        ("kept", ctypes.c_void_p),
        ("kept_bytes", ctypes.c_int64),
        ("isa", ctypes.c_uint32),
    ]


@dataclass(slots=True)
class Stream:
    """The commands of a command buffer, as the C library takes them."""

    is_tiu: Array  # bool [commands]
    tiu: Array  # u32 [TIU commands, fields]
    tdma: Array  # u32 [TDMA commands, fields]
    more: dict[int, Array] = field(default_factory=dict)  # memory of its own, by base register


def prepare(data: bytes, chip: Chip) -> Stream:
    """The fields of every command of a buffer."""
    order, tables = split(data, chip)
    tiu, tdma = (t.unpack_all(tables[t.engine]) for t in (TIU, TDMA))
    return Stream(order == TIU.engine, tiu, tdma)


def execute(stream: Stream, chip: Chip, memory: list[Array | None], isa: int = 0xFFFFFFFF) -> None:
    """Run commands on the bytes behind each base register; RunError names a command that fails.

    `isa` has the bits of instruction sets that may be used, of those of the CPU.
    """
    try:
        library = native.compiler_library()
    except (IntaglioError, OSError) as e:
        raise BadInput(f"simulating a cvimodel needs the C library: {e}") from None
    local = np.zeros(chip.lanes * chip.lane_bytes + 64, np.uint8)
    machine = _Machine(local.ctypes.data, chip.lanes, chip.lane_bytes, isa=isa)
    for i, part in [*enumerate(memory), *stream.more.items()]:
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
