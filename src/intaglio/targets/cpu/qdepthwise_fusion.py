"""What follows a depthwise convolution of bytes and is done while its sums are in registers."""

from __future__ import annotations

import math
from typing import Any

from intaglio import dtypes
from intaglio.ir import Node, Value
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.cpu.qdepthwise import qdepthwise

DEPTHWISE = P.any("cpu.qdepthwise") @ "before"
(t,) = P["t!"]


def _again(before: Node, table: Value | None = None, **changes: Any) -> Value:
    made: Value = qdepthwise(*before.inputs[:4], table, **{**before.attrs, **changes})
    return made


@rule(P.clip(DEPTHWISE))
def bounds_into_qdepthwise(node: Node, before: Node) -> Value | No:
    """a clamp of bytes is the bounds of the convolution that makes them"""
    if before.inputs[4:] and before.inputs[4] is not None:
        return no("a table makes the bytes")
    low, high = dtypes.limits(before.attrs["dtype"])
    lo, hi = (min(max(node.attrs[k], low), high) for k in ("lo", "hi"))
    lo, hi = max(before.attrs["lo"], math.ceil(lo)), min(before.attrs["hi"], math.floor(hi))
    if lo > hi:
        return no(f"nothing lies between {node.attrs['lo']} and {node.attrs['hi']}")
    return _again(before, lo=lo, hi=hi)


@rule(P.lookup(DEPTHWISE, t))
def table_into_qdepthwise(before: Node, t: Value) -> Value | No:
    """a function of bytes is looked up where these are made"""
    if before.inputs[4:] and before.inputs[4] is not None:
        return no("a table makes the bytes already")
    if t.dtype not in ("i8", "u8"):
        return no(f"the table makes {t.dtype}; the convolution stores bytes")
    return _again(before, t)


DEPTHWISE_ENDS: tuple[Rule, ...] = (bounds_into_qdepthwise, table_into_qdepthwise)
