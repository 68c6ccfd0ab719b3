"""The 64-bit commands of Rockchip's NPU: each sets one register of one block."""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.npu.chips.rockchip.registers import registers

# A word is target << 48 | value << 16 | register. The target is the block's bit, plus 1.
TARGETS = {
    0x101: "PC",
    0x201: "CNA",
    0x401: "CSC",  # between CNA and CORE of RK356x; other registers of RV110x
    0x801: "CORE",
    0x1001: "DPU",
    0x2001: "DPU_RDMA",
    0x4001: "PPU",
    0x8001: "PPU_RDMA",
    0x81: "ENABLE",  # starts the blocks of its mask
    0x41: "SYNC",  # the words before it take effect first
}
NUMBERS = {name: target for target, name in TARGETS.items()}
BLOCKS = {0x01: "CNA", 0x04: "CORE", 0x08: "DPU", 0x10: "DPU_RDMA", 0x20: "PPU", 0x40: "PPU_RDMA"}
ENABLE = 0x0008  # the register of target ENABLE


@dataclass(frozen=True, slots=True)
class Word:
    """One command: set a register of a block."""

    target: int
    register: int
    value: int

    @property
    def block(self) -> str:
        return TARGETS.get(self.target, f"{self.target:#x}")

    @property
    def name(self) -> str:
        """The register's name; unknown ones by their address."""
        if self.block == "ENABLE":
            return "OPERATION_ENABLE"
        found = registers().get((self.block, self.register))
        return found.name if found else f"{self.register:#06x}"

    def fields(self) -> dict[str, int]:
        """The value by fields; one field of all bits if the register is unknown."""
        found = registers().get((self.block, self.register))
        return found.split(self.value) if found else {"value": self.value}

    def encode(self) -> int:
        return self.target << 48 | self.value << 16 | self.register


def decode(word: int) -> Word:
    """A 64-bit command."""
    return Word(word >> 48, word & 0xFFFF, word >> 16 & 0xFFFFFFFF)
