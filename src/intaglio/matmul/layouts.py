"""Layouts of A, B and C: normal, native to a chip, or transposed.

Normal is [M, K], [K, N] and [M, N]. Native A is [K/s, M, s] and native C [N/s, M, s], in blocks of
s columns. Native B is [N/bn, K/bk, bn, bk]. If the chip splits B into segments of rows, it is one
flat array of all segments. Extents are rounded up and padded with zeros. Transposed B is [N, K].
"""

from __future__ import annotations

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array

LAYOUTS = ("normal", "native", "transposed")


def columns_shape(rows: int, columns: int, side: int) -> tuple[int, int, int]:
    """The shape of a native A or C with blocks of `side` columns."""
    return -(-columns // side), rows, side


def to_columns(x: Array, side: int) -> Array:
    """[rows, columns] -> [columns / side, rows, side]"""
    rows, columns = x.shape
    blocks = -(-columns // side)
    wide = np.zeros((rows, blocks * side), x.dtype)
    wide[:, :columns] = x
    return np.ascontiguousarray(wide.reshape(rows, blocks, side).transpose(1, 0, 2))


def from_columns(x: Array, columns: int) -> Array:
    """[columns / side, rows, side] -> [rows, columns]"""
    return np.ascontiguousarray(x.transpose(1, 0, 2).reshape(x.shape[1], -1)[:, :columns])


def blocks_shape(k: int, n: int, block: tuple[int, int], segment: int) -> tuple[int, ...]:
    """The shape of a native B with blocks of block[0] columns and block[1] rows."""
    parts = [-(-n // block[0]) * -(-rows // block[1]) for rows in _segments(k, segment)]
    if len(parts) > 1:
        return (sum(parts) * block[0] * block[1],)
    return -(-n // block[0]), -(-k // block[1]), *block


def to_blocks(b: Array, block: tuple[int, int], segment: int = 0) -> Array:
    """[K, N] -> [N / bn, K / bk, bn, bk], or a flat array of all segments"""
    k, n = b.shape
    results, first = [], 0
    for rows in _segments(k, segment):
        deep, wide = -(-rows // block[1]), -(-n // block[0])
        whole = np.zeros((deep * block[1], wide * block[0]), b.dtype)
        whole[:rows, :n] = b[first : first + rows]
        split = whole.reshape(deep, block[1], wide, block[0]).transpose(2, 0, 3, 1)
        results.append(np.ascontiguousarray(split))
        first += rows
    return results[0] if len(results) == 1 else np.concatenate([m.reshape(-1) for m in results])


def from_blocks(x: Array, k: int, n: int, block: tuple[int, int], segment: int = 0) -> Array:
    """The inverse of `to_blocks`."""
    flat, result, at = x.reshape(-1), [], 0
    for rows in _segments(k, segment):
        deep, wide = -(-rows // block[1]), -(-n // block[0])
        size = deep * wide * block[0] * block[1]
        part = flat[at : at + size].reshape(wide, deep, *block).transpose(1, 3, 0, 2)
        result.append(part.reshape(deep * block[1], wide * block[0])[:rows, :n])
        at += size
    return np.ascontiguousarray(np.concatenate(result))


def _segments(k: int, segment: int) -> list[int]:
    """The rows of B in each segment."""
    if not segment or k <= segment:
        return [k]
    return [min(segment, k - i) for i in range(0, k, segment)]


def check(array: Array, shape: tuple[int, ...], what: str, layout: str) -> None:
    """BadInput if an array does not have the shape of its layout."""
    if array.shape != shape:
        raise BadInput(
            f"{what} has shape {list(array.shape)}; its {layout} layout is {list(shape)}"
        )
