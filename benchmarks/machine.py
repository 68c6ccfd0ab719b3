"""The machine: its description, its peak, and the load by other processes."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CPUS = len(os.sched_getaffinity(0))
MAX_OTHER_CPUS = 0.1  # used by other processes; above, a row is marked as busy
MAX_STEAL = 0.02  # share of CPU time taken by the hypervisor; above, a row is marked as busy


def describe() -> dict[str, Any]:
    """Processor, instruction set and system, for the head of every report."""
    names = Path("/proc/cpuinfo").read_text().partition("model name")[2].partition("\n")[0]
    return {
        "cpu": names.strip("\t: ") or platform.machine(),
        "cpus": CPUS,
        "isa": isa(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def isa() -> str:
    """The widest float instruction set of this machine that our kernels support."""
    from benchmarks.kernels import LANES
    from intaglio import native
    from intaglio.cpu_isa import bits_of

    has = native.machine()
    return max((name for name in LANES if not bits_of(name) & ~has), key=bits_of)


def peak(threads: int) -> float | None:
    """Measured peak of `threads` cores in GFLOP/s; None without the benchmark library."""
    from benchmarks import kernels

    rates: list[float] = []

    def one() -> None:
        rates.append(kernels.peak(isa()))

    together = [threading.Thread(target=one) for _ in range(threads)]
    try:
        kernels.peak_library()
    except OSError:
        return None
    for t in together:
        t.start()
    for t in together:
        t.join()
    return sum(rates)


@dataclass
class Busy:
    """Load on the machine by other processes during a measurement."""

    others: float  # average number of CPUs that other processes used
    steal: float  # share of CPU time taken by the hypervisor
    load: float  # load average of the last minute

    @property
    def crowded(self) -> bool:
        return self.others > MAX_OTHER_CPUS or self.steal > MAX_STEAL


class Watch:
    """Measures Busy from its creation until `read`; `own` returns our own CPU seconds."""

    def __init__(self, own: Callable[[], float]) -> None:
        self.own, self.start = own, (time.perf_counter(), own(), *_system())

    def read(self) -> Busy:
        then, own, busy, stolen = self.start
        wall = max(time.perf_counter() - then, 1e-9)
        now_busy, now_stolen = _system()
        others = (now_busy - busy - (self.own() - own)) / wall
        return Busy(
            max(others, 0.0), (now_stolen - stolen) / wall / _all_cpus(), os.getloadavg()[0]
        )


def _system() -> tuple[float, float]:
    """CPU seconds since boot: busy, and taken by the hypervisor."""
    line = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (
        int(n) / os.sysconf("SC_CLK_TCK") for n in line[:8]
    )
    return user + nice + system + irq + softirq, steal


def _all_cpus() -> int:
    return os.cpu_count() or 1
