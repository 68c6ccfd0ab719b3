"""The model that is being edited: its nodes, constants, inputs and outputs.

Nodes and constants are never changed in place, only replaced, so that a copy of the state is cheap
and an edit that fails leaves no trace.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from intaglio.edit.node_list import NodeList
from intaglio.edit.node_names import copy_of, inner_names, labels, with_reads, with_results
from intaglio.edit.origin import Origin
from intaglio.frontends.onnx.topological_order import reads

INITIALIZERS_ARE_INPUTS = 3  # the last IR version in which graph.input lists the initialisers


@dataclass
class State:
    """A model taken apart. `head` is the ModelProto without nodes and initialisers."""

    head: Any
    nodes: NodeList
    tensors: dict[str, Any]  # initialisers by name
    origin: Origin = field(default_factory=Origin)
    # Tensors whose declared types are certain, although onnx may not be able to infer them.
    pinned: set[str] = field(default_factory=set)

    @staticmethod
    def of(proto: Any) -> State:
        head = _without(proto)
        nodes = NodeList(dict(zip(labels(proto.graph.node), proto.graph.node, strict=True)))
        state = State(head, nodes, {t.name: t for t in proto.graph.initializer})
        state.origin = Origin.of(state.tensor_names())
        return state

    def copy(self) -> State:
        return State(
            copy_of(self.head),
            self.nodes.copy(),
            dict(self.tensors),
            self.origin.copy(),
            set(self.pinned),
        )

    def proto(self) -> Any:
        """The whole model."""
        made = copy_of(self.head)
        made.graph.node.extend(self.nodes.protos())
        made.graph.initializer.extend(self.tensors.values())
        return made

    # ---- looking up ------------------------------------------------------------------------------
    @property
    def graph(self) -> Any:
        """Inputs, outputs and declared types."""
        return self.head.graph

    @property
    def inputs(self) -> list[Any]:
        """The inputs without initialisers, which old files list too."""
        return [i for i in self.graph.input if i.name not in self.tensors]

    @property
    def outputs(self) -> list[Any]:
        return list(self.graph.output)

    def opset(self, domain: str = "") -> int | None:
        """The version of a domain that the model imports."""
        same = ("", "ai.onnx") if domain in ("", "ai.onnx") else (domain,)
        return next((o.version for o in self.head.opset_import if o.domain in same), None)

    def tensor_names(self) -> list[str]:
        """Names of all tensors of the main graph, in the order of the file."""
        result = dict.fromkeys(i.name for i in self.graph.input)
        result |= dict.fromkeys(self.tensors)
        result |= dict.fromkeys(t.values.name for t in self.graph.sparse_initializer)
        result |= dict.fromkeys(name for n in self.nodes.protos() for name in n.output if name)
        return list(result)

    def is_output(self, tensor: str) -> bool:
        return any(o.name == tensor for o in self.graph.output)

    def is_input(self, tensor: str) -> bool:
        return any(i.name == tensor for i in self.inputs)

    def fresh(self, *wishes: str) -> str:
        """A name that nothing has: the first of the wishes that is free, or the last numbered."""
        taken = {*self.tensor_names(), *self.nodes, *self.inner_names()}
        for name in wishes:
            if name not in taken:
                return name
        return next(name for i in range(1, 1 << 31) if (name := f"{wishes[-1]}_{i}") not in taken)

    def inner_names(self) -> set[str]:
        """Names inside of the sub-graphs of nodes."""
        return {name for n in self.nodes.protos() for name in inner_names(n)}

    # ---- changing --------------------------------------------------------------------------------
    def redirect(self, old: str, new: str, skip: Collection[str] = ()) -> None:
        """Let every node that reads `old` read `new`, except those in `skip`."""
        for label in self.nodes.readers(old):
            if label not in skip:
                self.nodes.replace(label, with_reads(self.nodes[label], old, new))

    def rename_result(self, old: str, new: str) -> None:
        """Rename a tensor for the node that computes it, and for nothing else."""
        label = self.nodes.producer(old)
        assert label is not None, f"'{old}' is not computed"
        self.nodes.replace(label, with_results(self.nodes[label], old, new))

    def move_result(self, old: str, new: str) -> None:
        """Rename a computed tensor for its node, its readers and its declared type.

        Outputs of the model keep their names.
        """
        self.rename_result(old, new)
        self.redirect(old, new)
        for info in self.graph.value_info:
            if info.name == old:
                info.name = new
        self.moved(old, new)

    def moved(self, old: str, new: str) -> None:
        """Note that a tensor has another name."""
        self.origin.move(old, new)
        if old in self.pinned:
            self.pinned.remove(old)
            self.pinned.add(new)

    def pin(self, name: str, type: Any) -> None:
        """Declare the type of a tensor that an edit adds."""
        keep_only(self.graph.value_info, lambda v: v.name != name)
        self.graph.value_info.add(name=name).type.CopyFrom(type)
        self.pinned.add(name)

    def add_tensor(self, tensor: Any) -> None:
        """Add an initialiser; old files list it among the inputs too."""
        self.tensors[tensor.name] = tensor
        if self.head.ir_version <= INITIALIZERS_ARE_INPUTS:
            listed = next((i for i in self.graph.input if i.name == tensor.name), None)
            info = self.graph.input.add(name=tensor.name) if listed is None else listed
            info.type.tensor_type.elem_type = tensor.data_type
            info.type.tensor_type.shape.ClearField("dim")
            for extent in tensor.dims:
                info.type.tensor_type.shape.dim.add(dim_value=extent)

    def drop_tensor(self, name: str) -> None:
        """Remove an initialiser, and the input of the same name in old files."""
        self.tensors.pop(name, None)
        keep_only(self.graph.input, lambda i: i.name != name)

    # ---- cleaning up -----------------------------------------------------------------------------
    def needed(self) -> tuple[set[str], set[str]]:
        """Labels of the nodes, and names of the tensors, that the outputs depend on."""
        nodes: set[str] = set()
        tensors = {o.name for o in self.graph.output}
        stack = list(tensors)
        while stack:
            label = self.nodes.producer(stack.pop())
            if label is None or label in nodes:
                continue
            nodes.add(label)
            new = set(reads(self.nodes[label])) - tensors
            tensors |= new
            stack += new
        return nodes, tensors

    def unneeded(self) -> set[str]:
        """Labels of nodes, and names of constants, that no output depends on."""
        nodes, tensors = self.needed()
        unread = {n for n in (*self.tensors, *self._sparse()) if n not in tensors}
        return {label for label in self.nodes if label not in nodes} | unread

    def _sparse(self) -> list[str]:
        return [t.values.name for t in self.graph.sparse_initializer]

    def prune(self, spared: Collection[str] = ()) -> None:
        """Remove nodes and constants that no output needs, except those that are `spared`."""
        gone = self.unneeded() - set(spared)
        self.nodes.keep(set(self.nodes) - gone)
        for name in [n for n in self.tensors if n in gone]:
            self.drop_tensor(name)
        keep_only(self.graph.sparse_initializer, lambda t: t.values.name not in gone)
        self._prune_dangling()
        known = set(self.tensor_names())
        keep_only(self.graph.value_info, lambda v: v.name in known)
        keep_only(self.graph.quantization_annotation, lambda q: q.tensor_name in known)

    def _prune_dangling(self) -> None:
        """Remove spared nodes whose operands are gone."""
        while True:
            known = set(self.tensor_names())
            kept = [n for n, proto in self.nodes.items() if known.issuperset(reads(proto))]
            if len(kept) == len(self.nodes):
                return
            self.nodes.keep(set(kept))


def keep_only(repeated: Any, wanted: Any) -> None:
    """Remove the items of a repeated protobuf field that are not wanted."""
    for i in reversed([i for i, item in enumerate(repeated) if not wanted(item)]):
        del repeated[i]


def _without(proto: Any) -> Any:
    """A copy of the model without nodes and initialisers."""
    made = type(proto)()
    for name, value in _fields(proto):
        if name != "graph":
            _set(made, name, value)
    made.graph.SetInParent()
    for name, value in _fields(proto.graph):
        if name not in ("node", "initializer"):
            _set(made.graph, name, value)
    return made


def _fields(message: Any) -> Iterable[tuple[str, Any]]:
    return ((descriptor.name, value) for descriptor, value in message.ListFields())


def _set(message: Any, name: str, value: Any) -> None:
    if hasattr(value, "CopyFrom"):
        getattr(message, name).CopyFrom(value)
    elif hasattr(value, "__len__") and not isinstance(value, str | bytes):
        getattr(message, name).extend(value)
    else:
        setattr(message, name, value)
