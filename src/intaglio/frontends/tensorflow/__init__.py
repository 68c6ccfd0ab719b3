"""TensorFlow importer: frozen graphs and SavedModels, read without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from intaglio import dtypes as element_types
from intaglio.errors import BadFile, BadInput, Unsupported, option
from intaglio.frontends.options import NO_OPTIONS, ImportOptions
from intaglio.frontends.string_outputs import without_strings
from intaglio.frontends.tensorflow import control as control
from intaglio.frontends.tensorflow import conv as conv
from intaglio.frontends.tensorflow import detect as detect
from intaglio.frontends.tensorflow import dilated_conv as dilated_conv
from intaglio.frontends.tensorflow import elementwise as elementwise
from intaglio.frontends.tensorflow import index as index
from intaglio.frontends.tensorflow import linear as linear
from intaglio.frontends.tensorflow import loops_v1 as loops_v1
from intaglio.frontends.tensorflow import matrix as matrix
from intaglio.frontends.tensorflow import quantize as quantize
from intaglio.frontends.tensorflow import recurrent as recurrent
from intaglio.frontends.tensorflow import reduce as reduce
from intaglio.frontends.tensorflow import shape as shape
from intaglio.frontends.tensorflow import signal as signal
from intaglio.frontends.tensorflow import strided_slice as strided_slice
from intaglio.frontends.tensorflow import tensor_lists as tensor_lists
from intaglio.frontends.tensorflow.checkpoint import Checkpoint
from intaglio.frontends.tensorflow.checkpoint_variables import keys_of
from intaglio.frontends.tensorflow.file import Port, parse_graph, parse_saved, read
from intaglio.frontends.tensorflow.node import DEAD, TfNode, importer
from intaglio.frontends.tensorflow.scope import Model, Scope, dtype_of
from intaglio.frontends.tensorflow.state import collect_states
from intaglio.ir import Graph, Type, Value, constant
from intaglio.symint import lowest

MAX_RANK, MAX_EXTENT = 8, 1 << 24  # of an input
NOT_OUTPUTS = (
    "Const",
    "NoOp",
    "Assert",
    "Placeholder",
    "PlaceholderV2",
    "Print",
    "PrintV2",
    "SaveV2",
    "MergeV2Checkpoints",
    "VarHandleOp",
)  # ops that are never outputs of a frozen graph
DEFAULT = "serving_default"
FIRST_WITH_UNKNOWN_RANK = 24  # older producers wrote an unknown shape as ()


def load_tensorflow(model: str | Path, options: ImportOptions = NO_OPTIONS) -> Graph:
    """The graph of a frozen `.pb`, or of one signature of a SavedModel's folder.

    Tensors have the names of the file, `node` or `node:1`, or those of the signature.
    """
    path = Path(model)
    if path.name == "saved_model.pb":
        path = path.parent
    if path.is_dir():
        file = parse_saved(read(path / "saved_model.pb"), f"'{path / 'saved_model.pb'}'")
        held = path / "variables" / "variables"
        bundle = Checkpoint(held) if held.with_name("variables.index").exists() else None
        reader = _Import(path, Model(file, bundle, keys_of(file)))
        reader.use_signature(options.signature, options.inputs, options.outputs)
    else:
        if options.signature:
            raise BadInput(
                f"tensorflow: signature is '{options.signature}'; a frozen graph has no signatures"
            )
        reader = _Import(path, Model(parse_graph(read(path), f"'{path}'")))
        reader.find_ends(options.inputs, options.outputs)
    return reader.graph(options)


class _Import:
    def __init__(self, path: Path, model: Model):
        self.path, self.model, self.file = path, model, model.file
        self.scope = Scope(model, model.file.nodes)
        self.inputs: dict[str, Port] = {}
        self.outputs: dict[str, str] = {}  # name -> tensor
        self.given: dict[str, Value] = {}

    # ---- inputs and outputs --------------------------------------------------------------------
    def use_signature(
        self, name: str | None, inputs: Sequence[str] | None, outputs: Sequence[str] | None
    ) -> None:
        """Take inputs and outputs from a signature, or from the user."""
        file = self.file
        real = {
            k: s for k, s in file.signatures.items() if s.outputs and k != "__saved_model_init_op"
        }
        names = ", ".join(real) or "none"
        if name is None and DEFAULT not in real and len(real) == 1:
            name = next(iter(real))
        chosen = real.get(name or DEFAULT)
        if chosen is None and not (outputs and name is None):
            raise BadInput(
                f"tensorflow: '{self.path}' has no signature '{name or DEFAULT}'; it has {names}; "
                f"choose one with {option('signature')}, or tensors with {option('outputs')}"
            )
        ports = dict(chosen.inputs) if chosen else {}
        ends = {k: p.tensor for k, p in chosen.outputs.items()} if chosen else {}
        self.inputs = {n: ports.get(n) or self._port(n) for n in inputs} if inputs else ports
        strings = [k for k, p in chosen.outputs.items() if p.dtype == "string"] if chosen else []
        wanted = list(outputs or without_strings(list(ends), strings.__contains__, "tensorflow"))
        self.outputs = {n: ends[n] if n in ends else self._tensor(n, ends) for n in wanted}

    def find_ends(self, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> None:
        """Take as outputs of a frozen graph the nodes that no node reads, or the user's choice."""
        data: set[str] = set()
        order: set[str] = set()
        for node in self.file.nodes.values():
            data.update(r.split(":")[0] for r in node.inputs)
            order.update(node.controls)
        unread = [
            n.name
            for n in self.file.nodes.values()
            if n.name not in data and n.op not in NOT_OUTPUTS
        ]
        last = [name for name in unread if name not in order] or unread
        if not outputs:
            last = without_strings(last, self._holds_strings, "tensorflow")
        self.inputs = {n: self._port(n) for n in inputs or ()}
        self.outputs = {n: self._tensor(n, last) for n in outputs or last}
        if not self.outputs:
            raise BadFile(
                f"tensorflow: '{self.path}' has no outputs; name them with {option('outputs')}"
            )

    def _holds_strings(self, name: str) -> bool:
        attrs = self.file.nodes[name].attrs
        return "string" in (attrs.get(k) for k in ("T", "Tparams", "dtype", "Tout", "DstT"))

    def _tensor(self, name: str, usual: Sequence[str] | Mapping[str, str]) -> str:
        if self.scope.resolve(name)[0] not in self.file.nodes:
            raise BadInput(
                f"tensorflow: no node is called '{name}'; outputs are {_listed(list(usual))}"
            )
        return name

    def _port(self, name: str) -> Port:
        node = self.file.nodes.get(self.scope.resolve(name)[0])
        if node is None:
            known = [n.name for n in self.file.nodes.values() if n.op == "Placeholder"]
            raise BadInput(f"tensorflow: no node is called '{name}'; inputs are {_listed(known)}")
        extents = node.attrs.get("shape") if node.op.startswith("Placeholder") else None
        listed = node.attrs.get("_output_shapes")
        at = self.scope.resolve(name)[1]
        if extents is None and isinstance(listed, list) and at < len(listed):
            extents = listed[at]
        found = dtype_of(node) or node.attrs.get("dtype") or "f32"
        if (
            extents == ()
            and node.op == "Placeholder"
            and 0 < self.file.producer < FIRST_WITH_UNKNOWN_RANK
        ):
            extents = None
        return Port(name, str(found), extents if isinstance(extents, tuple) else None)

    # ---- the graph -----------------------------------------------------------------------------
    def graph(self, options: ImportOptions) -> Graph:
        self.shapes, self.dtypes = options.shapes, options.dtypes
        self.asked = {*options.shapes, *options.dtypes}
        for name, number in options.values.items():
            port = self.inputs.pop(name, None) or self._port(name)
            array = np.asarray(number)
            kind = self.dtypes.get(name) or port.dtype
            fixed = constant(array, name, kind if kind in element_types.TABLE else None)
            self.asked.discard(name)
            self.scope.bound[self.scope.resolve(port.tensor)] = fixed
        for name, port in self.inputs.items():
            self.scope.bound[self.scope.resolve(port.tensor)] = self.input(name, port)
        self.model.input = lambda name: self.input(name, self._port(name))
        made = {n: self.scope.get(t) for n, t in self.outputs.items()}
        befores, afters, initial = (
            collect_states(self.model) if not self.model.unknown else ([], [], {})
        )
        self._refuse_unknown()
        results = []
        for name, edge in made.items():
            if not isinstance(edge, Value):
                what = (
                    "is not computed in this graph"
                    if edge is DEAD
                    else "is not a tensor of numbers"
                )
                raise Unsupported(
                    f"tensorflow: output '{name}' {what}; choose others with {option('outputs')}"
                )
            results.append(edge)
        if self.asked:
            raise BadInput(
                f"tensorflow: no input is called '{min(self.asked)}'; inputs are "
                f"{_listed(list(self.given))}"
            )
        graph = Graph(
            [*self._in_order(), *befores],
            [*results, *afters],
            [*made, *initial],
            self.path.stem,
            state=initial,
        )
        graph.tidy()
        return graph

    def _in_order(self) -> list[Value]:
        """Inputs in the order of the signature or the user, then in that of the file."""
        place = {n: i for i, n in enumerate([*self.inputs, *self.file.nodes])}
        return sorted(self.given.values(), key=lambda v: place.get(v.name, len(place)))

    def input(self, name: str, port: Port) -> Value:
        """An input of the graph. The user must give open dimensions, except for a batch of 1."""
        kind = self.dtypes.get(name) or port.dtype or "f32"
        self.asked.discard(name)
        if kind not in element_types.TABLE:
            raise Unsupported(
                f"tensorflow: input '{name}' holds {kind}; only numbers are supported; start the "
                f"graph behind it with {option('inputs')}"
            )
        usual = port.shape
        sizes = enumerate(usual or (1, -1, -1, 3))
        example = tuple(d if d > 0 else 224 if i else 1 for i, d in sizes)
        dims = tuple(self.shapes.get(name, usual if usual is not None else (-1, -1)))
        if name not in self.shapes and usual and dims[0] == -1:
            dims = (1, *dims[1:])
        smallest = min(map(lowest, dims), default=1)
        if smallest < 0 and kind == "bool":
            raise BadInput(
                f"tensorflow: input '{name}' has shape {_open(usual)}; bind its "
                f"value with {option('values', {name: 0})}, or its shape with {option('shapes')}"
            )
        if smallest < 0:
            raise BadInput(
                f"tensorflow: input '{name}' has shape {_open(usual)}; give its "
                f"extents, as in {option('shapes', {name: example})}"
            )
        if usual and len(dims) != len(usual):
            raise BadInput(
                f"tensorflow: input '{name}' has shape {_open(usual)}; {dims} has another rank"
            )
        if len(dims) > MAX_RANK or max(dims, default=1) > MAX_EXTENT:
            raise BadInput(
                f"tensorflow: input '{name}' has shape {dims}; at most {MAX_RANK} axes of "
                f"{MAX_EXTENT} are supported"
            )
        self.given[name] = Value(Type(kind, dims), name)
        return self.given[name]

    def _refuse_unknown(self) -> None:
        """Raise one error that lists all unsupported ops."""
        if not self.model.unknown:
            return
        rows = []
        for op, nodes in sorted(self.model.unknown.items()):
            often = f"{len(nodes)} times, " if len(nodes) > 1 else ""
            rows.append(f"{op} ({often}'{nodes[0]}')")
        raise Unsupported(
            f"tensorflow: these ops are not supported: {_listed(rows, 20)}; cut the "
            f"graph around them with {option('inputs')} and {option('outputs')}"
        )


@importer("Placeholder", "PlaceholderV2")
def placeholder(n: TfNode) -> Value:
    """A placeholder that is not among the inputs of the signature."""
    if n.scope.model.input is None:
        raise BadFile("a placeholder inside of a function is not supported")
    return n.scope.model.input(n.node.name)


def _open(extents: Sequence[int] | None) -> str:
    if extents is None:
        return "unknown"
    return "(" + ", ".join("?" if d < 0 else str(d) for d in extents) + ")"


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more
