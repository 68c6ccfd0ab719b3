"""Gated linear units: one half of a tensor times an activation of the other half."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.ops.activation import gelu, relu, sigmoid, swish
from intaglio.ops.elementwise import floats, mul, tanh
from intaglio.ops.precision import widen
from intaglio.ops.registry import normalize_axis, op
from intaglio.ops.shape import part

GATES: dict[str, tuple[Any, dict[str, Any]]] = {
    "sigmoid": (sigmoid, {}),
    "swish": (swish, {"alpha": 1.0}),
    "gelu": (gelu, {"approximate": "none"}),
    "gelu_tanh": (gelu, {"approximate": "tanh"}),
    "relu": (relu, {}),
    "tanh": (tanh, {}),
}


def _glu(x: Value, *, axis: int, act: str, gate_first: bool) -> Type:
    t, at = floats(x), normalize_axis(axis, x.type.rank)
    if x.shape[at] % 2 or at in x.type.dynamic:
        raise BadInput(f"glu: axis {at} of {x.type} cannot be halved")
    if act not in GATES:
        raise BadInput(f"glu: gate {act!r} is not one of {', '.join(GATES)}")
    return t.but(shape=tuple(n // 2 if i == at else n for i, n in enumerate(x.shape)))


@op(_glu, torch="glu")
@widen
def glu(x: Array, *, axis: int = -1, act: str = "sigmoid", gate_first: bool = False) -> Array:
    """first * act(second) for the halves of x along `axis`; act(first) * second if `gate_first`."""
    first, second = np.split(x, 2, axis)
    gate, value = (first, second) if gate_first else (second, first)
    result, attrs = GATES[act]
    return value * result.body(gate, **attrs)


@glu.lowers
def _(x: Value, *, axis: int = -1, act: str = "sigmoid", gate_first: bool = False) -> Value:
    n = x.shape[axis]
    first, second = part(x, 0, n // 2, axis=axis), part(x, n // 2, n, axis=axis)
    gate, value = (first, second) if gate_first else (second, first)
    result, attrs = GATES[act]
    product: Value = mul(value, result(gate, **attrs))
    return product
