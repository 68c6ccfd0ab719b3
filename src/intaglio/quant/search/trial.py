"""Simulate quantisation settings with one compiled model, without building each quantised graph.

Every tensor that may be quantised is rounded in floats, by a step and two limits that are inputs of
the compiled model. To try another range, a wider format or no rounding at all, three numbers are
changed; a trial costs one run over the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from threading import Event
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Graph, Node, Type, Value, constant
from intaglio.quant.placement.place import PRODUCTS, Placement, activations, layer
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.ranges.probe import SessionPool, sessions
from intaglio.quant.search.output_error import Match, OutputMatch, Reference
from intaglio.quant.weights.bias_correction import bias_of, channel_axis, set_bias, shift_bias
from intaglio.quant.weights.integers import Integers, from_integers
from intaglio.session import Session
from intaglio.targets.cpu.chain import chain

# The rounding as one chain node, because compile time grows with the number of nodes. Operands 0 to
# 3 are the value, the step and both limits; the result of each op is the next operand.
ROUND: dict[str, Any] = {
    "ops": ("div", "round", "maximum", "minimum", "mul"),
    "args": (0, 1, 4, 0, 5, 2, 6, 3, 7, 1),
}
EXACT = (np.float32(2.0**-60), np.float32(-3e38), np.float32(3e38))  # no rounding
FIRST_PAIRS = 4  # pairs of samples that are tried first
CLEAR = 0.5  # if their error is below this share of the bound, the other samples are not run
Stored = tuple[Array, Array | None]  # weights, and the bias correction
Errors = dict[str, float]  # relative squared error by part of an output


class PrecompiledTrial:
    """A trial's model, compiled in the background while samples are observed.

    Its biases are inputs, because bias corrections are known only after observation.
    """

    @classmethod
    def of(
        cls,
        graph: Graph,
        placement: Placement,
        weights: Callable[[], Mapping[Node, Integers]],
        after: Event,
        pool: Executor,
    ) -> PrecompiledTrial | None:
        """Start to compile once `after` is set: one model at a time is compiled.

        None if most products are no convolutions: their biases are not one operand.
        """
        products = [n for n in placement.nodes if n.op in PRODUCTS]
        if sum(n.op == "conv" for n in products) <= len(products) / 2:
            return None
        made = cls()
        changed = _with_roundings(graph, placement, made.biases)

        def work() -> SessionPool[Session]:
            stored = {layer(n): (from_integers(*w), None) for n, w in weights().items()}
            after.wait()
            return sessions(_stored(changed, stored))

        made.sessions = pool.submit(work)
        return made

    def __init__(self) -> None:
        self.sessions: Future[SessionPool[Session]] = Future()
        self.biases: dict[str, tuple[str, Array]] = {}  # name of the input and the bias, by layer
        self.given: dict[str, Array] = {}

    def correct(self, placement: Placement, shifts: Mapping[Node, Array | None]) -> None:
        """Set the biases with their corrections."""
        for n in placement.nodes:
            if layer(n) in self.biases:
                name, bias = self.biases[layer(n)]
                by = shifts.get(n)
                whole = bias if by is None else bias + by.reshape(bias.shape)
                self.given[name] = whole.astype(np.float32)

    def close(self) -> None:
        """Close the sessions of a model that is not needed."""
        self.sessions.result().close()


class Trial:
    """The float model with every rounding of a placement; each can be set or left out."""

    def __init__(
        self,
        graph: Graph,
        placement: Placement,
        weights: Callable[[Node], Stored],
        reference: Reference,
        ahead: PrecompiledTrial | None = None,
    ):
        """`weights` gives the rounded weights of a product; `graph` is not changed."""
        self.reference, self.runs = reference, 0
        self._known: dict[frozenset[Any], Errors] = {}  # results of earlier trials
        self.names = [v.name for v in placement.tensors]
        self.steps = {v.name: _by_channel(v) for v in placement.depthwise_inputs}
        self.biases: dict[str, Array] = {}
        if ahead is not None:
            self.sessions, self.biases = ahead.sessions.result(), ahead.given
            return
        products = [n for n in placement.nodes if n.op in PRODUCTS]
        changed = _with_roundings(graph, placement)
        self.sessions = sessions(_stored(changed, {layer(n): weights(n) for n in products}))

    def run(
        self,
        schemes: Mapping[str, TensorScheme] | Sequence[Mapping[str, TensorScheme]],
        fine: float = 0.0,
    ) -> list[OutputMatch]:
        """How the outputs match the float model's if only the tensors in `schemes` are rounded.

        A sequence has schemes for each sample. A few samples are enough if their error is far below
        `fine`. Samples are judged in two halves, and the worse half counts: settings that are good
        by luck on some samples are seldom good on all. Scores are few and judged together.
        """
        ref, every = self.reference, range(len(self.reference.samples))
        each = [schemes] * len(every) if isinstance(schemes, Mapping) else schemes
        known = {id(s): self._given(s) for s in each}
        given = [known[id(s)] for s in each]
        parts = [(n, p) for n, columns in ref.parts.items() for p in columns]
        halves = [{part: Match() for part in parts} for _ in range(min(2, len(every)))]
        self.runs += 1
        first = (
            [i for i in every if i // 2 % (len(every) // (2 * FIRST_PAIRS) or 1) == 0]
            if fine
            else []
        )
        matches: list[OutputMatch] = []
        for some in (first, [i for i in every if i not in first]):
            feeds = ({**ref.samples[i], **given[i], **self.biases} for i in some)
            results = self.sessions.in_order(lambda s, x: s.run(x), feeds)
            for i, made in zip(some, results, strict=True):
                for part in parts:
                    scores = f"{part[0]}{part[1]}" in ref.highest
                    for half in halves if scores else [halves[i % len(halves)]]:
                        ref.judge(half[part], part, i, made[part[0]])
            worst = {key: max((h[key] for h in halves), key=lambda m: m.error) for key in parts}
            matches = [OutputMatch(n, p, t.cosine, t.error) for (n, p), t in worst.items()]
            if some and total(_squared(matches)) < CLEAR * fine:
                break
        return matches

    def _given(self, schemes: Mapping[str, TensorScheme]) -> dict[str, Array]:
        """The model's step and limit inputs for these schemes."""
        given: dict[str, Array] = {}
        for i, name in enumerate(self.names):
            values = _numbers(schemes[name]) if name in schemes else EXACT
            for word, value in zip(("step", "low", "high"), values, strict=True):
                given[f"{word}{i}"] = np.asarray(value, np.float32)
            if name in self.steps:
                own = np.array(schemes[name].scale if name in schemes else EXACT[:1], np.float32)
                shape = self.steps[name]
                given[f"step{i}"] = np.ascontiguousarray(
                    np.broadcast_to(own.reshape(-1, *shape[2:]), shape[1:])[None]
                )
        return given

    def held_out(self, schemes: Sequence[Mapping[str, TensorScheme]]) -> Errors:
        """Errors with a scheme for each sample."""
        return _squared(self.run(schemes))

    def errors(self, schemes: Mapping[str, TensorScheme], fine: float = 0.0) -> Errors:
        """Relative squared errors, which add up over tensors as long as they are small.

        A few samples tell them where they are far below `fine`.
        """
        key = frozenset((n, t.dtype, t.scale, t.zero) for n, t in schemes.items())
        if key not in self._known:
            self._known[key] = _squared(self.run(schemes, fine))
        return dict(self._known[key])

    def close(self) -> None:
        self.sessions.close()

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _stored(graph: Graph, weights: Mapping[str, Stored]) -> Graph:
    """The graph with these weights and bias corrections, changed in place."""
    by_name = {v.name: v for v in graph.values()}
    for name, (w, shift) in weights.items():
        node = by_name[name].producer
        assert node is not None
        graph.set_input(node, 1, constant(w))
        if shift is not None:
            shift_bias(node, shift)
    return graph


def _with_roundings(
    graph: Graph, placement: Placement, biases: dict[str, tuple[str, Array]] | None = None
) -> Graph:
    """A copy of the graph with a rounding, whose step and limits are inputs, for each tensor.

    If `biases` is given, the biases of products become inputs too and are stored there.
    """
    inside = {layer(n) for n in placement.nodes}
    products = [layer(n) for n in placement.nodes if n.op in PRODUCTS]
    copy = graph.copy()
    by_name = {v.name: v for v in copy.values()}
    more = []
    for i, name in enumerate(products if biases is not None else ()):
        node = by_name[name].producer
        assert node is not None
        if (place := bias_of(node)) is not None:
            assert biases is not None
            holder, at = place
            old = holder.inputs[at] if len(holder.inputs) > at else None
            bias = (
                np.zeros(node.outputs[0].shape[channel_axis(node)], np.float32)
                if old is None
                else old.data
            )
            assert bias is not None
            more.append(Value(Type("f32", bias.shape), f"bias{i}"))
            set_bias(holder, at, more[-1])
            biases[name] = (f"bias{i}", bias)
    for i, v in enumerate(placement.tensors):
        mine = by_name[v.name]
        readers = list(mine.uses)  # as in `insert_qdq.insert`
        if mine.producer is None or layer(mine.producer) not in inside:
            readers = [n for n in readers if _is_inside(n, inside) and mine in activations(n)]
        step, low, high = (Value(Type("f32", ()), f"{w}{i}") for w in ("step", "low", "high"))
        if v in placement.depthwise_inputs:  # a step for each channel
            step = Value(Type("f32", _by_channel(v)), f"step{i}")
        more += [step, low, high]
        made: Value = chain(mine, step, low, high, **ROUND)
        for n in readers:
            Graph.replace_input(n, mine, made)
    return Graph([*copy.inputs, *more], copy.outputs, copy.output_names, graph.name)


def _squared(matches: Sequence[OutputMatch]) -> Errors:
    return {m.name: min(m.error, 10.0) ** 2 for m in matches}


def _by_channel(v: Value) -> tuple[int, ...]:
    return (1, v.shape[1], *[1] * (v.type.rank - 2))


def _is_inside(n: Node, inside: set[str]) -> bool:
    return bool(n.outputs) and layer(n) in inside


def _numbers(t: TensorScheme) -> tuple[np.float32, np.float32, np.float32]:
    """The step, and both limits counted in steps from 0."""
    low, high = dtypes.limits(t.dtype)
    zero = t.zero[0]
    return np.float32(t.scale[0]), np.float32(low - zero), np.float32(high - zero)


def total(errors: Errors) -> float:
    """One figure for a trial: the worst part, plus a tenth of the mean of the others."""
    values = sorted(errors.values(), reverse=True)
    return values[0] + 0.1 * sum(values[1:]) / max(len(values) - 1, 1) if values else 0.0
