"""cpu.attention: reads queries, keys and values in place, through strided views."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.registry import op
from intaglio.ops.shape import axis_groups
from intaglio.ops.slice_ranges import ranges
from intaglio.rewrite import No, P, Rule, no, rule

Ints = tuple[int, ...]
HEADS = (0, 2, 1, 3)  # [batch, rows, heads, size] and [batch, heads, rows, size]


def _attention_type(
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None,
    *,
    batch: int,
    heads: int,
    kv_heads: int,
    rows: int,
    keys: int,
    size: int,
    value_size: int,
    q_view: Ints,
    k_view: Ints,
    v_view: Ints,
    scale: float,
    softcap: float,
) -> Type:
    for x, view, n, length, width in (
        (q, q_view, heads, rows, size),
        (k, k_view, kv_heads, keys, size),
        (v, v_view, kv_heads, keys, value_size),
    ):
        shape = (batch, n, length, width)
        last = view[0] + sum((d - 1) * s for d, s in zip(shape, (*view[1:], 1), strict=True))
        if min(view) < 0 or (0 not in shape and last >= x.type.size):
            raise BadInput(f"cpu.attention: {shape} with view {view} exceeds {x.type}")
        if length != 1 and view[3] < width:
            raise BadInput(f"cpu.attention: rows of {width} elements overlap in view {view}")
        if x.dtype != "f32" or x.type.dynamic:
            raise BadInput(f"cpu.attention takes f32 of static shape, not {x.type}")
    whole = [
        Value(Type("f32", (batch, n, *rest)))
        for n, *rest in ((heads, rows, size), (kv_heads, keys, size), (kv_heads, keys, value_size))
    ]
    ops.attention.infer(*whole, mask, scale=scale, softcap=softcap)
    return Type("f32", (batch, rows, heads, value_size))


def _attention_macs(node: Node) -> int:
    a = node.attrs
    scores = a["batch"] * a["heads"] * a["rows"] * a["keys"]
    return int(scores * (a["size"] + a["value_size"]))


@op(_attention_type, name="cpu.attention", macs=_attention_macs)
def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    *,
    batch: int,
    heads: int,
    kv_heads: int,
    rows: int,
    keys: int,
    size: int,
    value_size: int,
    q_view: Ints,
    k_view: Ints,
    v_view: Ints,
    scale: float,
    softcap: float = 0.0,
) -> Array:
    """Attention over heads that are read in place; returns [batch, rows, heads, value_size].

    A view is an offset and the strides of batch, head and row, in elements.
    """
    y = ops.attention.body(
        _viewed(q, (batch, heads, rows, size), q_view),
        _viewed(k, (batch, kv_heads, keys, size), k_view),
        _viewed(v, (batch, kv_heads, keys, value_size), v_view),
        mask,
        scale=scale,
        softcap=softcap,
    )
    return np.ascontiguousarray(np.swapaxes(y, 1, 2))


def _attention_bf16_type(*inputs: Value | None, size: int, **attrs: Any) -> Type:
    if size % 2:
        raise BadInput(
            f"cpu.attention_bf16: the head size {size} is odd; bf16 is multiplied in pairs"
        )
    return _attention_type(*inputs, size=size, **attrs)  # type: ignore[arg-type]


@op(_attention_bf16_type, name="cpu.attention_bf16", macs=_attention_macs)
def attention_bf16(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    *,
    batch: int,
    heads: int,
    kv_heads: int,
    rows: int,
    keys: int,
    size: int,
    value_size: int,
    q_view: Ints,
    k_view: Ints,
    v_view: Ints,
    scale: float,
    softcap: float = 0.0,
) -> Array:
    """cpu.attention with operands rounded to bf16 and sums in f32."""
    y: Array = attention.body(
        q,
        k,
        v,
        mask,
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        rows=rows,
        keys=keys,
        size=size,
        value_size=value_size,
        q_view=q_view,
        k_view=k_view,
        v_view=v_view,
        scale=scale,
        softcap=softcap,
    )
    return y


def _viewed(x: Array, shape: Ints, view: Ints) -> Array:
    flat = np.ascontiguousarray(x).reshape(-1)
    if not math.prod(shape):
        return np.zeros(shape, x.dtype)
    steps = tuple(s * x.itemsize for s in (*view[1:], 1))
    return np.lib.stride_tricks.as_strided(flat[view[0] :], shape, steps, writeable=False)


# ---- views -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class View:
    """The position of a tensor's elements in another tensor: an offset and a stride per axis."""

    offset: int
    shape: Ints
    steps: Ints

    @staticmethod
    def whole(shape: Ints) -> View:
        return View(0, shape, tuple(math.prod(shape[i + 1 :]) for i in range(len(shape))))

    def through(self, node: Node) -> View | None:
        """The view after `node`, if it moves no element; None if it must copy."""
        a, out = node.attrs, node.outputs[0].shape
        if node.op == "transpose":
            return View(self.offset, out, tuple(self.steps[p] for p in a["perm"]))
        if node.op == "slice":
            at = ranges(node)
            if at is None:
                return None
            offset = sum(r.start * s for r, s in zip(at, self.steps, strict=True))
            steps = tuple(r.step * s for r, s in zip(at, self.steps, strict=True))
            return View(self.offset + offset, out, steps)
        if node.op == "expand":
            lead = len(out) - len(self.shape)
            same = zip(self.shape, out[lead:], self.steps, strict=True)
            return View(
                self.offset, out, (0,) * lead + tuple(s if n == m else 0 for n, m, s in same)
            )
        return self.reshaped(out)

    def reshaped(self, out: Ints) -> View | None:
        """The view in another shape, if merged or split axes are contiguous; else None."""
        steps = [0] * len(out)
        for ins, outs in axis_groups(self.shape, out):
            long = [i for i in ins if self.shape[i] != 1]
            if any(self.steps[i] != self.shape[j] * self.steps[j] for i, j in pairwise(long)):
                return None
            step = self.steps[long[-1]] if long else 0
            for o in reversed(outs):
                steps[o] = step
                step *= out[o]
        return View(self.offset, out, tuple(steps))


VIEWS = ("reshape", "transpose", "slice", "expand")


def _readable(view: View) -> bool:
    """Can the kernel read it: contiguous rows that do not overlap?"""
    contiguous = view.shape[3] == 1 or view.steps[3] == 1
    disjoint = view.shape[2] == 1 or view.steps[2] >= view.shape[3]
    return contiguous and disjoint and min(view.steps) >= 0


def view_of(v: Value) -> tuple[Value, Ints]:
    """The tensor of which `v` [batch, heads, rows, size] is a view, and the view."""
    chain: list[Node] = []
    source = v
    while (node := source.producer) is not None and node.op in VIEWS:
        below = node.inputs[0]
        if below is None or below.type.dynamic:
            break
        chain.append(node)
        source = below
    while True:
        seen: View | None = View.whole(source.shape)
        for node in reversed(chain):
            seen = None if seen is None else seen.through(node)
        if seen and _readable(seen):
            return source, (seen.offset, *seen.steps[:3])
        source = chain.pop().outputs[0]  # ends at the latest with `v` as a view of itself


q, k, v, mask = P["q k v mask?"]


def _in_place(
    build: Any, q: Value, k: Value, v: Value, mask: Value | None, node: Node
) -> Value | No:
    if any(x is not None and x.type.dynamic for x in (q, k, v, mask)):
        return no("a size is known only at run time")
    if not (q.type.size and k.type.size and v.type.size):
        return no("an operand is empty")
    (q0, q_view), (k0, k_view), (v0, v_view) = view_of(q), view_of(k), view_of(v)
    result: Value = build(
        q0,
        k0,
        v0,
        mask,
        batch=q.shape[0],
        heads=q.shape[1],
        kv_heads=k.shape[1],
        rows=q.shape[2],
        keys=k.shape[2],
        size=q.shape[3],
        value_size=v.shape[3],
        q_view=q_view,
        k_view=k_view,
        v_view=v_view,
        **node.attrs,
    )
    transposed: Value = ops.transpose(result, perm=HEADS)
    return transposed


@rule(P.attention(q, k, v, mask))
def attention_in_place(q: Value, k: Value, v: Value, mask: Value | None, node: Node) -> Value | No:
    """Lower attention to cpu.attention, which reads its operands through views."""
    if q.dtype != "f32":
        return no(f"only f32 has a kernel, this is {q.dtype}")
    return _in_place(attention, q, k, v, mask, node)


def _rounded(x: Any) -> Any:
    return P.cast(x, dtype="bf16").shared()


@rule(P.attention(_rounded(q), _rounded(k), _rounded(v), mask))
def attention_with_bf16_products(
    q: Value, k: Value, v: Value, mask: Value | None, node: Node
) -> Value | No:
    """Lower attention of operands rounded to bf16 to cpu.attention_bf16, which rounds while
    packing.
    """
    if not q.dtype == k.dtype == v.dtype == "f32" or q.shape[3] % 2:
        return no(f"{q.type} is not f32 with an even head size")
    if mask is not None and mask.dtype != "bool":
        before = mask.producer  # the unrounded mask, if it is known
        exact = before.inputs[0] if before is not None and before.op == "cast" else None
        mask = exact if exact is not None and exact.dtype == "f32" else ops.cast(mask, dtype="f32")
    result = _in_place(attention_bf16, q, k, v, mask, node)
    return result if isinstance(result, No) else ops.cast(result, dtype="bf16")


TRANSPOSED = P.transpose(P.any("cpu.attention_bf16")) @ "turn"


@rule(P.cast(P.cast(TRANSPOSED, dtype="bf16"), dtype="f32"))
def attention_stays_f32(turn: Node) -> Value:
    """Skip the rounding of cpu.attention_bf16's f32 result where f32 is read."""
    return turn.outputs[0]


BF16_ATTENTION: tuple[Rule, ...] = (attention_with_bf16_products, attention_stays_f32)


@rule(P.attention(q, k, v, mask))
def attention_in_f32(q: Value, k: Value, v: Value, mask: Value | None, node: Node) -> Value | None:
    """Compute f16 and bf16 attention in f32, between casts."""
    if q.dtype not in ("f16", "bf16"):
        return None
    wide = [ops.cast(x, dtype="f32") for x in (q, k, v)]
    if mask is not None and mask.dtype != "bool":
        mask = ops.cast(mask, dtype="f32")
    result: Value = ops.cast(ops.attention(*wide, mask, **node.attrs), dtype=q.dtype)
    return result


x, c, s = P["x c s"]


@rule(P.rotary_embedding(P.transpose(x) @ "turn", c, s))
def rotary_before_transpose(
    x: Value, c: Value, s: Value, turn: Node, node: Node
) -> Value | No | None:
    """Apply the rotary embedding before heads move to the front: attention then needs no copy."""
    perm, rank = turn.attrs["perm"], x.type.rank
    if perm[-1] != rank - 1 or any(v.type.dynamic for v in (x, c, s)):
        return None
    wide = (1,) * (rank - c.type.rank) + c.shape
    long = [perm[i] for i in range(rank) if wide[i] > 1]
    if long != sorted(long):
        return no(f"the angles {c.type} would have to be transposed too")
    shape = tuple(wide[perm.index(i)] for i in range(rank))
    angles = [ops.reshape(v, shape=shape) for v in (c, s)]
    result: Value = ops.transpose(ops.rotary_embedding(x, *angles, **node.attrs), perm=perm)
    return result


ATTENTION: list[Rule] = [rotary_before_transpose, attention_in_f32, attention_in_place]
