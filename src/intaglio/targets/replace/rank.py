"""Replace ops whose tensors have more or fewer axes than a unit supports."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

from intaglio import ops
from intaglio.ir import Node, Value
from intaglio.ops.registry import REGISTRY, normalize_axis
from intaglio.rewrite import P, Rule, no
from intaglio.targets.replace.builder import (
    Ints,
    folded,
    rebuilt,
    replacement,
    reshaped,
    sliced,
    transposed,
)

POOLS = ("max_pool", "avg_pool", "lp_pool")
WEIGHTED = ("conv", "conv_transpose")
NORMS = ("batch_norm", "instance_norm", "group_norm")
WINDOWS = {"kernel": 1, "stride": 1, "dilation": 1, "output_pad": 0}  # values for an added axis


# ---- one and two spatial axes --------------------------------------------------------------------
@replacement(P.any(*WEIGHTED, *POOLS, *NORMS, "resize"))
def add_spatial_axis(node: Node) -> Any:
    """Add a spatial axis of size 1 to one-dimensional convolutions, poolings and norms; exact."""
    x, *rest = node.inputs
    assert x is not None
    if x.type.rank != 3:
        return None
    attrs = {k: (unit, *node.attrs[k]) for k, unit in WINDOWS.items() if k in node.attrs}
    if "pad" in node.attrs:
        first, last = node.attrs["pad"]
        attrs["pad"] = (0, first, 0, last)
    if node.op == "resize":
        axes = (a % 3 for a in node.attrs["axes"])
        attrs["axes"] = tuple(a + (a == 2) for a in axes)
    w = rest[0] if node.op in WEIGHTED else None
    if w is not None:
        rest[0] = folded(reshaped(w, *w.shape[:2], 1, w.shape[2]))
    y = rebuilt(node, reshaped(x, *x.shape[:2], 1, x.shape[2]), *rest, **attrs)
    result = y if isinstance(y, list) else [y]
    return [reshaped(v, *out.shape) for v, out in zip(result, node.outputs, strict=True)]


@replacement(P.any("conv", *POOLS))
def drop_spatial_axis(node: Node) -> Any:
    """Drop a spatial axis of size 1 of a convolution or pooling; exact."""
    x, *rest = node.inputs
    assert x is not None
    out = node.outputs[0].shape
    if x.type.rank != 4 or node.attrs.get("with_indices"):
        return None
    unit = next((k for k in (0, 1) if x.shape[2 + k] == out[2 + k] == 1), None)
    if unit is None:
        return None
    w = rest[0] if node.op == "conv" else None
    kernel = w.shape[2:] if w is not None else node.attrs["kernel"]
    before, far = node.attrs["pad"][unit], node.attrs["dilation"][unit]
    if w is None and (kernel[unit] > 1 or before):
        return no(f"the window {kernel} exceeds the image {x.shape[2:]}")
    if before % far or before // far >= kernel[unit]:
        return no("the window contains only padding")
    keep = 1 - unit
    attrs: dict[str, Ints]
    attrs = {k: (node.attrs[k][keep],) for k in WINDOWS if k in node.attrs}
    attrs["pad"] = (node.attrs["pad"][keep], node.attrs["pad"][2 + keep])
    if w is not None:  # only one row of the kernel meets the image, the other rows see padding
        row = before // far
        spans = [(0, d) for d in w.shape]
        spans[2 + unit] = (row, row + 1)
        rest[0] = folded(reshaped(sliced(w, spans), *w.shape[:2], kernel[keep]))
    return reshaped(
        rebuilt(node, reshaped(x, *x.shape[:2], x.shape[2 + keep]), *rest, **attrs), *out
    )


# ---- three spatial axes --------------------------------------------------------------------------
@replacement(P.conv(*P["x w b?"]))
def conv3d_as_conv2d(node: Node, x: Value, w: Value, b: Value | None) -> Any:
    """Replace a 3D convolution by a sum of 2D convolutions over the kernel's depth."""
    if x.type.rank != 5:
        return None
    a = node.attrs
    n, m, depth, *out = node.outputs[0].shape
    image = {k: a[k][1:] for k in ("stride", "dilation")}
    image["pad"] = (*a["pad"][1:3], *a["pad"][4:])
    c, rows, columns = x.shape[1], *x.shape[3:]
    volume, front, back = x, a["pad"][0], a["pad"][3]
    if front or back:
        volume = ops.pad(x, before=(0, 0, front, 0, 0), after=(0, 0, back, 0, 0))
    slices = transposed(reshaped(volume, n, c, volume.shape[2], rows * columns), 0, 2, 1, 3)
    total = None
    for k in range(w.shape[2]):
        first, step = k * a["dilation"][0], a["stride"][0]
        spans = [(0, n), (first, first + (depth - 1) * step + 1), (0, c), (0, rows * columns)]
        seen = reshaped(sliced(slices, spans, (1, step, 1, 1)), n * depth, c, rows, columns)
        flat = [(0, m), (0, w.shape[1]), (k, k + 1), (0, w.shape[3]), (0, w.shape[4])]
        weights = folded(reshaped(sliced(w, flat), m, w.shape[1], *w.shape[3:]))
        y = ops.conv(seen, weights, None if total else b, groups=a["groups"], **image)
        total = y if total is None else ops.add(total, y)
    assert total is not None
    split = transposed(reshaped(total, n, depth, m, math.prod(out)), 0, 2, 1, 3)
    return reshaped(split, n, m, depth, *out)


# ---- high ranks ----------------------------------------------------------------------------------
def _joined(labels: Sequence[Hashable]) -> list[list[int]]:
    """Groups of adjacent axes with equal labels; None matches any label."""
    groups: list[list[int]] = []
    last: Hashable = None
    for axis, label in enumerate(labels):
        if groups and (label is None or last is None or label == last):
            groups[-1].append(axis)
            last = label if last is None else last
        else:
            groups.append([axis])
            last = label
    return groups


def _merged(shape: Ints, groups: list[list[int]]) -> Ints:
    full = (1,) * (groups[-1][-1] + 1 - len(shape)) + shape
    return tuple(math.prod(full[i] for i in g) for g in groups)


def _elementwise_labels(node: Node) -> list[Hashable]:
    """Per axis: which operands broadcast along it; None if its size is 1."""
    rank = node.outputs[0].type.rank
    shapes = [(1,) * (rank - v.type.rank) + v.shape for v in node.inputs if v is not None]
    return [None if max(ds) == 1 else tuple(d == 1 for d in ds) for ds in zip(*shapes, strict=True)]


def _labels(node: Node, x: Value) -> list[Hashable] | None:
    """Per axis: its own label if the op treats it specially, else a common one; None:
    unknown op.
    """
    a, rank = node.attrs, x.type.rank
    if node.op == "expand":
        out = node.outputs[0].shape
        full = (1,) * (len(out) - rank) + x.shape
        return [None if o == 1 else d == 1 for o, d in zip(out, full, strict=True)]
    if node.op in ("concat", "softmax", "log_softmax"):
        special = {a["axis"] % rank}
    elif node.op == "slice":
        cuts = zip(a["start"], a["stop"], a["step"], x.shape, strict=True)
        special = {i for i, (*c, d) in enumerate(cuts) if range(*slice(*c).indices(d)) != range(d)}
    elif node.op == "pad":
        special = {i for i in range(rank) if a["before"][i] or a["after"][i]}
    elif node.op == "tile":
        special = {i for i, r in enumerate(a["repeats"]) if r != 1}
    elif node.op.startswith("reduce_"):
        return ["reduced" if i in a["axes"] else "kept" for i in range(rank)]
    else:
        return None
    return [i if i in special else "kept" for i in range(rank)]


def _attrs(node: Node, x: Value, groups: list[list[int]]) -> dict[str, Any]:
    """The attributes of `node` if every group of axes is one axis."""
    a: dict[str, Any] = node.attrs
    results: dict[str, Any] = {}
    where = {axis: k for k, g in enumerate(groups) for axis in g}
    if "axis" in a:
        results["axis"] = where[a["axis"] % x.type.rank]
    if "axes" in a:
        results["axes"] = tuple(sorted({where[i] for i in a["axes"]}))
        results["keepdims"] = True
    for name, whole in NEUTRAL.items():
        if name in a:
            results[name] = tuple(a[name][g[0]] if len(g) == 1 else whole for g in groups)
    if node.op == "expand":
        results["shape"] = _merged(node.outputs[0].shape, groups)
    return results


def _axis_by_axis(node: Node, x: Value, labels: Sequence[Hashable]) -> Value:
    """A slice, pad or tile applied to one axis after the other."""
    for axis in (i for i, label in enumerate(labels) if label != "kept"):
        attrs = {
            name: tuple(node.attrs[name][i] if i == axis else whole for i in range(len(labels)))
            for name, whole in NEUTRAL.items()
            if name in node.attrs
        }
        x = rebuilt(node, x, **attrs)
    return x


NEUTRAL = {"before": 0, "after": 0, "repeats": 1, "start": 0, "step": 1, "stop": 2**62}
JOINED = (
    "concat",
    "softmax",
    "log_softmax",
    "slice",
    "pad",
    "tile",
    "expand",
    "reduce_sum",
    "reduce_mean",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
)
ELEMENTWISE = tuple(name for name, o in REGISTRY.items() if o.elementwise)


def merge_axes(rank: int = 4) -> Rule:
    """For units that support tensors of at most `rank` axes; reshapes are free."""

    @replacement(P.any(*JOINED, *ELEMENTWISE))
    def merge_axes(node: Node) -> Any:
        """Merge adjacent axes that the op treats alike; exact."""
        values = [v for v in node.inputs if v is not None]
        out = node.outputs[0]
        if max(v.type.rank for v in (*values, out)) <= rank:
            return None
        plain = REGISTRY[node.op].elementwise
        labels = _elementwise_labels(node) if plain else _labels(node, values[0])
        assert labels is not None
        groups = _joined(labels)
        if len(groups) > rank and node.op in ("slice", "pad", "tile"):
            return _axis_by_axis(node, values[0], labels)
        if len(groups) > rank:
            return no(f"{len(groups)} axes of {out.type} cannot be merged further")
        small = [folded(reshaped(v, *_merged(v.shape, groups))) for v in values]
        attrs = {} if plain else _attrs(node, values[0], groups)
        return reshaped(rebuilt(node, *small, **attrs), *out.shape)

    return merge_axes


def merge_batch_axes(rank: int = 4) -> Rule:
    """For units whose matmuls, norms and gathers have at most `rank` axes."""

    @replacement(P.any("matmul", "layer_norm", "rms_norm", "gather"))
    def merge_batch_axes(node: Node) -> Any:
        """Merge the batch axes of a matmul, norm or gather; exact."""
        x, *rest = node.inputs
        out = node.outputs[0]
        assert x is not None
        if max(v.type.rank for v in (x, *rest, out) if v is not None) <= rank:
            return None
        if node.op == "gather":
            axis = node.attrs["axis"] % x.type.rank
            lead, tail = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
            at = rest[0]
            assert at is not None
            places = folded(reshaped(at, at.type.size))
            y = rebuilt(node, reshaped(x, lead, x.shape[axis], tail), places, axis=1)
            return reshaped(y, *out.shape)
        if node.op != "matmul":
            axis = normalize_axis(node.attrs["axis"], x.type.rank)
            lead, tail = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
            params = [None if p is None else folded(reshaped(p, tail)) for p in rest]
            return reshaped(rebuilt(node, reshaped(x, lead, tail), *params, axis=1), *out.shape)
        (w,) = rest
        assert w is not None
        if w.type.rank <= 2 < x.type.rank:
            y = ops.matmul(reshaped(x, math.prod(x.shape[:-1]), x.shape[-1]), w)
        elif x.shape[:-2] == w.shape[:-2]:
            count = math.prod(x.shape[:-2])
            y = ops.matmul(reshaped(x, count, *x.shape[-2:]), reshaped(w, count, *w.shape[-2:]))
        else:
            return no(f"the batches of {x.type} and {w.type} differ")
        return reshaped(y, *out.shape)

    return merge_batch_axes


RANKS: list[Rule] = [
    add_spatial_axis,
    drop_spatial_axis,
    conv3d_as_conv2d,
    merge_axes(),
    merge_batch_axes(),
]
