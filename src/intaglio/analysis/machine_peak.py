"""The measured peak of one core of this machine: multiply-adds and memory bandwidth."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import cpu_isa, native, targets

ROUNDS = 50_000  # of the loops of csrc/bench/peak.c
SUMS = 12  # multiply-adds of vectors in a round
LANES = {"scalar": 4, "avx2": 8, "avx512": 16}  # of f32
BYTE_LANES = {"avx2": 16, "avx512": 32, "avx512vnni": 64}
COPIED = 64 << 20  # bytes, more than any cache
CACHED = 128 << 10  # bytes that a core's second-level cache holds twice
IN_CACHE = 1 << 20  # bytes of a step that the caches near a core may still hold
REPEATS = 200  # copies of CACHED that are timed together
TRIES = 5


@dataclass(frozen=True)
class MachinePeak:
    """Peaks of one core; a rate is None where no loop for this CPU can measure it."""

    f32: float | None  # 10^9 multiply-adds per second
    i8: float | None
    bandwidth: float  # 10^9 bytes per second, read and written
    cache: float = 0.0  # the same in a core's cache

    def near(self, moved: int) -> bool:
        """Whether so many bytes may come from the cache."""
        return moved <= IN_CACHE and self.cache > self.bandwidth

    def speed(self, moved: int) -> float:
        """10^9 bytes per second at which so many bytes can be moved."""
        return self.cache if self.near(moved) else self.bandwidth

    def macs(self, dtype: str) -> float | None:
        """The peak for products of this type."""
        return self.i8 if dtype in ("i8", "u8") else self.f32

    def to_dict(self) -> dict[str, Any]:
        rates = {"f32_gmacs": self.f32, "i8_gmacs": self.i8}
        return rates | {"gigabytes": self.bandwidth, "cache_gigabytes": self.cache}


@functools.cache
def machine_peak() -> MachinePeak:
    """Measure for about a tenth of a second; later calls return the same."""
    far, near = _bandwidth(COPIED), _bandwidth(CACHED, REPEATS)
    return MachinePeak(_rate("", LANES), _rate("bytes_", BYTE_LANES), far, near)


def _rate(kind: str, lanes: dict[str, int]) -> float | None:
    path = Path(str(native.library()._name)).with_name("libintaglio_peak.so")
    if not path.exists():
        return None
    lib, best = ctypes.CDLL(str(path)), None
    for isa, wide in lanes.items():
        loop = getattr(lib, f"itg_peak_{kind}{isa}", None)
        if loop is not None and _runs(isa):
            seconds = _fastest(lambda loop=loop: loop(ctypes.c_int64(ROUNDS)))  # type: ignore[misc]
            best = max(best or 0.0, SUMS * wide * ROUNDS / seconds / 1e9)
    return best


def _runs(isa: str) -> bool:
    """Whether this CPU has the instruction set."""
    have, needed = targets.find("cpu").isa, cpu_isa.BITS.get(isa, 0)
    return have & needed == needed


def _bandwidth(size: int, times: int = 1) -> float:
    source = np.ones(size, np.uint8)
    target = np.empty_like(source)

    def copy() -> None:
        for _ in range(times):
            np.copyto(target, source)

    return 2 * size * times / _fastest(copy) / 1e9


def _fastest(run: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(TRIES):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best
