"""Weights with a zero point: the unit subtracts it, so that nine bits need no second map.

For units without one, lowering writes such weights as the sum of two bytes, each of which
multiplies a copy of the input. Here both become one again.
"""

from __future__ import annotations

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Value


def source(node: Node) -> Value:
    """The map that a convolution reads; a copy that only wide weights need is left out."""
    x = node.inputs[0]
    assert x is not None
    return _original(node) or x


def window(node: Node) -> dict[str, tuple[int, ...]]:
    """Stride, padding and dilation on that map."""
    a = node.attrs
    found = {k: tuple(a[k]) for k in ("stride", "pad", "dilation")}
    if node.op == "npu.depthwise" and _original(node) is not None:
        found["stride"] = found["stride"][0], found["stride"][1] // 2
        top, left, bottom, right = found["pad"]
        found["pad"] = top, left // 2, bottom, right // 2
    return found


def whole_weights(node: Node) -> Array:
    """Weights without their zero points, as i16."""
    w = node.inputs[1]
    assert w is not None
    assert w.data is not None
    values = w.data.astype(np.int16)
    if _original(node) is not None:
        if node.op == "npu.conv":
            half = values.shape[1] // 2
            values = values[:, :half] + values[:, half:]
        else:
            values = values[..., ::2] + values[..., 1::2]
    flat = values.reshape(len(values), -1)
    if (flat.max(1) - flat.min(1) > 255).any():
        raise BadInput(f"weights of one output span {(flat.max(1) - flat.min(1)).max()}; 255 fit")
    return values


def _original(node: Node) -> Value | None:
    x, w = node.inputs[:2]
    assert x is not None
    assert w is not None
    made = x.producer
    if made is None or len(made.inputs) == 0:
        return None
    if node.op == "npu.conv" and made.op == "npu.concat":
        same = len(made.inputs) == 2 and made.inputs[0] is made.inputs[1]
        return made.inputs[0] if same else None
    if node.op == "npu.depthwise" and made.op == "npu.resize":
        halved = w.shape[3] % 2 == 0 and node.attrs["stride"][1] % 2 == 0
        even = not any(p % 2 for p in node.attrs["pad"][1::2])
        fits = made.attrs["factor"] == (1, 2) and halved and even
        return made.inputs[0] if fits and set(node.attrs["dilation"]) == {1} else None
    return None
