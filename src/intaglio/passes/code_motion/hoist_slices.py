"""Hoist slices and gathers above the ops whose results they discard.

The taken indices are pushed from a value to its operands, through every op that computes an index
of the axis from one index of its operands. They stop at values that have other readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from intaglio import ops
from intaglio.ir import Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.ops.slice_ranges import cut, is_empty, is_whole, ranges
from intaglio.passes.permuted_ops import axis_groups
from intaglio.rewrite import P, rule

Take = dict[int, range | Value]  # axis -> the indices to take
Asked = tuple[
    list[Take], dict[str, Any]
]  # indices to take from each operand, and the op's new attributes
Table = Mapping[str, Callable[[Node, Take], Asked | None]]
MAX_DEPTH = 64  # nodes that one slice may move over
x, i = P["x i"]


def take(v: Value, wanted: Take) -> Value:
    """Slice and gather `v` itself."""
    cuts = [wanted.get(a, None) for a in range(v.type.rank)]
    taken = [r if isinstance(r, range) else range(d) for r, d in zip(cuts, v.shape, strict=True)]
    v = cut(v, taken)
    for axis, at in wanted.items():
        if isinstance(at, Value):
            v = ops.gather(v, at, axis=axis)
    return v


def count(at: range | Value) -> int:
    return len(at) if isinstance(at, range) else at.shape[0]


# ---- how each op passes a slice to its operands --------------------------------------------------
def _elementwise(node: Node, wanted: Take) -> Asked | None:
    out, asked = node.outputs[0], []
    for v in node.inputs:
        lead = out.type.rank - (v.type.rank if v is not None else 0)
        same = [a for a in wanted if v and a >= lead and v.shape[a - lead] == out.shape[a]]
        asked.append({a - lead: wanted[a] for a in same})
    return asked, node.attrs


def _transpose(node: Node, wanted: Take) -> Asked | None:
    return [{node.attrs["perm"][a]: at for a, at in wanted.items()}], node.attrs


def _reshape(node: Node, wanted: Take) -> Asked | None:
    """An axis that the reshape does not change."""
    x, out = node.inputs[0], node.outputs[0]
    if x is None or not x.type.size:
        return None
    asked: Take = {}
    shape = list(out.shape)
    for ins, outs in axis_groups(x.shape, out.shape):
        here = [a for a in outs if a in wanted]
        long_in = [a for a in ins if x.shape[a] != 1]
        long_out = [a for a in outs if out.shape[a] != 1]
        if not here:
            continue
        if len(long_in) != 1 or len(here) != 1 or long_out != here:
            return None
        asked[long_in[0]] = wanted[here[0]]
        shape[here[0]] = count(wanted[here[0]])
    return [asked], {"shape": tuple(shape)}


def _expand(node: Node, wanted: Take) -> Asked | None:
    x, out = node.inputs[0], node.outputs[0]
    assert x is not None
    lead = out.type.rank - x.type.rank
    mine = [a for a in wanted if a >= lead and x.shape[a - lead] == out.shape[a]]
    shape = tuple(count(wanted[a]) if a in wanted else d for a, d in enumerate(out.shape))
    return [{a - lead: wanted[a] for a in mine}], {"shape": shape}


def _concat(node: Node, wanted: Take) -> Asked | None:
    if node.attrs["axis"] % node.outputs[0].type.rank in wanted:
        return None
    return [wanted] * len(node.inputs), node.attrs


def _pad(node: Node, wanted: Take) -> Asked | None:
    padded = any(node.attrs["before"][a] or node.attrs["after"][a] for a in wanted)
    return None if padded else ([wanted], node.attrs)


def _gather(node: Node, wanted: Take) -> Asked | None:
    """Take from the indices. Take from the table only if it is not constant: that would be stored
    twice.
    """
    table, at = node.inputs
    assert table is not None
    assert at is not None
    axis = node.attrs["axis"] % table.type.rank
    last = axis + at.type.rank
    indices = {a - axis: what for a, what in wanted.items() if axis <= a < last}
    rows = {
        a if a < axis else a - at.type.rank + 1: what
        for a, what in wanted.items()
        if not axis <= a < last
    }
    return None if rows and table.data is not None else ([rows, indices], node.attrs)


def _images_and_channels(node: Node, wanted: Take) -> Asked | None:
    spatial = max(wanted) > 1 or node.attrs.get("with_indices")
    return None if spatial else ([wanted], node.attrs)


def _one_scale(node: Node, wanted: Take) -> Asked | None:
    scale = node.inputs[1]
    if scale is None or scale.type.size != 1 or node.attrs["block_size"]:
        return None
    return [wanted, *({} for _ in node.inputs[1:])], node.attrs


def _other_axes(node: Node, wanted: Take) -> Asked | None:
    rank = node.outputs[0].type.rank
    free = node.attrs["axis"] % rank not in wanted
    return ([wanted, *({} for _ in node.inputs[1:])], node.attrs) if free else None


def _rows(node: Node, wanted: Take) -> Asked | None:
    """A norm over the last axes."""
    inside = max(wanted) >= node.attrs["axis"] % node.outputs[0].type.rank
    return None if inside else ([wanted, *({} for _ in node.inputs[1:])], node.attrs)


def _reduce(node: Node, wanted: Take) -> Asked | None:
    x, axes = node.inputs[0], node.attrs["axes"]
    assert x is not None
    kept = [a for a in range(x.type.rank) if node.attrs["keepdims"] or a not in axes]
    asked = {kept[a]: at for a, at in wanted.items()}
    return None if any(a in axes for a in asked) else ([asked], node.attrs)


def _matmul(node: Node, wanted: Take) -> Asked | None:
    a, b = node.inputs
    out = node.outputs[0]
    assert a is not None
    assert b is not None
    if a.type.rank < 2 or b.type.rank < 2:
        return None
    asked: list[Take] = []
    for v, other in ((a, -1), (b, -2)):  # the result axis that comes from the other operand
        lead = out.type.rank - v.type.rank
        skip = out.type.rank + other
        same = [k for k in wanted if k >= lead and k != skip and v.shape[k - lead] == out.shape[k]]
        asked.append({k - lead: wanted[k] for k in same})
    return asked, node.attrs


def _conv(node: Node, wanted: Take) -> Asked | None:
    """Images of the batch, or output channels, which are rows of the weights."""
    x, w, b = node.inputs
    assert x is not None
    assert w is not None
    groups = node.attrs["groups"]
    own = groups == x.shape[1] == w.shape[0]
    if max(wanted) > 1 or (1 in wanted and groups != 1 and not own):
        return None
    images: Take = {0: wanted[0]} if 0 in wanted else {}
    if 1 not in wanted:
        return [images, {}, {}], node.attrs
    rows: Take = {0: wanted[1]}
    if groups == 1:
        return [images, rows, rows if b else {}], node.attrs
    attrs = {**node.attrs, "groups": count(wanted[1])}
    return [{**images, 1: wanted[1]}, rows, rows if b else {}], attrs


def _attention(node: Node, wanted: Take) -> Asked | None:
    """Some of the queries."""
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    if set(wanted) != {2}:
        return None
    asked: list[Take] = [wanted, {}, {}, {}]
    if mask is not None and mask.type.rank > 1 and mask.shape[-2] != 1:
        asked[3] = {mask.type.rank - 2: wanted[2]}
    return asked[: len(node.inputs)], node.attrs


EXACT: Table = {
    **{name: _elementwise for name, o in REGISTRY.items() if o.elementwise},
    "transpose": _transpose,
    "reshape": _reshape,
    "expand": _expand,
    "concat": _concat,
    "pad": _pad,
    "gather": _gather,
    "max_pool": _images_and_channels,
    "quantize_linear": _one_scale,
    "dequantize_linear": _one_scale,
}
FLOATS: Table = {
    **EXACT,
    **dict.fromkeys(("avg_pool", "lp_pool"), _images_and_channels),
    **dict.fromkeys(("softmax", "log_softmax", "interpolate"), _other_axes),
    **dict.fromkeys(("layer_norm", "rms_norm"), _rows),
    **dict.fromkeys([name for name in REGISTRY if name.startswith("reduce_")], _reduce),
    "matmul": _matmul,
    "conv": _conv,
    "attention": _attention,
}


# ---- moving up -----------------------------------------------------------------------------------
def _asks(v: Value, wanted: Take, table: Table) -> Asked | None:
    """What the producer of `v` must take from its operands; None if the slice cannot move
    above it.
    """
    node = v.producer
    if node is None or node.op not in table or len(v.uses) > 1 or len(node.outputs) > 1:
        return None
    if v.type.dynamic or any(u is not None and u.type.dynamic for u in node.inputs):
        return None
    asked = table[node.op](node, wanted)
    if asked is None or not REGISTRY[node.op].elementwise:
        return asked
    for u, inner in zip(node.inputs, asked[0], strict=True):
        if u is not None and inner and _is_product(u) and _asks(u, inner, table) is None:
            return None  # a slice in between would keep the matmul from fusing this op
    return asked


def _is_product(v: Value) -> bool:
    node = v.producer
    return node is not None and len(v.uses) == 1 and REGISTRY[node.op].macs(node) > 0


def _push(v: Value, wanted: Take, table: Table, deep: int, made: dict[Any, Value]) -> Value:
    """`v` reduced to the indices `wanted`, taken as far up as possible."""
    if not wanted:
        return v
    key = v, tuple(sorted(wanted.items()))
    if key not in made:
        asked = _asks(v, wanted, table) if deep else None
        if asked is None or v.producer is None:
            made[key] = take(v, wanted)
        else:
            pairs = zip(v.producer.inputs, asked[0], strict=True)
            ins = [u and _push(u, inner, table, deep - 1, made) for u, inner in pairs]
            made[key] = REGISTRY[v.producer.op](*ins, origin=v.producer.origin, **asked[1])
    return made[key]


def _moved(node: Node, table: Table) -> Value | None:
    """A slice or gather, moved up as far as possible; None if it cannot move."""
    x = node.inputs[0]
    assert x is not None
    wanted = _wanted(node, x)
    if wanted is None or _asks(x, wanted, table) is None:
        return None
    result = _push(x, wanted, table, MAX_DEPTH, {})
    out = node.outputs[0]
    return result if result.shape == out.shape else ops.reshape(result, shape=out.shape)


def _wanted(node: Node, x: Value) -> Take | None:
    if node.op == "slice":
        taken = ranges(node)
        if taken is None or any(map(is_empty, taken)):
            return None
        return {a: r for a, r in enumerate(taken) if not is_whole(r, x.shape[a])} or None
    at = node.inputs[1]
    assert at is not None
    if at.type.rank > 1 or at.type.dynamic or x.type.dynamic:
        return None
    rows = at if at.type.rank else ops.reshape(at, shape=(1,))
    return {node.attrs["axis"] % x.type.rank: rows}


@rule(P.slice(x), weigh=True)
def hoist_slice(node: Node) -> Any:
    """Hoist a slice over elementwise ops, concats, transposes and pads: they compute only what it
    keeps.
    """
    return _moved(node, EXACT)


@rule(P.gather(x, i), weigh=True)
def hoist_gather(node: Node) -> Any:
    """Hoist a gather over elementwise ops, concats, transposes and pads: they compute only what it
    keeps.
    """
    return _moved(node, EXACT)


@rule(P.slice(x), weigh=True)
def hoist_slice_over_matmul(node: Node) -> Any:
    """Hoist a slice over matmuls, convolutions, attention and reductions too."""
    return _moved(node, FLOATS)


@rule(P.gather(x, i), weigh=True)
def hoist_gather_over_matmul(node: Node) -> Any:
    """Hoist a gather over matmuls, convolutions, attention and reductions too."""
    return _moved(node, FLOATS)


HOIST_SLICES = [hoist_slice, hoist_gather]
HOIST_SLICES_FLOATS = [hoist_slice_over_matmul, hoist_gather_over_matmul]
