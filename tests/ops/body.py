"""`run(op, *arrays, **attrs)` runs the numpy body of an op and compares it with its lowering."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import intaglio.ops
from intaglio import dtypes
from intaglio.ir import Graph, Type, Value
from intaglio.ops.registry import REGISTRY, evaluate, evaluate_node

FLOATS = {np.float32: 1e-5, np.float64: 1e-10, np.float16: 1e-2, ml_dtypes.bfloat16: 1e-1}

assert intaglio.ops.REGISTRY is REGISTRY


def run(
    op: str, *arrays: Any, tolerance: float = 1e-5, declines: bool = False, **attrs: Any
) -> Any:
    """Outputs of the body; an op with a lowering must give the same outputs through it.

    `declines` says that the lowering does not apply to these arguments: then it must return None.
    """
    given = [None if a is None else np.asarray(a) for a in arrays]
    values = [
        None if a is None else Value(Type(dtypes.name_of(a.dtype), a.shape), f"x{i}")
        for i, a in enumerate(given)
    ]
    node = REGISTRY[op].node(*values, **attrs)
    want = evaluate_node(node, given)
    if REGISTRY[op].lower is not None:
        made = REGISTRY[op].lower(*node.inputs, **node.attrs)
        assert (made is None) == declines, f"the lowering of {op} returned {made}"
        if made is None:
            return want[0] if len(want) == 1 else want
        outputs = [made] if isinstance(made, Value) else made
        inputs = [v for v in values if v is not None]
        got = evaluate(Graph(inputs, outputs), [a for a in given if a is not None])
        for g, w in zip(got, want, strict=True):
            assert g.dtype == w.dtype
            assert g.shape == w.shape
            close(g, w, tolerance)
    return want[0] if len(want) == 1 else want


def close(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    got, want = np.asarray(got).astype(np.float64), np.asarray(want).astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
