"""Precisions of a target: types, scales and cost of layers, as data for the quantiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from intaglio import dtypes
from intaglio.ir import Node

GRAINS = ("tensor", "channel", "group")  # the elements that share a scale
NAMES = {"i8": "int8", "u8": "uint8", "i16": "int16", "u16": "uint16", "i4": "int4", "u4": "uint4"}


def anything(node: Node) -> str | None:
    """The limits of a precision without limits."""
    return None


@dataclass(frozen=True)
class Stored:
    """Storage of quantised numbers that a chip supports: types and scale sharing, best first."""

    types: tuple[str, ...]
    zeros: bool = False  # whether zero points other than 0 (asymmetric quantisation) are supported
    grains: tuple[str, ...] = ("tensor",)
    # whether the zero point of tensors without negative numbers may be the lowest number
    one_sided: bool = False

    def why_not(self, dtype: str, zeros: bool = False, grain: str = "tensor") -> str | None:
        """None if the storage is supported; otherwise the reason, with what is supported."""
        if dtype not in self.types:
            return f"of {name_of(dtype)}; it takes {', '.join(map(name_of, self.types))}"
        if zeros and not self.zeros and dtypes.is_integer(dtype):
            return "with zero points; it takes symmetric ones"
        if grain not in self.grains:
            return f"with a scale per {grain}; it takes one per {' or '.join(self.grains)}"
        return None


@dataclass(frozen=True)
class Precision:
    """A precision in which a chip computes layers."""

    name: str  # int8, int16, f32, f16, bf16
    tensors: Stored  # activations
    weights: Stored
    cost: float = 1.0  # time of a multiplication, relative to the chip's first precision
    float_results: bool = True  # integer sums can be converted to f32 directly
    adds_residuals: bool = True  # a convolution adds a residual to its sums, before it rounds
    table_bits: int = 8  # of the index into an activation table in an epilogue
    why_not: Callable[[Node], str | None] = anything  # None: it can compute this node
    cost_of: Callable[[Node], float | None] | None = None  # for single nodes; None: `cost`

    def takes(self, node: Node) -> float:
        """The relative time of one multiplication of this node."""
        own = self.cost_of(node) if self.cost_of else None
        return self.cost if own is None else own

    @property
    def is_float(self) -> bool:
        return dtypes.is_float(self.tensors.types[0])


def floats(
    name: str, cost: float, cost_of: Callable[[Node], float | None] | None = None
) -> Precision:
    """A float precision, named after its type."""
    return Precision(name, Stored((name,)), Stored((name,)), cost, cost_of=cost_of)


def name_of(dtype: str) -> str:
    """The name of an element type in options and messages."""
    return NAMES.get(dtype, dtype)
