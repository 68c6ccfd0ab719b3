"""Try quantisations without building them: one compiled model whose roundings can be set at will.

Every tensor that may be quantised is rounded in floats by a step and two ends that are inputs of
the compiled model. A range, a finer step or none at all is then a matter of three numbers, and a
trial costs as much as running the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Graph, Node, Type, Value, constant
from intaglio.quant.compare import Match, OutputMatch, Reference
from intaglio.quant.correct import shift_bias
from intaglio.quant.place import PRODUCTS, Placement, activations, layer
from intaglio.quant.probe import sessions
from intaglio.quant.scheme import TensorScheme

EXACT = (np.float32(2.0**-60), np.float32(-3e38), np.float32(3e38))  # step and ends of no rounding
Stored = tuple[Array, Array | None]  # weights, and what is added to the bias for them
Errors = dict[str, float]  # relative squared error by part of an output


class Trial:
    """The float model with every rounding of a placement in it, each to be set or left out."""

    def __init__(
        self,
        graph: Graph,
        placement: Placement,
        weights: Callable[[Node], Stored],
        reference: Reference,
    ):
        """`weights` gives a product's weights as they are once stored; `graph` stays as it is."""
        self.reference, self.runs = reference, 0
        self._known: dict[frozenset[Any], Errors] = {}  # what was tried before
        self.names = [v.name for v in placement.tensors]
        changed = self._with_roundings(graph, placement, weights)
        self.sessions = sessions(changed)

    def _with_roundings(
        self, graph: Graph, placement: Placement, weights: Callable[[Node], Stored]
    ) -> Graph:
        """A copy of the graph that rounds what it is told to, as it is told to."""
        inside = {layer(n) for n in placement.nodes}
        stored = {layer(n): weights(n) for n in placement.nodes if n.op in PRODUCTS}
        copy = graph.copy()
        by_name = {v.name: v for v in copy.values()}
        for name, (w, shift) in stored.items():
            node = by_name[name].producer
            assert node is not None
            old, new = node.inputs[1], constant(w)
            assert old is not None
            node.inputs[1] = new
            old.uses.pop(node, None)
            new.uses[node] = None
            if shift is not None:
                shift_bias(node, shift)
        scalars = []
        for i, name in enumerate(self.names):
            v = by_name[name]
            readers = list(v.uses)  # as `insert` has it
            if v.producer is None or layer(v.producer) not in inside:
                readers = [n for n in readers if _is_inside(n, inside) and v in activations(n)]
            step, low, high = (Value(Type("f32", ()), f"{w}{i}") for w in ("step", "low", "high"))
            scalars += [step, low, high]
            whole = ops.round(ops.div(v, step))
            made = ops.mul(ops.minimum(ops.maximum(whole, low), high), step)
            for n in readers:
                n.inputs = [made if x is v else x for x in n.inputs]
                v.uses.pop(n, None)
                made.uses[n] = None
        return Graph([*copy.inputs, *scalars], copy.outputs, copy.output_names, graph.name)

    def run(
        self, schemes: Mapping[str, TensorScheme] | Sequence[Mapping[str, TensorScheme]]
    ) -> list[OutputMatch]:
        """How the outputs match where the tensors in `schemes` are rounded, and no others.

        A sequence has schemes for each of the samples.
        Samples are taken in two halves, of which the worse one counts: what is good by luck on some
        of them is seldom good on all.
        """
        each = [schemes] * len(self.reference.samples) if isinstance(schemes, Mapping) else schemes
        known = {id(s): self._given(s) for s in each}
        given = [known[id(s)] for s in each]
        halves = [
            {(n, p): Match() for n, parts in self.reference.parts.items() for p in parts}
            for _ in range(min(2, len(self.reference.samples)))
        ]
        self.runs += 1
        ref = self.reference
        feeds = ({**x, **g} for x, g in zip(ref.samples, given, strict=True))
        every = self.sessions.in_order(lambda s, x: s.run(x), feeds)
        for i, (made, wanted) in enumerate(zip(every, ref.outputs, strict=True)):
            for (n, p), total in halves[i % len(halves)].items():
                if made[n].shape == wanted[n].shape:
                    total.add(p.of(wanted[n]), p.of(made[n]))
                else:
                    total.add(wanted[n], np.zeros_like(wanted[n]))
        worst = {key: max((h[key] for h in halves), key=lambda m: m.error) for key in halves[0]}
        return [OutputMatch(n, p, t.cosine, t.error) for (n, p), t in worst.items()]

    def _given(self, schemes: Mapping[str, TensorScheme]) -> dict[str, Array]:
        """The steps and ends that the model takes for these schemes."""
        given: dict[str, Array] = {}
        for i, name in enumerate(self.names):
            values = _numbers(schemes[name]) if name in schemes else EXACT
            for word, value in zip(("step", "low", "high"), values, strict=True):
                given[f"{word}{i}"] = np.asarray(value, np.float32)
        return given

    def held_out(self, schemes: Sequence[Mapping[str, TensorScheme]]) -> Errors:
        """Errors where each sample has schemes of its own."""
        return {m.name: min(m.error, 10.0) ** 2 for m in self.run(schemes)}

    def errors(self, schemes: Mapping[str, TensorScheme]) -> Errors:
        """Relative squared errors, which add up over tensors as long as they are small."""
        key = frozenset((n, t.dtype, t.scale, t.zero) for n, t in schemes.items())
        if key not in self._known:
            self._known[key] = {m.name: min(m.error, 10.0) ** 2 for m in self.run(schemes)}
        return dict(self._known[key])

    def close(self) -> None:
        self.sessions.close()

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _is_inside(n: Node, inside: set[str]) -> bool:
    return bool(n.outputs) and layer(n) in inside


def _numbers(t: TensorScheme) -> tuple[np.float32, np.float32, np.float32]:
    """The step and both ends, counted in steps from 0."""
    low, high = dtypes.limits(t.dtype)
    zero = t.zero[0]
    return np.float32(t.scale[0]), np.float32(low - zero), np.float32(high - zero)


def total(errors: Errors) -> float:
    """One figure for a trial: the worst part counts, and a little of all others."""
    values = sorted(errors.values(), reverse=True)
    return values[0] + 0.1 * sum(values[1:]) / max(len(values) - 1, 1) if values else 0.0
