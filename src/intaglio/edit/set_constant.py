"""Gives tensors constant values."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.edit.constants import as_array, make_tensor
from intaglio.edit.formula import shape_text
from intaglio.edit.inference import Types
from intaglio.edit.lookup import find_tensor
from intaglio.edit.state import State
from intaglio.edit.tensor_types import dtype_of, shape_of
from intaglio.errors import BadInput
from intaglio.frontends.onnx.input_binding import bound_array
from intaglio.ir import Array


def set_constant(state: State, types: Types, name: str, value: Any) -> str:
    """Give a tensor a constant value: a constant changes, an input or result becomes one.

    A single number fills the shape of the tensor.
    """
    find_tensor(state, name)
    dtype, shape = dtype_of(types.get(name)), shape_of(types.get(name))
    array = as_array(value, name)
    if array.ndim == 0 and shape and all(isinstance(d, int) for d in shape):
        array = np.full(shape, array)
    declared = shape if state.is_input(name) else None
    array = bound_array(name, array, dtype or dtypes.name_of(array.dtype), declared)
    what = _take_away(state, name, array)
    _store(state, name, array)
    made = f"{dtypes.name_of(array.dtype)}[{shape_text(array.shape)}]"
    if what == "constant":
        return f"constant '{name}' has another value, {made}"
    return f"{what} '{name}' is now a constant, {made}"


def _take_away(state: State, name: str, array: Array) -> str:
    """Let no input or node provide the tensor; returns what it was."""
    origin = state.origin
    if state.is_input(name):
        view = origin.views.get(name)
        if view is not None:
            origin.bound[view.tensor] = view.backward(array)
        state.drop_tensor(name)
        return "input"
    origin.altered.add(name)
    if name in state.tensors:
        return "constant"
    if state.nodes.producer(name) is None:
        raise BadInput(f"'{name}' is a sparse constant, which cannot be changed")
    state.rename_result(name, state.fresh(f"{name}_unused"))
    return "result"


def _store(state: State, name: str, array: Array) -> None:
    """Add the constant; an output of the model must be the result of a node."""
    import onnx

    if not state.is_output(name):
        state.add_tensor(make_tensor(name, array))
        return
    stored, node = state.fresh(f"{name}_value"), state.fresh(f"{name}_Identity")
    state.add_tensor(make_tensor(stored, array))
    made = onnx.NodeProto(op_type="Identity", name=node, input=[stored], output=[name])
    state.nodes.insert([made])
