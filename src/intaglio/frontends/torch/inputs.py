"""What a model is given and gives: arguments of its forward method, and its results, by name."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, Unsupported, option
from intaglio.frontends.options import ImportOptions
from intaglio.frontends.torch.importer import real
from intaglio.frontends.torch.mutable_tensor import MutableTensor
from intaglio.frontends.torch.program import UNKNOWN, Program, leaves
from intaglio.frontends.torch.tensors import Quantized
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
    """Makes the arguments of a forward method; remembers the graph's inputs."""

    def __init__(self, options: ImportOptions, program: Program):
        self.options, self.program = options, program
        self.made: list[Value] = []
        self.used: set[str] = set()

    def tensor(self, name: str, shape: Sequence[int] | None, dtype: str | None) -> MutableTensor:
        """An input; what the user says goes before what the file says."""
        given = self.options.values.get(name)
        kind = self._dtype(name, dtype or "f32")
        if given is not None:
            self.used.add(name)
            made = constant(np.asarray(given).astype(dtypes.numpy_of(kind)))
            return MutableTensor(made, name)
        if name in self.options.shapes:
            self.used.add(name)
            asked = tuple(int(d) for d in self.options.shapes[name])
            if shape is not None and len(asked) != len(shape):
                raise BadInput(f"torch: input '{name}' has shape {tuple(shape)}, not {asked}")
            shape = asked
        if shape is None:
            raise BadInput(
                f"torch: the file does not say what shape input '{name}' has; give "
                f"{option('shapes', {name: (1, 3, 224, 224)})}"
            )
        if min(shape, default=0) < 0:
            raise BadInput(f"torch: input '{name}' has shape {tuple(shape)}")
        value = Value(Type(kind, tuple(shape)), name)
        self.made.append(value)
        return self.program.input(value)

    def _dtype(self, name: str, default: str) -> str:
        kind = self.options.dtypes.get(name, default)
        if name in self.options.dtypes:
            self.used.add(name)
        if kind not in dtypes.TABLE:
            raise BadInput(
                f"torch: element type '{kind}' of input '{name}' is none of "
                f"{', '.join(dtypes.TABLE)}"
            )
        return kind

    def argument(self, name: str, kind: ast.expr | None, sample: Any, default: Any) -> Any:
        """An argument by its type as the code states it, with what the model was traced with."""
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
            f"torch: input '{name}' is a {text[:60]}; tensors, numbers and lists of them are read"
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
        made = np.asarray(given).reshape(-1)[0].item()
        return {"int": int, "float": float, "bool": bool}.get(kind, lambda v: v)(made)

    def _said(self) -> set[str]:
        return {*self.options.shapes, *self.options.values}

    def _children(self, name: str) -> list[str]:
        """Items of a list that the user gave shapes for: name.0, name.1, ..."""
        front = f"{name}."
        found = dict.fromkeys(
            k[len(front) :].split(".")[0] for k in self._said() if k.startswith(front)
        )
        return list(found)

    def check(self) -> None:
        """BadInput where the user named something that is no input."""
        said = {*self.options.shapes, *self.options.values, *self.options.dtypes}
        unknown = said - self.used - {v.name for v in self.made}
        if unknown:
            names = ", ".join(v.name for v in self.made) or "none"
            raise BadInput(f"torch: no input is called '{sorted(unknown)[0]}'; inputs are {names}")


def warn_of_state(names: Sequence[str]) -> None:
    """State that outlives a call is not kept by itself."""
    shown = ", ".join(names)
    warnings.warn(
        f"torch: the model keeps state between calls ({shown[:200]}); every run starts "
        f"from the stored state; with {option('state', True)} a session carries it to the next run",
        stacklevel=6,
    )


def state_results(pairs: Mapping[str, tuple[Type, Any]]) -> list[tuple[str, Value]]:
    """What the state becomes, as outputs; its types must not change from call to call."""
    made = []
    for name, (before, cell) in pairs.items():
        after = cell.held if isinstance(cell, MutableTensor) else None
        if not isinstance(after, Value) or after.type.but(quant=None) != before:
            raise Unsupported(
                f"torch: the state '{name}' is {before} before a call and "
                f"{getattr(after, 'type', 'no tensor')} after it"
            )
        made.append((f"state.{name}", after))
    return made


def results(made: Any, name: str = "output") -> list[tuple[str, Value]]:
    """The tensors that a model returns, flat, by name."""
    leaves(made)
    if isinstance(made, MutableTensor):
        held = made.held
        return [(name, real(held) if isinstance(held, Quantized) else held)]
    if isinstance(made, list | tuple):
        front = "" if name == "output" and len(made) > 1 else name
        flat = []
        for i, m in enumerate(made):
            flat += results(m, f"{name}.{i}" if front else f"output.{i}")
        return flat if len(made) != 1 else results(made[0], name)
    if isinstance(made, dict):
        return [
            r
            for k, m in made.items()
            for r in results(m, str(k) if name == "output" else f"{name}.{k}")
        ]
    if made is UNKNOWN:
        return []
    if isinstance(made, bool | int | float):
        return [(name, constant(np.asarray(made)))]
    return []


def finished(
    inputs: Inputs,
    made: list[tuple[str, Value]],
    name: str,
    metadata: dict[str, str],
    state: Mapping[str, Array | None],
) -> Graph:
    """The graph, cut where the user asked; what it keeps between calls, where both ends stay."""
    program, options = inputs.program, inputs.options
    inputs.check()
    by_name = {**program.names, **dict(made)}
    chosen = made
    if options.outputs is not None:
        chosen = [(n, _named(n, by_name)) for n in options.outputs]
    if not chosen:
        raise Unsupported("torch: the model returns no tensor")
    names, values = zip(*chosen, strict=True)
    graph = Graph(inputs.made, list(values), list(names), name, metadata)
    if options.inputs is not None:
        graph = _started(graph, [(n, _named(n, by_name)) for n in options.inputs])
    ends = {v.name for v in graph.inputs} & set(graph.output_names)
    graph.state = {n: a for n, a in state.items() if n in ends}
    return graph


def _named(name: str, by_name: dict[str, Value]) -> Value:
    if name not in by_name:
        some = ", ".join(list(by_name)[-5:])
        raise BadInput(
            f"torch: no tensor is called '{name}'; there are {len(by_name)}, the last "
            f"ones are {some}"
        )
    return by_name[name]


def _started(graph: Graph, at: list[tuple[str, Value]]) -> Graph:
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
