"""What a chip computes layers in: types, scales and cost, as data that the quantiser asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from intaglio import dtypes
from intaglio.ir import Node

GRAINS = ("tensor", "channel", "group")  # what shares a scale
NAMES = {"i8": "int8", "u8": "uint8", "i16": "int16", "u16": "uint16", "i4": "int4", "u4": "uint4"}


def anything(node: Node) -> str | None:
    """Every node can be computed so."""
    return None


@dataclass(frozen=True)
class Stored:
    """How a chip takes numbers: the types, and what may share a scale; the usual ones first."""

    types: tuple[str, ...]
    zeros: bool = False  # may any number stand for 0, or must it be the middle one (symmetric)?
    grains: tuple[str, ...] = ("tensor",)

    def why_not(self, dtype: str, zeros: bool = False, grain: str = "tensor") -> str | None:
        """None where numbers can be taken so; else what can be, in words."""
        if dtype not in self.types:
            return f"of {name_of(dtype)}; it takes {', '.join(map(name_of, self.types))}"
        if zeros and not self.zeros and dtypes.is_integer(dtype):
            return "with zero points; it takes symmetric ones"
        if grain not in self.grains:
            return f"with a scale per {grain}; it takes one per {' or '.join(self.grains)}"
        return None


@dataclass(frozen=True)
class Precision:
    """One way in which a chip computes a layer."""

    name: str  # int8, int16, f32, f16, bf16
    tensors: Stored  # activations
    weights: Stored
    cost: float = 1.0  # time of a multiplication, beside that of the chip's first precision
    float_results: bool = True  # sums of integers can become f32 at once
    table_bits: int = 8  # of the sums by which a convolution's end looks a function up
    why_not: Callable[[Node], str | None] = anything  # None: it computes this node so
    cost_of: Callable[[Node], float | None] | None = None  # of a node's own; None: the usual cost

    def takes(self, node: Node) -> float:
        """Time of one of the node's multiplications."""
        own = self.cost_of(node) if self.cost_of else None
        return self.cost if own is None else own

    @property
    def is_float(self) -> bool:
        return dtypes.is_float(self.tensors.types[0])


def floats(
    name: str, cost: float, cost_of: Callable[[Node], float | None] | None = None
) -> Precision:
    """A precision of floats: no scales, and the name is that of the type."""
    return Precision(name, Stored((name,)), Stored((name,)), cost, cost_of=cost_of)


def name_of(dtype: str) -> str:
    """What users call an element type."""
    return NAMES.get(dtype, dtype)
