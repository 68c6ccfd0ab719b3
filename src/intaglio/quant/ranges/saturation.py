"""Ranges of pre-activations: only the interval in which the activation's result still changes.

Swish is 0 far below 0, and its quantised result saturates at the end of its range, so steps of the
pre-activation outside that interval would be wasted. If a convolution looks up the activation's
table directly with its sums, the index has ten bits, and the rounding error before the activation
is negligible beside the one after it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Node, Value
from intaglio.ops.quantized import MAX_ENTRIES
from intaglio.ops.registry import REGISTRY
from intaglio.quant.placement.formats import USUAL, Formats
from intaglio.quant.placement.place import CLAMPS, Placement, activations, is_function, keeps_scale
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.ranges.affine import affine

GRID = 8192  # points at which a function is evaluated


def narrow_preactivations(
    placement: Placement,
    ranges: Mapping[Value, tuple[float, float]],
    schemes: dict[str, TensorScheme],
    how: Formats = USUAL,
) -> None:
    """Narrow the ranges of tensors between a product and a function, in place, to the interval in
    which the function's quantised result changes."""
    for v in placement.tensors:
        chain = _functions(v, placement)
        if chain and schemes[v.name].dtype in ("i8", "u8"):
            found = _changing(chain, ranges[v], schemes[chain[-1].outputs[0].name])
            step = _step(chain, found, how.table_bits, schemes[chain[-1].outputs[0].name])
            if found is not None and step and _has_sums(v.producer):
                most = step * dtypes.limits("i16")[1]
                schemes[v.name] = TensorScheme("i16", (step,), (0,), lo=-most, hi=most)
            elif found is not None:
                symmetric = placement.nodes[v.producer] in how.symmetric  # type: ignore[index]
                schemes[v.name] = affine(*found, schemes[v.name].dtype, symmetric)


def _step(
    chain: list[Node], found: tuple[float, float] | None, bits: int, after: TensorScheme
) -> float | None:
    """The step with which the range has `bits` bits; None if the table would be too long."""
    if found is None or bits <= 8:
        return None
    step = float(np.float32((found[1] - found[0]) / ((1 << bits) - 2)))
    low, high = dtypes.limits("i16")
    every = np.arange(low, high + 1).astype(np.float32) * np.float32(step)
    changes = np.flatnonzero(np.diff(_stored(_applied(chain, every), after)))
    return step if len(changes) and changes[-1] - changes[0] + 2 <= MAX_ENTRIES else None


def _has_sums(maker: Node | None) -> bool:
    """Is it a convolution that can look up the table with its sums?"""
    return maker is not None and maker.op == "conv" and maker.attrs["groups"] == 1


def _functions(v: Value, placement: Placement) -> list[Node]:
    """The functions that lead from `v` to the next quantised tensor, if nothing else reads `v`."""
    maker = v.producer
    if maker is None or maker not in placement.nodes or keeps_scale(maker) or is_function(maker):
        return []
    chain: list[Node] = []
    while len(v.uses) == 1:
        (reader,) = v.uses
        if reader not in placement.nodes or not is_function(reader):
            return []
        chain.append(reader)
        v = reader.outputs[0]
        if placement.quantized(v):
            return chain if any(n.op not in CLAMPS for n in chain) else []
    return []


def _changing(
    chain: list[Node], observed: tuple[float, float], after: TensorScheme
) -> tuple[float, float] | None:
    """The interval in which the functions' quantised result changes; None: nowhere."""
    grid = np.linspace(*observed, GRID, dtype=np.float32)
    changes = np.flatnonzero(np.diff(_stored(_applied(chain, grid), after)))
    if not len(changes):
        return None  # the result is constant
    return float(grid[changes[0]]), float(grid[changes[-1] + 1])


def _applied(chain: list[Node], x: Array) -> Array:
    for n in chain:
        of = activations(n)[0]
        arrays = [x if v is of else v.data if v is not None else None for v in n.inputs]
        with np.errstate(all="ignore"):
            x = REGISTRY[n.op].body(*arrays, **n.attrs)
    return x


def _stored(x: Array, scheme: TensorScheme) -> Array:
    lo, hi = dtypes.limits(scheme.dtype)
    result: Array = np.clip(np.rint(x / np.float32(scheme.scale[0])) + scheme.zero[0], lo, hi)
    return result
