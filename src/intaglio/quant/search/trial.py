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
from intaglio.quant.search.output_error import Columns, Match, OutputMatch, Reference
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
Judged = dict[tuple[str, Columns], Match]  # one sample, by part of an output


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
        result = cls()
        changed = _with_roundings(graph, placement, result.biases)

        def work() -> SessionPool[Session]:
            stored = {layer(n): (from_integers(*w), None) for n, w in weights().items()}
            after.wait()
            return sessions(_stored(changed, stored))

        result.sessions = pool.submit(work)
        return result

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
        self._known: dict[frozenset[Any], dict[int, Judged]] = {}  # earlier trials, by sample
        self._parts = [(n, p) for n, columns in reference.parts.items() for p in columns]
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
        schemes: Mapping[str, TensorScheme],
        fine: float = 0.0,
        only: Sequence[int] | None = None,
    ) -> list[OutputMatch]:
        """How the outputs match the float model's if only the tensors in `schemes` are rounded.

        `only` names the samples to run; otherwise all are run, but a few are enough if their error
        is far below `fine`. Results are kept by sample, so no sample runs twice.
        """
        every = range(len(self.reference.samples))
        key = frozenset((n, t.dtype, t.scale, t.zero) for n, t in schemes.items())
        known = self._known.setdefault(key, {})
        if fine and only is None:
            spacing = len(every) // (2 * FIRST_PAIRS) or 1
            first = [i for i in every if i // 2 % spacing == 0]
            matches = self._worst(self._judged(schemes, first, known))
            if total(_squared(matches)) < CLEAR * fine:
                return matches
        return self._worst(self._judged(schemes, every if only is None else only, known))

    def _judged(
        self, schemes: Mapping[str, TensorScheme], wanted: Sequence[int], known: dict[int, Judged]
    ) -> dict[int, Judged]:
        """How each wanted sample matches; samples that are not in `known` are run and added."""
        ref, missing = self.reference, [i for i in wanted if i not in known]
        if missing:
            self.runs += 1
            given = self._given(schemes) | self.biases
            feeds = ({**ref.samples[i], **given} for i in missing)
            results = self.sessions.in_order(lambda s, x: s.run(x), feeds)
            for i, result in zip(missing, results, strict=True):
                known[i] = {part: Match() for part in self._parts}
                for part, match in known[i].items():
                    ref.judge(match, part, i, result[part[0]])
        return {i: known[i] for i in wanted}

    def _worst(self, judged: Mapping[int, Judged]) -> list[OutputMatch]:
        """The match of each part of the outputs.

        Samples are judged in two halves, and the worse half counts: settings that are good by luck
        on some samples are seldom good on all. Scores are few and judged together.
        """
        found = []
        for n, p in self._parts:
            halves = [[m[n, p] for i, m in judged.items() if i % 2 == half] for half in (0, 1)]
            if f"{n}{p}" in self.reference.highest:
                halves = [halves[0] + halves[1]]
            worst = max((Match.sum(h) for h in halves if h), key=lambda m: m.error)
            found.append(OutputMatch(n, p, worst.cosine, worst.error))
        return found

    def hardest(self, schemes: Mapping[str, TensorScheme], count: int) -> list[int]:
        """The samples with the largest parts of the error, in order of their numbers."""
        self.run(schemes)
        key = frozenset((n, t.dtype, t.scale, t.zero) for n, t in schemes.items())
        known = self._known[key]
        whole = {part: Match.sum(m[part] for m in known.values()).off for part in self._parts}

        def share(i: int) -> float:
            return max(m.off / whole[part] for part, m in known[i].items() if whole[part])

        if not any(whole.values()):
            return sorted(known)[:count]
        return sorted(sorted(known, key=share, reverse=True)[:count])

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

    def errors(
        self,
        schemes: Mapping[str, TensorScheme],
        fine: float = 0.0,
        only: Sequence[int] | None = None,
    ) -> Errors:
        """Relative squared errors, which add up over tensors as long as they are small."""
        return _squared(self.run(schemes, fine, only))

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
        result: Value = chain(mine, step, low, high, **ROUND)
        for n in readers:
            Graph.replace_input(n, mine, result)
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
