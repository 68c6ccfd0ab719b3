"""numpy's C struct of an array, which the C runtime reads by itself: csrc/arrays.c.

Python takes 0.4 us for the type, shape, flags and address of one array, C a few nanoseconds.
"""

from __future__ import annotations

import array
import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intaglio.native import MAX_RANK
from intaglio.runtime import library

OTHER_ARRAYS = 0xFFFFFFFF  # instead of a status: an array is not as its rule says
READABLE = 0x101  # bits of numpy's flags.num: C-contiguous and aligned
WRITABLE = READABLE | 0x400
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_WORD = next(code for code in "LQ" if array.array(code).itemsize == _POINTER)
Described = tuple[int, str, np.dtype[Any], tuple[int, ...]]  # number in the package, name, type


class CArray(ctypes.Structure):
    """struct PyArrayObject of numpy, whose fields have not changed since numpy 1.0."""

    _fields_ = [
        ("head", ctypes.c_char * (getattr(object, "__basicsize__", 16) - _POINTER)),
        ("kind", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.c_void_p),
        ("base", ctypes.c_void_p),
        ("type", ctypes.c_void_p),
        ("flags", ctypes.c_int),
    ]


class CArrayRule(ctypes.Structure):
    """struct itg_array_rule of csrc/arrays.h."""

    _fields_ = [
        ("type", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("shape", ctypes.c_int64 * MAX_RANK),
        ("rank", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("number", ctypes.c_uint32),
    ]


class CArrays(ctypes.Structure):
    """struct itg_arrays of csrc/arrays.h."""

    _fields_ = [
        ("kind", ctypes.c_void_p),
        *((f"{field}_at", ctypes.c_uint32) for field in ("kind", "data", "rank", "shape", "type")),
        ("flags_at", ctypes.c_uint32),
        ("n_inputs", ctypes.c_uint32),
        ("n_outputs", ctypes.c_uint32),
        ("rules", ctypes.c_void_p),
        ("objects", ctypes.c_void_p),
        ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
    ]


def _is_known() -> bool:
    """Whether arrays of this interpreter are as `CArray` says."""
    some = (np.zeros(3), np.zeros((4, 5), np.uint8)[1:, 2:], np.empty(0), np.arange(9)[::-2])
    return hasattr(object, "__basicsize__") and all(
        (seen.kind, seen.data, seen.type) == (id(np.ndarray), a.ctypes.data, id(a.dtype))
        and (seen.rank, seen.flags) == (a.ndim, a.flags.num)
        and tuple(seen.shape[: a.ndim]) == a.shape
        for a, seen in ((a, CArray.from_address(id(a))) for a in some)
    )


KNOWN = _is_known()


class ArraysCall:
    """A run of a C session on the arrays whose ids are in `objects`: inputs, then outputs.

    `call` returns the status, or OTHER_ARRAYS if an array has another type, shape or layout than
    `reads` and `writes` say.
    """

    __slots__ = ("_kept", "call", "objects", "reads", "writes")

    def __init__(
        self,
        handle: ctypes.c_void_p,
        reads: Sequence[Described],
        writes: Sequence[Described],
        addresses: tuple[Any, Any],
    ):
        described = [*reads, *writes]
        rules = (CArrayRule * max(len(described), 1))()
        for i, (rule, (number, _, dtype, shape)) in enumerate(zip(rules, described, strict=False)):
            rule.type, rule.rank, rule.number = id(dtype), len(shape), number
            rule.flags = READABLE if i < len(reads) else WRITABLE
            rule.bytes, rule.shape[: len(shape)] = math.prod(shape) * dtype.itemsize, shape
        self.reads = [(i, name) for i, (_, name, _, _) in enumerate(reads)]
        self.writes = [(len(reads) + i, *w[1:]) for i, w in enumerate(writes)]
        self.objects = array.array(_WORD, [0] * max(len(described), 1))
        fields = "kind", "data", "rank", "shape", "type", "flags"
        arrays = CArrays(
            id(np.ndarray),
            *(getattr(CArray, field).offset for field in fields),
            len(reads),
            len(writes),
            ctypes.addressof(rules),
            self.objects.buffer_info()[0],
            *map(ctypes.addressof, addresses),
        )
        run = library()["itg_run_arrays"]  # without argtypes, which would convert each time
        run.restype = ctypes.c_uint32
        session = ctypes.c_char.from_address(handle.value or 0)
        self.call: Callable[[], int] = functools.partial(
            run, ctypes.byref(session), ctypes.byref(arrays)
        )
        self._kept = rules, addresses, [dtype for _, _, dtype, _ in described]
