"""Computing threads that several sessions share."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence

from intaglio.arguments import MAX_THREADS, default_threads, described, whole_number
from intaglio.errors import BadInput
from intaglio.runtime import CPoolOptions, library
from intaglio.status import CError, error_of

MAX_CPU = 1023  # ITG_MAX_CPUS - 1 of csrc/runtime.h


class ThreadPool:
    """Computing threads that several sessions share: `intaglio.open("m.itg", pool=ThreadPool(4))`.

    `threads` counts the thread that calls `run` too, so that the pool starts one less. It defaults
    to the number of CPUs that this process may use. `cpus` pins the pool's own threads to these
    CPUs, in turn; `threads` then defaults to one per CPU and the caller's.

    A step of one session uses the threads. A step that another session runs meanwhile is computed
    by its caller's thread alone. Results do not depend on that. The threads end when the pool and
    all of its sessions are gone.
    """

    def __init__(self, threads: int | None = None, *, cpus: Sequence[int] | None = None):
        self.cpus = None if cpus is None else _cpu_numbers(cpus)
        if self.cpus and threads is None:
            threads = min(len(self.cpus) + 1, MAX_THREADS)
        self.threads = default_threads(threads)
        listed = (ctypes.c_uint32 * len(self.cpus or ()))(*(self.cpus or ()))
        options = CPoolOptions(self.threads, listed if self.cpus else None, len(listed))
        lib, error, handle = library(), CError(), ctypes.c_void_p()
        status = lib.itg_pool_create(
            ctypes.byref(options), ctypes.byref(handle), ctypes.byref(error)
        )
        if status:
            raise error_of(status, error.words)
        self.handle = handle
        weakref.finalize(self, lib.itg_pool_destroy, handle)

    def __repr__(self) -> str:
        pinned = "" if self.cpus is None else f", cpus={list(self.cpus)}"
        return f"ThreadPool({self.threads}{pinned})"


def require_pool(pool: ThreadPool | None) -> ThreadPool | None:
    """`pool`, which must be a ThreadPool or None."""
    if pool is None or isinstance(pool, ThreadPool):
        return pool
    raise BadInput(f"pool is {described(pool)}; give an intaglio.ThreadPool, or leave it out")


def _cpu_numbers(given: Sequence[int]) -> tuple[int, ...]:
    try:
        numbers = tuple(given)
    except TypeError:
        numbers = ()
    if not numbers or isinstance(given, str | bytes):
        raise BadInput(
            f"cpus is {described(given)}; give a list of CPU numbers, such as [0, 1], or leave it "
            "out"
        )
    return tuple(whole_number("a CPU in cpus", n, 0, MAX_CPU) for n in numbers)
