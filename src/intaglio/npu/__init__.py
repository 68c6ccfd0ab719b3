"""Programs for NPUs: cut into tiles that fit the chip's memory, scheduled, and encoded."""

from intaglio.npu.compile import Compiled, build, compile_programs
from intaglio.npu.isa import Program, disassemble

__all__ = ["Compiled", "Program", "build", "compile_programs", "disassemble"]
