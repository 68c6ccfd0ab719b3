"""The reference interpreter: runs a Graph in numpy. All kernels are tested against it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, option
from intaglio.ir import Array, Graph, Type


def interpret(
    graph: Graph, inputs: Mapping[str, Array], keep: dict[str, Array] | None = None
) -> dict[str, Array]:
    """Run a graph in numpy and return its outputs by name.

    A dict given as `keep` also receives every named intermediate tensor. States that are missing
    from `inputs` start with their initial values; their new values are among the outputs.
    """
    from intaglio.ops.registry import evaluate  # here, so that `import intaglio` stays quick

    types = {v.name: v.type for v in graph.inputs}
    states = {n: initial_state(types[n], a) for n, a in graph.state.items() if n not in inputs}
    arrays = check_inputs(types, {**states, **inputs})
    outputs = evaluate(graph, [arrays[v.name] for v in graph.inputs], keep)
    return dict(zip(graph.output_names, outputs, strict=True))


def initial_state(type: Type, initial: Array | None) -> Array:
    """The first value of a state; zeros unless it is given."""
    return np.zeros(type.shape, dtypes.numpy_of(type.dtype)) if initial is None else initial


def check_inputs(types: Mapping[str, Type], inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs as arrays, in the order of `types`; BadInput where a name or type is wrong."""
    if unknown := [n for n in inputs if n not in types]:
        raise BadInput(f"no input is called '{unknown[0]}'; the model has {_names(types)}")
    if missing := [n for n in types if n not in inputs]:
        raise BadInput(f"input '{missing[0]}' is missing; the model needs {_names(types)}")
    checked = {}
    for name, t in types.items():
        a = np.asarray(inputs[name])
        if a.dtype != dtypes.numpy_of(t.dtype):
            want = dtypes.numpy_of(t.dtype)
            raise BadInput(
                f"input '{name}' has dtype {a.dtype}, the model takes {want}; use .astype('{want}')"
            )
        if a.shape != t.shape:
            raise BadInput(
                f"input '{name}' has shape {a.shape}, the model was loaded for {t.shape}; "
                f"resize it or load the model with {option('shapes', {name: a.shape})}"
            )
        checked[name] = a
    return checked


def _names(types: Mapping[str, Type]) -> str:
    return ", ".join(f"'{n}' {t}" for n, t in types.items()) or "no inputs"
