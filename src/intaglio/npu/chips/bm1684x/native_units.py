"""The TIU's inner loops in C (csrc/compiler/bm1684x*.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import numpy as np

from intaglio import native
from intaglio.errors import IntaglioError, Unsupported
from intaglio.ir import Array

BEYOND = 16  # numbers that are read after the last pixel
BLOCK = 6  # outputs whose weights lie side by side


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


@cache
def available() -> bool:
    """Whether the C library is there."""
    try:
        return hasattr(native.compiler_library(), "itg_bm_run_jobs")
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
