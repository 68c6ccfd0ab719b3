"""Commands with checked operands that C runs in a row (csrc/compiler/bm1684x_jobs.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from intaglio import native
from intaglio.ir import Array
from intaglio.npu.chips.bm1684x import numbers
from intaglio.npu.chips.bm1684x.lanes import Memory

ROWS = ("add", "sub", "mul", "max", "min", "rq0", "rq1", "dq0", "f_add", "f_sub", "f_mul", "cast")
OPS = (*ROWS, "copy", "conv", "depthwise", "max_pool")
KINDS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)
TYPES = {np.dtype(t): i for i, t in enumerate(KINDS)}
CONSTANT, F32, NONE = 6, 7, 8
TYPES[np.dtype(np.float32)] = F32
MOST_SCRATCH = 1 << 28  # bytes
MOST_MODE = 6  # of rounding


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("at", ctypes.c_uint64),
        *((name, ctypes.c_int64) for name in ("n", "c", "h", "w", "lane", "lanes", "type")),
    ]


class Job(ctypes.Structure):
    """A command as C takes it."""

    _fields_ = [
        ("op", ctypes.c_int64),
        *((name, _Tensor) for name in ("y", "a", "b", "w", "bias", "numbers")),
        ("given", ctypes.c_int64 * 3),
        *((name, ctypes.c_int64) for name in ("packed", "zero_bits", "swapped")),
        ("shape", ctypes.c_int64 * 4),
        *((name, ctypes.c_int64) for name in ("rounds", "mode", "shift", "saturate", "relu")),
        ("input", ctypes.c_int64 * 3),
        *((n, ctypes.c_int64 * 2) for n in ("kernel", "stride", "dilation", "pad")),
        *((name, ctypes.c_int64) for name in ("fill", "rotate", "at_once")),
    ]


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor of a job, and the bytes of a lane that it takes: [first, last)."""

    tensor: _Tensor
    first: int = 0
    last: int = 0

    @property
    def constant(self) -> bool:
        """Whether it is a number in the command."""
        return int(self.tensor.type) == CONSTANT

    def touches(self, other: Operand) -> bool:
        """Whether both have bytes in common, in some lane."""
        return self.first < other.last and other.first < self.last

    def same(self, other: Operand) -> bool:
        """Whether both have each element in the same place."""
        names = ("at", "n", "c", "h", "w", "lane")
        same = [getattr(self.tensor, n) == getattr(other.tensor, n) for n in names]
        return all(same) and self.last == other.last


ABSENT = Operand(_Tensor(0, 0, 0, 0, 0, 0, 1, NONE))


def constant(value: int) -> Operand:
    """A number in the command; floats by their bits."""
    return Operand(_Tensor(value & (1 << 64) - 1, 0, 0, 0, 0, 0, 1, CONSTANT))


def local(
    memory: Memory, address: int, dtype: np.dtype, shape: Sequence[int], steps: Sequence[int]
) -> Operand:
    """A tensor in local memory, checked."""
    _, lane = memory.view(address, dtype, shape, steps)
    ns, cs, hs, ws = (s * dtype.itemsize for s in steps)
    offset, blocks = address % memory.chip.lane_bytes, memory.blocks(address, shape[1])
    sizes = shape[0], blocks, *shape[2:]
    last = sum((d - 1) * s for d, s in zip(sizes, (ns, cs, hs, ws), strict=True))
    at = memory.raw.ctypes.data + offset
    tensor = _Tensor(at, ns, cs, hs, ws, lane, memory.lanes, TYPES[dtype])
    return Operand(tensor, offset, offset + last + dtype.itemsize)


def flat(
    memory: Memory, address: int, dtype: np.dtype, shape: Sequence[int], steps: Sequence[int]
) -> Operand:
    """A tensor in DDR, L2 or static memory, checked."""
    at = memory.flat(address, dtype, shape, steps).ctypes.data
    return Operand(_Tensor(at, *(s * dtype.itemsize for s in steps), 0, 1, TYPES[dtype]))


def per_channel(memory: Memory, address: int, channels: int, count: int, step: int) -> Operand:
    """Some numbers of 4 bytes for each channel; `step` is the bytes from a channel to the next."""
    steps = 0, step // 4, 0, 1
    return local(memory, address, np.dtype(np.int32), (1, channels, 1, count), steps)


def job(
    op: str, shape: Sequence[int], y: Operand, a: Operand, b: Operand = ABSENT, **rest: int
) -> Job:
    """A job without weights and numbers of channels."""
    made = Job(op=OPS.index(op), y=y.tensor, a=a.tensor, b=b.tensor)
    made.shape[:] = list(shape)
    for operand in ("w", "bias", "numbers"):
        setattr(made, operand, ABSENT.tensor)
    for name, value in rest.items():
        setattr(made, name, value)
    return made


def float_bits(value: float) -> int:
    """The bits of an f32."""
    return int(np.float32(value).view(np.uint32))


def known_type(code: int, signed: int | bool) -> bool:
    """Whether C computes with this type: integers but for u32."""
    return code in numbers.INTEGERS and not (code == numbers.I32 and not signed)


class Batch:
    """Jobs that run one after the other."""

    def __init__(self, jobs: Sequence[Job]):
        library = native.compiler_library()
        library.itg_bm_scratch.restype = ctypes.c_int64
        self.count = len(jobs)
        self._jobs = (Job * len(jobs))(*jobs)
        size = max((library.itg_bm_scratch(ctypes.byref(j)) for j in jobs), default=0)
        self._scratch = _scratch(1 << max(int(size) - 1, 1).bit_length())
        self._run = library.itg_bm_run_jobs
        self._run.restype = ctypes.c_int64
        self._run.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_uint32]

    def run(self, first: int = 0) -> int:
        """Run jobs from the `first` on; returns the first one that C leaves to numpy."""
        at = ctypes.addressof(self._jobs) + first * ctypes.sizeof(Job)
        scratch = self._scratch.ctypes.data
        return first + int(self._run(at, self.count - first, scratch, _cpu()))


def fits(made: Job) -> bool:
    """Whether the memory that a job needs for its work is small enough."""
    scratch = native.compiler_library().itg_bm_scratch
    scratch.restype = ctypes.c_int64
    return bool(scratch(ctypes.byref(made)) <= MOST_SCRATCH)


@cache
def _scratch(size: int) -> Array:
    return np.empty(size, np.uint8)


@cache
def _cpu() -> int:
    return int(native.compiler_library().itg_cpu_isa())
