"""Tensors of a network as maps of bytes, and the ports of a file."""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.ir import Node, Value


@dataclass(slots=True)
class Map:
    """The u8 value of a tensor. `pick`: the pooling mode that still has to halve it, or 0.

    A tensor smaller than 4x4 is the top left `part` of a map that the KPU can read.
    """

    value: Value
    pick: int = 0
    part: tuple[int, int] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        n, c, h, w = self.value.shape
        return (n, c, *(self.part or ((h // 2, w // 2) if self.pick else (h, w))))


@dataclass(slots=True)
class Port:
    """An input or output of the file: real = scale * (byte - zero)."""

    name: str
    shape: tuple[int, ...]
    scale: float
    zero: int
    value: Value


def part_of(node: Node, value: Value, pick: int = 0) -> tuple[int, int] | None:
    """The size of a node's result, if its map is larger."""
    shape = node.outputs[0].shape
    if len(shape) != 4 or shape[2:] == Map(value, pick).shape[2:]:
        return None
    return shape[2], shape[3]
