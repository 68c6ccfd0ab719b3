"""Sparse constants as dense arrays.

The schema lists the axes in traversal order, block axes included. Each axis is dense, or CSR: the
indices of row p are `indices[segments[p] : segments[p + 1]]`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio.ir import Array

VECTORS = {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"}  # SparseIndexVector of the schema
MAX_ELEMENTS = 1 << 28  # of a dense tensor


def densified(tflite: Any, s: Any, values: Array, shape: tuple[int, ...]) -> Array:
    """The dense array of a sparsity table and its stored values; ValueError if damaged."""
    order = [int(s.TraversalOrder(i)) for i in range(s.TraversalOrderLength())]
    blocks = [int(s.BlockMap(i)) for i in range(s.BlockMapLength())]
    rank, total = len(shape), math.prod(shape)
    if sorted(order) != list(range(rank + len(blocks))) or s.DimMetadataLength() != len(order):
        raise ValueError(f"a sparse tensor walks the axes {order} of {rank} and {len(blocks)}")
    if any(not 0 <= b < rank for b in blocks) or len(set(blocks)) != len(blocks):
        raise ValueError(f"a sparse tensor has blocks along {blocks}")
    if not 0 <= total <= MAX_ELEMENTS:
        raise ValueError(f"a sparse tensor of shape {shape} is too large")
    sizes = {a: int(s.DimMetadata(i).DenseSize()) for i, a in enumerate(order)}
    of_block = {b: sizes[rank + i] for i, b in enumerate(blocks)}
    node = np.zeros(1, np.int64)  # index of every path on the current level
    at: dict[int, Array] = {}
    for i, axis in enumerate(order):
        level = s.DimMetadata(i)
        if level.Format() == 0:
            size = sizes[axis]
            if size < 1 or node.size * size > max(total, 1):
                raise ValueError(f"axis {axis} of a sparse tensor is {size} long")
            parent = np.repeat(np.arange(node.size), size)
            index = np.tile(np.arange(size), node.size)
            node = node[parent] * size + index
        else:
            segments = _vector(tflite, level.ArraySegments, level.ArraySegmentsType())
            indices = _vector(tflite, level.ArrayIndices, level.ArrayIndicesType())
            parent, node = _children(node, segments, len(indices), total)
            index = indices[node]
        at = {a: v[parent] for a, v in at.items()}
        at[axis] = index
    if node.size != values.size or (node.size and node.max() >= values.size):
        raise ValueError(f"a sparse tensor has {values.size} values; {node.size} are needed")
    place = []
    for d in range(rank):
        inner = at[rank + blocks.index(d)] if d in of_block else 0
        full = at[d] * of_block.get(d, 1) + inner
        if full.size and not 0 <= full.min() <= full.max() < shape[d]:
            raise ValueError(f"an index of a sparse tensor is outside of axis {d} of {shape}")
        place.append(full)
    result = np.zeros(shape, values.dtype)
    result[tuple(place)] = values[node]
    return result


def _children(node: Array, segments: Array, count: int, total: int) -> tuple[Array, Array]:
    """For all entries of the rows `node`: the path that they continue, and their indices."""
    if node.size and node.max() + 1 >= segments.size:
        raise ValueError("a sparse tensor has too few segments")
    first, last = segments[node], segments[node + 1]
    lengths = last - first
    if (lengths < 0).any() or first.min(initial=0) < 0 or last.max(initial=0) > count:
        raise ValueError("the segments of a sparse tensor do not increase")
    if int(lengths.sum()) > total:
        raise ValueError("a sparse tensor has more entries than elements")
    parent = np.repeat(np.arange(node.size), lengths)
    start = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return parent, np.repeat(first, lengths) + np.arange(int(lengths.sum())) - start


def _vector(tflite: Any, get: Any, kind: int) -> Array:
    table = get()
    if table is None or kind not in VECTORS:
        raise ValueError("a sparse axis has no segments or indices")
    result = getattr(tflite, VECTORS[kind])()
    result.Init(table.Bytes, table.Pos)
    if not result.ValuesLength():
        return np.zeros(0, np.int64)
    found: Array = result.ValuesAsNumpy()
    return found.astype(np.int64)
