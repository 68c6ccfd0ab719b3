"""The model's inputs: open dimensions bound, values made constant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, Unsupported
from intaglio.frontends.onnx import tensors
from intaglio.frontends.onnx.scope import Scope
from intaglio.ir import Type, Value, constant


def bind_inputs(
    scope: Scope,
    graph: Any,
    shapes: dict[str, Sequence[int]],
    dims: dict[str, int],
    values: dict[str, Any],
) -> list[Value]:
    """Declare the graph's inputs in `scope`; returns those that stay inputs."""
    stored = {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    table = scope.model.dims
    table.update(dims)
    inputs = [i for i in graph.input if i.name not in stored]
    made = []
    for info in inputs:
        t = info.type.tensor_type
        dtype = tensors.element_type(t.elem_type, f"input '{info.name}'")
        if info.name in values:
            array = np.asarray(values[info.name], dtypes.numpy_of(dtype))
            scope.values[info.name] = constant(array, info.name)
            continue
        if info.name in shapes:
            shape = tuple(shapes[info.name])
        else:
            shape = tuple(
                d.dim_value if d.HasField("dim_value") else table.get(d.dim_param, -1)
                for d in t.shape.dim
            )
            if -1 in shape:
                raise BadInput(f"onnx: input '{info.name}' has open dimensions {shape}")
        v = Value(Type(dtype, shape), info.name)
        scope.values[info.name] = v
        made.append(v)
    return made


__all__ = ["Unsupported", "bind_inputs"]
