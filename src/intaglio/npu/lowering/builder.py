"""How lowering rules build NPU nodes: within the chip's limits, on feature maps of rank 4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Value, detach, release
from intaglio.npu.ops.feature_maps import FEATURES
from intaglio.ops.quantized import INTEGERS
from intaglio.ops.registry import Op
from intaglio.rewrite import No, no

LAYOUT_CHANGES = ("reshape", "transpose")  # ops that move elements and change none


class Refused(Exception):
    """Says why a rule does not apply: the chip cannot do it, or a result bit would change."""


class Builder:
    """Makes nodes for one chip. When a rule gives up, `attempt` releases all that it made."""

    moved: tuple[str, ...] = FEATURES  # element types that units only move

    def __init__(self, why_not: Callable[[Node], str | None]):
        self.why_not = why_not
        self.made: list[Node] = []

    def __call__(self, op: Op, *inputs: Value | None, **attrs: Any) -> Value:
        """One node; Refused if no unit can do it."""
        try:
            node = op.node(*inputs, **attrs)
        except BadInput as e:
            raise Refused(str(e)) from None
        if why := self.why_not(node):
            detach(node)  # another attempt may read its inputs; `attempt` releases them else
            raise Refused(why)
        self.made.append(node)
        return node.outputs[0]

    def on_cpu(self, op: Op, *values: Value | None, **attrs: Any) -> Value:
        """A node that the CPU runs, such as a transpose."""
        node = op.node(*values, **attrs)
        self.made.append(node)
        return node.outputs[0]

    def reshaped(self, v: Value, shape: tuple[int, ...]) -> Value:
        """`v` in another shape; undoes an earlier reshape instead of adding one where it can."""
        found = before_reshapes(v, lambda u: u.shape == shape)
        return self.on_cpu(ops.reshape, v, shape=shape) if found is None else found

    def channels_on_cpu(self, *maps: Value) -> Value:
        """Feature maps of f32 concatenated along the channels, by the CPU."""
        return self.on_cpu(ops.concat, *maps, axis=1)

    def as_column(self, rows: Value) -> Value:
        """Rows of channels [M, C, 1] as a feature map [1, C, M, 1]."""
        m, c = rows.shape[:2]
        turned = self.on_cpu(ops.transpose, self.reshaped(rows, (m, c)), perm=(1, 0))
        return self.reshaped(turned, (1, c, m, 1))

    def from_column(self, column: Value, shape: tuple[int, ...]) -> Value:
        """A feature map [1, C, M, 1] as rows of channels, in `shape`."""
        flat = self.reshaped(column, column.shape[1:3])
        return self.reshaped(self.on_cpu(ops.transpose, flat, perm=(1, 0)), shape)

    def as_feature_map(self, v: Value) -> Value:
        """The same numbers as N x C x H x W."""
        if v.type.dynamic:
            raise Refused(f"{v.type} has an extent that is known only at run time")
        if not 2 <= v.type.rank <= 4:
            raise Refused(f"{v.type} has rank {v.type.rank}; feature maps have 2 to 4")
        return self.reshaped(v, (*v.shape, *[1] * (4 - v.type.rank)))

    def attempt(self, build: Callable[..., Value], *given: Any, **named: Any) -> Value | No:
        """The result of `build`, or its refusal; releases the nodes that are not used."""
        self.made = []
        result: Value | No
        try:
            result = build(self, *given, **named)
        except Refused as e:
            result = no(str(e))
        last = result.producer if isinstance(result, Value) else None
        for node in reversed(self.made):
            if node is not last:
                release(node)
        self.made = []
        return result


def is_npu(node: Node) -> bool:
    """Is this an NPU op?"""
    return node.op.startswith("npu.")


def table_input(op: str) -> int:
    """The index of the input that holds the lookup table of an NPU op."""
    return {"npu.lut": 1, "npu.eltwise": 2}.get(op, 5)


def before_reshapes(v: Value, fits: Callable[[Value], bool]) -> Value | None:
    """The first value that `fits` on the way from `v` back through reshapes; None: none does."""
    found: Value | None = v
    while found is not None and not fits(found):
        result = found.producer
        found = result.inputs[0] if result is not None and result.op == "reshape" else None
    return found


def require_integers(*values: Value | None) -> None:
    """Refused unless all of them are integers of 8 or 16 bits."""
    for v in values:
        if v is not None and v.dtype not in INTEGERS:
            raise Refused(f"an operand is {v.dtype}; products take 8 or 16 bits: quantise it")


def data(v: Value) -> Array:
    """The numbers of a constant."""
    assert v.data is not None
    return v.data


def integer(v: Value | None) -> int:
    """The one integer of a constant; 0 if there is no constant."""
    return 0 if v is None else int(data(v).reshape(-1)[0])


def scale_of(v: Value) -> np.float32:
    """The scale of a tensor; Refused if there are several, or it is not finite."""
    found = data(v).reshape(-1)
    if found.size != 1:
        raise Refused(f"an activation has {found.size} scales; one per tensor is needed")
    if not np.isfinite(found[0]):
        raise Refused(f"a scale is {found[0]}; it must be finite")
    return np.float32(found[0])


def two_axes(window: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a window over one axis as those of a window over two."""
    if len(window["stride"]) != 1:
        raise Refused(f"a window has {len(window['stride'])} axes; feature maps have two")
    begin, end = window["pad"]
    widened: dict[str, Any] = {
        k: (*window[k], 1) for k in ("kernel", "stride", "dilation") if k in window
    }
    return {**window, **widened, "pad": (begin, 0, end, 0)}
