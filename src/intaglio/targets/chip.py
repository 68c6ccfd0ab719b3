"""An NPU chip as data: its units, memories and limits, from which everything else follows.

`targets/chips/NAME.toml` says it, and where every figure is from; docs/targets.md explains the
file. A user's own chip is such a file, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Limit = int | tuple[int, ...]  # the largest value, or all that there are
ESTIMATE = "estimate: "  # how the source of a figure begins that nobody states
CHIPS = Path(__file__).parent / "chips"


@dataclass(frozen=True)
class Unit:
    """One kind of work that a core does, with figures by element type (i8, i16, f16, ...)."""

    name: str  # conv depthwise pool eltwise lut resize matmul copy
    rate: Mapping[str, float]  # products (of a unit without: elements) per cycle
    in_atom: Mapping[str, int] = field(default_factory=dict)  # channels that it reads at once
    out_atom: Mapping[str, int] = field(default_factory=dict)  # channels that it makes at once
    limits: Mapping[str, Limit] = field(default_factory=dict)  # of kernel, stride, pad, ...

    def why_not(self, limit: str, value: int) -> str | None:
        """None where the unit can do `value`, else the reason, e.g. of a "kernel" of 13."""
        most = self.limits.get(limit)
        if isinstance(most, tuple):
            words = " or ".join(map(str, most))
            return None if value in most else f"{limit} is {value}; {self.name} does {words}"
        if most is None or value <= most:
            return None
        return f"{limit} is {value}; {self.name} does at most {most}"


@dataclass(frozen=True)
class Products:
    """Matrices A [M, K] and B [K, N] that a chip's runtime multiplies by themselves."""

    types: tuple[str, ...]  # of A, B and the result C: "i8,i8,i32"
    k: Mapping[str, int]  # that K is a multiple of, by the type of A
    n: Mapping[str, int]  # that N is a multiple of
    most_k: Mapping[str, int]  # where K has an end
    most_n: Mapping[str, int]
    a: Mapping[str, int]  # columns of A side by side in its native form
    b: Mapping[str, tuple[int, int]]  # columns and rows of a block of B, by the type of A
    c: Mapping[str, int]  # columns of C side by side, by its type
    segment: int  # rows of B that are arranged together; 0: all
    transposed: bool  # B may come as [N, K]


@dataclass(frozen=True)
class Host:
    """The CPU beside an NPU, for what stays there; rates are what one core does in a cycle."""

    cores: int
    clock: float  # MHz
    products: float  # multiply-accumulates of f32
    arithmetic: float  # elements of sums, comparisons, roundings
    functions: float  # elements of exponentials and the like
    moves: float  # elements that go to another order, or are looked up
    bytes: float  # read or written in order

    def per_ns(self, rate: str) -> float:
        """One of the rates, in nanoseconds instead of cycles."""
        return float(getattr(self, rate)) * self.clock / 1e3


@dataclass(frozen=True)
class Chip:
    """What there is to know of a chip."""

    name: str
    title: str
    family: str  # rknpu, kpu, sophgo
    cores: int
    clock: float  # MHz
    sram: int  # bytes of each core's own memory, through which all its work goes
    banks: int  # of that memory
    align: int  # bytes, of every address in it at which something begins
    shared: int  # bytes of on-chip memory that all cores share; 0: none
    ddr: float  # bytes per nanosecond
    burst: int  # bytes that a transfer from or to outside has at least
    c2: Mapping[str, int]  # channels side by side in a native feature map, by element type
    units: Mapping[str, Unit]
    host: Host
    compatible: str = ""  # chips with the same word run each other's programs
    estimate: bool = False  # the whole chip is a guess; single guesses: `estimates`
    packed: bool = False  # rows of a map touch; only its planes begin at whole addresses
    sparse: tuple[str, ...] = ()  # "2:4 in", "2:4 out", "4:16"
    timing: Mapping[str, float] = field(default_factory=dict)  # of the cycle model
    matmul: Products | None = None  # None: its runtime has no products by themselves
    sources: Mapping[str, str] = field(default_factory=dict)  # where each figure is from

    @property
    def types(self) -> tuple[str, ...]:
        """The element types that it multiplies; u8 works wherever i8 does."""
        return tuple(t for t in self.units["conv"].rate if t != "u8")

    @property
    def estimates(self) -> tuple[str, ...]:
        """The figures that no source states."""
        return tuple(k for k, v in self.sources.items() if v.startswith(ESTIMATE))

    def tops(self, dtype: str = "i8") -> float:
        """Peak of all cores in 10^12 operations per second; a product with its sum counts as 2."""
        return 2e-6 * self.units["conv"].rate.get(dtype, 0) * self.clock * self.cores


def names() -> tuple[str, ...]:
    """The chips that come with Intaglio."""
    return tuple(sorted(p.stem for p in CHIPS.glob("*.toml")))


def load(name: str | Path) -> Chip:
    """The chip called `name`, or the one that a TOML file describes."""
    from intaglio.errors import BadInput
    from intaglio.targets import chipfile

    if isinstance(name, Path) or name.endswith(".toml"):
        return chipfile.read(Path(name))
    if name not in names():
        raise BadInput(
            f"no chip is called '{name}'; known are {', '.join(names())}, "
            "and any TOML file that describes one"
        )
    return chipfile.read(CHIPS / f"{name}.toml")
