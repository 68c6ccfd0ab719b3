"""What differs between the chips of the family: sizes, addresses and conventions of commands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variant:
    """A chip of the family. Sizes are in bytes."""

    name: str
    title: str  # in files
    lanes: int
    eu_bytes: int  # a vector of the execution units; planes start at multiples of it
    lane_bytes: int  # local memory of a lane
    inputs_at_once: int  # input channels that a lane multiplies at once
    scale_step: int  # from the scale of one channel to that of the next in its lane
    zero_first: bool  # whether a dequantising command takes its zero point before its scale
    signs_results: bool  # whether windowed commands say that their result has a sign
    rounds: bool  # whether windowed commands add a bias and may round their sums
    pool_indices: bool  # whether max pooling also writes the positions, as 16-bit numbers
    local: int  # where local memory begins for the DMA engine
    coefficients: int  # where coefficients begin in a file's addresses
    neurons: int  # where inputs, outputs and maps begin; 0: behind the coefficients
    l2: int = 0  # memory near all cores, as the DMA engine sees it
    l2_bytes: int = 0
    high_bits: int = 8  # of an address behind its lower 32
    broadcast: str = "sCW&sBC"  # the command that copies a channel to all lanes
    waits: int = 0  # a bit of a dependency that says that there is one
    first_message: int = 0  # of two numbers that barriers of several cores use in turn
    message_bits: int = 8  # of a message in a DMA command; how many are expected follows
    weight_zeros: bool = False  # whether convolutions subtract a zero point from weights
    weight_types: bool = False  # whether convolutions of floats name the types of weights and bias
    by_core: bool = False  # whether a file has its commands core by core

    def aligned(self, size: int) -> int:
        """Bytes of a plane, rounded up to whole vectors."""
        return -(-size // self.eu_bytes) * self.eu_bytes

    def blocks(self, channels: int) -> int:
        """Channels that share a lane."""
        return -(-channels // self.lanes)


BM1684X = Variant(
    name="bm1684x",
    title="BM1684X",
    lanes=64,
    eu_bytes=64,
    lane_bytes=256 << 10,
    inputs_at_once=64,
    scale_step=64,
    zero_first=True,
    signs_results=False,
    rounds=False,
    pool_indices=False,
    local=0x0800_0000,
    coefficients=0x1_0000_0000,
    neurons=0,
    l2=0x1000_0000,
    l2_bytes=2 << 20,
    broadcast="sTRANS&sBC",
    weight_zeros=True,
)
BM1688 = Variant(
    name="bm1688",
    title="BM1688",
    lanes=32,
    eu_bytes=16,
    lane_bytes=128 << 10,
    inputs_at_once=32,
    scale_step=8,
    zero_first=False,
    signs_results=True,
    rounds=True,
    pool_indices=True,
    local=0,
    coefficients=0x90_0000_0000,
    neurons=0xA0_0000_0000,
    first_message=30,
)
SG2260 = Variant(
    name="sg2260",
    title="BM1690",
    lanes=64,
    eu_bytes=64,
    lane_bytes=256 << 10,
    inputs_at_once=64,
    scale_step=8,
    zero_first=False,
    signs_results=True,
    rounds=True,
    pool_indices=True,
    local=31 << 40,
    coefficients=1 << 40,
    neurons=2 << 40,
    l2=30 << 40 | 0x69_8000_0000,
    l2_bytes=128 << 20,
    high_bits=13,
    waits=1 << 20,
    message_bits=9,
    weight_types=True,
    by_core=True,
)
VARIANTS = {v.name: v for v in (BM1684X, BM1688, SG2260)}
