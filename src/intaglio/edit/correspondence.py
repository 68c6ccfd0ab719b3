"""Which tensors of the edited model correspond to tensors of the original."""

from __future__ import annotations

from intaglio.edit.origin import View
from intaglio.edit.state import State
from intaglio.frontends.onnx.topological_order import reads


def changed_tensors(state: State) -> set[str]:
    """Tensors whose values edits change on purpose, and those that depend on them."""
    inputs = {i.name for i in state.inputs}
    changed = (set(state.origin.altered) - inputs) | (inputs - views_of_inputs(state).keys())
    for n in state.nodes.protos():  # producers come first
        if not changed.isdisjoint(reads(n)):
            changed.update(o for o in n.output if o)
    return changed


def views_of_inputs(state: State) -> dict[str, View]:
    """The tensor of the original model behind each input, where there is one of its own."""
    views = state.origin.views
    found = {i.name: views[i.name] for i in state.inputs if i.name in views}
    tensors = [v.tensor for v in found.values()]
    return {name: v for name, v in found.items() if tensors.count(v.tensor) == 1}
