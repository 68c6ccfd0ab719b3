"""Sums, products, bounds and functions of floats, and rounding to bytes, as layers of the chip."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.npu.chips.bm1684x import float_ops
from intaglio.npu.chips.bm1684x.float_functions import function
from intaglio.npu.chips.bm1684x.float_types import FloatTypes, applied, as_type
from intaglio.npu.chips.bm1684x.function_steps import FUNCTIONS
from intaglio.npu.chips.bm1684x.views import Step, as_feature_map, as_map, on_tpu, rank4, root_of
from intaglio.npu.lowering.builder import Refused, integer, scale_of
from intaglio.npu.ops.relayout import constant_map

KIND_OF = {"add": "add", "sub": "sub", "mul": "mul", "maximum": "max", "minimum": "min"}


def elementwise(shape: tuple[int, ...], operands: list[Value], make: Callable[..., Value]) -> Value:
    """A layer that works element by element, in the layout of its first operand on the chip."""
    lead = next((v for v in operands if on_tpu(v) and v.shape == shape), operands[0])
    root, steps = root_of(lead)
    if any(v.shape != shape for v in operands):
        raise Refused("its operands have different shapes")
    axes = _inverse(root.shape, steps)
    if axes is None or root.type.rank != 4:
        out = rank4(lead.shape)
        flat = (math.prod(shape),)
        maps = [as_map(v, flat, (0,), out) for v in operands]
        return ops.reshape(make(*maps), shape=shape)  # type: ignore[no-any-return]
    maps = [root if v is lead else as_map(v, *axes, root.shape) for v in operands]
    return applied(make(*maps), steps)


def _inverse(
    shape: tuple[int, ...], steps: list[Step]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shape and order of axes that undo steps of at most one transpose; None: there are more."""
    turns = [k for k, (kind, _) in enumerate(steps) if kind == "transpose"]
    if len(turns) > 1:
        return None
    if not turns:
        return (math.prod(shape),), (0,)
    before = steps[turns[0] - 1][1] if turns[0] else shape
    perm = steps[turns[0]][1]
    undo = tuple(perm.index(k) for k in range(len(perm)))
    return tuple(before[p] for p in perm), undo


def pair(node: Node, types: FloatTypes) -> Value:
    """add, sub, mul, maximum and minimum; a constant or one operand may be broadcast."""
    return _paired(node.op, node, types, types.of(node), *node.inputs)


def _paired(
    op: str, node: Node, types: FloatTypes, dtype: str, one: Value | None, two: Value | None
) -> Value:
    a, b = types.typed(one, dtype), types.typed(two, dtype)
    shape, kind = node.outputs[0].shape, KIND_OF[op]
    if a.data is not None or (a.shape != shape and b.shape == shape):
        if kind == "sub":  # c - x = -1 * x + c
            b = with_constant(b, np.array(-1, np.float32), "mul")
            kind = "add"
        a, b = b, a
    if a.shape != shape:
        raise Refused(f"{a.type} and {b.type} are both broadcast")
    if b.data is not None:
        return with_constant(a, b.data, kind)
    if b.shape == shape:
        return elementwise(shape, [a, b], lambda *m: float_ops.arithmetic(*m, kind=kind))
    if a.type.rank != 4 or b.type.rank != 4 or a.shape[0] != b.shape[0]:
        raise Refused(f"{b.type} is broadcast to {a.type}; feature maps of one batch are needed")
    maps = [as_map(v, v.shape, (0, 1, 2, 3), v.shape) for v in (a, b)]
    made: Value = float_ops.arithmetic(*maps, kind=kind)
    return made


def with_constant(x: Value, data: Array, kind: str) -> Value:
    """Arithmetic of a value and a constant that is broadcast to it, in the layout of the value."""
    root, steps = root_of(x)
    root = as_feature_map(root)
    if root.shape != x.shape and not steps:
        steps = [("reshape", x.shape)]
    axes = _inverse(root.shape, steps)
    if axes is None:
        root = as_map(x, x.shape, tuple(range(x.type.rank)), rank4(x.shape))
        steps, axes = [("reshape", x.shape)], ((x.type.size,), (0,))
    whole = np.broadcast_to(data, x.shape)
    moved = whole.reshape(axes[0]).transpose(axes[1]).reshape(root.shape)
    for axis in (1, 2, 3):
        first = moved.take([0], axis)
        moved = first if (moved == first).all() else moved
    other = constant_map(constant(np.ascontiguousarray(moved.astype(data.dtype))))
    if other.dtype != root.dtype:
        other = constant_map(constant(as_type(other.producer.inputs[0], root.dtype)))
    return applied(float_ops.arithmetic(root, other, kind=kind), steps)


def divide(node: Node, types: FloatTypes) -> Value:
    """x / c = x * (1 / c); the quotient of two values is computed in f32."""
    a, b = node.inputs
    assert a is not None
    assert b is not None
    if b.data is not None:
        if not np.all(b.data):
            raise Refused("it divides by zero")
        inverse = constant((1 / b.data.astype(np.float64)).astype(np.float32))
        return _paired("mul", node, types, types.of(node), a, inverse)
    whole = types.typed(b, "f32")
    inverse = elementwise(whole.shape, [whole], lambda m: function(m, name="reciprocal"))
    return _paired("mul", node, types, "f32", a, inverse)


def power(node: Node, types: FloatTypes) -> Value:
    """Squares, roots and inverses."""
    x, exponent = node.inputs
    assert x is not None
    assert exponent is not None
    if exponent.data is None or exponent.type.size != 1:
        raise Refused("its exponent is no single constant")
    number = float(exponent.data.reshape(-1)[0])
    if number == 2:
        return _paired("mul", node, types, types.of(node), x, x)
    names = {0.5: "sqrt", -1.0: "reciprocal"}
    if number not in names:
        raise Refused(f"its exponent is {number}; 2, 0.5 and -1 are possible")
    given = types.typed(x, types.of(node))
    return elementwise(given.shape, [given], lambda m: function(m, name=names[number]))


def bound(node: Node, types: FloatTypes) -> Value:
    """relu and clip: bounds of the layer before, or a layer."""
    x = types.typed(node.inputs[0], types.of(node))
    a = node.attrs
    least, most = (0.0, math.inf) if node.op == "relu" else (a["lo"], a["hi"])
    if least > most:
        raise Refused(f"its bounds {least} and {most} are not in order")
    made = types.clamped(node, x, least, most)
    if made is not None:
        return made
    return elementwise(x.shape, [x], lambda m: float_ops.bound(m, least=least, most=most))


def unary(node: Node, types: FloatTypes) -> Value:
    """A function of each number."""
    x = types.typed(node.inputs[0], types.of(node))
    given = tuple(sorted(node.attrs.items()))
    return elementwise(x.shape, [x], lambda m: function(m, name=node.op, given=given))


def slope(node: Node, types: FloatTypes) -> Value:
    """prelu: max(x, 0) + slope * min(x, 0)."""
    dtype = types.of(node)
    x, slopes = types.typed(node.inputs[0], dtype), node.inputs[1]
    if slopes is None or slopes.data is None:
        raise Refused("its slopes are no constant")
    below = elementwise(x.shape, [x], lambda m: float_ops.bound(m, most=0.0))
    above = elementwise(x.shape, [x], lambda m: float_ops.bound(m, least=0.0))
    scaled = with_constant(below, as_type(slopes, dtype), "mul")
    return elementwise(x.shape, [above, scaled], lambda *m: float_ops.arithmetic(*m, kind="add"))


def cast(node: Node, types: FloatTypes) -> Value:
    x, dtype = node.inputs[0], node.outputs[0].dtype
    if dtype not in float_ops.FLOATS:
        raise Refused(f"it makes {dtype}; floats are possible")
    return types.typed(x, dtype)


def quantize(node: Node, types: FloatTypes) -> Value:
    x, scale, zero = (*node.inputs, None)[:3]
    assert scale is not None
    given = types.typed(x, "f32")
    dtype = node.outputs[0].dtype
    if dtype not in ("i8", "u8"):
        raise Refused(f"it rounds to {dtype}; bytes are possible")
    attrs: dict[str, Any] = {
        "scale": float(scale_of(scale)),
        "y_zero": integer(zero),
        "dtype": dtype,
    }
    return elementwise(given.shape, [given], lambda m: float_ops.quantize(m, **attrs))


def dequantize(node: Node, types: FloatTypes) -> Value:
    x, scale, zero = (*node.inputs, None)[:3]
    assert x is not None
    assert scale is not None
    if x.dtype not in ("i8", "u8"):
        raise Refused(f"it reads {x.dtype}; bytes are possible")
    attrs: dict[str, Any] = {"scale": float(scale_of(scale)), "x_zero": integer(zero)}
    return elementwise(x.shape, [x], lambda m: float_ops.dequantize(m, **attrs))


ELEMENTWISE: dict[str, Callable[[Node, FloatTypes], Value]] = {
    **dict.fromkeys(KIND_OF, pair),
    **dict.fromkeys(FUNCTIONS, unary),
    "relu": bound,
    "clip": bound,
    "div": divide,
    "pow": power,
    "prelu": slope,
    "cast": cast,
    "quantize_linear": quantize,
    "dequantize_linear": dequantize,
}
