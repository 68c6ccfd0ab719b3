"""TFLite models (schema 3), without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from intaglio.errors import BadFile, BadInput, Unsupported
from intaglio.frontends.tflite import conv as conv
from intaglio.frontends.tflite import elementwise as elementwise
from intaglio.frontends.tflite import reduce as reduce
from intaglio.frontends.tflite import shape as shape
from intaglio.frontends.tflite.file import DAMAGE, File, Operator, Subgraph, parse
from intaglio.frontends.tflite.node import STORED, TfliteNode, find_importer, folded, real, stored
from intaglio.ir import Graph, Type, Value, constant


def load_tflite(
    model: str | Path | bytes,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> Graph:
    """The first graph of a TFLite file; `shapes` replaces those of its inputs."""
    if isinstance(model, bytes):
        data, what = model, "the bytes given"
    else:
        what = f"'{model}'"
        try:
            data = Path(model).read_bytes()
        except OSError as e:
            raise BadFile(f"cannot read {what}: {(e.strerror or str(e)).lower()}") from None
    file = parse(data, what)
    return _Import(file, file.subgraphs[0], dict(shapes or {}), inputs, outputs).graph()


class _Import:
    def __init__(self, file: File, g: Subgraph, shapes: dict[str, Sequence[int]],
                 inputs: Sequence[str] | None, outputs: Sequence[str] | None):  # fmt: skip
        self.file, self.g, self.shapes = file, g, shapes
        self.names = _unique_names(g)
        by_name = {name: i for i, name in enumerate(self.names)}
        for name in (*shapes, *(inputs or ()), *(outputs or ())):
            if name not in by_name:
                raise BadInput(f"tflite: no tensor is called '{name}'; inputs are "
                               f"{', '.join(self.names[i] for i in g.inputs)}")  # fmt: skip
        self.inputs = [by_name[n] for n in inputs] if inputs else g.inputs
        self.outputs = [by_name[n] for n in outputs] if outputs else g.outputs
        self.values: dict[int, Value] = {}  # as stored

    def graph(self) -> Graph:
        given = [self._input(i) for i in self.inputs]
        makers = {t: op for op in self.g.operators for t in op.outputs if t >= 0}
        for op in self._needed(makers):
            self._import(op)
        results = [self._value(t) for t in self.outputs]
        metadata = {"producer": self.file.description} if self.file.description else {}
        names = [self.names[t] for t in self.outputs]
        return Graph(given, results, names, self.g.name, metadata)

    def _needed(self, makers: dict[int, Operator]) -> list[Operator]:
        """What the outputs need, in the file's order, which is the order of execution."""
        wanted: set[int] = set()
        stack, seen = list(self.outputs), set(self.inputs)
        while stack:
            t = stack.pop()
            if t in seen or t < 0:
                continue
            seen.add(t)
            if t in makers:
                wanted.add(id(makers[t]))
                stack.extend(makers[t].inputs)
        return [op for op in self.g.operators if id(op) in wanted]

    def _input(self, i: int) -> Value:
        t, name = self.g.tensors[i], self.names[i]
        dims = tuple(int(d) for d in self.shapes.get(name, t.shape))
        if len(dims) != len(t.shape) or min(dims, default=1) < 0:
            raise BadInput(f"tflite: input '{name}' has shape {t.shape}, not {dims}")
        self.values[i] = Value(Type(t.dtype, dims, t.quant), name)
        return self.values[i]

    def _value(self, i: int) -> Value:
        if i not in self.values:
            t = self.g.tensors[i]
            if t.data is None:
                raise Unsupported(f"tflite: tensor '{self.names[i]}' is read before it is made; "
                                  "models with state between calls are not read")  # fmt: skip
            self.values[i] = constant(t.data, self.names[i])
        return self.values[i]

    def _import(self, op: Operator) -> None:
        origin = self.names[op.outputs[0]] if op.outputs else op.op
        function = None if op.custom else find_importer(op.op)
        if function is None:
            what = "custom op" if op.custom else "op"
            raise Unsupported(f"tflite: {what} {op.op} ('{origin}') is not known; cut the graph "
                              "before it with --output")  # fmt: skip
        raw = op.op in STORED
        operands = [None if t < 0 else self._operand(t, raw) for t in op.inputs]
        node = TfliteNode(op, operands, self.g.tensors, origin)
        try:
            made = function(node)
        except BadInput as e:
            raise BadInput(f"tflite: {op.op} '{origin}': {e}") from None
        except DAMAGE as e:  # options that point outside of the file, shapes that make no sense
            words = " ".join(str(e).split())[:120]
            raise BadFile(f"tflite: {op.op} '{origin}' is damaged ({words})") from None
        results = list(made) if isinstance(made, list | tuple) else [made]
        if len(results) < len(op.outputs):
            raise BadInput(f"tflite: {op.op} '{origin}' has {len(op.outputs)} outputs, "
                           f"{len(results)} are made")  # fmt: skip
        for t, v in zip(op.outputs, results, strict=False):
            if t >= 0:
                self._set(t, v, raw)

    def _operand(self, i: int, raw: bool) -> Value:
        v = self._value(i)
        return v if raw else real(v, self.g.tensors[i].quant)

    def _set(self, i: int, v: Value, raw: bool) -> None:
        t = self.g.tensors[i]
        made = folded(v if raw else stored(v, t))
        if made.dtype != t.dtype:
            raise BadInput(f"tflite: tensor '{self.names[i]}' is {t.dtype}, {made.dtype} is made")
        if made.producer is not None:
            for node in (made.producer, v.producer):
                if node is not None:
                    node.origin = node.origin or self.names[i]
        made.name = self.names[i]
        self.values[i] = made


def _unique_names(g: Subgraph) -> list[str]:
    taken: set[str] = set()
    names = []
    for i, t in enumerate(g.tensors):
        name = t.name if t.name and t.name not in taken else f"{t.name or 'tensor'}_{i}"
        taken.add(name)
        names.append(name)
    return names
