"""The inputs of products, second moments: what tells which errors of weights matter."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from intaglio.ir import Array, Graph, Node, Value
from intaglio.quant.ranges.observe import Probe, Progress, in_groups
from intaglio.quant.weights import im2col

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
    places: Sequence[Array] | None = None,
    rows: int = ROWS,
) -> Iterator[tuple[Node, Array]]:
    """Each product of `nodes` with [groups, inputs, inputs]: the mean of x xᵀ over its rows.

    `centered` takes the mean of x off first: what remains once biases are corrected.
    `places` says of each sample which rows count, where inputs have that shape but for channels.
    `rows` times as many rows as a layer has inputs are looked at, if there are so many.
    Layers with more inputs than WIDEST are left out. Rows are drawn evenly from all samples, the
    same on every run.
    """
    todo = [n for n in nodes if im2col.matrix(n).shape[2] <= WIDEST]
    while todo:
        some: list[Node] = []
        room = limit
        while todo and (not some or _bytes(todo[0]) <= room):
            room -= _bytes(todo[0])
            some.append(todo.pop(0))
        yield from _pass(graph, some, samples, progress, centered, places, rows)


def _bytes(node: Node) -> int:
    groups, _, inputs = im2col.matrix(node).shape
    return int(groups * inputs * inputs * 4)


def _pass(
    graph: Graph,
    nodes: Sequence[Node],
    samples: Sequence[Mapping[str, Array]],
    progress: Progress | None,
    centered: bool,
    places: Sequence[Array] | None,
    rows: int,
) -> Iterator[tuple[Node, Array]]:
    # One for each layer: what it draws does not depend on which others are looked at.
    rngs = {n: np.random.default_rng(zlib.crc32(n.outputs[0].name.encode())) for n in nodes}
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
                        x = arrays[v] if v in probe.turned else im2col.last(arrays[v], n)
                        if places is not None and x.shape[:-1] == places[i - 1].shape:
                            x = x[places[i - 1]]
                        inputs = im2col.matrix(n).shape[2]
                        many = -(-max(rows * inputs, LEAST) // len(samples))
                        r = im2col.rows(n, x, many, rngs[n]).astype(np.float32)
                        product = r.transpose(0, 2, 1) @ r
                        sums[n] = sums[n] + product if n in sums else product
                        firsts[n] = firsts.get(n, 0.0) + r.sum(1)
                        counts[n] += r.shape[1]
    for n in nodes:
        gram, mean = sums.pop(n) / max(counts[n], 1), firsts.pop(n) / max(counts[n], 1)
        yield n, gram - mean[:, :, None] * mean[:, None, :] if centered else gram
