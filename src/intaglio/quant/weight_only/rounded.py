"""Weights rounded to few bits and kept as floats, as a chip multiplies them with floats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from intaglio.ir import Array, Graph, Node, constant
from intaglio.quant.weight_only.matrix import quantize_matrix
from intaglio.quant.weight_only.weights import constant_matrix
from intaglio.quant.weights import im2col
from intaglio.quant.weights.second_moments import grams

CONVOLUTIONS = ("conv", "conv_transpose")


def rounded_weights(
    graph: Graph,
    dtype: str,
    group: int = 0,
    symmetric: bool = True,
    samples: Sequence[Mapping[str, Array]] = (),
    convolutions: bool = True,
) -> Graph:
    """The graph with the weights of its products on the grid of `dtype`; they stay floats.

    `group` weights of an output share a scale (0: all of them). With `samples`, weights and scales
    are fitted to the layers' outputs.
    """
    result = graph.copy()
    todo = [n for n in result.nodes() if _has_weights(n, convolutions)]
    moments = dict(grams(result, todo, samples)) if samples else {}
    for node in todo:
        parts, gram = im2col.matrix(node), moments.get(node)
        made = [
            _on_grid(part, dtype, group, symmetric, None if gram is None else gram[g])
            for g, part in enumerate(parts)
        ]
        real = im2col.from_matrix(node, np.stack(made))
        name = node.inputs[1].name  # type: ignore[union-attr]  # _has_weights
        result.set_input(node, 1, constant(np.ascontiguousarray(real, np.float32), name))
    return result


def _has_weights(node: Node, convolutions: bool) -> bool:
    if node.op in CONVOLUTIONS and convolutions:
        w = node.inputs[1]
        return w is not None and w.data is not None and w.dtype == "f32" and bool(w.type.size)
    return constant_matrix(node) is not None


def _on_grid(w: Array, dtype: str, group: int, symmetric: bool, gram: Array | None) -> Array:
    """Weights [outputs, inputs] as multiples of their scales."""
    q, scale, zero = quantize_matrix(np.ascontiguousarray(w.T), dtype, group, symmetric, gram)
    numbers = q.astype(np.float32)
    rows = [scale, np.float32(0) if zero is None else zero.astype(np.float32)]
    if group:
        deep = min(group, len(q))
        rows = [r if r.ndim == 0 else np.repeat(r, deep, axis=0)[: len(q)] for r in rows]
    return ((numbers - rows[1]) * rows[0]).T
