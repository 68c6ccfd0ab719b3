"""Replace matmuls by 1x1 convolutions and convolutions by matmuls."""

from __future__ import annotations

import math
from typing import Any

from intaglio import ops
from intaglio.ir import Node, Value
from intaglio.rewrite import P, Rule, no
from intaglio.targets.replace.builder import folded, replacement, reshaped, sliced, transposed

x, w, b, c = P["x w b? c!"]
PIXEL: dict[str, Any] = {"stride": (1, 1), "pad": (0,) * 4, "dilation": (1, 1), "groups": 1}


# ---- matmul as 1x1 convolution -------------------------------------------------------------------
def _why_not_pixels(x: Value, w: Value) -> str | None:
    if w.type.rank != 2 or x.type.rank < 2:
        return f"{x.type} @ {w.type}: a convolution needs one matrix for all rows"
    if x.dtype not in ("f16", "bf16", "f32", "f64"):
        return f"a convolution needs floats, this is {x.dtype}"
    return None


def _by_pixels(x: Value, w: Value, b: Value | None) -> Value:
    """Rows become pixels: [n, h, w, k] is a channels-last image."""
    *lead, k = x.shape
    n = lead[0] if len(lead) > 1 else 1
    h = lead[1] if len(lead) > 2 else math.prod(lead[-1:])
    pixels = reshaped(x, n, h, math.prod(lead) // max(n * h, 1), k)
    weights = folded(reshaped(transposed(w, 1, 0), w.shape[1], k, 1, 1))
    y = ops.conv(transposed(pixels, 0, 3, 1, 2), weights, b, **PIXEL)
    return reshaped(transposed(y, 0, 2, 3, 1), *lead, w.shape[1])


def _bias(v: Value, c: Value) -> Value | None:
    """The constant `c`, added to `v`, as one number per column; None if it varies otherwise."""
    if math.prod(c.shape[:-1]) != 1 or c.type.rank > v.type.rank:
        return None
    if c.type.size not in (1, v.shape[-1]):
        return None
    return folded(ops.expand(reshaped(c, c.type.size), shape=v.shape[-1:]))


@replacement(P.add(P.matmul(x, w), c))
def linear_as_conv(node: Node, x: Value, w: Value, c: Value) -> Any:
    """Replace a matmul with bias by a 1x1 convolution whose pixels are the rows."""
    if why := _why_not_pixels(x, w):
        return no(why)
    bias = _bias(node.outputs[0], c)
    if bias is None:
        return None
    return _by_pixels(x, w, bias)


@replacement(P.matmul(x, w))
def matmul_as_conv(node: Node, x: Value, w: Value) -> Any:
    """Replace a matmul with one matrix by a 1x1 convolution whose pixels are the rows."""
    if why := _why_not_pixels(x, w):
        return no(why)
    y = node.outputs[0]
    for user in y.uses if len(y.uses) == 1 else ():
        other = [v for v in user.inputs if v is not None and v is not y]
        if user.op == "add" and other and other[0].data is not None and _bias(y, other[0]):
            return no("the next add is its bias; linear_as_conv replaces both")
    return _by_pixels(x, w, None)


# ---- convolution as matmul -----------------------------------------------------------------------
def _product(rows: Value, w: Value, b: Value | None) -> Value:
    """rows @ w.T + b, where w has its output channels first."""
    y = ops.matmul(
        rows, folded(transposed(reshaped(w, w.shape[0], w.type.size // w.shape[0]), 1, 0))
    )
    result: Value = y if b is None else ops.add(y, b)
    return result


@replacement(P.conv(x, w, b))
def conv_as_matmul(node: Node, x: Value, w: Value, b: Value | None) -> Any:
    """Replace a 1x1 convolution by a matmul of channels-last rows."""
    a, n = node.attrs, x.type.rank - 2
    if any(k != 1 for k in w.shape[2:]) or a["groups"] != 1 or any(a["pad"]):
        return None
    out = node.outputs[0].shape
    ends = [(e - 1) * s + 1 for e, s in zip(out[2:], a["stride"], strict=True)]
    spans = [(0, d) for d in (*x.shape[:2], *(ends if max(a["stride"]) > 1 else x.shape[2:]))]
    seen = sliced(x, spans, (1, 1, *a["stride"]))
    rows = transposed(seen, 0, *range(2, n + 2), 1)
    return transposed(_product(rows, w, b), 0, n + 1, *range(1, n + 1))


@replacement(P.conv(x, w, b))
def conv_as_linear(node: Node, x: Value, w: Value, b: Value | None) -> Any:
    """Replace a convolution whose kernel covers the whole image by a matmul."""
    a, out = node.attrs, node.outputs[0].shape
    if any(e != 1 for e in out[2:]) or a["groups"] != 1:
        return None
    if any(a["pad"]) or x.shape[2:] != w.shape[2:]:
        return no(f"the kernel {w.shape[2:]} does not cover the image {x.shape[2:]}")
    return reshaped(_product(reshaped(x, x.shape[0], x.type.size // x.shape[0]), w, b), *out)


LINEAR: list[Rule] = [linear_as_conv, matmul_as_conv, conv_as_linear, conv_as_matmul]
