"""What CV18xx cannot compute: results are bytes, and sums and tables are layers of their own."""

from __future__ import annotations

import math

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Node
from intaglio.npu.chips.cv18xx import average
from intaglio.npu.chips.cv18xx.arithmetic import of_convolution, of_sum
from intaglio.npu.chips.cv18xx.matmul import of_matmul
from intaglio.npu.chips.cv18xx.product import of_product
from intaglio.npu.lowering.builder import before_reshapes
from intaglio.ops.quantized import BITS8

MAX_PRODUCTS = (1 << 31) // (255 * 128)  # of bytes whose sum has 32 bits


def why_not(node: Node) -> str | None:
    """Why the TPU does not compute an NPU node as it is; None if it does."""
    kind = node.op.removeprefix("npu.")
    if node.op != "npu.program" and node.outputs[0].dtype not in BITS8:
        return f"its result is {node.outputs[0].dtype}; results are bytes"
    try:
        if kind in ("conv", "depthwise"):
            return _product(node)
        if kind == "pool":
            return _pool(node)
        if kind == "eltwise":
            return _pair(node)
        if kind == "matmul":
            return _matrices(node)
    except BadInput as e:
        return str(e)
    if kind == "lut" and node.inputs[0].dtype not in BITS8:  # type: ignore[union-attr]
        return "tables map bytes"
    return None


def _product(node: Node) -> str | None:
    w, residual, table = node.inputs[1], node.inputs[4], node.inputs[5]
    assert w is not None
    if residual is not None:
        return "it adds a residual; sums are layers of their own"
    if table is not None:
        return "it ends in a table; tables are layers of their own"
    products = math.prod(w.shape[1:])
    if products > MAX_PRODUCTS:
        return f"{products} products are summed up; the sum of {MAX_PRODUCTS} has 32 bits"
    of_convolution(node)
    return _bounds(node)


def _bounds(node: Node, relu: bool = True) -> str | None:
    """Results saturate; those of i8 may be clamped at 0."""
    low, high = dtypes.limits(node.attrs["dtype"])
    given = node.attrs["low"], node.attrs["high"]
    if given in ((low, high), (0, high)) and (relu or given[0] == low):
        return None
    return f"results are clamped to {given[0]} .. {given[1]}; a table does that"


def _pool(node: Node) -> str | None:
    a = node.attrs
    if tuple(a["dilation"]) != (1, 1):
        return f"dilation is {a['dilation']}; pooling windows have no dilation"
    if a["kind"] == "max":
        return _bounds(node, relu=False)
    if a["count_include_pad"] or not any(a["pad"]):
        return "its windows are full; a depthwise convolution does it"
    if any(p >= a["kernel"][i % 2] for i, p in enumerate(a["pad"])):
        return f"padding is {a['pad']}; every window needs a pixel of the map"
    average.table(node)
    return _bounds(node)


def _pair(node: Node) -> str | None:
    for v in node.inputs[:2]:
        if v is not None and before_reshapes(v, lambda u: u.data is not None) is not None:
            return "one operand is a constant; both have to be computed"
    if node.inputs[2] is not None:
        return "it ends in a table; tables are layers of their own"
    if node.attrs["kind"] == "mul":
        of_product(node)
    else:
        of_sum(node)
    return _bounds(node)


def _matrices(node: Node) -> str | None:
    if node.attrs["turned"]:
        return "its second operand is not transposed"
    of_matmul(node)
    return _bounds(node)
