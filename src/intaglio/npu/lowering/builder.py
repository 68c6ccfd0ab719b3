"""How rules make NPU nodes: within the chip's limits, from constants, on images of rank 4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Value, release
from intaglio.ops.quantized import INTEGERS
from intaglio.ops.registry import Op
from intaglio.rewrite import No, no

MOVING = ("reshape", "transpose")  # what changes where numbers are, and none of them


class Refused(Exception):
    """A rule cannot keep to the bits of the neutral op, or the chip cannot do it; says why."""


class Maker:
    """Makes nodes for one chip; where it refuses one, all that the rule made is let go again."""

    def __init__(self, why_not: Callable[[Node], str | None]):
        self.why_not = why_not
        self.made: list[Node] = []

    def __call__(self, op: Op, *inputs: Value | None, **attrs: Any) -> Value:
        """One node; Refused where no unit does it."""
        try:
            node = op.node(*inputs, **attrs)
        except BadInput as e:
            raise Refused(str(e)) from None
        if why := self.why_not(node):
            release(node)
            raise Refused(why)
        self.made.append(node)
        return node.outputs[0]

    def shaped(self, v: Value, shape: tuple[int, ...]) -> Value:
        """`v` in another shape: what a reshape before it was given, where that fits."""
        found = before(v, lambda u: u.shape == shape)
        return self.moved(ops.reshape, v, shape=shape) if found is None else found

    def beside(self, *images: Value) -> Value:
        """Channels of real numbers, one image after the other, by the CPU."""
        return self.moved(ops.concat, *images, axis=1)

    def moved(self, op: Op, *values: Value, **attrs: Any) -> Value:
        """A move that the CPU does."""
        node = op.node(*values, **attrs)
        self.made.append(node)
        return node.outputs[0]

    def column(self, rows: Value) -> Value:
        """Rows of channels [M, C, 1] as an image [1, C, M, 1]."""
        m, c = rows.shape[:2]
        turned = self.moved(ops.transpose, self.shaped(rows, (m, c)), perm=(1, 0))
        return self.shaped(turned, (1, c, m, 1))

    def rows(self, column: Value, shape: tuple[int, ...]) -> Value:
        """An image [1, C, M, 1] as rows of channels, in a shape of their own."""
        turned = self.moved(ops.transpose, self.shaped(column, column.shape[1:3]), perm=(1, 0))
        return self.shaped(turned, shape)

    def image(self, v: Value) -> Value:
        """The same numbers as N x C x H x W."""
        if v.type.dynamic:
            raise Refused(f"{v.type} has an extent that is known only at run time")
        if not 2 <= v.type.rank <= 4:
            raise Refused(f"{v.type} is no image: rank {v.type.rank}, 2 to 4 are possible")
        return self.shaped(v, (*v.shape, *[1] * (4 - v.type.rank)))

    def tried(self, build: Callable[..., Value], *given: Any, **named: Any) -> Value | No:
        """What `build` makes, or its refusal; what it made in vain is let go."""
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
    """Does a unit of an NPU do this node?"""
    return node.op.startswith("npu.")


def before(v: Value, fits: Callable[[Value], bool]) -> Value | None:
    """`v`, or what reshapes made it of, as soon as it `fits`."""
    found: Value | None = v
    while found is not None and not fits(found):
        made = found.producer
        found = made.inputs[0] if made is not None and made.op == "reshape" else None
    return found


def of_integers(*values: Value | None) -> None:
    """Refused where one of them is not."""
    for v in values:
        if v is not None and v.dtype not in INTEGERS:
            raise Refused(f"an operand is {v.dtype}; products are of 8 or 16 bits: quantise it")


def data(v: Value) -> Array:
    """The numbers of a constant."""
    assert v.data is not None
    return v.data


def number(v: Value | None) -> int:
    """One integer; 0 where there is none."""
    return 0 if v is None else int(data(v).reshape(-1)[0])


def real(v: Value) -> np.float32:
    """One f32; Refused where there are more, or it is not finite."""
    found = data(v).reshape(-1)
    if found.size != 1:
        raise Refused(f"an activation has {found.size} scales; one per tensor is needed")
    if not np.isfinite(found[0]):
        raise Refused(f"a scale is {found[0]}")
    return np.float32(found[0])
