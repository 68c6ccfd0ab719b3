"""Constants and neighbours of quantised nodes, in the form that the KPU reads."""

from __future__ import annotations

import math

import numpy as np

from intaglio.ir import Array, Node, Value
from intaglio.npu.chips.k210 import layer
from intaglio.npu.chips.k210.parts import WEIGHT_ZERO
from intaglio.npu.lowering.builder import Refused, data


def offset(v: Value) -> int:
    """What is added to a tensor's elements to make them unsigned bytes."""
    return 128 if v.dtype == "i8" else 0


def byte_weights(w: Array, zero: Value | None) -> tuple[Array, int]:
    """Weights as bytes, and their zero point: 128 if they are signed bytes around it."""
    centred = w.astype(np.int32) - data(zero).astype(np.int32).reshape(-1, *[1] * (w.ndim - 1))  # type: ignore[arg-type]
    low, high = (int(centred.min()), int(centred.max())) if centred.size else (0, 0)
    if high - low > 255:
        raise Refused(
            f"weights minus their zero points range from {low} to {high}; "
            "the KPU reads 8 bits with one zero point: quantise them symmetrically"
        )
    at = min(max(WEIGHT_ZERO, -low), 255 - high)
    if not 0 <= at <= 255:
        raise Refused(f"weights minus their zero points range from {low} to {high}, without 0")
    return (centred + at).astype(np.uint8), at


def factors(xs: Value | None, ws: Value | None, ys: Value | None, outputs: int) -> Array:
    """The factor from sums to units of the result, per channel."""
    x, w, y = (data(v).reshape(-1).astype(np.float64) for v in (xs, ws, ys))  # type: ignore[arg-type]
    if x.size != 1 or y.size != 1 or w.size not in (1, outputs):
        raise Refused(f"there are {x.size}, {w.size} and {y.size} scales of operands and result")
    return np.broadcast_to(x[0] * w / y[0], (outputs,))


def bounds(node: Node) -> tuple[int, int]:
    """The bounds of a clip as unsigned bytes."""
    more = offset(node.outputs[0])
    low, high = max(node.attrs["lo"] + more, 0.0), min(node.attrs["hi"] + more, 255.0)
    return min(math.ceil(low), 255), max(math.floor(high), 0)


def table(node: Node) -> Array:
    """The table of a lookup, as unsigned bytes by unsigned bytes."""
    x, table = node.inputs
    assert x is not None
    out = node.outputs[0]
    if table is None or table.data is None or out.dtype not in ("i8", "u8"):
        raise Refused(f"its table makes {out.dtype}; the KPU makes bytes")
    entries = data(table).reshape(-1).astype(np.int64) + offset(out)
    if node.op == "lookup" and x.dtype == "i8":  # its index is the byte of a signed number
        entries = np.roll(entries, 128)
    return entries


def chain(first: Node, last: Node) -> list[Node]:
    """The nodes from `last` back to, but without, `first`."""
    found = []
    while last is not first:
        found.append(last)
        source = last.inputs[0]
        assert source is not None
        assert source.producer is not None
        last = source.producer
    return found


def only_reader(node: Node) -> Node | None:
    """The only node that reads the result of another; None: there are several."""
    readers = list(node.outputs[0].uses)
    return readers[0] if len(readers) == 1 and readers[0].op != "result" else None


def name_of(node: Node | None) -> str:
    """A node's name in messages."""
    if node is None:
        return "the input"
    return node.origin or node.outputs[0].name or node.op


ABSENT = {  # what is usual in networks that were made for other chips
    "qlinear_mul": "the KPU does not multiply maps: use a network without squeeze-and-excite",
    "qlinear_matmul": "its operands are computed; the KPU multiplies by constant weights",
    "qlinear_softmax": "the KPU has no softmax: end the network before it",
    "transpose": "the KPU keeps channels, rows and columns in this order",
}


def no_rule(node: Node) -> str:
    """Why an op without a rule is none of the KPU's."""
    maps = [v for v in (*node.inputs, *node.outputs) if v is not None and v.data is None]
    if node.op == "dequantize_linear":
        return "it turns bytes into floats"
    if any(v.dtype == "f32" for v in maps):
        return f"it computes {node.op} in floats; the KPU works on bytes: quantise it"
    return ABSENT.get(node.op, f"the KPU has no {node.op}")


def rectangle(pixels: int) -> tuple[int, int] | None:
    """Height and width of a map of so many pixels that the KPU takes; None: there is none."""
    for width in (64, 32, 16, 8, *range(4, layer.MAX_WIDTH + 1)):
        height = pixels // width
        if height * width == pixels and layer.MIN_EXTENT <= height <= layer.MAX_HEIGHT:
            return height, width
    return None
