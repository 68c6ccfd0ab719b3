"""Twins of chips that round in their own way: they are evaluated by the simulator of the chip.

CV18xx scales by a multiplier and a shift where a CPU has one f32 factor. In training a twin rounds
as a CPU does, because both differ by a step at most and gradients pass straight through. Without
gradients it gives the bytes of the package, which the simulator of the chip's commands computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

import intaglio
from intaglio import dtypes, targets
from intaglio.batches import rebatched
from intaglio.errors import RunError
from intaglio.interpret import interpret
from intaglio.ir import Array, Graph, Value
from intaglio.npu.chips.packaged import meaning
from intaglio.session import Session

if TYPE_CHECKING:
    from intaglio.compress.twin.module import Twin

BYTES = ("i8", "u8")


class OnChip:
    """The package of a twin as it is now; compiled anew after its parameters have changed."""

    def __init__(self, target: str):
        self.target = target
        self._state: tuple[object, ...] = ()
        self._graph: Graph | None = None
        self._sessions: dict[tuple[int, bool], Session] = {}

    def run(self, twin: Twin, inputs: Sequence[Tensor], bare: bool) -> list[Tensor]:
        """The outputs of the package; `bare` leaves out softmaxes that make an output."""
        given = [t.detach().cpu().numpy() for t in inputs]
        size, usual = len(given[0]), twin.source.inputs[0].shape[0]
        step = usual if size % usual == 0 else size
        session = self._session(twin, step, bare)
        names = [v.name for v in twin.source.inputs]
        types = [v.dtype for v in twin.source.inputs]
        parts: list[list[Array]] = []
        for i in range(0, size, step):
            feeds = {
                n: a[i : i + step].astype(dtypes.numpy_of(t))
                for n, t, a in zip(names, types, given, strict=True)
            }
            parts.append(list(session.run(feeds).values()))
        return [torch.from_numpy(np.concatenate(p)) for p in zip(*parts, strict=True)]

    def _session(self, twin: Twin, batch: int, bare: bool) -> Session:
        state = tuple((id(t), t._version) for t in (*twin.parameters(), *twin.buffers()))
        if state != self._state or self._graph is None:
            from intaglio.compress.twin.write_back import to_graph

            self._state, self._graph, self._sessions = state, to_graph(twin), {}
        if (batch, bare) not in self._sessions:
            usual = self._graph.inputs[0].shape[0]
            graph = self._graph.copy() if batch == usual else rebatched(self._graph, batch)
            if bare:
                ends = [before_softmax(v) for v in graph.outputs]
                graph = Graph(graph.inputs, ends, graph.output_names, graph.name)
            package = intaglio.compile(graph, target=self.target)
            self._sessions[batch, bare] = intaglio.open(package)
        return self._sessions[batch, bare]


def before_softmax(v: Value) -> Value:
    """What a softmax that makes an output reads; any other output itself."""
    n = v.producer
    return n.inputs[0] if n is not None and n.op == "softmax" and n.inputs[0] else v


def verify_on_chip(graph: Graph, target: str, samples: Sequence[Mapping[str, Array]]) -> int:
    """Bytes of integers compared between the package's simulator and the interpreter; RunError
    if one differs."""
    count, outputs = 0, last_integers(graph)
    part = Graph(graph.inputs, outputs, [f"t{k}" for k in range(len(outputs))])
    means = meaning(part, targets.find(target))
    with intaglio.open(intaglio.compile(part.copy(), target=target)) as session:
        for feeds in samples:
            mine, theirs = session.run(dict(feeds)), interpret(means, feeds)
            for v, (name, array) in zip(outputs, mine.items(), strict=True):
                if array.tobytes() != theirs[name].tobytes():
                    wrong = int((array != theirs[name]).sum())
                    raise RunError(
                        f"the commands for {target} differ from the interpreter in tensor "
                        f"'{v.name}': {wrong} of {array.size} elements; trained weights must "
                        "equal deployed ones, so nothing is written; report this model"
                    )
                count += array.nbytes
    return count


def last_integers(graph: Graph) -> list[Value]:
    """Quantised tensors that a float op reads, and those that are outputs."""
    whole = [n for n in graph.nodes() if not any(y.dtype in BYTES for y in n.outputs)]
    read = [v for n in [*whole, graph.result] for v in n.inputs]
    computed = [v for v in read if v is not None and v.producer is not None and v.dtype in BYTES]
    return list(dict.fromkeys(computed))
