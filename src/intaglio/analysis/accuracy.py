"""Accuracy of a quantised model, tensor by tensor and by output, against the float model.

Every tensor that both graphs have by name is compared twice: in the whole quantised model
(`accumulated`), and as the result of its layer alone on the float model's inputs (`single`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from intaglio import dtypes, ops
from intaglio.analysis.joining import same_axes
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Node, Value, constant
from intaglio.quant.ranges.observe import LIMIT, Observation, Probe, Progress, groups_by_bytes
from intaglio.quant.search.output_error import Match, OutputMatch, Reference

if TYPE_CHECKING:
    from rich.table import Table

OTHER = "other:"  # before names of inputs in a graph with layers of another model
OUTLIERS = 8.0  # largest value / 99.9th percentile above which a tensor has outliers


@dataclass(frozen=True)
class LayerMatch:
    """One tensor of the quantised model compared with the float model's."""

    name: str
    op: str
    accumulated: Match
    single: Match | None  # None: its layer is not quantised

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "name": self.name,
            "op": self.op,
            "cosine": self.accumulated.cosine,
            "error": self.accumulated.error,
        }
        if self.single is not None:
            plain |= {"single_cosine": self.single.cosine, "single_error": self.single.error}
        return plain


@dataclass
class AccuracyReport:
    """The result of `compare`."""

    layers: list[LayerMatch]
    outputs: list[OutputMatch]
    warnings: list[str] = field(default_factory=list)

    def worst(self, count: int = 10) -> list[LayerMatch]:
        """The layers with the largest error alone."""
        alone = [m for m in self.layers if m.single is not None]
        return sorted(alone, key=lambda m: -m.single.error)[:count]  # type: ignore[union-attr]

    def to_dict(self) -> dict[str, Any]:
        return {
            "layers": [m.to_dict() for m in self.layers],
            "outputs": [m.to_dict() for m in self.outputs],
            "warnings": self.warnings,
        }

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table(title="accuracy of the quantised model, layer by layer")
        table.add_column("tensor", overflow="fold")
        for title in ("op", "cosine", "error", "own cosine", "own error"):
            table.add_column(title, justify="left" if title == "op" else "right")
        for m in self.layers:
            own = ("", "") if m.single is None else _figures(m.single)
            table.add_row(m.name, m.op, *_figures(m.accumulated), *own)
        table.add_section()
        for o in self.outputs:
            table.add_row(o.name, "output", f"{o.cosine:.5f}", f"{o.error:.4f}", "", "")
        return table


def _figures(m: Match) -> tuple[str, str]:
    return f"{m.cosine:.5f}", f"{m.error:.4f}"


def compare(
    float_graph: Graph,
    quantized: Graph,
    samples: Iterable[Mapping[str, Array]],
    *,
    observations: Mapping[str, Observation] | None = None,
    progress: Progress | None = None,
    limit: int = LIMIT,
) -> AccuracyReport:
    """Compare a quantised graph with the float graph it was made of, on samples.

    Tensors are joined by name. Those of more than `limit` bytes together are compared in several
    passes. `observations`, if given, are searched for outliers.
    """
    samples = list(samples)
    if not samples:
        raise BadInput("there are no samples to compare with; at least one is needed")
    theirs = {v.name: v for v in _floats(quantized)}
    joined = [(v, theirs[v.name]) for v in _floats(float_graph) if v.name in theirs]
    whole: dict[str, Match] = {v.name: Match() for v, _ in joined}
    alone, layers = with_layers(float_graph, [(v.name, q) for v, q in joined])
    single: dict[str, Match] = {name: Match() for name in layers}
    groups = groups_by_bytes([v for v, _ in joined], limit // 3)
    for i, group in enumerate(groups):
        part = f", part {i + 1} of {len(groups)}" if len(groups) > 1 else ""
        q = [theirs[v.name] for v in group]
        own = [v for v in group if v.name in layers]
        with (
            Probe(float_graph, group) as floats,
            Probe(quantized, q) as integers,
            Probe(alone, [layers[v.name] for v in own]) as layer,
        ):
            for n, sample in enumerate(samples):
                if progress:
                    progress(f"comparing layers{part}", n, len(samples))
                a, b, c = floats.run(sample), integers.run(sample), layer.run(sample)
                for v in group:
                    whole[v.name].add(a[v], b[theirs[v.name]])
                for v in own:
                    single[v.name].add(a[v], c[layers[v.name]])
    outputs = Reference.of(float_graph, samples).compare(quantized)
    found = [LayerMatch(v.name, _maker(v), whole[v.name], single.get(v.name)) for v, _ in joined]
    return AccuracyReport(found, outputs, outliers(observations or {}))


def _floats(graph: Graph) -> list[Value]:
    """Every named float output of a node with a fixed shape."""
    return [
        v
        for n in graph.nodes()
        for v in n.outputs
        if v.name and dtypes.is_float(v.dtype) and not v.type.dynamic and v.uses
    ]


def _maker(v: Value) -> str:
    return v.producer.op if v.producer else "input"


def outliers(observations: Mapping[str, Observation]) -> list[str]:
    """A warning for every tensor with outliers."""
    words = []
    for name, o in observations.items():
        words += o.notes()
        lo, hi = o.range("percentile:99.9")
        usual, most = max(-lo, hi), max(-o.low, o.high) if o.samples else 0.0
        if usual > 0 and most > OUTLIERS * usual:
            words.append(
                f"'{name}' reaches {most:g}, but 99.9 % of its values stay within {usual:g}: "
                "int16 or a clipped range may serve it better"
            )
    return words


# ---- each layer by itself ------------------------------------------------------------------------
def with_layers(
    float_graph: Graph,
    tensors: Sequence[tuple[str, Value]],
    counterparts: Mapping[Value, str] | None = None,
    factors: Mapping[str, Array] | None = None,
) -> tuple[Graph, dict[str, Value]]:
    """A copy of the float graph with every quantised layer added, fed with float tensors.

    `tensors` are tensors of the quantised graph by the name of their float counterpart. Returns
    also the layers' outputs by name, without layers that quantise nothing. If `counterparts` has
    the names of float tensors by tensors of the other graph, tensors are not joined by their own
    names, and every layer is returned; the other graph's inputs become inputs with OTHER before
    their names. `factors` are those of the channels of counterparts, by name.
    """
    graph = float_graph.copy()
    known = {v.name: v for v in graph.values() if v.data is None}
    results: dict[str, Value] = {}
    for name, v in tensors:
        layer = LayerCopy(known, counterparts, factors)
        value = layer.copy(v)
        if layer.quantizes or counterparts is not None:
            results[name] = value
    theirs = [v for v in known.values() if v not in graph.inputs and v.producer is None]
    whole = Graph(
        [*graph.inputs, *theirs],
        [*graph.outputs, *results.values()],
        [f"o{i}" for i in range(len(graph.outputs) + len(results))],
    )
    return whole, results


class LayerCopy:
    """Copies the nodes that compute a tensor, back to tensors that the float graph has."""

    def __init__(
        self,
        known: dict[str, Value],
        counterparts: Mapping[Value, str] | None,
        factors: Mapping[str, Array] | None,
    ):
        self.known, self.quantizes, self.counterparts = known, False, counterparts
        self.factors = factors or {}
        self.new: dict[Value, Value] = {}
        self.turned: dict[Value, Value | None] = {}

    def copy(self, v: Value) -> Value:
        """The copy of a tensor; iterative, because chains may be long."""
        stack: list[tuple[Value, bool]] = [(v, True)]
        while stack:
            value, top = stack[-1]
            source = None if top else self._float(value)
            if value in self.new or source is not None or value.producer is None:
                if value not in self.new:
                    self.new[value] = source or self._leaf(value)
                stack.pop()
                continue
            node = value.producer
            todo = [x for x in node.inputs if x is not None and x not in self.new]
            if todo:
                stack.extend((x, top and _same(node)) for x in todo)
                continue
            self._node(node)
            stack.pop()
        return self.new[v]

    def _float(self, v: Value) -> Value | None:
        """The float counterpart of `v`: by its name, or by its name without "_exact"."""
        if self.counterparts is not None:  # its rounding is the error of its own layer
            return self._turned(v, self.known.get(self.counterparts.get(v, "")))
        if v.producer is not None and v.producer.op == "dequantize_linear":
            return None  # an input rounding: the tensor before it is the counterpart
        return self.known.get(v.name) or self.known.get(v.name.removesuffix("_exact"))

    def _turned(self, v: Value, source: Value | None) -> Value | None:
        """The float tensor with the axes and the factors of its counterpart `v`."""
        if source is not None and source.name in self.factors:
            if v not in self.turned:
                self.turned[v] = ops.mul(source, constant(self.factors[source.name]))
            return self.turned[v]
        if source is None or source.shape == v.shape:
            return source
        if v not in self.turned:
            perm = same_axes(v.shape, source.shape)
            self.turned[v] = None if perm is None else ops.transpose(source, perm=perm)
        return self.turned[v]

    def _leaf(self, v: Value) -> Value:
        if v.data is not None or self.counterparts is None:
            return v if v.data is not None else self.known[v.name]
        name = f"{OTHER}{v.name}"
        return self.known.setdefault(name, Value(v.type.but(quant=None), name))

    def _node(self, node: Node) -> None:
        self.quantizes |= node.op in ("quantize_linear", "dequantize_linear")
        attrs = {k: a.copy() if isinstance(a, Graph) else a for k, a in node.attrs.items()}
        inputs = [None if x is None else self.new[x] for x in node.inputs]
        result = Node(node.op, inputs, attrs, [o.type for o in node.outputs], node.origin)
        for a, b in zip(node.outputs, result.outputs, strict=True):
            self.new.setdefault(a, b)


def _same(node: Node) -> bool:
    """Is its input still the same tensor, before or after rounding?"""
    return node.op in ("quantize_linear", "dequantize_linear")
