"""Fuse clips and lookup tables into int8 depthwise convolutions."""

from __future__ import annotations

import math
from typing import Any

from intaglio import dtypes
from intaglio.ir import Node, Value
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.cpu.qdepthwise import qdepthwise

DEPTHWISE = P.any("cpu.qdepthwise") @ "before"
(t,) = P["t!"]


def _rebuilt(before: Node, table: Value | None = None, **changes: Any) -> Value:
    result: Value = qdepthwise(*before.inputs[:4], table, **{**before.attrs, **changes})
    return result


@rule(P.clip(DEPTHWISE))
def clip_into_qdepthwise(node: Node, before: Node) -> Value | No:
    """Turn a clip of the int8 result into the convolution's bounds."""
    if before.inputs[4:] and before.inputs[4] is not None:
        return no("the convolution already applies a table")
    low, high = dtypes.limits(before.attrs["dtype"])
    lo, hi = (min(max(node.attrs[k], low), high) for k in ("lo", "hi"))
    lo, hi = max(before.attrs["lo"], math.ceil(lo)), min(before.attrs["hi"], math.floor(hi))
    if lo > hi:
        return no(f"the range from {node.attrs['lo']} to {node.attrs['hi']} is empty")
    return _rebuilt(before, lo=lo, hi=hi)


@rule(P.lookup(DEPTHWISE, t))
def table_into_qdepthwise(before: Node, t: Value) -> Value | No:
    """Apply a lookup table inside the convolution that makes its operand."""
    if before.inputs[4:] and before.inputs[4] is not None:
        return no("the convolution already applies a table")
    if t.dtype not in ("i8", "u8"):
        return no(f"the table makes {t.dtype}; the convolution stores 8 bits")
    return _rebuilt(before, t)


QDEPTHWISE_FUSE: tuple[Rule, ...] = (clip_into_qdepthwise, table_into_qdepthwise)
