"""Inputs and outputs of a model: arguments of forward, and its results, by name."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, Unsupported, option
from intaglio.frontends.options import ImportOptions
from intaglio.frontends.torch.importer import real
from intaglio.frontends.torch.mutable_tensor import MutableTensor
from intaglio.frontends.torch.program import Program, flat_items
from intaglio.frontends.torch.tensors import NamedTuple, Quantized
from intaglio.frontends.torch.unpickle import Stored
from intaglio.ir import Array, Graph, Type, Value, constant

_STORED = {
    "Byte": "u8",
    "Char": "i8",
    "Short": "i16",
    "Int": "i32",
    "Long": "i64",
    "Half": "f16",
    "Float": "f32",
    "Double": "f64",
    "Bool": "bool",
    "BFloat16": "bf16",
}


class Inputs:
    """Creates the arguments of the forward method; collects the graph's inputs."""

    def __init__(self, options: ImportOptions, program: Program):
        self.options, self.program = options, program
        self.made: list[Value] = []
        self.used: set[str] = set()

    def tensor(self, name: str, shape: Sequence[int] | None, dtype: str | None) -> MutableTensor:
        """An input; options of the user override the file."""
        given = self.options.values.get(name)
        kind = self._dtype(name, dtype or "f32")
        if given is not None:
            self.used.add(name)
            result = constant(np.asarray(given).astype(dtypes.numpy_of(kind)))
            return MutableTensor(result, name)
        if name in self.options.shapes:
            self.used.add(name)
            asked = tuple(self.options.shapes[name])
            if shape is not None and len(asked) != len(shape):
                raise BadInput(
                    f"torch: input '{name}' has shape {tuple(shape)}; {asked} has another rank"
                )
            shape = asked
        if shape is None:
            raise BadInput(
                f"torch: the file has no shape of input '{name}'; give "
                f"{option('shapes', {name: (1, 3, 224, 224)})}"
            )
        if any(d < 0 for d in shape):
            raise BadInput(
                f"torch: input '{name}' has shape {tuple(shape)}; extents must not be negative"
            )
        value = Value(Type(kind, tuple(shape)), name)
        self.made.append(value)
        return self.program.input(value)

    def _dtype(self, name: str, default: str) -> str:
        kind = self.options.dtypes.get(name, default)
        if name in self.options.dtypes:
            self.used.add(name)
        if kind not in dtypes.TABLE:
            raise BadInput(
                f"torch: element type '{kind}' of input '{name}' is not one of "
                f"{', '.join(dtypes.TABLE)}"
            )
        return kind

    def argument(self, name: str, kind: ast.expr | None, sample: Any, default: Any) -> Any:
        """An argument of forward from its annotation, the traced sample and its default."""
        text = "Tensor" if kind is None else ast.unparse(kind)
        outer = text.split("[")[0]
        inner = kind.slice if isinstance(kind, ast.Subscript) else None
        if outer == "Optional":
            named = any(k == name or k.startswith(f"{name}.") for k in self._said())
            if not named and sample is None:
                return default
            return self.argument(name, inner, sample, default)
        if outer == "Tensor":
            return self._tensor(name, sample)
        if outer in ("List", "Tuple"):
            return self._sequence(name, outer, inner, sample)
        if outer == "Dict" and isinstance(inner, ast.Tuple):
            keys = list(sample) if isinstance(sample, dict) else self._children(name)
            samples = sample if isinstance(sample, dict) else {}
            return {
                k: self.argument(f"{name}.{k}", inner.elts[1], samples.get(k), None) for k in keys
            }
        if outer in ("int", "float", "bool", "str", "number"):
            return self._number(name, outer, sample, default)
        raise Unsupported(
            f"torch: input '{name}' is a {text[:60]}; tensors, numbers and lists of them are "
            "supported"
        )

    def _tensor(self, name: str, sample: Any) -> MutableTensor:
        if isinstance(sample, Stored):
            kind = _STORED.get(sample.storage.kind.removesuffix("Storage"))
            return self.tensor(name, sample.shape, kind)
        return self.tensor(name, None, None)

    def _sequence(self, name: str, outer: str, inner: ast.expr | None, sample: Any) -> Any:
        samples = list(sample) if isinstance(sample, list | tuple) else []
        if outer == "Tuple" and isinstance(inner, ast.Tuple):
            kinds: list[Any] = list(inner.elts)
        else:
            kinds = [inner] * (len(samples) or len(self._children(name)))
        samples += [None] * (len(kinds) - len(samples))
        items = [
            self.argument(f"{name}.{i}", k, s, None)
            for i, (k, s) in enumerate(zip(kinds, samples, strict=True))
        ]
        return tuple(items) if outer == "Tuple" else items

    def _number(self, name: str, kind: str, sample: Any, default: Any) -> Any:
        given = self.options.values.get(name, sample if sample is not None else default)
        self.used.add(name)
        if given is None:
            raise BadInput(
                f"torch: input '{name}' is a {kind}, which must be known; give "
                f"{option('values', {name: ...})}"
            )
        if kind == "str":
            return str(given)
        result = np.asarray(given).reshape(-1)[0].item()
        return {"int": int, "float": float, "bool": bool}.get(kind, lambda v: v)(result)

    def _said(self) -> set[str]:
        return {*self.options.shapes, *self.options.values}

    def _children(self, name: str) -> list[str]:
        """Items of a list that the user named: name.0, name.1, ..."""
        front = f"{name}."
        found = dict.fromkeys(
            k[len(front) :].split(".")[0] for k in self._said() if k.startswith(front)
        )
        return list(found)

    def check(self) -> None:
        """BadInput if an option names an input that does not exist."""
        said = {*self.options.shapes, *self.options.values, *self.options.dtypes}
        unknown = said - self.used - {v.name for v in self.made}
        if unknown:
            names = ", ".join(v.name for v in self.made) or "none"
            raise BadInput(f"torch: no input is called '{sorted(unknown)[0]}'; inputs are {names}")


def warn_of_state(names: Sequence[str]) -> None:
    """Warn that state is not kept without state=True."""
    shown = ", ".join(names)
    warnings.warn(
        f"torch: the model keeps state between calls ({shown[:200]}); every run starts "
        f"from the stored state; with {option('state', True)} a session carries it to the next run",
        stacklevel=6,
    )


def state_results(pairs: Mapping[str, tuple[Type, Any]]) -> list[tuple[str, Value]]:
    """The state after a call, as outputs; Unsupported if a type changes."""
    results = []
    for name, (before, cell) in pairs.items():
        after = cell.held if isinstance(cell, MutableTensor) else None
        if not isinstance(after, Value) or after.type.but(quant=None) != before:
            raise Unsupported(
                f"torch: the state '{name}' is {before} before a call and "
                f"{getattr(after, 'type', 'no tensor')} after it; its type must not change"
            )
        results.append((f"state.{name}", after))
    return results


def named_results(made: Any) -> list[tuple[str, Value]]:
    """The tensors that a model returns, flattened, by name: the keys and indices on their way.

    {"boxes": a, "masks": (b, c)} has boxes, masks.0 and masks.1; a tuple output.0 and output.1.
    """
    flat_items(made)
    named: dict[str, Value] = {}
    for path, value in _flat_results(made, ()):
        wish = name = ".".join(path) or "output"
        count = 0
        while name in named:
            count += 1
            name = f"{wish}.{count}"
        named[name] = value
    return list(named.items())


def _flat_results(made: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Value]]:
    if isinstance(made, MutableTensor):
        yield path, real(made.held) if isinstance(made.held, Quantized) else made.held
    elif isinstance(made, bool | int | float):
        yield path, constant(np.asarray(made))
    elif isinstance(made, dict | NamedTuple):
        items = made.items() if isinstance(made, dict) else zip(made.fields, made, strict=True)
        for key, m in items:
            yield from _flat_results(m, (*path, str(key)))
    elif isinstance(made, list | tuple):
        for i, m in enumerate(made):
            within = path if len(made) == 1 else (*(path or ("output",)), str(i))
            yield from _flat_results(m, within)


def build_graph(
    inputs: Inputs,
    made: list[tuple[str, Value]],
    name: str,
    metadata: dict[str, str],
    state: Mapping[str, Array | None],
) -> Graph:
    """The graph, cut at the tensors of the options; state is kept if both of its ends are."""
    program, options = inputs.program, inputs.options
    inputs.check()
    by_name = {**program.names, **dict(made)}
    chosen = made
    if options.outputs is not None:
        chosen = [(n, _named(n, by_name)) for n in options.outputs]
    if not chosen:
        raise Unsupported("torch: the model returns no tensor; forward must return one")
    names, values = zip(*chosen, strict=True)
    graph = Graph(inputs.made, list(values), list(names), name, metadata)
    if options.inputs is not None:
        graph = _cut_at_inputs(graph, [(n, _named(n, by_name)) for n in options.inputs])
    ends = {v.name for v in graph.inputs} & set(graph.output_names)
    graph.state = {n: a for n, a in state.items() if n in ends}
    return graph


def _named(name: str, by_name: dict[str, Value]) -> Value:
    if name not in by_name:
        some = ", ".join(list(by_name)[-5:])
        raise BadInput(
            f"torch: no tensor is called '{name}'; the last of {len(by_name)} tensors are {some}"
        )
    return by_name[name]


def _cut_at_inputs(graph: Graph, at: list[tuple[str, Value]]) -> Graph:
    """The graph with these tensors as its inputs."""
    fresh = []
    for name, v in at:
        new = v if v.producer is None else Value(v.type, name)
        graph.replace(v, new)
        fresh.append(new)
    read = {x for node in [*graph.nodes(), graph.result] for x in node.inputs}
    for v in graph.inputs:
        if v in read and v not in fresh:
            raise BadInput(
                f"torch: {', '.join(graph.output_names[:3])} still needs input "
                f"'{v.name}'; add it to inputs"
            )
    graph.inputs = fresh
    return graph
