"""The TIU's inner loops in C (csrc/compiler/bm1684x*.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np

from intaglio import native
from intaglio.errors import IntaglioError, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.bm1684x.lanes import LANES, Memory

BEYOND = 16  # numbers that are read after the last pixel
BLOCK = 6  # outputs whose weights lie side by side
OPS = ("add", "sub", "mul", "max", "min", "rq0", "rq1")
TYPES = {np.dtype(t): i for i, t in enumerate((np.int8, np.uint8, np.int16, np.uint16, np.int32))}
CONSTANT = 6


class _Sums(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "w", "y", "offsets")),
        *(
            (name, ctypes.c_int64)
            for name in ["groups", "outputs", "taps", "pixels", "x_group", "w_group", "exact"]
        ),
        *((name, ctypes.c_void_p) for name in ("even", "odd")),
    ]


class _Blocks(ctypes.Structure):
    _fields_ = [("sums", _Sums), ("sizes", ctypes.c_void_p), ("count", ctypes.c_int64)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("at", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("n", "c", "h", "w", "lane", "type")),
    ]


class _Rows(ctypes.Structure):
    _fields_ = [
        *((name, Tensor) for name in "yab"),
        ("shape", ctypes.c_int64 * 4),
        *((name, ctypes.c_int64) for name in ("op", "mode", "shift", "saturate")),
        *((name, ctypes.c_void_p) for name in ("multiplier", "by", "zero", "scale", "offset")),
    ]


@cache
def available() -> bool:
    """Whether the C library is there."""
    try:
        return hasattr(native.compiler_library(), "itg_bm_run_rows")
    except (IntaglioError, OSError):
        return False


def needed(what: str) -> None:
    """Unsupported without the C library."""
    if not available():
        raise Unsupported(f"{what} are simulated by the C library, which is missing")


def sums(
    x: Array,
    w: Array,
    offsets: Array,
    pixels: int,
    x_group: int = 0,
    exact: int = 0,
    begin: Sequence[Array | None] = (None, None),
    blocks: Array | None = None,
) -> Array:
    """y[g, o, pixel] = sum of w[g, o, tap] * x[g * x_group + offsets[tap] + pixel].

    x is f32, readable BEYOND numbers after the last; `exact`: integers, and how many products a
    f32 holds; 0: floats, added as the chip does. `begin`: what the chip's two sums begin with.
    `blocks`: products of f16 or bf16, and the number of taps of each block.
    """
    groups, outputs, taps = w.shape
    block = 1 if outputs == 1 else BLOCK
    packed = np.zeros((groups, -(-outputs // block) * block, taps), np.float32)
    packed[:, :outputs] = w
    packed = packed.reshape(groups, -1, block, taps).transpose(0, 1, 3, 2)
    packed = np.ascontiguousarray(packed)
    offsets = np.ascontiguousarray(offsets, np.int64)
    y = np.empty((groups, outputs, pixels), np.int32 if exact else np.float32)
    pointers = (a.ctypes.data for a in (x, packed, y, offsets))
    sizes = groups, outputs, taps, pixels, x_group, packed[0].size, exact or taps + taps % 2
    library = native.compiler_library()
    starts = [
        None if a is None else np.ascontiguousarray(np.broadcast_to(a, y.shape), np.float32)
        for a in begin
    ]
    first = (None if a is None else a.ctypes.data for a in starts)
    given = _Sums(*pointers, *sizes, *first)
    if blocks is not None:
        blocks = np.ascontiguousarray(blocks, np.int64)
        library.itg_bm_half_sums(ctypes.byref(_Blocks(given, blocks.ctypes.data, len(blocks))))
    else:
        run = library.itg_bm_integer_sums if exact else library.itg_bm_float_sums
        run(ctypes.byref(given))
    return y


def two_sums(bias: Array | None, before: Array | None) -> tuple[Array | None, Array | None]:
    """What the sums of even and of odd products begin with.

    The chip deals bias, former result and products in turn to two sums.
    """
    return (bias, before) if before is not None else (None, bias)


def tensor(
    memory: Memory, address: int, dtype: np.dtype, shape: Sequence[int], steps: Sequence[int]
) -> Tensor:
    """A tensor in local memory, checked."""
    _, lane = memory.view(address, dtype, shape, steps)
    ns, cs, hs, ws = (s * dtype.itemsize for s in steps)
    at = memory.raw.ctypes.data + address % memory.chip.lane_bytes
    return Tensor(at, ns, cs, hs, ws, lane, TYPES[dtype])


def constant(value: int) -> Tensor:
    """A constant operand."""
    return Tensor(value & (1 << 64) - 1, 0, 0, 0, 0, 0, CONSTANT)


def rows(
    op: str,
    shape: Sequence[int],
    y: Tensor,
    a: Tensor,
    b: Tensor | None = None,
    shift: int = 0,
    mode: int = 0,
    saturate: bool = True,
    parameters: Sequence[Array] = (),
    lanes: int = LANES,
) -> None:
    """Run an elementwise command on integers; `parameters` of requantisation are per channel."""
    n, c, h, w = shape
    whole = [t for t in (y, a, b) if t is not None and t.type != CONSTANT]
    if lanes != LANES:
        _in_blocks(op, shape, (y, a, b), shift, mode, saturate, parameters, lanes)
        return
    if all(t.h == w * t.w for t in whole):
        h, w = 1, h * w
    fields = _Rows(y, a, b or constant(0), (n, c, h, w), OPS.index(op), mode, shift, saturate)
    kinds = {"rq1": np.int64, "rq0": np.float32}
    kept = [
        np.ascontiguousarray(np.broadcast_to(p.reshape(-1), (c,)), kinds[op]) for p in parameters
    ]
    names = ("multiplier", "by", "zero") if op == "rq1" else ("scale", "offset")
    for name, array in zip(names, kept, strict=False):
        setattr(fields, name, array.ctypes.data)
    native.compiler_library().itg_bm_run_rows(ctypes.byref(fields))


def _in_blocks(
    op: str,
    shape: Sequence[int],
    tensors: tuple[Tensor, Tensor, Tensor | None],
    shift: int,
    mode: int,
    saturate: bool,
    parameters: Sequence[Array],
    lanes: int,
) -> None:
    """Run the channels of each round over the lanes for themselves: C knows 64 lanes."""
    n, c, h, w = shape
    places = [t for t in tensors if t is not None and t.type != CONSTANT]
    cuts = {0, c} | {k for t in places for k in range(-t.lane % lanes, c, lanes)}
    ordered = sorted(cuts)
    for first, last in pairwise(ordered):
        parts = [t if t is None or t.type == CONSTANT else _from(t, first, lanes) for t in tensors]
        y, a, b = parts
        assert y is not None
        assert a is not None
        some = [p if p.size == 1 else p.reshape(-1)[first:last] for p in parameters]
        rows(op, (n, last - first, h, w), y, a, b, shift, mode, saturate, some)


def _from(t: Tensor, first: int, lanes: int) -> Tensor:
    """A tensor from one of its channels on."""
    block, lane = divmod(t.lane + first, lanes)
    return Tensor(t.at + block * t.c, t.n, t.c, t.h, t.w, lane, t.type)
