"""Second moments of layer inputs (Gram matrices): they tell which weight errors matter."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from intaglio.ir import Array, Graph, Node, Value
from intaglio.quant.ranges.observe import Probe, Progress, groups_by_bytes
from intaglio.quant.weights import im2col

ROWS_PER_INPUT = 4  # rows that are gathered for each input of a product
LEAST_ROWS = 1024
LIMIT = 256 << 20  # bytes of moments, and of tensors, that are gathered in one pass
MOST_INPUTS = 4608  # larger moments would take too long to invert


def grams(
    graph: Graph,
    nodes: Sequence[Node],
    samples: Sequence[Mapping[str, Array]],
    *,
    progress: Progress | None = None,
    limit: int = LIMIT,
    centered: bool = False,
    places: Sequence[Array] | None = None,
    rows: int = ROWS_PER_INPUT,
) -> Iterator[tuple[Node, Array]]:
    """For each product of `nodes` the mean of x xᵀ over its input rows x: [groups, inputs, inputs].

    `centered` subtracts the mean of x first, as bias correction does. `places` masks the rows of
    each sample (without padding) for inputs of that shape. `rows` rows are gathered for each input
    of a layer, if there are so many, evenly from all samples, the same on every run. Layers with
    more inputs than MOST_INPUTS are left out.
    """
    todo = [n for n in nodes if im2col.matrix(n).shape[2] <= MOST_INPUTS]
    while todo:
        some: list[Node] = []
        left = limit
        while todo and (not some or _bytes(todo[0]) <= left):
            left -= _bytes(todo[0])
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
    # One generator for each layer: its rows do not depend on the other layers of the pass.
    rngs = {n: np.random.default_rng(zlib.crc32(n.outputs[0].name.encode())) for n in nodes}
    sums: dict[Node, Array] = {}
    firsts: dict[Node, Array] = {}
    counts = dict.fromkeys(nodes, 0)
    readers: dict[Value, list[Node]] = {}
    for n in nodes:
        readers.setdefault(n.inputs[0], []).append(n)  # type: ignore[arg-type]
    for group in groups_by_bytes(list(readers), LIMIT):
        with Probe(graph, group) as probe:
            for i, sample in enumerate(samples, 1):
                if progress:
                    progress("observing layer inputs", i - 1, len(samples))
                arrays = probe.run(sample)
                for v in group:
                    for n in readers[v]:
                        x = arrays[v] if v in probe.turned else im2col.last(arrays[v], n)
                        if places is not None and x.shape[:-1] == places[i - 1].shape:
                            x = x[places[i - 1]]
                        inputs = im2col.matrix(n).shape[2]
                        many = -(-max(rows * inputs, LEAST_ROWS) // len(samples))
                        r = im2col.rows(n, x, many, rngs[n]).astype(np.float32)
                        product = r.transpose(0, 2, 1) @ r
                        sums[n] = sums[n] + product if n in sums else product
                        firsts[n] = firsts.get(n, 0.0) + r.sum(1)
                        counts[n] += r.shape[1]
    for n in nodes:
        gram, mean = sums.pop(n) / max(counts[n], 1), firsts.pop(n) / max(counts[n], 1)
        yield n, gram - mean[:, :, None] * mean[:, None, :] if centered else gram
