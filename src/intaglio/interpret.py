"""The reference interpreter: runs a Graph in numpy. All kernels are tested against it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intaglio import dtypes
from intaglio.arguments import described, require_graph
from intaglio.errors import BadInput
from intaglio.feeds import check_inputs, require_names
from intaglio.ir import Array, Graph, Type
from intaglio.open_graph import at_size, sizes_of


def interpret(
    graph: Graph, inputs: Mapping[str, Array], keep: dict[str, Array] | None = None
) -> dict[str, Array]:
    """Run a graph in numpy and return its outputs by name.

    A dict given as `keep` also receives every named intermediate tensor. States that are missing
    from `inputs` start with their initial values; their new values are among the outputs.
    """
    from intaglio.ops.registry import evaluate  # here, so that `import intaglio` stays quick

    require_graph(graph, "interpret")
    types = {v.name: v.type for v in graph.inputs}
    require_names("intaglio.interpret(graph, {})", types, inputs)
    if keep is not None and not isinstance(keep, dict):
        raise BadInput(f"keep is {described(keep)}; give a dict, which receives the tensors")
    states = {n: initial_state(types[n], a) for n, a in graph.state.items() if n not in inputs}
    arrays = check_inputs(types, {**states, **inputs})
    if not all(t.fixed for t in types.values()):
        graph = at_size(graph, sizes_of(types, [arrays[n].shape for n in types]))
    outputs = evaluate(graph, [arrays[v.name] for v in graph.inputs], keep)
    return dict(zip(graph.output_names, outputs, strict=True))


def initial_state(type: Type, initial: Array | None) -> Array:
    """The first value of a state; zeros unless it is given."""
    return np.zeros(type.shape, dtypes.numpy_of(type.dtype)) if initial is None else initial
