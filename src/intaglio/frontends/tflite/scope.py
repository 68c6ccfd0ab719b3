"""Import of a graph of the file, operation by operation, in execution order.

Branches, loops and called graphs have their own scopes. State (variables, and tensors that ops
update) becomes an input and an output of the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, BadInput, Unsupported, option
from intaglio.frontends import custom_ops
from intaglio.frontends.tflite.file import DAMAGE, File, Operator, Subgraph, Tensor
from intaglio.frontends.tflite.node import (
    STORED,
    Complex,
    Import,
    TfliteNode,
    find_importer,
    folded,
    real,
    stored,
)
from intaglio.ir import Array, Type, Value, constant

MAX_DEPTH = 16  # of nested graphs
TAKES_COMPLEX = {"CAST", "COMPLEX_ABS", "REAL", "IMAG"}
BY_PARTS = {  # ops that treat the real and the imaginary part alike
    *("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "SLICE", "STRIDED_SLICE", "CONCATENATION"),
    *("PACK", "UNPACK", "SPLIT", "GATHER", "ADD", "SUB", "NEG", "SUM"),
}
MUTABLE = {"ASSIGN_VARIABLE", "CALL_ONCE"}  # ops that are kept for their side effects


def unique_names(g: Subgraph) -> list[str]:
    """A unique name for every tensor, that of the file if possible."""
    taken: set[str] = set()
    names = []
    for i, t in enumerate(g.tensors):
        name = t.name if t.name and t.name not in taken else f"{t.name or 'tensor'}_{i}"
        taken.add(name)
        names.append(name)
    return names


@dataclass
class State:
    """A state: the graph input before a call, and its current value."""

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
    assigned: bool = False  # outside of the initialisation


@dataclass
class Model:
    """State that all scopes of one import share."""

    file: File
    variables: dict[tuple[str, str], Variable] = field(default_factory=dict)
    buffers: dict[str, State] = field(default_factory=dict)  # tensors that ops update
    setting_up: bool = False  # inside of CALL_ONCE
    depth: int = 0
    closed: int = 0  # nesting depth of bodies, which read only their inputs

    def states(self) -> list[State]:
        """All states of the model."""
        results = [v.state for v in self.variables.values() if v.state is not None]
        return [*results, *self.buffers.values()]

    def variable(self, container: str, name: str) -> Variable:
        return self.variables.setdefault((container, name), Variable(name))


def _initial(t: Tensor) -> Array | None:
    """The initial value of a state; None is 0. LiteRT sets i8 tensors to their zero point."""
    if t.data is not None or t.dtype != "i8" or t.quant is None or not any(t.quant.zero):
        return t.data
    return np.full(t.shape, t.quant.zero[0], np.int8)


class Scope:
    """The import of one graph: its tensors as stored Values, and variable handles."""

    def __init__(self, model: Model, g: Subgraph, names: list[str] | None = None):
        self.model, self.g = model, g
        self.names = names or unique_names(g)
        self.values: dict[int, Value] = {}
        self.complex: dict[int, Complex] = {}
        self.handles: dict[int, Variable] = {}

    @property
    def inner(self) -> bool:
        """Whether the scope is part of the body of a branch or loop."""
        return self.model.closed > 0

    def body(self, index: int, given: Sequence[Value]) -> list[Value]:
        """`call` as a separate graph, whose inputs are the operands."""
        self.model.closed += 1
        try:
            return self.call(index, given)
        finally:
            self.model.closed -= 1

    def run(self, outputs: Sequence[int]) -> list[Value]:
        """The stored values of the outputs."""
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
        """The results of graph `index` of the file for these stored operands."""
        graphs, model = self.model.file.subgraphs, self.model
        if not 0 <= index < len(graphs):
            raise BadInput(f"graph {index} of {len(graphs)} does not exist")
        g = graphs[index]
        if model.depth >= MAX_DEPTH:
            raise Unsupported(f"tflite: graphs are nested more than {MAX_DEPTH} deep")
        if len(g.inputs) != len(given):
            raise BadInput(
                f"graph '{g.name}' takes {len(g.inputs)} operands; {len(given)} are given"
            )
        model.depth += 1
        try:
            scope = Scope(model, g)
            scope.values.update(zip(g.inputs, given, strict=True))
            return scope.run(g.outputs)
        finally:
            model.depth -= 1

    def _needed(self, outputs: Sequence[int]) -> list[Operator]:
        """Ops that the outputs need, and those that update state that they read, in file order."""
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
        """Raise one error that lists all unsupported ops."""
        unknown = [
            op for op in needed if op.op != "VAR_HANDLE" and find_importer(op.op, op.custom) is None
        ]
        if not unknown:
            return
        names = Counter(f"{'custom op' if op.custom else 'op'} {op.op}" for op in unknown)
        words = ", ".join(f"{what} ({n} times)" if n > 1 else what for what, n in names.items())
        first = unknown[0].outputs
        origin = self.names[first[0]] if first and first[0] >= 0 else unknown[0].op
        own = next((op.op for op in unknown if op.custom), None)
        add = "" if own is None else f"{custom_ops.remedy('tflite', own)}, or "
        raise Unsupported(
            f"tflite: {words}: not supported (first at '{origin}'); {add}cut the graph before it "
            f"with {option('outputs')}"
        )

    def check_numbers(self, i: int) -> None:
        """Unsupported if a tensor does not hold numbers."""
        t = self.g.tensors[i]
        if t.dtype not in dtypes.TABLE:
            raise Unsupported(
                f"tflite: tensor '{self.names[i]}' holds elements of {t.dtype}; only "
                "numbers are supported"
            )

    def value(self, i: int) -> Value:
        """The stored value of tensor `i`."""
        if i in self.values:
            return self.values[i]
        self.check_numbers(i)
        t = self.g.tensors[i]
        if t.variable and t.data is None:
            return self.state(i).value
        if t.data is None:
            raise BadInput(f"tflite: tensor '{self.names[i]}' is read before it is computed")
        self.values[i] = constant(t.data, self.names[i])
        return self.values[i]

    def state(self, i: int) -> State:
        """The state of tensor `i`, which an op reads and writes."""
        t, name = self.g.tensors[i], f"state.{self.names[i]}"
        if self.inner:
            raise Unsupported(
                f"tflite: tensor '{self.names[i]}' is state inside of a branch or a "
                "loop; state is supported outside of them only"
            )
        if name not in self.model.buffers:
            if min(t.shape, default=1) < 1:
                raise Unsupported(
                    f"tflite: '{self.names[i]}' is state and has the open shape "
                    f"{t.shape}; its shape must be fixed"
                )
            given = Value(Type(t.dtype, t.shape, t.quant), name)
            self.model.buffers[name] = State(given, given, _initial(t))
        return self.model.buffers[name]

    def _import(self, op: Operator) -> None:
        origin = self.names[op.outputs[0]] if op.outputs and op.outputs[0] >= 0 else op.op
        function = find_importer(op.op, op.custom)
        assert function is not None
        try:
            result = self._made(function, op, origin)
        except BadInput as e:
            raise BadInput(f"tflite: {op.op} '{origin}': {e}") from None
        except DAMAGE as e:  # options that point outside of the file, invalid shapes
            words = " ".join(str(e).split())[:120]
            raise BadFile(f"tflite: {op.op} '{origin}' is damaged ({words})") from None
        results = list(result) if isinstance(result, list | tuple) else [result]
        if len(results) < len(op.outputs):
            raise BadInput(
                f"tflite: {op.op} '{origin}' has {len(op.outputs)} outputs; {len(results)} are "
                "needed"
            )
        for t, v in zip(op.outputs, results, strict=False):
            if t >= 0 and isinstance(v, Complex):
                self.complex[t] = v
            elif t >= 0 and v is not None:
                self._set(t, v, op.op in STORED)

    def _made(self, function: Import, op: Operator, origin: str) -> Any:
        """The results of an importer, separately for both parts of complex operands."""
        if not any(t in self.complex for t in op.inputs) or op.op in TAKES_COMPLEX:
            return function(self._node(op, origin))
        if op.op not in BY_PARTS:
            raise Unsupported(f"tflite: {op.op} '{origin}' of complex numbers is not supported")
        real, imag = (function(self._node(op, origin, part)) for part in (0, 1))
        if isinstance(real, Value):
            return Complex(real, imag)
        return [Complex(a, b) for a, b in zip(real, imag, strict=True)]

    def _node(self, op: Operator, origin: str, part: int | None = None) -> TfliteNode:
        raw = op.op in STORED
        operands = [
            self.complex[t].parts()[part]
            if t in self.complex and part is not None
            else None
            if t < 0 or t in self.handles or t in self.complex or self._is_kept(t)
            else self._operand(t, raw)
            for t in op.inputs
        ]
        return TfliteNode(op, operands, self.g.tensors, origin, self)

    def _is_kept(self, i: int) -> bool:
        """Whether tensor `i` is state; old files do not mark it, then it has no data."""
        t = self.g.tensors[i]
        lacks = t.data is None and t.dtype != "string"  # a string is refused by its reader
        return i not in self.values and (t.variable or lacks)

    def _operand(self, i: int, raw: bool) -> Value:
        v = self.value(i)
        return v if raw else real(v, self.g.tensors[i].quant)

    def _set(self, i: int, v: Any, raw: bool) -> None:
        t = self.g.tensors[i]
        result = folded(v if raw else stored(v, t))
        if result.dtype != t.dtype and t.dtype != "variant":  # a list has the type of its items
            raise BadInput(
                f"tflite: tensor '{self.names[i]}' is declared as {t.dtype}, but computed as "
                f"{result.dtype}"
            )
        if result.producer is not None:
            for node in (result.producer, v.producer):
                if node is not None:
                    node.origin = node.origin or self.names[i]
        if result.producer is not None or result.data is not None:  # an input keeps its own name
            result.name = self.names[i]
        self.values[i] = result
