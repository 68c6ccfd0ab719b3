"""Packages that run on another machine's instruction set, in an emulator.

The runtime is built by a cross compiler into a folder of its own; its test program run_cases stays
open, takes packages and inputs and gives outputs. `machines()` says which machines can be emulated
here, and `why_not(name)` what is missing for one. `python -m tests.emulated` prints the packages
to install for all cross-compiled tests.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tests.fuzz_package import build

from intaglio.export.deploy import board as boards

ROOT = Path(__file__).parents[1]
REFUSED = (1 << 64) - 1


@dataclass(frozen=True)
class Machine:
    """A machine to emulate: the compiler's toolchain file, the emulator, what has to be there."""

    isa: str
    toolchain: str
    command: tuple[str, ...]
    needs: tuple[str, ...]
    packages: str

    @property
    def sums_f16(self) -> bool:
        """Whether its kernels sum up to 64 products of f16 in f16."""
        return "fp16" in self.isa


def _aarch64(isa: str, cpu: str) -> Machine:
    command = ("qemu-aarch64", "-cpu", cpu, "-L", "/usr/aarch64-linux-gnu")
    needs = ("aarch64-linux-gnu-gcc", "qemu-aarch64")
    packages = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
    return Machine(isa, "aarch64-linux-gnu.cmake", command, needs, packages)


def _riscv(isa: str, cpu: str) -> Machine:
    """A RISC-V machine; all are one build, for its kernels run at any length of registers."""
    command = ("qemu-riscv64", "-cpu", cpu, "-L", "/usr/riscv64-linux-gnu")
    needs = ("riscv64-linux-gnu-gcc", "clang-19", "qemu-riscv64")
    packages = "gcc-riscv64-linux-gnu libc6-dev-riscv64-cross clang-19 lld-19 qemu-user"
    return Machine(isa, "riscv64-linux-gnu.cmake", command, needs, packages)


MACHINES = {
    "aarch64": _aarch64("neon", "cortex-a72"),
    "aarch64-dotprod": _aarch64("neon-dotprod", "cortex-a76"),
    "aarch64-i8mm": _aarch64("neon-i8mm", "max"),
    "aarch64-fp16": _aarch64("neon-dotprod-fp16", "cortex-a76"),
    "aarch64-bf16": _aarch64("neon-bf16", "max"),
    "armv7": Machine(
        "armv7",
        "armv7-linux-gnueabihf.cmake",
        ("qemu-arm", "-cpu", "cortex-a7", "-L", "/usr/arm-linux-gnueabihf"),
        ("arm-linux-gnueabihf-gcc", "qemu-arm"),
        "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross qemu-user",
    ),
    "riscv64": _riscv("scalar", "rv64"),
    "rvv128": _riscv("rvv", "rv64,v=true,vlen=128,vext_spec=v1.0"),
    "rvv256": _riscv("rvv", "rv64,v=true,vlen=256,vext_spec=v1.0"),
    "rvv512": _riscv("rvv", "rv64,v=true,vlen=512,vext_spec=v1.0"),
    # Zvfh is not an option of qemu 7, which executes it
    "rvv128-fp16": _riscv("rvv-fp16", "rv64,v=true,vlen=128,vext_spec=v1.0,Zfh=true"),
    "rvv256-fp16": _riscv("rvv-fp16", "rv64,v=true,vlen=256,vext_spec=v1.0,Zfh=true"),
}


def missing_packages() -> list[str]:
    """Debian packages without which cross-compiled tests are skipped."""
    needed: dict[str, None] = {}
    for name, machine in MACHINES.items():
        if why_not(name):
            needed |= dict.fromkeys(machine.packages.split())
    for board in map(boards.load, boards.names()):
        if not (shutil.which(board.compiler) and shutil.which(board.qemu)):
            packages = f"{board.compiler_packages} {board.qemu_packages}"
            needed |= dict.fromkeys(packages.split())
    return list(needed)


def why_not(name: str) -> str | None:
    """What keeps a machine from being emulated here; None if nothing does."""
    absent = [tool for tool in MACHINES[name].needs if not shutil.which(tool)]
    packages = MACHINES[name].packages
    return f"no {absent[0]}; apt-get install {packages}" if absent else None


@functools.cache
def built(name: str) -> Path:
    """The folder of the cross build, without optimisation of kernels: bits are what is compared."""
    folder = ROOT / f"build-{MACHINES[name].toolchain.split('-')[0]}"
    file = ROOT / "cmake/toolchains" / MACHINES[name].toolchain
    quick = ("-DINTAGLIO_COMPILER=OFF", "-DINTAGLIO_KERNEL_LEVEL=-O1", "-DINTAGLIO_ASSUME_ZVFH=ON")
    build(folder, f"-DCMAKE_TOOLCHAIN_FILE={file}", *quick, targets=("run_cases",))
    return folder


@functools.cache
def _process(name: str) -> subprocess.Popen[bytes]:
    command = [*MACHINES[name].command, str(built(name) / "run_cases")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(process.kill)
    return process


def run(name: str, package: bytes, inputs: Sequence[np.ndarray], outputs: int = 1) -> list[bytes]:
    """The outputs of a package on the emulated machine, as bytes."""
    process = _process(name)
    assert process.stdin is not None
    assert process.stdout is not None
    for data in (package, *(np.ascontiguousarray(a).tobytes() for a in inputs)):
        process.stdin.write(struct.pack("<Q", len(data)) + data)
    process.stdin.flush()
    found: list[bytes] = []
    for _ in range(outputs):
        (size,) = struct.unpack("<Q", process.stdout.read(8))
        if size == REFUSED:
            (size,) = struct.unpack("<Q", process.stdout.read(8))
            raise RuntimeError(process.stdout.read(size).decode())
        found.append(process.stdout.read(size))
    return found


if __name__ == "__main__":
    if absent := missing_packages():
        print("some cross-compiled tests are skipped; for all of them: apt-get install", *absent)
