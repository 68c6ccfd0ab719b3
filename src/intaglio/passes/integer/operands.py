"""Patterns and checks for dequantised operands, shared by the integer rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Node, Value, constant
from intaglio.ops.quantized import BITS8 as BITS8
from intaglio.rewrite import P

BITS4 = ("i4", "u4")
x, w, b, r = P["x w b? r"]
xs, xz, ws, wz, ys, yz, rs, rz = P["xs! xz? ws! wz? ys! yz? rs! rz?"]


def real(q: Any, scale: Any, zero: Any, name: str) -> Any:
    """The pattern of a dequantised operand, which may have other readers too."""
    return (P.dequantize_linear(q, scale, zero) @ name).shared()


def source(v: Value | None, kinds: tuple[str, ...] = BITS8) -> Node | None:
    """The dequantize_linear node with constant scale that makes `v`; None if there is none."""
    result = v.producer if v is not None else None
    if result is None or result.op != "dequantize_linear" or result.inputs[1].data is None:  # type: ignore[union-attr]
        return None
    q, zero = result.inputs[0], result.inputs[2]
    return result if q.dtype in kinds and (zero is None or zero.data is not None) else None  # type: ignore[union-attr]


def why_not_one(*nodes: Node, kinds: tuple[str, ...] = BITS8) -> str | None:
    """Why a quantize_linear or dequantize_linear node is not 8-bit with one scale."""
    for n in nodes:
        q = n.outputs[0] if n.op == "quantize_linear" else n.inputs[0]
        if q is None or q.dtype not in kinds:
            return f"{q.dtype if q else 'nothing'} is not 8 bits wide"
        if n.inputs[1].type.size != 1 or n.attrs["block_size"]:  # type: ignore[union-attr]
            return f"there are {n.inputs[1].type.size} scales; one is needed"  # type: ignore[union-attr]
    return None


def zero_of(q: Value, zero: Value | None, shape: tuple[int, ...] = ()) -> Value:
    """The zero point of a quantised tensor; a constant 0 if the model omits it."""
    return zero if zero is not None else constant(np.zeros(shape, dtypes.numpy_of(q.dtype)))


def parameters(n: Node) -> tuple[Value, Value, Value]:
    """Integers, scale and zero point of a dequantize_linear node; 4-bit constants as 8-bit."""
    q, scale, zero = n.inputs
    assert q is not None
    assert scale is not None
    if is_nibbles(q):
        q, zero = _in_bytes(q), None if zero is None else _in_bytes(zero)
    return q, scale, zero_of(q, zero, scale.shape)


def is_nibbles(q: Value) -> bool:
    """Is `q` a 4-bit constant? Integer ops take it as 8-bit."""
    return q.dtype in BITS4 and q.data is not None


def _in_bytes(v: Value) -> Value:
    assert v.data is not None
    return constant(v.data.astype(dtypes.numpy_of(v.dtype[0] + "8")))
