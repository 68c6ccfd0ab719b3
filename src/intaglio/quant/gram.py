"""The inputs of products, second moments: what tells which errors of weights matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from intaglio.ir import Array, Graph, Node, Value
from intaglio.quant import columns
from intaglio.quant.observe import Probe, Progress, in_groups

ROWS = 4  # times as many rows as a product has inputs are enough to know their moments
LEAST = 1024
LIMIT = 256 << 20  # bytes of moments, and of tensors, that are gathered in one pass
WIDEST = 4608  # inputs; the moments of wider layers would take too long to invert


def grams(
    graph: Graph,
    nodes: Sequence[Node],
    samples: Sequence[Mapping[str, Array]],
    *,
    progress: Progress | None = None,
    limit: int = LIMIT,
    centered: bool = False,
) -> Iterator[tuple[Node, Array]]:
    """Each product of `nodes` with [groups, inputs, inputs]: the mean of x xᵀ over its rows.

    `centered` takes the mean of x off first: what remains once biases are corrected.
    Layers with more inputs than WIDEST are left out. Rows are drawn evenly from all samples, the
    same on every run.
    """
    todo = [n for n in nodes if columns.matrix(n).shape[2] <= WIDEST]
    while todo:
        some: list[Node] = []
        room = limit
        while todo and (not some or _bytes(todo[0]) <= room):
            room -= _bytes(todo[0])
            some.append(todo.pop(0))
        yield from _pass(graph, some, samples, progress, centered)


def _bytes(node: Node) -> int:
    groups, _, inputs = columns.matrix(node).shape
    return int(groups * inputs * inputs * 4)


def _pass(
    graph: Graph,
    nodes: Sequence[Node],
    samples: Sequence[Mapping[str, Array]],
    progress: Progress | None,
    centered: bool,
) -> Iterator[tuple[Node, Array]]:
    rng = np.random.default_rng(0)
    sums: dict[Node, Array] = {}
    firsts: dict[Node, Array] = {}
    counts = dict.fromkeys(nodes, 0)
    readers: dict[Value, list[Node]] = {}
    for n in nodes:
        readers.setdefault(n.inputs[0], []).append(n)  # type: ignore[arg-type]
    for group in in_groups(list(readers), LIMIT):
        with Probe(graph, group) as probe:
            for i, sample in enumerate(samples, 1):
                if progress:
                    progress("looking at the inputs of layers", i, len(samples))
                arrays = probe.run(sample)
                for v in group:
                    for n in readers[v]:
                        x = arrays[v] if v in probe.turned else columns.last(arrays[v], n)
                        inputs = columns.matrix(n).shape[2]
                        many = -(-max(ROWS * inputs, LEAST) // len(samples))
                        r = columns.rows(n, x, many, rng).astype(np.float32)
                        product = r.transpose(0, 2, 1) @ r
                        sums[n] = sums[n] + product if n in sums else product
                        firsts[n] = firsts.get(n, 0.0) + r.sum(1)
                        counts[n] += r.shape[1]
    for n in nodes:
        gram, mean = sums.pop(n) / max(counts[n], 1), firsts.pop(n) / max(counts[n], 1)
        yield n, gram - mean[:, :, None] * mean[:, None, :] if centered else gram
