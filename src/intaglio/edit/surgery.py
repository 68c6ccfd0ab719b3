"""Inserts, replaces and removes nodes, and changes their attributes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from intaglio.edit.inference import Types
from intaglio.edit.lookup import find_node, find_nodes, find_tensor
from intaglio.edit.node_builder import Builder
from intaglio.edit.node_expression import NodeExpression
from intaglio.edit.node_names import copy_of, with_reads
from intaglio.edit.operators import find_operator, make_attribute, refuse_attribute
from intaglio.edit.state import State, keep_only
from intaglio.errors import BadInput


def insert_after(state: State, types: Types, tensor: str, made: NodeExpression) -> str:
    """Put a node between a tensor and all that read it."""
    find_tensor(state, tensor)
    name = state.fresh(f"{tensor}_{made.op}")
    producer = state.nodes.producer(tensor)
    if not state.is_output(tensor):
        node = Builder(state, types).node(made, name, [tensor], [name])
        state.nodes.insert([node], after=producer)
        state.redirect(tensor, name, skip={name})
        state.origin.is_same(name, tensor)  # if it becomes an input, it takes the tensor's place
        state.origin.altered.add(name)
        return f"node '{name}' added"
    if producer is None:
        raise BadInput(f"'{tensor}' is an input or constant and an output; nothing lies between")
    inner = state.fresh(f"{tensor}_original")
    node = Builder(state, {**types, inner: types[tensor]}).node(made, name, [inner], [tensor])
    state.rename_result(tensor, inner)
    state.nodes.insert([_with_operand(node, tensor, inner)], after=producer)
    state.moved(tensor, inner)
    state.origin.is_same(tensor, inner)
    state.origin.altered.add(tensor)
    return f"node '{name}' added"


def insert_before(
    state: State, types: Types, node: str, tensor: str | None, made: NodeExpression
) -> str:
    """Put a node between one node and one of its operands, the first by default."""
    label = find_node(state, node)
    proto = state.nodes[label]
    operands = [name for name in proto.input if name]
    if not operands:
        raise BadInput(f"node '{label}' has no operands; nothing lies before it")
    if tensor is not None and tensor not in operands:
        raise _no_operand(label, tensor, operands)
    tensor = tensor or operands[0]
    name = state.fresh(f"{tensor}_{made.op}")
    new = Builder(state, types).node(made, name, [tensor], [name])
    state.nodes.insert([new], before=label)
    state.nodes.replace(label, with_reads(proto, tensor, name))
    state.origin.altered.add(name)
    return f"node '{name}' added"


def replace(state: State, types: Types, selector: str, made: NodeExpression) -> str:
    """Replace nodes; the new ones have the names, results and (if none are given) operands."""
    found = find_nodes(state, selector)
    builder = Builder(state, types)
    for label in found:
        old = state.nodes[label]
        most = find_operator(state, made.op, made.domain).most_results
        for extra in old.output[most:]:
            if extra and (state.nodes.readers(extra) or state.is_output(extra)):
                raise BadInput(
                    f"{made.op} has {most} result{'s' * (most > 1)}, but '{extra}' of node "
                    f"'{label}' is read; remove its readers first"
                )
        results = list(old.output[:most])
        new = builder.node(made, label, list(old.input), results, True)
        state.nodes.replace(label, new)
        state.origin.altered.update(results)
    return _counted(found, "replaced")


def remove(state: State, selector: str, keep: str | None) -> str:
    """Remove nodes: readers of the result read an operand, the first that is not a constant."""
    found = find_nodes(state, selector)
    for label in found:
        bypass(state, label, keep)
    return _counted(found, "removed")


def bypass(state: State, label: str, keep: str | None, mark: bool = True) -> None:
    """Remove a node; with `mark`, tensors whose values change are marked."""
    proto = state.nodes[label]
    used = [o for o in proto.output if o and (state.nodes.readers(o) or state.is_output(o))]
    if len(used) > 1:
        raise BadInput(
            f"node '{label}' has {len(used)} results that are read ({', '.join(used)}); only nodes "
            "with one can be removed; cut the model, or replace the node"
        )
    operand = _operand_to_keep(state, proto, label, keep)
    same = _passes_through(proto) and [operand, *used] == [proto.input[0], proto.output[0]]
    if not used:
        state.nodes.remove(label)
        return
    changed = [o for k in state.nodes.readers(used[0]) for o in state.nodes[k].output if o]
    if state.is_output(used[0]):
        _end_with(state, label, used[0], operand)
    else:
        state.redirect(used[0], operand)
        state.nodes.remove(label)
    if mark and not same:
        state.origin.altered.update(changed)


def _end_with(state: State, label: str, output: str, tensor: str) -> None:
    """Let an output of the model be another tensor, instead of the result of a node."""
    if state.nodes.producer(tensor) is None or state.is_output(tensor):
        made = type(state.nodes[label])
        node = made(op_type="Identity", name=label, input=[tensor], output=[output])
        state.nodes.replace(label, node)
        state.origin.is_same(output, tensor)
        return
    state.nodes.remove(label)
    state.origin.is_same(output, tensor)
    keep_only(state.graph.value_info, lambda v: v.name != tensor)
    state.move_result(tensor, output)


def _operand_to_keep(state: State, proto: Any, label: str, keep: str | None) -> str:
    operands = [name for name in proto.input if name]
    if keep is not None:
        if keep not in operands:
            raise _no_operand(label, keep, operands)
        return keep
    if not operands:
        raise BadInput(
            f"node '{label}' ({proto.op_type}) has no operand that could take its place; use set "
            "constant, or remove the nodes that read it"
        )
    computed = [n for n in operands if n not in state.tensors and not _is_constant(state, n)]
    return str(computed[0] if computed else operands[0])


def _is_constant(state: State, tensor: str) -> bool:
    producer = state.nodes.producer(tensor)
    return producer is not None and state.nodes[producer].op_type == "Constant"


def _passes_through(proto: Any) -> bool:
    """Whether the node returns its first operand in inference."""
    training = len(proto.input) > 2 and bool(proto.input[2])
    return proto.op_type == "Identity" or (proto.op_type == "Dropout" and not training)


def set_attribute(state: State, selector: str, name: str, value: Any) -> str:
    """Change or add an attribute of nodes; None removes it."""
    found = find_nodes(state, selector)
    for label in found:
        proto = state.nodes[label]
        operator = find_operator(state, proto.op_type, proto.domain)
        if operator.attributes is not None and name not in operator.attributes:
            raise refuse_attribute(operator, name)
        made = copy_of(proto)
        keep_only(made.attribute, lambda a: a.name != name)
        if value is not None:
            made.attribute.append(make_attribute(operator, name, value))
        state.nodes.replace(label, made)
        state.origin.altered.update(o for o in proto.output if o)
    return _counted(found, "changed")


def _with_operand(proto: Any, old: str, new: str) -> Any:
    return with_reads(proto, old, new) if old in proto.input else proto


def _no_operand(label: str, tensor: str, operands: Collection[str]) -> BadInput:
    return BadInput(
        f"'{tensor}' is no operand of node '{label}'; it reads {', '.join(operands) or 'nothing'}"
    )


def _counted(found: list[str], what: str) -> str:
    if len(found) == 1:
        return f"node '{found[0]}' {what}"
    return f"{len(found)} nodes {what}"
