"""What the machine is, what it could do at most, and who else was using it meanwhile."""

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
CROWDED = 0.1  # CPUs that others used: from here on a row is marked
STOLEN = 0.02  # share of the time that the hypervisor took


def describe() -> dict[str, Any]:
    """Processor, instruction set, system: what a figure is worth nothing without."""
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
    """The widest float instruction set that both the machine and our kernels have."""
    from benchmarks.kernels import LANES
    from intaglio import native
    from intaglio.cpu_isa import bits_of

    has = native.machine()
    return max((name for name in LANES if not bits_of(name) & ~has), key=bits_of)


def peak(threads: int) -> float | None:
    """GFLOP/s of multiply-adds in registers, `threads` cores at once; None without the library."""
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
    """What else happened on the machine during a measurement."""

    others: float  # CPUs that other processes kept busy, on average
    steal: float  # share of all CPU time that the hypervisor gave to others
    load: float  # the system's load average of the last minute

    @property
    def crowded(self) -> bool:
        return self.others > CROWDED or self.steal > STOLEN


class Watch:
    """Busy, from its making until `read`; `own` tells the CPU seconds of our own processes."""

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
    """CPU seconds that the machine has worked, and that were stolen from it, since it booted."""
    line = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (
        int(n) / os.sysconf("SC_CLK_TCK") for n in line[:8]
    )
    return user + nice + system + irq + softirq, steal


def _all_cpus() -> int:
    return os.cpu_count() or 1
