"""A layer of the KPU in C (csrc/compiler/k210.c), with the bits of arithmetic.py."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np

from intaglio import native
from intaglio.errors import IntaglioError
from intaglio.ir import Array
from intaglio.npu.chips.k210 import ram
from intaglio.npu.chips.k210.arithmetic import POOLS, Terms
from intaglio.npu.chips.k210.fields import SEGMENTS, Curve, Norm

KINDS = {"none": 0, "pick": 0, "max": 1, "mean": 2}
GIVEN = "w mul shift add curve_start curve_mul curve_shift curve_bias"
MADE = "weights of_w scale exact"
NUMBERS = (
    "segments channels height width outputs kernel depthwise pad arg_x shr_x arg_w shr_w arg_add "
    "pool size stride column"
)
Map = tuple[int, int, int, int]  # groups, bytes of a block, bytes between channels, of a row


class _Layer(ctypes.Structure):
    """struct itg_k210_layer of k210.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in f"{GIVEN} {MADE}".split()),
        *((name, ctypes.c_double * SEGMENTS) for name in ("start", "factor", "bias")),
        ("lowest", ctypes.c_double),
        *((name, ctypes.c_int64) for name in NUMBERS.split()),
        ("in_map", ctypes.c_int64 * 4),
        ("out_map", ctypes.c_int64 * 4),
    ]


@cache
def _library() -> ctypes.CDLL | None:
    try:
        library = native.compiler_library()
    except (IntaglioError, OSError):
        return None
    if not hasattr(library, "itg_k210_prepare"):
        return None
    library.itg_k210_weights.restype = library.itg_k210_scratch.restype = ctypes.c_uint64
    pointer, flags = ctypes.c_void_p, ctypes.c_uint32
    library.itg_k210_run.argtypes = [pointer, pointer, pointer, pointer, flags]
    return library


def available() -> bool:
    """Whether the C library is there."""
    return _library() is not None


def dense(shape: tuple[int, ...]) -> Map:
    """The places of a map [C, H, W] in an array."""
    return 1, shape[1] * shape[2], 0, shape[2]


def in_ram(shape: tuple[int, ...]) -> Map:
    """The places of a map [C, H, W] in the KPU's RAM."""
    place = ram.layout(shape[2])
    row = place.row_lines * ram.LINE
    return place.groups, row * shape[1], place.pitch, row


class NativeLayer:
    """A layer with packed weights, for many maps."""

    def __init__(
        self,
        shape: tuple[int, ...],  # of its map: channels, height, width
        w: Array,
        norm: Norm,
        curve: Curve,
        pad: int,
        terms: Terms,
        depthwise: bool,
        pool: int,
        places: tuple[Map, Map],
    ):
        library = _library()
        if library is None:
            raise IntaglioError("the C library is missing: run make build in the checkout")
        how = POOLS[pool]
        self._given = [
            np.ascontiguousarray(w),
            *(_i64(a) for a in (norm.mul, norm.shift, norm.add)),
            *(_i64(a) for a in (curve.start, curve.mul, curve.shift, curve.bias)),
        ]
        layer = _Layer(*(a.ctypes.data for a in self._given))
        numbers = *shape, len(w), w.shape[2], int(depthwise), pad
        args = terms.arg_x, terms.shr_x, terms.arg_w, terms.shr_w, terms.arg_add
        kind = KINDS[how.kind], how.size, how.stride, how.column
        for name, value in zip(NUMBERS.split()[1:], (*numbers, *args, *kind), strict=True):
            setattr(layer, name, value)
        layer.in_map[:], layer.out_map[:] = places
        size = library.itg_k210_weights(ctypes.byref(layer))
        self._made = [
            np.empty(size, np.int8),
            np.empty(len(w)),
            np.empty(len(w)),
            np.empty(len(w), np.uint8),
        ]
        for name, made in zip(MADE.split(), self._made, strict=True):
            setattr(layer, name, made.ctypes.data)
        library.itg_k210_prepare(ctypes.byref(layer))
        self.scratch = int(library.itg_k210_scratch(ctypes.byref(layer)))
        self._layer, self._at, self._run = layer, ctypes.addressof(layer), library.itg_k210_run

    def run(self, x: int, y: int, scratch: int, isa: int = 0xFFFFFFFF) -> None:
        """Compute the map at address y from the one at x; a depthwise layer's must not overlap."""
        self._run(self._at, x, y, scratch, isa & _cpu())


@cache
def _cpu() -> int:
    return int(native.compiler_library().itg_cpu_isa())


def run(
    x: Array,
    w: Array,
    norm: Norm,
    curve: Curve,
    pad: int,
    terms: Terms,
    depthwise: bool,
    pool: int = 0,
    isa: int = 0xFFFFFFFF,
) -> Array:
    """A layer's result [O, H, W]."""
    stride = POOLS[pool].stride
    y = np.empty((len(w), x.shape[1] // stride, x.shape[2] // stride), np.uint8)
    places = dense(x.shape), dense(y.shape)
    layer = NativeLayer(x.shape, w, norm, curve, pad, terms, depthwise, pool, places)
    x, scratch = np.ascontiguousarray(x), np.empty(layer.scratch, np.uint8)
    layer.run(x.ctypes.data, y.ctypes.data, scratch.ctypes.data, isa)
    return y


def _i64(a: Array) -> Array:
    return np.ascontiguousarray(a, np.int64)
