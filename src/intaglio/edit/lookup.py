"""Nodes and tensors by name; unknown names get the nearest ones."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from intaglio.edit.node_names import inner_names
from intaglio.edit.state import State
from intaglio.errors import BadInput, did_you_mean


def nearest(name: str, known: Iterable[str]) -> str:
    """Up to three near names, as a question; names of tensors are often short."""
    return did_you_mean(name, known, most=3, likeness=0.5)


def find_tensor(state: State, name: str) -> str:
    """The name of a tensor of the model; BadInput if it has none."""
    known = state.tensor_names()
    if name in known:
        return name
    if name in state.nodes:
        made = ", ".join(f"'{o}'" for o in state.nodes[name].output if o)
        raise BadInput(f"'{name}' is a node, not a tensor; its results are {made}")
    raise BadInput(_unknown(state, "tensor", name, known))


def find_node(state: State, name: str) -> str:
    """The label of the node with this name, or that computes the tensor of this name."""
    found = _find(state, name)
    if found is None:
        names = [*state.nodes, *_results(state)]
        if state.is_input(name) or name in state.tensors:
            what = "an input" if state.is_input(name) else "a constant"
            raise BadInput(f"'{name}' is {what}, not a node; name a node or its result")
        raise BadInput(_unknown(state, "node", name, names))
    return found


def find_nodes(state: State, selector: str) -> list[str]:
    """Nodes by name, by pattern (`*/Dropout*`), or by operator (`every Dropout`)."""
    every = re.fullmatch(r"every\s+(\S+)", selector.strip())
    if every:
        found = [label for label, n in state.nodes.items() if _operator(n) == every[1]]
        if not found:
            known = {_operator(n) for n in state.nodes.protos()}
            near = did_you_mean(every[1], known) or f"; it has {', '.join(sorted(known))}"
            raise BadInput(f"the model has no node of operator '{every[1]}'{near}")
        return found
    exact = _find(state, selector)
    if exact is None and re.search(r"[*?]", selector):
        pattern = re.compile(fnmatch.translate(selector))
        found = [label for label in state.nodes if pattern.match(label)]
        if found:
            return found
        raise BadInput(
            f"no node matches the pattern '{selector}'; `intaglio edit MODEL` lists the names"
        )
    return [find_node(state, selector)]


def find_input(state: State, name: str) -> str:
    """The name of an input; BadInput if it is none."""
    return _port(state, "input", name, [i.name for i in state.inputs])


def find_output(state: State, name: str) -> str:
    """The name of an output; BadInput if it is none."""
    return _port(state, "output", name, [o.name for o in state.outputs])


def _port(state: State, what: str, name: str, known: list[str]) -> str:
    if name in known:
        return name
    near = did_you_mean(name, known) or f"; its {what}s are {', '.join(known)}"
    if name in state.tensor_names():
        near = f", it is an inner tensor; its {what}s are {', '.join(known)}"
    raise BadInput(f"the model has no {what} '{name}'{near}")


def _find(state: State, name: str) -> str | None:
    return name if name in state.nodes else state.nodes.producer(name)


def _results(state: State) -> list[str]:
    return [o for n in state.nodes.protos() for o in n.output if o]


def _operator(proto: object) -> str:
    domain = getattr(proto, "domain", "")
    name = str(getattr(proto, "op_type", ""))
    return f"{domain}.{name}" if domain and domain != "ai.onnx" else name


def _unknown(state: State, what: str, name: str, known: list[str]) -> str:
    for label, n in state.nodes.items():
        if name in inner_names(n):
            return (
                f"{what} '{name}' is inside of a sub-graph of {n.op_type} '{label}'; only "
                "the main graph can be edited"
            )
    hint = nearest(name, known)
    return f"the model has no {what} '{name}'{hint or '; `intaglio edit MODEL` lists the names'}"
