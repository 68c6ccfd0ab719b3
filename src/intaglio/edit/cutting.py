"""Cuts the model at tensors, and adds outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from intaglio.edit.inference import Inference, Types
from intaglio.edit.lookup import find_tensor
from intaglio.edit.state import State, keep_only
from intaglio.edit.tensor_types import dtype_of
from intaglio.errors import BadInput


def cut(
    state: State,
    types: Types,
    inference: Inference,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
) -> str:
    """Let the model start at `inputs` and end at `outputs`; None: where it does already."""
    before = len(state.nodes)
    if outputs is not None:
        _end_at(state, types, inference, outputs)
    if inputs is not None:
        _start_at(state, types, inference, inputs)
    state.prune()
    if inputs is None:
        _, needed = state.needed()
        keep_only(state.graph.input, lambda i: i.name in needed or i.name in state.tensors)
    return f"{before - len(state.nodes)} of {before} nodes removed"


def add_outputs(state: State, types: Types, inference: Inference, names: Sequence[str]) -> str:
    """Make tensors outputs, after those that the model has."""
    for name in names:
        find_tensor(state, name)
        if state.is_output(name):
            raise BadInput(f"'{name}' is an output already; leave it out")
        _refuse_uncomputed(state, name)
        state.graph.output.add(name=name).type.CopyFrom(_type(state, types, inference, name))
    keep_only(state.graph.value_info, lambda v: v.name not in names)
    return f"{len(names)} output{'s' * (len(names) > 1)} added"


def _end_at(state: State, types: Types, inference: Inference, names: Sequence[str]) -> None:
    _refuse_twice(names, "outputs")
    declared = {o.name: o.type for o in state.graph.output}
    found = {}
    for name in names:
        find_tensor(state, name)
        if name not in declared:
            _refuse_uncomputed(state, name)
        found[name] = declared.get(name) or _type(state, types, inference, name)
    _set_infos(state.graph.output, found)
    keep_only(state.graph.value_info, lambda v: v.name not in found)


def _start_at(state: State, types: Types, inference: Inference, names: Sequence[str]) -> None:
    _refuse_twice(names, "inputs")
    declared = {i.name: i.type for i in state.inputs}
    found = {}
    for name in names:
        find_tensor(state, name)
        found[name] = declared.get(name) or _type(state, types, inference, name)
        if name not in declared:
            _disconnect(state, name)
    constants = {i.name: i.type for i in state.graph.input if i.name in state.tensors}
    _set_infos(state.graph.input, {**found, **constants})
    for name in set(declared) - set(found):
        _refuse_needed(state, name)
    keep_only(state.graph.value_info, lambda v: v.name not in found)


def _disconnect(state: State, name: str) -> None:
    """Let nothing compute or store the tensor, which becomes an input."""
    if state.is_output(name):
        raise BadInput(f"'{name}' is an output, which cannot be an input too; cut before it")
    state.origin.altered.discard(name)
    state.drop_tensor(name)
    if state.nodes.producer(name) is not None:  # other results of the node may be needed
        state.rename_result(name, state.fresh(f"{name}_unused"))


def _refuse_needed(state: State, name: str) -> None:
    """BadInput if an output needs an input that the cut does not list."""
    nodes, needed = state.needed()
    if name not in needed and not state.is_output(name):
        return
    readers = [label for label in state.nodes.readers(name) if label in nodes]
    via = f" (node '{readers[0]}' reads it)" if readers else ""
    raise BadInput(
        f"the outputs still need input '{name}'{via}; add '{name}' to the inputs, or cut at "
        "tensors behind it"
    )


def _set_infos(repeated: Any, types: dict[str, Any]) -> None:
    """Replace a list of inputs or outputs; those that stay keep their doc strings."""
    kept = {i.name: i.SerializeToString() for i in repeated}
    del repeated[:]
    for name, type in types.items():
        info = repeated.add()
        if name in kept:
            info.ParseFromString(kept[name])
        else:
            info.name = name
            info.type.CopyFrom(type)


def _type(state: State, types: Types, inference: Inference, name: str) -> Any:
    found = inference.type_of(state, types, name)
    if dtype_of(found) is None:
        raise BadInput(
            f"the element type of '{name}' cannot be inferred; choose a tensor before or after the "
            "node that computes it"
        )
    return found


def _refuse_uncomputed(state: State, name: str) -> None:
    if state.nodes.producer(name) is None:
        what = "an input" if state.is_input(name) else "a constant"
        raise BadInput(f"'{name}' is {what}; only results of nodes can be outputs")


def _refuse_twice(names: Sequence[str], what: str) -> None:
    if not names:
        raise BadInput(f"the cut lists no {what}; name at least one tensor")
    for name in names:
        if list(names).count(name) > 1:
            raise BadInput(f"{what}: '{name}' is given twice; give it once")
