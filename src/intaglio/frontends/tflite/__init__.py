"""TFLite importer (schema 3), without TensorFlow."""

from __future__ import annotations

from pathlib import Path

from intaglio.errors import BadFile, BadInput, option
from intaglio.files import read_regular
from intaglio.frontends.options import NO_OPTIONS, ImportOptions
from intaglio.frontends.string_outputs import without_strings
from intaglio.frontends.tflite import control as control
from intaglio.frontends.tflite import conv as conv
from intaglio.frontends.tflite import detect as detect
from intaglio.frontends.tflite import elementwise as elementwise
from intaglio.frontends.tflite import index as index
from intaglio.frontends.tflite import quantize as quantize
from intaglio.frontends.tflite import recurrent as recurrent
from intaglio.frontends.tflite import reduce as reduce
from intaglio.frontends.tflite import resize as resize
from intaglio.frontends.tflite import shape as shape
from intaglio.frontends.tflite import signal as signal
from intaglio.frontends.tflite import tensor_lists as tensor_lists
from intaglio.frontends.tflite.file import DAMAGE, File, Signature, parse
from intaglio.frontends.tflite.scope import Model, Scope, unique_names
from intaglio.ir import Graph, Type, Value
from intaglio.symint import lowest


def load_tflite(model: str | Path | bytes, options: ImportOptions = NO_OPTIONS) -> Graph:
    """The first graph of a TFLite file, or that of a signature, whose names it then uses.

    Variables and other state of the model become the graph's `state`.
    """
    if isinstance(model, bytes):
        data, what = model, "the bytes given"
    else:
        what = f"'{model}'"
        try:
            data = read_regular(model)
        except OSError as e:
            raise BadFile(f"cannot read {what}: {(e.strerror or str(e)).lower()}") from None
    file = parse(data, what)
    chosen = _signature(file, options.signature)
    try:
        return _Import(file, chosen, options).graph()
    except DAMAGE as e:  # options that point outside of the file
        words = " ".join(str(e).split())[:120]
        raise BadFile(f"{what} is a damaged TFLite model ({words})") from None


def _signature(file: File, name: str | None) -> Signature | None:
    if name is None:
        return None
    for s in file.signatures:
        if s.name == name and s.damage:
            remedy = f"leave out {option('signature')}"
            raise BadInput(f"tflite: signature '{name}' is damaged: {s.damage}; {remedy}")
        if s.name == name:
            return s
    names = ", ".join(s.name for s in file.signatures) or "none"
    raise BadInput(f"tflite: no signature is called '{name}'; the file has {names}")


class _Import:
    """The import of one graph of a file."""

    def __init__(self, file: File, signature: Signature | None, options: ImportOptions):
        self.file, self.shapes = file, options.shapes
        inputs, outputs = options.inputs, options.outputs
        self.g = g = file.subgraphs[signature.subgraph if signature else 0]
        self.names = unique_names(g)
        if signature:
            for name, t in (*signature.inputs.items(), *signature.outputs.items()):
                self.names[t] = name
        by_name = {name: i for i, name in enumerate(self.names)}
        given = list(signature.inputs.values()) if signature else g.inputs
        for name in (*options.shapes, *(inputs or ()), *(outputs or ())):
            if name not in by_name:
                raise BadInput(
                    f"tflite: no tensor is called '{name}'; inputs are "
                    f"{', '.join(self.names[i] for i in given)}"
                )
        given = [i for i in given if not self._holds_strings(i)]
        self.inputs = [by_name[n] for n in inputs] if inputs else given
        results = list(signature.outputs.values()) if signature else g.outputs
        named = list(signature.outputs) if signature else [self.names[t] for t in results]
        if outputs:
            named, results = list(outputs), [by_name[n] for n in outputs]
        else:  # one tensor may have two names
            strings = {n for n, t in zip(named, results, strict=True) if self._holds_strings(t)}
            kept = without_strings(named, strings.__contains__, "tflite")
            results = [t for n, t in zip(named, results, strict=True) if n in kept]
            named = kept
        self.outputs, self.output_names = results, named

    def _holds_strings(self, i: int) -> bool:
        return self.g.tensors[i].dtype == "string"

    def graph(self) -> Graph:
        model = Model(self.file)
        scope = Scope(model, self.g, self.names)
        given = [self._input(i, scope) for i in self.inputs]
        results = scope.run(self.outputs)
        states = model.states()
        metadata = {"producer": self.file.description} if self.file.description else {}
        if self.file.signatures:
            metadata["signatures"] = ", ".join(s.name for s in self.file.signatures)
        if self.file.labels:
            metadata["labels"] = repr(self.file.labels)
        return Graph(
            [*given, *(s.input for s in states)],
            [*results, *(s.value for s in states)],
            [*self.output_names, *(s.input.name for s in states)],
            self.g.name,
            metadata,
            {s.input.name: s.initial for s in states},
        )

    def _input(self, i: int, scope: Scope) -> Value:
        t, name = self.g.tensors[i], self.names[i]
        dims = tuple(self.shapes.get(name, t.shape))
        if len(dims) != len(t.shape) or min(map(lowest, dims), default=1) < 0:
            raise BadInput(
                f"tflite: input '{name}' has shape {t.shape}; {dims} has another rank or is "
                "negative"
            )
        scope.check_numbers(i)
        result = Value(Type(t.dtype, dims, t.quant), name)
        scope.values[i] = result
        return result
