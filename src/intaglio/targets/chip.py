"""An NPU chip as data: its units, memories and limits, from which everything else follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Unit:
    """One kind of work that a core does, with figures by element type (i8, i16, f16, ...)."""

    name: str  # conv depthwise pool eltwise lut resize matmul copy
    rate: Mapping[str, float]  # products (of a unit without: elements) per cycle
    in_atom: Mapping[str, int] = field(default_factory=dict)  # channels that it reads at once
    out_atom: Mapping[str, int] = field(default_factory=dict)  # channels that it makes at once
    limits: Mapping[str, int] = field(default_factory=dict)  # largest kernel, stride, pad, ...


@dataclass(frozen=True)
class Chip:
    """What there is to know of a chip; `targets/chips/NAME.toml` says it, with its sources."""

    name: str
    title: str
    family: str  # rknpu, kpu, sophgo
    cores: int
    clock: float  # MHz
    sram: int  # bytes of each core's own memory, through which all its work goes
    banks: int  # of that memory
    align: int  # bytes, of every address in it
    shared: int  # bytes of on-chip memory that all cores share; 0: none
    ddr: float  # bytes per nanosecond
    burst: int  # bytes that a transfer from or to outside has at least
    c2: Mapping[str, int]  # channels side by side in a native feature map, by element type
    units: Mapping[str, Unit]
    compatible: str = ""  # chips with the same word run each other's programs
    estimate: bool = False  # some of this is a guess; `sources` says which
    sparse: tuple[str, ...] = ()  # "2:4 in", "2:4 out", "4:16"
    host: float = 10.0  # products per nanosecond of the chip's CPU, for what stays there
    sources: Mapping[str, str] = field(default_factory=dict)  # where each figure is from

    @property
    def types(self) -> tuple[str, ...]:
        """The element types that it multiplies."""
        return tuple(self.units["conv"].rate)
