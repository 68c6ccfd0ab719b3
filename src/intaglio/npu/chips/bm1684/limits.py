"""What the BM1684's encoder does not write: zero points, tables of wide numbers."""

from __future__ import annotations

import math

from intaglio.errors import BadInput, option
from intaglio.ir import Node, Value
from intaglio.npu.chips.bm1684.arithmetic import of_convolution, of_mean, of_scaled, of_sum
from intaglio.npu.chips.shifted_maps import ZEROS, copies
from intaglio.npu.lowering.builder import before_reshapes
from intaglio.ops.quantized import BITS8

MAX_PRODUCTS = (1 << 31) // (255 * 128)  # of bytes whose sum has 32 bits
HALF = {"i8": (0, -128), "u8": (0, 128)}  # zero points of maps that may be stored around 0


def why_not(node: Node) -> str | None:
    """Why the encoder writes no commands for an NPU node as it is; None if it does."""
    kind = node.op.removeprefix("npu.")
    if node.op != "npu.program" and node.outputs[0].dtype not in BITS8:
        return f"its result is {node.outputs[0].dtype}; results are bytes"
    if found := _zero(node):
        return found
    try:
        if kind in ("conv", "depthwise"):
            return _product(node)
        if kind == "pool":
            return _pool(node)
        if kind == "eltwise":
            return _pair(node)
    except BadInput as e:
        return str(e)
    if kind == "lut":
        return _table(node)
    if kind in ("matmul", "depth_to_space"):
        return f"{kind} has no commands yet"
    return None


def _zero(node: Node) -> str | None:
    """Maps have no zero points; those of i8 around -128 become u8."""
    found: list[tuple[Value, int]] = []
    for i, v in enumerate(node.inputs):
        name = ZEROS.get((node.op, i))
        if v is not None and name in node.attrs and node.op != "npu.lut":
            found.append((v, node.attrs[name]))
    if "y_zero" in node.attrs and not copies(node):
        found.append((node.outputs[0], node.attrs["y_zero"]))
    for v, zero in found:
        if zero not in HALF.get(v.dtype, (0,)):
            return (
                f"a map of {v.dtype} has the zero point {zero}; the chip has none but 0, and -128 "
                f"of i8: quantise for {option('target', 'bm1684')}"
            )
    return None


def _product(node: Node) -> str | None:
    w, residual, table = node.inputs[1], node.inputs[4], node.inputs[5]
    assert w is not None
    if residual is not None:
        return "it adds a residual; sums are layers of their own"
    if table is not None:
        return "it ends in a table; tables are layers of their own"
    if (products := math.prod(w.shape[1:])) > MAX_PRODUCTS:
        return f"{products} products are summed up; the sum of {MAX_PRODUCTS} has 32 bits"
    of_convolution(node)
    return None


def _table(node: Node) -> str | None:
    x, table = node.inputs[:2]
    assert x is not None
    assert table is not None
    if x.dtype not in BITS8:
        return f"it looks up {x.dtype}; tables map bytes"
    return None


def _pool(node: Node) -> str | None:
    a = node.attrs
    if tuple(a["dilation"]) != (1, 1):
        return f"dilation is {a['dilation']}; pooling windows have no dilation"
    if a["kind"] == "max":
        return None
    if any(a["pad"]) and not a["count_include_pad"]:
        return "its windows at the border have fewer pixels; all need as many"
    of_mean(node)
    return None


def _pair(node: Node) -> str | None:
    a, b = node.inputs[:2]
    assert a is not None
    assert b is not None
    product = node.attrs["kind"] == "mul"
    if node.inputs[2] is not None:
        return "it ends in a table; tables are layers of their own"
    one_pixel = product and b.shape == (*a.shape[:2], 1, 1)
    if not (a.shape == b.shape or one_pixel) or b.dtype not in BITS8:
        return f"its operands are {a.type} and {b.type}; equal shapes of bytes are needed"
    if any(before_reshapes(v, lambda u: u.data is not None) is not None for v in (a, b)):
        return "one operand is a constant; both have to be computed"
    if not product:
        of_sum(node)
        return None
    of_scaled(node)
    signs = [
        _signed(v.dtype, node.attrs[k])
        for v, k in ((a, "a_zero"), (b, "b_zero"), (node.outputs[0], "y_zero"))
    ]
    return "products without negative numbers make i8" if signs == [False, False, True] else None


def _signed(dtype: str, zero: int) -> bool:
    """Whether the file stores a map as i8."""
    return (dtype, zero) in (("i8", 0), ("u8", 128))
