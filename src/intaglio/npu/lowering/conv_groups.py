"""A convolution as a unit takes it, split by groups or output channels where the chip has to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio.ir import Array, Value, constant
from intaglio.npu.lowering.builder import Builder, Refused
from intaglio.npu.ops import concat, conv, depthwise, slice_
from intaglio.targets.chip import Chip

BLOCK = 16  # channels of a part are a multiple of it
NO_ROOM = "of on-chip memory"  # in a refusal, if smaller operands would fit
INSTRUCTION_OVERHEAD = 512  # cycles that one more instruction costs, about


@dataclass(frozen=True)
class Convolution:
    """The operands of npu.conv or npu.depthwise; calling it builds the nodes."""

    x: Value  # N x C x H x W
    w: Array  # i8 (or i16, f16) [OC, IC of the group, KH, KW]
    scale: Array  # f32 [OC]
    bias: Array  # i32 [OC], of floats f32
    residual: Value | None
    groups: int
    attrs: dict[str, Any]

    def __call__(self, make: Builder, chip: Chip, table: Value | None = None) -> Value:
        """One node, or several that are concatenated."""
        channels, (outputs, depth) = self.x.shape[1], self.w.shape[:2]
        if self.groups == 1:
            most = chip.units["conv"].limits.get("channels", outputs)
            if isinstance(most, int) and outputs > most:
                return self._split_outputs(make, chip, table, -(-outputs // -(-outputs // most)))
            return make(conv, self.x, *self._constants(), self.residual, table, **self.attrs)
        if not self.groups == channels == outputs or depth != 1 or "depthwise" not in chip.units:
            return self._split_groups(make, chip, table)
        try:
            return make(depthwise, self.x, *self._constants(), self.residual, table, **self.attrs)
        except Refused as e:
            if NO_ROOM not in str(e):
                raise
            return self._split_channels(make, table, e)

    def _constants(self) -> tuple[Value, Value, Value]:
        w, scale, bias = (np.ascontiguousarray(a) for a in (self.w, self.scale, self.bias))
        return constant(w), constant(scale), constant(bias)

    def _split_groups(self, make: Builder, chip: Chip, table: Value | None) -> Value:
        """Several groups per convolution, with zero weights between different groups."""
        (outputs, depth), joined = self.w.shape[:2], _groups_per_convolution(chip, self)
        results = []
        for i in range(self.groups // joined):
            seen = self._slice(make, self.x, i * depth * joined, depth * joined)
            count = outputs // self.groups * joined
            dense = block_diagonal(self.w[i * count : (i + 1) * count], joined)
            results.append(self._outputs(make, seen, dense, i * count)(make, chip, table))
        return self._concat(make, results)

    def _split_channels(self, make: Builder, table: Value | None, why: Refused) -> Value:
        """The channels of a depthwise convolution in parts whose rows fit in a core's memory."""
        channels = size = self.x.shape[1]
        while size > BLOCK:
            size = -(-size // (2 * BLOCK)) * BLOCK
            try:
                parts = [
                    self._channels(make, table, i, min(size, channels - i))
                    for i in range(0, channels, size)
                ]
                return self._concat(make, parts)
            except Refused:
                continue
        raise why

    def _channels(self, make: Builder, table: Value | None, first: int, count: int) -> Value:
        rows, r = slice(first, first + count), self.residual
        given = [constant(np.ascontiguousarray(a[rows])) for a in (self.w, self.scale, self.bias)]
        r = None if r is None else self._slice(make, r, first, count)
        return make(
            depthwise, self._slice(make, self.x, first, count), *given, r, table, **self.attrs
        )

    def _split_outputs(self, make: Builder, chip: Chip, table: Value | None, size: int) -> Value:
        """`size` output channels per convolution."""
        results = [
            self._outputs(make, self.x, self.w[i : i + size], i)(make, chip, table)
            for i in range(0, self.w.shape[0], size)
        ]
        return self._concat(make, results)

    def _outputs(self, make: Builder, x: Value, w: Array, first: int) -> Convolution:
        """The convolution of some output channels, with weights `w`."""
        rows = slice(first, first + w.shape[0])
        r = None if self.residual is None else self._slice(make, self.residual, first, w.shape[0])
        return Convolution(x, w, self.scale[rows], self.bias[rows], r, 1, self.attrs)

    def _concat(self, make: Builder, made: list[Value]) -> Value:
        if len(made) == 1:
            return made[0]
        return make.channels_on_cpu(*made) if self.attrs["dtype"] == "f32" else make(concat, *made)

    def _slice(self, make: Builder, v: Value, first: int, count: int) -> Value:
        return v if count == v.shape[1] else make(slice_, v, first=first, count=count)


def block_diagonal(w: Array, groups: int) -> Array:
    """The weights of several groups as those of one group, with zeros between different groups."""
    outputs, depth = w.shape[0] // groups, w.shape[1]
    dense = np.zeros((w.shape[0], depth * groups, *w.shape[2:]), w.dtype)
    for g in range(groups):
        rows = slice(g * outputs, (g + 1) * outputs)
        dense[rows, g * depth : (g + 1) * depth] = w[rows]
    return dense


def _groups_per_convolution(chip: Chip, product: Convolution) -> int:
    """The number of groups per convolution that takes the fewest cycles, by the unit's atoms."""
    unit, groups, w = chip.units["conv"], product.groups, product.w
    kind = product.x.dtype
    in_atom, out_atom = unit.in_atom.get(kind, 1), unit.out_atom.get(kind, 1)
    # Pixels of the input stand for those of the result: a stride divides every estimate alike.
    taps = w.shape[2] * w.shape[3] * product.x.shape[2] * product.x.shape[3]

    def cycles(k: int) -> int:
        blocks = -(-k * w.shape[1] // in_atom) * -(-k * (w.shape[0] // groups) // out_atom)
        overhead = INSTRUCTION_OVERHEAD if k < groups else 0
        return int(groups // k * (blocks * taps + overhead))

    return min((k for k in range(1, groups + 1) if groups % k == 0), key=lambda k: (cycles(k), -k))
