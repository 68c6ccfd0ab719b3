"""ONNX forms of reshape, slice, pad and others, and of ops with run-time shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import onnx

from intaglio.export.onnx.elementwise import number, only
from intaglio.export.onnx.expression import NEWEST, OLDEST, Forms, Onnx, make, writes
from intaglio.frontends.onnx.open_shapes import means_the_same
from intaglio.ir import Node, Value

TO_THE_END = (1 << 63) - 1  # ONNX's slice end
_NO_EXTENT = 1 << 40  # larger than any extent


@writes("reshape")
def reshape(n: Node) -> Onnx:
    x, shape = only(n), n.attrs["shape"]
    if -1 in shape and not n.outputs[0].type.dynamic:
        shape = n.outputs[0].shape
    return make("Reshape", x, shape, allowzero=1 if 0 in shape else None)


@writes("reshape_to")
def reshape_to(n: Node) -> Onnx:
    return make("Reshape", *n.inputs, allowzero=1)


@writes("expand")
def expand(n: Node) -> Onnx:
    return make("Expand", only(n), n.attrs["shape"])


@writes("expand_to")
def expand_to(n: Node) -> Onnx:
    return make("Expand", *n.inputs)


@writes("tile")
def tile(n: Node) -> Onnx:
    return make("Tile", only(n), n.attrs["repeats"])


@writes("space_to_depth")
def space_to_depth(n: Node) -> Forms:
    """ONNX has only mode DCR (depth, column, row); CRD is lowered."""
    block, plain = n.attrs["blocksize"], n.attrs["mode"] == "DCR"
    return make("SpaceToDepth", only(n), blocksize=block) if plain else ()


@writes("slice")
def slice_(n: Node) -> Onnx:
    x = only(n)
    cuts = list(zip(n.attrs["start"], n.attrs["stop"], n.attrs["step"], strict=True))
    axes = [i for i, cut in enumerate(cuts) if not _whole(x, i, *cut)]
    starts, stops, steps = ([cuts[i][k] for i in axes] for k in range(3))
    stops = [TO_THE_END if s > _NO_EXTENT else -TO_THE_END if s < -_NO_EXTENT else s for s in stops]
    return make("Slice", x, starts, stops, axes, steps if set(steps) - {1} else None)


def _whole(x: Value, axis: int, start: int, stop: int, step: int) -> bool:
    return start == 0 and stop >= x.shape[axis] and step == 1


@writes("slice_to")
def slice_to(n: Node) -> Onnx:
    x, starts, stops, steps = n.inputs
    return make("Slice", x, starts, stops, n.attrs["axes"], steps)


@writes("pad")
def pad(n: Node) -> Onnx:
    x, value = only(n), n.attrs["value"]
    given = number(value, x.dtype) if value and n.attrs["mode"] == "constant" else None
    pads = [*n.attrs["before"], *n.attrs["after"]]
    return make("Pad", x, pads, given, mode=n.attrs["mode"])


@writes("onnx.node")
def onnx_node(n: Node) -> Forms:
    """A node of the file, in the opsets that mean the same by it."""
    op_type, since = n.attrs["op_type"], n.attrs["since"]
    protos = [onnx.AttributeProto.FromString(a) for a in n.attrs["attributes"]]
    form = make(op_type, *n.inputs, **{a.name: a for a in protos})
    form = replace(form, places=n.attrs["places"])
    same = [v for v in range(OLDEST, NEWEST + 1) if means_the_same(op_type, since, v)]
    return tuple(form.between(v, v) for v in same)


@writes("range")
def range_(n: Node) -> Onnx:
    return make("Range", *(scalar(v) for v in n.inputs))


def scalar(v: Value | None) -> Any:
    """A tensor of one element as the scalar that ONNX needs."""
    assert v is not None
    if v.data is not None:
        return v.data.reshape(())
    return v if v.type.rank == 0 else make("Reshape", v, [])
