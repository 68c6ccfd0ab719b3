"""Maps variables to the keys of the checkpoint from which the model would restore them."""

from __future__ import annotations

from intaglio.frontends.tensorflow.file import File, Function, Node
from intaglio.frontends.tensorflow.tensor import Tensor, read_strings


def keys_of(file: File) -> dict[str, str]:
    """Checkpoint keys by the names of variable nodes."""
    found = _assigned(file.nodes, {})
    for node in file.nodes.values():
        function = node.attrs.get("f") if "PartitionedCall" in node.op else None
        body = file.functions.get(function.name) if isinstance(function, Function) else None
        if body is None or not any(n.op == "RestoreV2" for n in body.nodes.values()):
            continue
        outside = {a: r.split(":")[0] for a, r in zip(body.args, node.inputs, strict=False)}
        found |= _assigned(body.nodes, outside)
    return found


def _assigned(nodes: dict[str, Node], outside: dict[str, str]) -> dict[str, str]:
    found = {}
    lists: dict[str, list[str]] = {}
    for node in nodes.values():
        if node.op in ("Assign", "AssignVariableOp") and len(node.inputs) == 2:
            target = node.inputs[0].split(":")[0]
            key = _restored(nodes, node.inputs[1], lists)
            if key is not None:
                found[outside.get(target, target)] = key
    return found


def _restored(nodes: dict[str, Node], ref: str, lists: dict[str, list[str]]) -> str | None:
    """The key that a tensor is restored from; None if it is not. `lists` caches key lists."""
    for _ in range(8):  # follow Identity and similar nodes
        name, *rest = ref.split(":")
        node = nodes.get(name)
        if node is None or not node.inputs:
            return None
        if node.op != "RestoreV2":
            ref = node.inputs[0]
            continue
        if len(node.inputs) != 3:
            return None
        if name not in lists:
            names = nodes.get(node.inputs[1].split(":")[0])
            held = names.attrs.get("value") if names is not None else None
            lists[name] = read_strings(held, f"'{name}'") if isinstance(held, Tensor) else []
        at = int(rest[-1]) if rest and rest[-1].isdigit() else 0
        return lists[name][at] if at < len(lists[name]) else None
    return None
