"""Numbers of the NPU's registers from the real factors, zero points and bounds of layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Node
from intaglio.npu.chips.rockchip.geometry import Added, Table
from intaglio.npu.chips.rockchip.scaling import factors, half_even, mantissa
from intaglio.npu.chips.rockchip.wide_weights import whole_weights

I32 = dtypes.limits("i32")
LOW, HIGH = dtypes.limits("i8")
UNIT_BITS = 14  # of the factor of the map with the larger step in a sum
CUT_BITS = 10  # a bias may lose 1 / 1024 where a sum would have 33 bits
MOST_ENTRIES = 1025  # of both tables


@dataclass(frozen=True, slots=True)
class Bounds:
    """A relu on sums before their last scale, and its upper end there; 0: it has none."""

    relu: bool = False
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Product:
    """A convolution's numbers; weights are without their zero points."""

    weights: Array
    bias: Array
    multipliers: Array
    scale: int
    shift: int
    bounds: Bounds
    added: Added | None = None
    table: Table | None = None


def of_convolution(node: Node) -> Product:
    """The numbers of npu.conv or npu.depthwise; BadInput if the unit has none for them."""
    a = node.attrs
    scale, bias = (v.data for v in node.inputs[2:4] if v is not None)
    assert scale is not None
    assert bias is not None
    if (scale == 0).any():
        raise BadInput("a scale is 0; scales are other numbers")
    # a negative scale turns the sign of its channel's weights: the unit's are above 0
    sign = np.where(scale < 0, -1, 1)
    weights = whole_weights(node) * sign.reshape(-1, 1, 1, 1).astype(np.int16)
    multipliers, factor, shift = factors(np.abs(scale.astype(np.float64)))
    total = _bias(node, weights, bias.astype(np.int64) * sign)
    table = node.inputs[5]
    if table is not None:
        assert table.data is not None
        made = of_table(table.data, a["base"] - a["y_zero"], a["low"] - a["y_zero"])
        made = Table(made.first, made.entries[: a["high"] - a["y_zero"] - made.first + 1])
        return Product(weights, total, multipliers, factor, shift, Bounds(), table=thinned(made))
    added = None
    if node.inputs[4] is not None:
        real = a["r_factor"] / (factor / 2.0**shift)
        if real <= 0:
            raise BadInput(f"a second map is multiplied by {real:g}")
        added = Added(a["r_zero"], *mantissa(real))
    bounds = of_bounds(node, factor, shift)
    return Product(weights, total, multipliers, factor, shift, bounds, added)


def _bias(node: Node, weights: Array, bias: Array) -> Array:
    """The bias of sums of bytes that keep their zero point; so large that no sum has 33 bits."""
    x, flat = node.inputs[0], weights.reshape(len(weights), -1).astype(np.int64)
    assert x is not None
    zero = node.attrs["x_zero"] - (128 if x.dtype == "u8" else 0)
    total = bias - zero * flat.sum(1)
    most = I32[1] - 128 * np.abs(flat).sum(1)
    if (np.abs(total) > most + (most >> CUT_BITS)).any():
        raise BadInput(f"a bias is as large as {np.abs(total).max()}; sums have 32 bits")
    clipped: Array = np.clip(total, -most, most)
    return clipped


def of_table(entries: Array, first: int, least: int = -(1 << 31)) -> Table:
    """A table of bytes by integers; what is below `least` takes its entry."""
    less = 128 if entries.dtype == np.uint8 else 0
    values = [int(v) - less for v in entries]
    if least > first:
        cut = min(least - first, len(values) - 1)
        values, first = values[cut:], first + cut
    return Table(first, tuple(values))


def thinned(table: Table) -> Table:
    """The table with as few entries as the unit holds: every second one, or every fourth."""
    entries = list(table.entries)
    if len(entries) <= MOST_ENTRIES:
        return table
    bits = (len(entries) - 2) // (MOST_ENTRIES - 1)
    bits = bits.bit_length()
    entries += [entries[-1]] * (-(len(entries) - 1) % (1 << bits))
    return Table(table.first, tuple(entries[:: 1 << bits]), bits)


def looked_up(table: Array, first: int, bits: int, x: Array) -> Array:
    """The bytes of integers; beyond the table are its outermost entries."""
    wide = table.astype(np.int64)
    at = np.clip(x - first, 0, (len(wide) - 1) << bits)
    index, rest = at >> bits, at & (1 << bits) - 1
    step = wide[np.minimum(index + 1, len(wide) - 1)] - wide[index]
    made: Array = (wide[index] + half_even(step * rest, bits)).astype(np.int8)
    return made


def of_bounds(node: Node, scale: int, shift: int) -> Bounds:
    """A relu for the bounds of a node's bytes, on numbers that scale / 2^shift makes bytes."""
    a = node.attrs
    less = 128 if a["dtype"] == "u8" else 0
    low, high, zero = (a[k] - less for k in ("low", "high", "y_zero"))
    relu = low != LOW
    if relu and low != zero:
        raise BadInput(f"results are at least {low} with the zero point {zero}; a relu ends there")
    if high == HIGH:
        return Bounds(relu)
    if low != zero:
        raise BadInput(f"results are clamped to {low} .. {high}; a table does that")
    limit = int((high - zero) * 2.0**shift / scale)
    reached = int(half_even(np.array(limit * scale, np.int64), shift))
    if not 0 < limit <= I32[1] or reached != high - zero:
        raise BadInput(f"results are at most {high}; no number before the last scale gives that")
    return Bounds(True, limit)


@dataclass(frozen=True, slots=True)
class Pair:
    """A sum of two maps in units of the larger one's step / 2^14, or a product of both."""

    multiplies: bool
    a_zero: int
    second: Added
    scale: int
    shift: int
    zero: int
    bounds: Bounds
    a_scale: int = 1  # with `a_shift`: from the first map's bytes to units of the sum
    a_shift: int = 0

    def apply(self, a: Array, b: Array) -> Array:
        """The bytes of the result."""
        left = a.astype(np.int64) - self.a_zero
        wide = (b.astype(np.int64) - self.second.zero) * self.second.scale
        right = half_even(wide, self.second.shift)
        total = (
            left * right
            if self.multiplies
            else half_even(left * self.a_scale, self.a_shift) + right
        )
        if self.bounds.relu:
            total = np.clip(total, 0, self.bounds.limit or None)
        result = half_even(total * self.scale, self.shift) + self.zero
        made: Array = np.clip(result, LOW, HIGH).astype(np.int8)
        return made


def of_pair(node: Node) -> Pair:
    """The numbers of npu.eltwise."""
    a, left, right = node.attrs, node.attrs["a_factor"], node.attrs["b_factor"]
    zeros = a["a_zero"], a["b_zero"]
    if a["kind"] == "mul":
        scale, shift = mantissa(left)
        second = Added(zeros[1], 1, 0)
        bounds = of_bounds(node, scale, shift)
        return Pair(True, zeros[0], second, scale, shift, a["y_zero"], bounds)
    if left <= 0 or right <= 0:
        raise BadInput(f"the factors of a sum are {left:g} and {right:g}; both are above 0")
    largest, one = max(left, right), 1 << UNIT_BITS
    factors_of = [mantissa(f / largest * one) if f < largest else (one, 0) for f in (left, right)]
    scale, shift = mantissa(largest / one)
    second, bounds = Added(zeros[1], *factors_of[1]), of_bounds(node, scale, shift)
    return Pair(False, zeros[0], second, scale, shift, a["y_zero"], bounds, *factors_of[0])
