"""Machines of `benchmarks.boards`: compilers, emulators, and llvm-mca's models of their cores."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import intaglio
from benchmarks.emulation import ROOT, Core
from intaglio.errors import BadInput
from intaglio.export.deploy import board as boards
from intaglio.ir import Graph

Command = Callable[[int], list[str]]  # of the number of inferences

_A64 = ("aarch64-linux-gnu", "+dotprod,+i8mm,+fullfp16")
_RVV = ("riscv64-linux-gnu", "+v,+zvfh,+zba,+zbb,+f,+d,+c")
_A64_CORES = (Core("A55", *_A64, "cortex-a55"), Core("A76", *_A64, "cortex-a57"))


@dataclass(frozen=True)
class Linux:
    """The runtime in user-mode emulation, with packages for one instruction set."""

    isa: str
    toolchain: str
    emulator: str
    cpu: str
    cores: tuple[Core, ...]
    tools: dict[str, str]  # programs, and the Debian packages that have them

    @property
    def folder(self) -> Path:
        return ROOT / f"build-boards-{self.toolchain.split('-')[0]}"

    @property
    def _program(self) -> Path:
        file = ROOT / f"cmake/toolchains/{self.toolchain}.cmake"
        options = (f"-DCMAKE_TOOLCHAIN_FILE={file}", "-DINTAGLIO_COMPILER=OFF")
        options = (*options, "-DINTAGLIO_ASSUME_ZVFH=ON")  # which qemu 7 has, and cannot tell
        set_up = ["cmake", "-S", ROOT, "-B", self.folder, *options, "-DINTAGLIO_COMPAT=OFF"]
        subprocess.run(set_up, check=True, stdout=subprocess.DEVNULL)
        jobs = str(os.cpu_count() or 1)  # make takes all at once without a number
        make = ["cmake", "--build", self.folder, "-j", jobs, "--target", "bench_repeat"]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        return self.folder / "bench_repeat"

    def prepare(self, graph: Graph, folder: Path, precision: str = "f32") -> Command:
        """Compile a model; the command that runs it."""
        package = folder / "model.itg"
        intaglio.compile(graph, isa=self.isa, precision=precision).save(package)
        system = {"armv7-linux-gnueabihf": "arm-linux-gnueabihf"}.get(
            self.toolchain, self.toolchain
        )
        start = [self.emulator, "-cpu", self.cpu, "-L", f"/usr/{system}", str(self._program)]
        return lambda runs: [*start, str(package), str(runs)]


@dataclass(frozen=True)
class Bare:
    """A project of `intaglio deploy` on an emulated microcontroller."""

    board: str
    cores: tuple[Core, ...]

    @property
    def tools(self) -> dict[str, str]:
        board = boards.load(self.board)
        return {board.compiler: board.compiler_packages, board.qemu: board.qemu_packages}

    def prepare(self, graph: Graph, folder: Path, precision: str = "f32") -> Command:
        """Write and build the project; the command that runs its first test vector."""
        if precision != "f32":
            raise BadInput(f"{precision} is not a precision of projects for {self.board}")
        board, project = boards.load(self.board), Path(tempfile.mkdtemp(dir=folder))
        intaglio.deploy(graph, self.board, project)
        subprocess.run(["make", "-C", project], check=True, stdout=subprocess.DEVNULL)
        start = [board.qemu, *board.qemu_arguments.split()]
        program = str(project / "build/model_run")

        def command(runs: int) -> list[str]:
            arguments = ",".join(f"arg={word}" for word in (program, "-n", str(runs)))
            semihosting = f"enable=on,target=native,{arguments}"
            return [*start, "-semihosting-config", semihosting, "-kernel", program]

        return command


Machine = Linux | Bare
_AARCH64 = {
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "qemu-aarch64": "qemu-user",
}
_ARMV7 = {
    "arm-linux-gnueabihf-gcc": "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross",
    "qemu-arm": "qemu-user",
}
_RISCV64 = {
    "clang-19": "clang-19 lld-19",
    "riscv64-linux-gnu-gcc": "gcc-riscv64-linux-gnu libc6-dev-riscv64-cross",
    "qemu-riscv64": "qemu-user",
}


def _aarch64(isa: str, cpu: str) -> Linux:
    return Linux(isa, "aarch64-linux-gnu", "qemu-aarch64", cpu, _A64_CORES, _AARCH64)


def _riscv64(isa: str, cpu: str) -> Linux:
    cores = (Core("P670", *_RVV, "sifive-p670"),)
    return Linux(isa, "riscv64-linux-gnu", "qemu-riscv64", cpu, cores, _RISCV64)


MACHINES: dict[str, Machine] = {
    "neon": _aarch64("neon", "cortex-a72"),
    "neon-dotprod": _aarch64("neon-dotprod", "cortex-a76"),
    "neon-i8mm": _aarch64("neon-i8mm", "max"),
    "neon-fp16": _aarch64("neon-dotprod-fp16", "cortex-a76"),
    "neon-bf16": _aarch64("neon-i8mm-bf16", "max"),
    "armv7": Linux("armv7", "armv7-linux-gnueabihf", "qemu-arm", "cortex-a7", (), _ARMV7),
    "riscv64": _riscv64("scalar", "rv64"),
    "rvv128": _riscv64("rvv", "rv64,v=true,vlen=128,vext_spec=v1.0"),
    "rvv256": _riscv64("rvv", "rv64,v=true,vlen=256,vext_spec=v1.0"),
    "rvv512": _riscv64("rvv", "rv64,v=true,vlen=512,vext_spec=v1.0"),
    "rvv256-fp16": _riscv64("rvv-fp16", "rv64,v=true,vlen=256,vext_spec=v1.0,Zfh=true"),
    "cortex-m4": Bare("cortex-m4", (Core("M4", "thumbv7em-none-eabihf", "", "cortex-m4"),)),
    "cortex-m55": Bare(
        "cortex-m55", (Core("M55", "thumbv8.1m.main-none-eabihf", "", "cortex-m55"),)
    ),
}
