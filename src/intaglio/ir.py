"""The intermediate representation: Type, Value, Node and Graph."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.symint import bound, is_symbolic

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Quant:
    """real = scale * (stored - zero); `axis` None means one scale for the whole tensor."""

    scale: tuple[float, ...]
    zero: tuple[int, ...]
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class Type:
    """Element type, shape and quantisation of a tensor.

    `dynamic` lists the axes whose extent is known only at run time (the number of detections, for
    example). `shape` then holds their upper bound, which memory is planned for.
    """

    dtype: str
    shape: tuple[int, ...]
    quant: Quant | None = None
    dynamic: tuple[int, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements; of a dynamic type, at the upper bound."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in bytes, at the upper bound of extents that are known only at run time."""
        return bound(self.size) * dtypes.itemsize(self.dtype)

    @property
    def fixed(self) -> bool:
        """Whether every extent is known when compiling."""
        return not self.dynamic and not is_symbolic(self.shape)

    def but(self, **changes: Any) -> Type:
        """This type with some fields changed."""
        return replace(self, **changes)

    def __str__(self) -> str:
        dims = ["<=" * (i in self.dynamic) + str(d) for i, d in enumerate(self.shape)]
        between = ", " if is_symbolic(self.shape) else "x"
        return f"{self.dtype}{'q' if self.quant else ''}[{between.join(dims)}]"


class Value:
    """One tensor. It is a graph input, a constant (`data`), or output `index` of `producer`."""

    __slots__ = ("data", "index", "name", "producer", "type", "uses")

    def __init__(self, type: Type, name: str = "", data: Array | None = None):
        self.type, self.name, self.data = type, name, data
        self.producer: Node | None = None
        self.index = 0
        self.uses: dict[Node, None] = {}  # readers, in insertion order for determinism

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype

    def __repr__(self) -> str:
        return f"Value({self.name or '?'}: {self.type})"


class Node:
    """One operation. `op` is a key of ops.REGISTRY; `attrs` are that op's keyword arguments."""

    __slots__ = ("attrs", "inputs", "op", "origin", "outputs")

    def __init__(
        self,
        op: str,
        inputs: Sequence[Value | None],
        attrs: dict[str, Any],
        types: Sequence[Type],
        origin: str = "",
    ):
        self.op, self.inputs, self.attrs = op, list(inputs), attrs
        self.origin = origin  # name of the node in the user's file, e.g. "Conv_12"
        self.outputs = [Value(t) for t in types]
        for i, v in enumerate(self.outputs):
            v.producer, v.index = self, i
        for x in inputs:
            if x is not None:
                x.uses[self] = None

    def bodies(self) -> list[Graph]:
        """The graphs among the attributes: the bodies of control flow."""
        return [a for a in self.attrs.values() if isinstance(a, Graph)]

    def __repr__(self) -> str:
        return f"Node({self.op} {self.origin})"


def constant(data: Any, name: str = "", dtype: str | None = None) -> Value:
    """A constant tensor. Python floats become f32, Python ints i64, unless `dtype` is given."""
    if dtype is not None:
        array = np.asarray(data, dtypes.numpy_of(dtype))
    else:
        array = np.asarray(data)
        if array.dtype == np.float64 and not isinstance(data, np.ndarray | np.generic):
            array = array.astype(np.float32)
    return Value(Type(dtypes.name_of(array.dtype), array.shape), name, array)


class Graph:
    """A computation: inputs, outputs, and every node that an output needs.

    No node list is stored: `nodes()` walks from the outputs, so dead code disappears by itself. The
    outputs are the inputs of one pseudo-node, `result`, so that being an output counts as a use.

    `state` maps names to initial values (None: zeros). A state is an input and an output of the
    same name and type: each call reads the value that the previous call wrote.
    """

    def __init__(
        self,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        output_names: Sequence[str] | None = None,
        name: str = "",
        metadata: dict[str, str] | None = None,
        state: Mapping[str, Array | None] | None = None,
    ):
        self.inputs = list(inputs)
        self.result = Node("result", outputs, {}, [])
        self.output_names = list(output_names or (v.name for v in outputs))
        self.name = name
        self.metadata = dict(metadata or {})  # of the model file: producer, licence, ...
        self.state = dict(state or {})

    @property
    def outputs(self) -> list[Value]:
        return self.result.inputs  # type: ignore[return-value]  # an output is never absent

    def nodes(self) -> Iterator[Node]:
        """Every node that an output needs, each after the nodes it reads."""
        done: set[Node] = {self.result}
        stack = [v.producer for v in reversed(self.outputs) if v.producer]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            todo = [v.producer for v in node.inputs if v and v.producer and v.producer not in done]
            if todo:
                stack.extend(reversed(todo))
            else:
                stack.pop()
                done.add(node)
                yield node

    def values(self) -> Iterator[Value]:
        """Every value that a node of the graph reads or writes, inputs first."""
        seen: set[Value] = set()
        for v in self.inputs:
            seen.add(v)
            yield v
        for node in [*self.nodes(), self.result]:
            for x in (*node.inputs, *node.outputs):
                if x is not None and x not in seen:
                    seen.add(x)
                    yield x

    def replace(self, old: Value, new: Value) -> None:
        """Let every reader of `old` read `new`, and release nodes that are no longer read."""
        if old is new:
            return
        new.name = new.name or old.name
        for node in old.uses:
            node.inputs = [new if v is old else v for v in node.inputs]
            new.uses[node] = None
        old.uses.clear()
        release(old.producer)

    @staticmethod
    def set_input(node: Node, index: int, value: Value | None) -> None:
        """Make `value` input `index` of `node` and update the uses of the old and the new value.

        This is the only way to rewire one input. Inputs missing before `index` become None. The
        old value's producer stays connected: `tidy` disconnects nodes that no output needs.
        """
        while len(node.inputs) <= index:
            node.inputs.append(None)
        old, node.inputs[index] = node.inputs[index], value
        if old is not None and old not in node.inputs:
            old.uses.pop(node, None)
        if value is not None:
            value.uses[node] = None

    @classmethod
    def replace_input(cls, node: Node, old: Value, new: Value) -> None:
        """Let this one node read `new` wherever it reads `old`."""
        for i, v in enumerate(node.inputs):
            if v is old:
                cls.set_input(node, i, new)

    def tidy(self) -> None:
        """Remove nodes that no output needs from the uses of every value."""
        live = [*self.nodes(), self.result]
        for v in self.values():
            v.uses = {}
        for node in live:
            for x in node.inputs:
                if x is not None:
                    x.uses[node] = None

    def copy(self) -> Graph:
        """A copy with its own nodes and values; the data of constants is shared."""
        new: dict[Value, Value] = {}

        def of(v: Value | None) -> Value | None:
            if v is None:
                return None
            if v not in new:
                new[v] = Value(v.type, v.name, v.data)
            return new[v]

        inputs = [of(v) for v in self.inputs]
        for node in self.nodes():
            attrs = {k: a.copy() if isinstance(a, Graph) else a for k, a in node.attrs.items()}
            result = Node(
                node.op,
                [of(v) for v in node.inputs],
                attrs,
                [v.type for v in node.outputs],
                node.origin,
            )
            for v, w in zip(node.outputs, result.outputs, strict=True):
                w.name, new[v] = v.name, w
        outputs = [of(v) for v in self.outputs]
        names, about = self.output_names, self.metadata
        return Graph(inputs, outputs, names, self.name, about, self.state)  # type: ignore[arg-type]

    def __str__(self) -> str:
        names: dict[Value, str] = {}

        def show(v: Value | None) -> str:
            if v is None:
                return "-"
            if v.data is not None and v.data.size == 1:
                return f"{v.data.item():g}" if dtypes.is_float(v.dtype) else str(v.data.item())
            if v not in names:
                names[v] = v.name or f"{len(names)}"
            return "%" + names[v]

        def attr(a: Any) -> str:
            if not isinstance(a, Graph):
                return str(a)
            return "{\n" + "\n".join("    " + line for line in str(a).splitlines()) + "\n}"

        lines = [f"inputs {', '.join(f'{show(v)}: {v.type}' for v in self.inputs)}"]
        for n in self.nodes():
            args = ", ".join(
                [show(v) for v in n.inputs] + [f"{k}={attr(v)}" for k, v in n.attrs.items()]
            )
            types = ", ".join(str(v.type) for v in n.outputs)
            lines.append(f"{', '.join(show(v) for v in n.outputs)} = {n.op}({args}) : {types}")
        if self.state:
            lines.append("state " + ", ".join(self.state))
        pairs = zip(self.output_names, self.outputs, strict=True)
        lines.append("outputs " + ", ".join(f"{name} = {show(v)}" for name, v in pairs))
        return "\n".join(lines)


def symbolic(node: Node) -> bool:
    """Whether a shape or an attribute of the node depends on open dimensions."""
    types = any(is_symbolic(v.shape) for v in node.outputs)
    return types or any(is_symbolic(a) for a in node.attrs.values())


def detach(node: Node) -> None:
    """Remove `node` from the uses of its inputs; the producers of those inputs stay connected."""
    for v in node.inputs:
        if v is not None:
            v.uses.pop(node, None)


def release(node: Node | None) -> None:
    """Remove `node` from its inputs' uses if nobody reads its outputs, then its producers alike."""
    stack = [node]
    while stack:
        node = stack.pop()
        if node is None or any(v.uses for v in node.outputs):
            continue
        for v in node.inputs:
            if v is not None and node in v.uses:  # the node may read it twice
                del v.uses[node]
                if not v.uses:
                    stack.append(v.producer)
