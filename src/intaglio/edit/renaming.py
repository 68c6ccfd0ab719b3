"""Renames tensors and nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from intaglio.edit.lookup import nearest
from intaglio.edit.node_list import NodeList
from intaglio.edit.node_names import copy_of, renamed
from intaglio.edit.state import State
from intaglio.errors import BadInput


def rename(state: State, old: str, new: str) -> str:
    """Rename a tensor and a node; `*` stands for any text, the same in both names."""
    tensors, nodes = set(state.tensor_names()), set(state.nodes)
    if old in tensors | nodes:
        pairs = {old: new}
    elif "*" in old:
        pairs = _matching(old, new, [*state.tensor_names(), *sorted(nodes - tensors)])
    else:
        raise BadInput(f"the model has no tensor or node '{old}'{nearest(old, tensors | nodes)}")
    _refuse(state, pairs)
    _rename_nodes(state, {o: n for o, n in pairs.items() if o in nodes})
    _rename_tensors(state, {o: n for o, n in pairs.items() if o in tensors})
    if len(pairs) > 1:
        return f"{len(pairs)} names changed"
    before, after = next(iter(pairs.items()))
    return f"'{before}' is now '{after}'"


def _matching(old: str, new: str, names: list[str]) -> dict[str, str]:
    if old.count("*") != 1 or new.count("*") > 1:
        raise BadInput(f"rename '{old}' to '{new}': a pattern has one *; write one on each side")
    pattern = re.compile(re.escape(old).replace(r"\*", "(.*)"))
    pairs = {n: new.replace("*", m[1]) for n in names if (m := pattern.fullmatch(n))}
    pairs = {n: made for n, made in pairs.items() if n != made}
    if not pairs:
        raise BadInput(f"no tensor or node matches the pattern '{old}'")
    if len(set(pairs.values())) < len(pairs):
        raise BadInput(
            f"rename '{old}' to '{new}': {len(pairs)} names would become {len(set(pairs.values()))}"
            "; write * in the new name"
        )
    return pairs


def _refuse(state: State, pairs: Mapping[str, str]) -> None:
    """BadInput if a new name is empty or taken."""
    taken = {*state.tensor_names(), *state.nodes, *state.inner_names()}
    for old, new in pairs.items():
        if not new:
            raise BadInput(f"the new name of '{old}' is empty; give a name")
        if new in taken and new != old:
            raise BadInput(f"cannot rename '{old}': '{new}' exists already; names must be unique")


def _rename_nodes(state: State, names: Mapping[str, str]) -> None:
    made = {}
    for label, proto in state.nodes.items():
        if label in names:
            proto = copy_of(proto)
            proto.name = names[label]
        made[names.get(label, label)] = proto
    state.nodes = NodeList(made)


def _rename_tensors(state: State, names: Mapping[str, str]) -> None:
    touched = {label for name in names for label in state.nodes.readers(name)}
    touched |= {label for name in names if (label := state.nodes.producer(name)) is not None}
    for label in touched:
        state.nodes.replace(label, renamed(state.nodes[label], names, names))
    _rename_constants(state, names)
    graph = state.graph
    for info in (*graph.input, *graph.output, *graph.value_info):
        info.name = names.get(info.name, info.name)
    for note in graph.quantization_annotation:
        note.tensor_name = names.get(note.tensor_name, note.tensor_name)
        for pair in note.quant_parameter_tensor_names:
            pair.value = names.get(pair.value, pair.value)
    for old, new in names.items():
        state.moved(old, new)


def _rename_constants(state: State, names: Mapping[str, str]) -> None:
    made = {}
    for name, tensor in state.tensors.items():
        if name in names:
            tensor = copy_of(tensor)
            tensor.name = names[name]
        made[names.get(name, name)] = tensor
    state.tensors = made
    for sparse in state.graph.sparse_initializer:
        sparse.values.name = names.get(sparse.values.name, sparse.values.name)
