"""Packed weight matrices: panels of 16 columns, in which a kernel reads each row at once.

A bf16 matrix has its rows in pairs, because one instruction multiplies and adds two of them.
"""

from __future__ import annotations

import math

import numpy as np

from intaglio import heap, ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.ops.registry import op
from intaglio.targets.cpu.epilogue import HALVES

Ints = tuple[int, ...]
PANEL = 16  # columns per panel of a packed matrix, on every ISA; a test compares the kernel table


def _pack_type(b: Value, *, tile: int, transposed: bool) -> Type:
    if b.type.rank < 2 or tile < 1:
        raise BadInput(f"cpu.pack takes a matrix or a batch of them, not {b.type}")
    k, n = b.shape[-2:] if not transposed else b.shape[:-3:-1]
    return Type(b.dtype, (*b.shape[:-2], -(-n // tile), k, tile))


@op(_pack_type, name="cpu.pack")
def pack(b: Array, *, tile: int, transposed: bool = False) -> Array:
    """Pack a matrix [k, n] (`transposed`: [n, k]) into panels of `tile` columns, padded with 0."""
    batch = b.shape[:-2]
    flat = b.reshape(math.prod(batch), *b.shape[-2:])
    result = in_panels(flat if transposed else np.swapaxes(flat, 1, 2), tile)
    return result.reshape(*batch, *result.shape[1:])


def in_panels(columns: Array, tile: int) -> Array:
    """[batch, n, k..], of any strides, as [batch, panels, k.., tile], with a single copy.

    The last panel is padded with 0.
    """
    batch, n, *deep = columns.shape
    full, left = divmod(n, tile)
    result = heap.package_array((batch, -(-n // tile), *deep, tile), columns.dtype)
    whole = columns[:, : n - left].reshape(batch, full, tile, *deep)
    result[:, :full] = np.moveaxis(whole, 2, -1)
    if left:
        result[:, full, ..., :left] = np.moveaxis(columns[:, n - left :], 1, -1)
        result[:, full, ..., left:] = 0
    return result


def packed_window(w: Array, groups: int, tile: int = PANEL) -> Array:
    """Weights [m, channel, window..] as cpu.pack of [groups, m, window * channel], transposed."""
    per, deep, taps = w.shape[0] // groups, w.shape[1], math.prod(w.shape[2:])
    result = in_panels(w.reshape(groups, per, deep, taps).swapaxes(2, 3), tile)
    return result.reshape(*result.shape[:2], taps * deep, tile)


def in_pairs(b: Value) -> Value:
    """Interleave the rows of a packed matrix: [.., panels, k, tile] -> [.., panels, k / 2, tile *
    2].

    One instruction multiplies and adds such pairs of bf16.
    """
    *lead, k, tile = b.shape
    axes = tuple(range(len(lead)))
    split = ops.reshape(b, shape=(*lead, k // 2, 2, tile))
    transposed = ops.transpose(split, perm=(*axes, len(axes), len(axes) + 2, len(axes) + 1))
    result: Value = ops.reshape(transposed, shape=(*lead, k // 2, 2 * tile))
    return result


def unpack(b: Array, k: int, n: int) -> Array:
    """The first n columns of a packed matrix of k rows, interleaved in pairs or not."""
    *batch, panels, rows, wide = b.shape
    pair = 1 if rows == k else 2
    split = b.reshape(*batch, panels, rows, wide // pair, pair)
    flat = np.moveaxis(split, -1, -2).reshape(*batch, panels, k, wide // pair)
    return np.swapaxes(flat, -2, -3).reshape(*batch, k, panels * (wide // pair))[..., :n]


def packed_shape(dtype: str, k: int, n: int) -> Ints:
    """The last axes of a packed k x n matrix."""
    pair = 2 if dtype == "bf16" else 1
    if dtype in HALVES and k % 2:
        raise BadInput(f"{dtype} is multiplied in pairs along k, which is {k}")
    return -(-n // PANEL), k // pair, PANEL * pair
