"""A layer of the KPU in C (csrc/compiler/k210.c), with the bits of arithmetic.py."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np

from intaglio import native
from intaglio.errors import IntaglioError
from intaglio.ir import Array
from intaglio.npu.chips.k210.arithmetic import Terms
from intaglio.npu.chips.k210.fields import Curve, Norm

TILE = 16  # floats that are read beyond the end of a map
AT_ONCE = 4  # outputs of a block of weights
POINTERS = (
    "x w y mul shift add curve_start curve_mul curve_shift curve_bias map weights of_w offsets"
)
NUMBERS = "channels height width outputs kernel depthwise pad arg_x shr_x arg_w shr_w arg_add"


class _Layer(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in POINTERS.split()),
        *((name, ctypes.c_int64) for name in NUMBERS.split()),
    ]


@cache
def available() -> bool:
    """Whether the C library is there."""
    try:
        return hasattr(native.compiler_library(), "itg_k210_run")
    except (IntaglioError, OSError):
        return False


def run(
    x: Array, w: Array, norm: Norm, curve: Curve, pad: int, terms: Terms, depthwise: bool
) -> Array:
    """A layer's result [O, H, W] before pooling."""
    channels, height, width = x.shape
    outputs, kernel = len(w), w.shape[2]
    edge, deep = kernel // 2 * 2, 1 if depthwise else channels
    taps = deep * kernel * kernel
    y = np.empty((outputs, height, width), np.uint8)
    blocks = outputs * AT_ONCE if depthwise else outputs + AT_ONCE - 1
    arrays = {
        "x": np.ascontiguousarray(x),
        "w": np.ascontiguousarray(w),
        "y": y,
        "mul": _i64(norm.mul),
        "shift": _i64(norm.shift),
        "add": _i64(norm.add),
        "curve_start": _i64(curve.start),
        "curve_mul": _i64(curve.mul),
        "curve_shift": _i64(curve.shift),
        "curve_bias": _i64(curve.bias),
        "map": np.empty(channels * (height + edge) * (width + edge) + TILE, np.float32),
        "weights": np.zeros(blocks * taps, np.float32),
        "of_w": np.empty(outputs),
        "offsets": np.empty(taps, np.int64),
    }
    numbers = channels, height, width, outputs, kernel, int(depthwise), pad
    args = terms.arg_x, terms.shr_x, terms.arg_w, terms.shr_w, terms.arg_add
    layer = _Layer(*(a.ctypes.data for a in arrays.values()), *numbers, *args)
    native.compiler_library().itg_k210_run(ctypes.byref(layer))
    return y


def _i64(a: Array) -> Array:
    return np.ascontiguousarray(a, np.int64)
