"""Importers of reductions; the axes are an operand."""

from __future__ import annotations

from typing import Any

from intaglio import ops
from intaglio.frontends.tflite.file import DTYPES
from intaglio.frontends.tflite.node import TfliteNode, importer
from intaglio.ir import Value
from intaglio.ops.registry import normalize_axis

_REDUCTIONS: dict[str, Any] = {
    "MEAN": ops.reduce_mean,
    "SUM": ops.reduce_sum,
    "REDUCE_MAX": ops.reduce_max,
    "REDUCE_MIN": ops.reduce_min,
    "REDUCE_PROD": ops.reduce_prod,
}


@importer(*_REDUCTIONS)
def reduction(n: TfliteNode) -> Value:
    x = n.required(0)
    axes = tuple(sorted({normalize_axis(a, x.type.rank) for a in n.ints(1)}))
    y: Value = _REDUCTIONS[n.op.op](x, axes=axes, keepdims=bool(n.option("KeepDims", False)))
    return y


@importer("REDUCE_ANY", "REDUCE_ALL", stored=True)
def any_or_all(n: TfliteNode) -> Value:
    """REDUCE_ANY and REDUCE_ALL as max and min of 0 and 1."""
    x = n.required(0)
    axes = tuple(sorted({normalize_axis(a, x.type.rank) for a in n.ints(1)}))
    op = ops.reduce_max if n.op.op == "REDUCE_ANY" else ops.reduce_min
    y = op(ops.cast(x, dtype="u8"), axes=axes, keepdims=bool(n.option("KeepDims", False)))
    result: Value = ops.cast(y, dtype="bool")
    return result


@importer("ARG_MAX", "ARG_MIN", stored=True)
def arg_extreme(n: TfliteNode) -> Value:
    """Indices of the type that the options say, whatever the file declares."""
    x = n.required(0)
    op = ops.argmax if n.op.op == "ARG_MAX" else ops.argmin
    axis = normalize_axis(n.ints(1)[0], x.type.rank)
    said = DTYPES.get(n.option("OutputType", -1))
    dtype = said if said in ("i32", "i64") else n.out().dtype
    y: Value = ops.cast(op(x, axis=axis, keepdims=False), dtype=dtype)
    return y
