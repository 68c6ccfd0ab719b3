"""The simulator of register commands in C (csrc/rockchip/machine.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from intaglio import native
from intaglio.errors import BadFile, IntaglioError, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.rockchip.words import Word

UNSUPPORTED = 2


@cache
def _library() -> ctypes.CDLL | None:
    try:
        library = native.compiler_library()
    except (IntaglioError, OSError):
        return None
    if not hasattr(library, "itg_rk_machine_bytes"):
        return None
    pointer, size = ctypes.c_void_p, ctypes.c_uint64
    library.itg_rk_machine_bytes.restype = size
    library.itg_rk_message.restype = ctypes.c_char_p
    library.itg_rk_message.argtypes = [pointer]
    library.itg_rk_start.argtypes = [pointer, pointer, pointer]
    library.itg_rk_choose.argtypes = [pointer, ctypes.c_char_p]
    library.itg_rk_simulate.argtypes = [pointer, pointer, size, pointer, pointer, pointer, size]
    return library


def available() -> bool:
    """Whether the C library is there."""
    return _library() is not None


def placed(words: Sequence[Word], addresses: Mapping[int, int]) -> Array:
    """64-bit commands with addresses filled in: index of a word -> value."""
    values = (
        w if i not in addresses else Word(w.target, w.register, addresses[i])
        for i, w in enumerate(words)
    )
    return np.array([w.encode() for w in values], np.uint64)


class Machine:
    """The NPU of a chip with one memory, whose first byte has the address 0."""

    def __init__(self, memory: Array, chip: str = "rk3588"):
        library = _library()
        if library is None:
            raise IntaglioError("the C library is missing: run make build in the checkout")
        if memory.dtype != np.uint8 or not memory.flags.c_contiguous:
            raise BadFile("rockchip: the memory is not one row of bytes")
        self.memory = memory
        self._library = library
        self._state = np.zeros(library.itg_rk_machine_bytes() // 8 + 1, np.uint64)
        library.itg_rk_start(self._state.ctypes.data, None, None)
        if library.itg_rk_choose(self._state.ctypes.data, chip.encode()):
            raise Unsupported(f"rockchip: {self._message()}")

    def run(self, tasks: Sequence[Array]) -> None:
        """Execute tasks, each an array of 64-bit words with addresses filled in."""
        counts = np.array([len(t) for t in tasks], np.uint64)
        first = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.uint64)
        words = np.concatenate([np.asarray(t, np.uint64) for t in tasks])
        result = self._library.itg_rk_simulate(
            self._state.ctypes.data,
            self.memory.ctypes.data,
            self.memory.nbytes,
            words.ctypes.data,
            first.ctypes.data,
            counts.ctypes.data,
            len(tasks),
        )
        if result:
            kind = Unsupported if result == UNSUPPORTED else BadFile
            raise kind(f"rockchip: {self._message()}")

    def _message(self) -> str:
        text: bytes = self._library.itg_rk_message(self._state.ctypes.data)
        return text.decode()
