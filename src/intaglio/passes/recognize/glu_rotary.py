"""Recognise gated linear units and rotary position embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Node, Value, constant, release
from intaglio.ops.glu import GATES
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import P, no, rule

MAX_DEPTH = 32  # nodes between angles and their first half
x, y, z, a, b, c, s = P["x y z a b c s"]


def _cut(v: Value) -> tuple[Value, int, range] | None:
    """(x, axis, indices) if `v` is a slice of x along one axis."""
    node = v.producer
    x = node.inputs[0] if node is not None and node.op == "slice" else None
    if node is None or x is None or x.type.dynamic:
        return None
    axes = [i for i, (n, m) in enumerate(zip(x.shape, v.shape, strict=True)) if n != m]
    if len(axes) != 1:
        return None
    at = axes[0]
    cut = slice(*(node.attrs[k][at] for k in ("start", "stop", "step")))
    if any(step != 1 for i, step in enumerate(node.attrs["step"]) if i != at):
        return None
    return x, at, range(x.shape[at])[cut]


# ---- gated linear units --------------------------------------------------------------------------
@rule(P.mul(x, P.op(("sigmoid", "swish", "gelu", "relu", "tanh"), y) @ "act"))
def glu(x: Value, y: Value, act: Node) -> Any:
    """one half of a tensor times an activation of the other half"""
    value, gate = _cut(x), _cut(y)
    if value is None or gate is None or value[:2] != gate[:2]:
        return None
    whole, axis, first = value
    half = whole.shape[axis] // 2
    halves = {range(half), range(half, 2 * half)}
    if {first, gate[2]} != halves or whole.shape[axis] != 2 * half:
        return no(f"{first} and {gate[2]} are not the halves of axis {axis} of {whole.type}")
    name = "gelu_tanh" if act.attrs.get("approximate") == "tanh" else act.op
    if any(act.attrs[k] != want for k, want in GATES[name][1].items()):
        return no(f"the gate is {act.op} with {act.attrs}")
    return ops.glu(whole, axis=axis, act=name, gate_first=first.start == half)


# ---- rotary embedding ----------------------------------------------------------------------------
def _pair(a: Value, b: Value) -> tuple[Value, bool] | None:
    """(x, interleaved) if a and b are the rotation partners of x along its last axis."""
    found = [_cut(v) or _column(v) for v in (a, b)]
    if found[0] is None or found[1] is None or found[0][:2] != found[1][:2]:
        return None
    (x, axis, first), second = found[0], found[1][2]
    n = x.shape[-1]
    if axis != x.type.rank - 1 or n % 2:
        return None
    if (first, second) == (range(n // 2), range(n // 2, n)):
        return x, False
    return (x, True) if (first, second) == (range(0, n, 2), range(1, n, 2)) else None


def _column(v: Value) -> tuple[Value, int, range] | None:
    """(x, last axis, indices) if `v` is one column of x reshaped to pairs."""
    flat = v.producer
    column = flat.inputs[0] if flat is not None and flat.op == "reshape" else None
    found = None if column is None or column.shape != (*v.shape, 1) else _cut(column)
    if found is None or found[1] != v.type.rank or found[0].shape != (*v.shape, 2):
        return None
    pairs = found[0].producer
    x = pairs.inputs[0] if pairs is not None and pairs.op == "reshape" else None
    if x is None or x.shape != (*v.shape[:-1], 2 * v.shape[-1]):
        return None
    return x, v.type.rank - 1, range(found[2].start, x.shape[-1], 2)


def _last(concat: Node) -> bool:
    rank = concat.outputs[0].type.rank
    return bool(concat.attrs["axis"] % rank == rank - 1)


@rule(P.add(P.mul(x, y), P.mul(P.concat(P.neg(b), a) @ "turned", z)))
def rotary_of_rotate_half(x: Value, y: Value, z: Value, a: Value, b: Value, turned: Node) -> Any:
    """x * cos + concat(-second half, first half) * sin"""
    if not _last(turned) or _pair(a, b) != (x, False):
        return None
    cos, sin = _half(y, x.shape[-1]), _half(z, x.shape[-1])
    if cos is None or sin is None:
        release((cos or sin or x).producer)  # drop the half that was built
        return no("the two halves of the cosines or sines may differ")
    return ops.rotary_embedding(x, cos, sin)


REAL, IMAGINARY = P.sub(P.mul(a, c), P.mul(b, s)), P.add(P.mul(a, s), P.mul(b, c))


@rule(P.concat(REAL, IMAGINARY))
def rotary_of_halves(a: Value, b: Value, c: Value, s: Value, node: Node) -> Any:
    """concat(a * cos - b * sin, a * sin + b * cos) of two halves"""
    pair = _pair(a, b) if _last(node) else None
    return ops.rotary_embedding(pair[0], c, s) if pair is not None and not pair[1] else None


@rule(P.reshape(P.concat(P.reshape(REAL), P.reshape(IMAGINARY)) @ "pairs"))
def rotary_of_interleaved(a: Value, b: Value, c: Value, s: Value, pairs: Node, node: Node) -> Any:
    """the same for even and odd elements, interleaved again"""
    pair = _pair(a, b) if pairs.outputs[0].shape == (*a.shape, 2) and _last(pairs) else None
    if pair is None or not pair[1] or node.outputs[0].shape != pair[0].shape:
        return None
    return ops.rotary_embedding(pair[0], c, s, interleaved=True)


@rule(P.concat(P.rotary_embedding(a, c, s) @ "turn", b))
def partial_rotary(a: Value, b: Value, c: Value, s: Value, turn: Node, node: Node) -> Any:
    """a rotary embedding of the first elements, concatenated with the rest"""
    first, rest = _cut(a), _cut(b)
    if not _last(node) or first is None or rest is None or first[:2] != rest[:2]:
        return None
    x, axis, turned = first
    n = x.shape[-1]
    if axis != x.type.rank - 1 or (turned, rest[2]) != (range(len(turned)), range(len(turned), n)):
        return None
    return ops.rotary_embedding(x, c, s, **turn.attrs)


def _half(v: Value, width: int, deep: int = MAX_DEPTH) -> Value | None:
    """The first half of angles whose two halves are equal; None if that is not known."""
    n, node = width // 2, v.producer
    if v.shape[-1] != width:
        return None
    if v.data is not None:
        first, second = np.split(v.data, 2, -1)
        same = np.array_equal(first, second)
        return constant(np.ascontiguousarray(first)) if same else None
    if node is None or v.type.dynamic or not deep:
        return None
    u = node.inputs[0]
    assert u is not None
    if node.op == "concat":
        twice = len(node.inputs) == 2 and node.inputs[0] is node.inputs[1] and _last(node)
        return u if twice else None
    attrs, inputs = dict(node.attrs), list(node.inputs)
    if node.op == "reshape":
        attrs["shape"] = (*v.shape[:-1], n)
        if u.type.rank == 0 or u.shape[-1] != width:
            return None
    elif node.op == "gather":
        if node.attrs["axis"] % u.type.rank == u.type.rank - 1:
            return None
    elif not (REGISTRY[node.op].elementwise and len(node.inputs) == 1):
        return None
    half = _half(u, width, deep - 1)
    if half is None:
        return None
    inputs[0] = half
    for user in half.uses:  # queries and keys share sines and cosines
        if (user.op, user.attrs, user.inputs) == (node.op, attrs, inputs):
            return user.outputs[0]
    result: Value = REGISTRY[node.op](*inputs, **attrs)
    return result


GATED = [glu, rotary_of_rotate_half, rotary_of_halves, rotary_of_interleaved, partial_rotary]
