"""Walking through a graph of the file, operation by operation, in its order of execution.

Branches, loops and called graphs are walked in scopes of their own. What outlives a call, variables
by name and tensors that ops write to, begins as an input and ends as an output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from intaglio import dtypes
from intaglio.errors import BadFile, BadInput, Unsupported, option
from intaglio.frontends.tflite.file import DAMAGE, File, Operator, Subgraph
from intaglio.frontends.tflite.node import STORED, TfliteNode, find_importer, folded, real, stored
from intaglio.ir import Array, Type, Value, constant

DEPTH = 16  # of graphs that run graphs
MUTABLE = {"ASSIGN_VARIABLE", "CALL_ONCE"}  # they are needed for what they change


def unique_names(g: Subgraph) -> list[str]:
    """A name for every tensor, those of the file where they differ."""
    taken: set[str] = set()
    names = []
    for i, t in enumerate(g.tensors):
        name = t.name if t.name and t.name not in taken else f"{t.name or 'tensor'}_{i}"
        taken.add(name)
        names.append(name)
    return names


@dataclass
class State:
    """What outlives a call: what it begins as, and what it is now."""

    input: Value
    value: Value
    initial: Array | None = None


@dataclass(eq=False)
class Variable:
    """A variable by name; its type is known once it is assigned or read."""

    name: str
    initial: Array | None = None
    state: State | None = None
    value: Value | None = None
    assigned: bool = False  # by the graph itself, not only when it is set up


@dataclass
class Model:
    """What all scopes of one file share."""

    file: File
    variables: dict[tuple[str, str], Variable] = field(default_factory=dict)
    buffers: dict[str, State] = field(default_factory=dict)  # tensors that ops write to
    setting_up: bool = False  # inside of CALL_ONCE
    depth: int = 0
    closed: int = 0  # inside of graphs that are bodies: only their inputs come in

    def states(self) -> list[State]:
        """What has to be handed from call to call."""
        made = [v.state for v in self.variables.values() if v.state is not None]
        return [*made, *self.buffers.values()]

    def variable(self, container: str, name: str) -> Variable:
        return self.variables.setdefault((container, name), Variable(name))


class Scope:
    """One graph being walked: its tensors as stored Values, and handles of variables."""

    def __init__(self, model: Model, g: Subgraph, names: list[str] | None = None):
        self.model, self.g = model, g
        self.names = names or unique_names(g)
        self.values: dict[int, Value] = {}
        self.handles: dict[int, Variable] = {}

    @property
    def inner(self) -> bool:
        """Is it part of a branch's or a loop's body?"""
        return self.model.closed > 0

    def body(self, index: int, given: Sequence[Value]) -> list[Value]:
        """`call` inside of a graph of its own, whose inputs are the operands."""
        self.model.closed += 1
        try:
            return self.call(index, given)
        finally:
            self.model.closed -= 1

    def run(self, outputs: Sequence[int]) -> list[Value]:
        """The outputs as they are stored."""
        needed = self._needed(outputs)
        self._refuse_unknown(needed)
        for op in needed:
            if op.op == "VAR_HANDLE":
                o = op.options
                words = [
                    (f() or b"").decode("utf-8", "replace") if o else ""
                    for f in ((o.Container, o.SharedName) if o else ())
                ]
                self.handles[op.outputs[0]] = self.model.variable(*(words or ("", "")))
        for op in needed:
            if op.op == "ASSIGN_VARIABLE" and op.inputs[0] in self.handles:
                self.handles[op.inputs[0]].assigned |= not self.model.setting_up
        for op in needed:
            if op.op != "VAR_HANDLE":
                self._import(op)
        return [self.value(t) for t in outputs]

    def call(self, index: int, given: Sequence[Value]) -> list[Value]:
        """What graph `index` of the file makes of these stored operands."""
        graphs, model = self.model.file.subgraphs, self.model
        if not 0 <= index < len(graphs):
            raise BadInput(f"graph {index} of {len(graphs)} does not exist")
        g = graphs[index]
        if model.depth >= DEPTH:
            raise Unsupported(f"tflite: graphs run graphs more than {DEPTH} deep")
        if len(g.inputs) != len(given):
            raise BadInput(f"graph '{g.name}' takes {len(g.inputs)} operands, not {len(given)}")
        model.depth += 1
        try:
            scope = Scope(model, g)
            scope.values.update(zip(g.inputs, given, strict=True))
            return scope.run(g.outputs)
        finally:
            model.depth -= 1

    def _needed(self, outputs: Sequence[int]) -> list[Operator]:
        """What the outputs need and what changes variables that they read, in the file's order."""
        makers = {t: op for op in self.g.operators for t in op.outputs if t >= 0}
        wanted: set[int] = set()
        seen = set(self.values)
        stack = list(outputs)
        changing = [op for op in self.g.operators if op.op in MUTABLE]
        reads = any(op.op == "READ_VARIABLE" for op in self.g.operators)
        if reads or self.model.setting_up:
            wanted.update(id(op) for op in changing)
            stack += [t for op in changing for t in op.inputs]
        while stack:
            t = stack.pop()
            if t in seen or t < 0:
                continue
            seen.add(t)
            if t in makers:
                wanted.add(id(makers[t]))
                stack.extend(makers[t].inputs)
        return [op for op in self.g.operators if id(op) in wanted]

    def _refuse_unknown(self, needed: Sequence[Operator]) -> None:
        """All ops that are not known, in one error."""
        unknown = [
            op for op in needed if op.op != "VAR_HANDLE" and find_importer(op.op, op.custom) is None
        ]
        if not unknown:
            return
        names = Counter(f"{'custom op' if op.custom else 'op'} {op.op}" for op in unknown)
        words = ", ".join(f"{what} ({n} times)" if n > 1 else what for what, n in names.items())
        first = unknown[0].outputs
        origin = self.names[first[0]] if first and first[0] >= 0 else unknown[0].op
        raise Unsupported(
            f"tflite: {words}: not supported (first at '{origin}'); cut the graph before it with "
            f"{option('outputs')}"
        )

    def check_numbers(self, i: int) -> None:
        """Unsupported where a tensor does not hold numbers."""
        t = self.g.tensors[i]
        if t.dtype not in dtypes.TABLE:
            raise Unsupported(
                f"tflite: tensor '{self.names[i]}' holds elements of {t.dtype}; only "
                "numbers are read"
            )

    def value(self, i: int) -> Value:
        """Tensor `i` as it is stored."""
        if i in self.values:
            return self.values[i]
        self.check_numbers(i)
        t = self.g.tensors[i]
        if t.variable and t.data is None:
            return self.state(i).value
        if t.data is None:
            raise BadInput(f"tflite: tensor '{self.names[i]}' is read before it is made")
        self.values[i] = constant(t.data, self.names[i])
        return self.values[i]

    def state(self, i: int) -> State:
        """Tensor `i`, which an op reads and writes, as what outlives a call."""
        t, name = self.g.tensors[i], f"state.{self.names[i]}"
        if self.inner:
            raise Unsupported(
                f"tflite: tensor '{self.names[i]}' is kept between calls inside of a "
                "branch or a loop"
            )
        if name not in self.model.buffers:
            if min(t.shape, default=1) < 1:
                raise Unsupported(
                    f"tflite: '{self.names[i]}' is kept between calls and has an "
                    f"open shape {t.shape}"
                )
            given = Value(Type(t.dtype, t.shape, t.quant), name)
            self.model.buffers[name] = State(given, given, t.data)
        return self.model.buffers[name]

    def _import(self, op: Operator) -> None:
        origin = self.names[op.outputs[0]] if op.outputs and op.outputs[0] >= 0 else op.op
        function = find_importer(op.op, op.custom)
        assert function is not None
        raw = op.op in STORED
        operands = [
            None if t < 0 or t in self.handles or self._is_kept(t) else self._operand(t, raw)
            for t in op.inputs
        ]
        node = TfliteNode(op, operands, self.g.tensors, origin, self)
        try:
            made = function(node)
        except BadInput as e:
            raise BadInput(f"tflite: {op.op} '{origin}': {e}") from None
        except DAMAGE as e:  # options that point outside of the file, shapes that make no sense
            words = " ".join(str(e).split())[:120]
            raise BadFile(f"tflite: {op.op} '{origin}' is damaged ({words})") from None
        results = list(made) if isinstance(made, list | tuple) else [made]
        if len(results) < len(op.outputs):
            raise BadInput(
                f"tflite: {op.op} '{origin}' has {len(op.outputs)} outputs, {len(results)} are made"
            )
        for t, v in zip(op.outputs, results, strict=False):
            if t >= 0 and v is not None:
                self._set(t, v, raw)

    def _is_kept(self, i: int) -> bool:
        """Is it a tensor that an op writes to? Older files do not say so, and it has no data."""
        t = self.g.tensors[i]
        return i not in self.values and (t.variable or t.data is None)

    def _operand(self, i: int, raw: bool) -> Value:
        v = self.value(i)
        return v if raw else real(v, self.g.tensors[i].quant)

    def _set(self, i: int, v: Any, raw: bool) -> None:
        t = self.g.tensors[i]
        made = folded(v if raw else stored(v, t))
        if made.dtype != t.dtype:
            raise BadInput(f"tflite: tensor '{self.names[i]}' is {t.dtype}, {made.dtype} is made")
        if made.producer is not None:
            for node in (made.producer, v.producer):
                if node is not None:
                    node.origin = node.origin or self.names[i]
        if made.producer is not None or made.data is not None:  # an input keeps its own
            made.name = self.names[i]
        self.values[i] = made
