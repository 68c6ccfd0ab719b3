"""A chip with an NPU as data: units, memories, limits and the constants of its performance model.

`targets/chips/NAME.toml` holds the figures with their sources; docs/targets.md explains the file.
Users can describe their own chip in such a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Limit = int | tuple[int, ...]  # the largest value, or all allowed values
ESTIMATE = "estimate: "  # prefix of the source of a figure that no document states
CHIPS = Path(__file__).parent / "chips"


@dataclass(frozen=True)
class Unit:
    """A functional unit of a core, with figures by element type (i8, i16, f16, ...)."""

    name: str  # conv depthwise pool eltwise lut resize depth_to_space matmul copy
    rate: Mapping[str, float]  # products per cycle, or elements if it multiplies none
    in_atom: Mapping[str, int] = field(default_factory=dict)  # input channels per step
    out_atom: Mapping[str, int] = field(default_factory=dict)  # output channels per step
    limits: Mapping[str, Limit] = field(default_factory=dict)  # of kernel, stride, pad, ...

    def why_not(self, limit: str, value: int) -> str | None:
        """None if `value` is within the limit, else the reason, e.g. for a "kernel" of 13."""
        most = self.limits.get(limit)
        if isinstance(most, tuple):
            words = " or ".join(map(str, most))
            return None if value in most else f"{limit} is {value}; {self.name} does {words}"
        if most is None or value <= most:
            return None
        return f"{limit} is {value}; {self.name} does at most {most}"


@dataclass(frozen=True)
class Products:
    """The standalone matrix products A [M, K] times B [K, N] of a chip's runtime."""

    types: tuple[str, ...]  # types of A, B and the result C: "i8,i8,i32"
    k: Mapping[str, int]  # K is a multiple of this, by the type of A
    n: Mapping[str, int]  # N is a multiple of this
    most_k: Mapping[str, int]  # limit of K, if it has one
    most_n: Mapping[str, int]
    a: Mapping[str, int]  # columns per block of A in its native layout
    b: Mapping[str, tuple[int, int]]  # columns and rows per block of B, by the type of A
    c: Mapping[str, int]  # columns per block of C, by its type
    segment: int  # rows of B per segment of its native layout; 0: all
    transposed: bool  # B may be given as [N, K]


@dataclass(frozen=True)
class Host:
    """The CPU of the chip, which runs all ops that the NPU cannot; rates are per core and cycle."""

    cores: int
    clock: float  # MHz
    products: float  # multiply-accumulates of f32
    arithmetic: float  # elements of additions, comparisons, roundings
    functions: float  # elements of exponentials and similar functions
    moves: float  # elements of transposes, gathers and lookups
    bytes: float  # read or written sequentially

    def per_ns(self, rate: str) -> float:
        """One of the rates per nanosecond instead of per cycle."""
        return float(getattr(self, rate)) * self.clock / 1e3


@dataclass(frozen=True)
class Chip:
    """All figures of a chip."""

    name: str
    title: str
    family: str  # rknpu, kpu, sophgo
    cores: int
    clock: float  # MHz
    sram: int  # bytes of each core's own memory, which holds all operands of its units
    banks: int  # banks of that memory
    align: int  # bytes: alignment of operands in that memory
    shared: int  # bytes of on-chip memory shared by all cores; 0: none
    ddr: float  # bytes per nanosecond
    burst: int  # bytes: smallest transfer from or to DDR
    c2: Mapping[str, int]  # channels per block of a native feature map, by element type
    units: Mapping[str, Unit]
    host: Host
    compatible: str = ""  # chips with the same word run the same programs
    only_shifts: bool = False  # sums are only shifted to the right, and maps have no zero points
    file: str = ""  # the vendor's model file that Intaglio writes: kmodel, bmodel, cvimodel, rkjob
    estimate: bool = False  # all figures are estimates; for single ones see `estimates`
    packed: bool = False  # rows of a map are contiguous; only its planes are aligned
    sparse: tuple[str, ...] = ()  # "2:4 in", "2:4 out", "16:4"
    timing: Mapping[str, float] = field(default_factory=dict)  # constants of the performance model
    matmul: Products | None = None  # None: its runtime has no standalone matrix products
    sources: Mapping[str, str] = field(default_factory=dict)  # the source of each figure

    @property
    def types(self) -> tuple[str, ...]:
        """The element types that it multiplies, without u8, which works wherever i8 does."""
        return tuple(t for t in self.units["conv"].rate if t != "u8")

    @property
    def estimates(self) -> tuple[str, ...]:
        """The figures that are estimates."""
        return tuple(k for k, v in self.sources.items() if v.startswith(ESTIMATE))

    def tops(self, dtype: str = "i8") -> float:
        """Peak of all cores in 10^12 operations per second; a multiply-accumulate counts as 2."""
        return 2e-6 * self.units["conv"].rate.get(dtype, 0) * self.clock * self.cores


def names() -> tuple[str, ...]:
    """The names of the chips that come with Intaglio."""
    return tuple(sorted(p.stem for p in CHIPS.glob("*.toml")))


def load(name: str | Path) -> Chip:
    """The chip of this name (RK3588 is rk3588), or the one that a TOML file describes."""
    from intaglio.errors import BadInput, did_you_mean
    from intaglio.targets import chipfile

    if isinstance(name, Path) or name.endswith(".toml"):
        return chipfile.read(Path(name))
    if name.lower() in names():
        return chipfile.read(CHIPS / f"{name.lower()}.toml")
    if hint := did_you_mean(name, names(), 3):
        raise BadInput(f"no chip is called '{name}'{hint}")
    raise BadInput(
        f"no chip is called '{name}'; known are {', '.join(names())}; "
        "or give a TOML file that describes one"
    )
