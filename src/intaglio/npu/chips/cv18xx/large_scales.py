"""Convolutions whose sums are multiplied by more than 1, which the TPU does not do.

Such a layer rounds to a step as large as its largest scale demands, and a table of bytes makes its
own bytes of them. Results of channels with a smaller scale are up to one unit further away.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Graph, Node, Value, constant
from intaglio.npu.lowering.builder import data, integer, scale_of
from intaglio.ops.quantized import BITS8

MOST_SCALE = 2.0  # with it, results are multiples of two units
MARGIN = 1 + 1e-6  # so that no quotient is rounded above 1


def split_large_scales(graph: Graph) -> None:
    """Follow these convolutions by tables."""
    for node in list(graph.nodes()):
        if node.op == "qlinear_conv" and 1 < (largest := _largest_scale(node)) <= MOST_SCALE:
            graph.replace(node.outputs[0], _with_table(node, largest * MARGIN))


def _largest_scale(node: Node) -> float:
    """The largest number that sums are multiplied by; 0: the layer is another kind."""
    _, xs, _, w, ws, _, ys, _, _, residual = (*node.inputs, None, None)[:10]
    if ys is None or residual is not None or node.outputs[0].dtype not in BITS8:
        return 0.0
    if xs is None or ws is None or w is None or w.data is None:
        return 0.0
    scales = scale_of(xs) * np.abs(data(ws).astype(np.float64)) / scale_of(ys)
    return float(scales.max()) if np.isfinite(scales).all() else 0.0


def _with_table(node: Node, step: float) -> Value:
    """The convolution with results of `step` units, and the table that makes units of them."""
    given: list[Any] = list(node.inputs)
    out, ys, yz = node.outputs[0], given[6], given[7]
    low, high = dtypes.limits(out.dtype)
    zero = integer(yz)
    coarse = low + round((zero - low) / step)
    given[6] = constant(np.asarray(data(ys) * np.float32(step), np.float32))
    given[7] = constant(
        np.full(data(yz).shape if yz is not None else (), coarse, dtypes.numpy_of(out.dtype))
    )
    made = ops.qlinear_conv(*given, **node.attrs)
    made.producer.origin, made.name = node.origin, f"{out.name}_coarse" if out.name else ""
    numbers = np.arange(low, high + 1)
    fine = np.clip(np.rint((numbers - coarse) * step) + zero, low, high)
    table = np.zeros(256, dtypes.numpy_of(out.dtype))
    table[numbers & 255] = fine
    found: Value = ops.lookup(made, constant(table))
    found.producer.origin = node.origin  # type: ignore[union-attr]
    return found
