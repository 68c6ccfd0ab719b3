"""Places of the nodes of a graph: layers from top to bottom, with few crossings of edges.

The method of Sugiyama: ranks by longest paths, dummy nodes on long edges, barycentres, and places
by the means of neighbours. It is our own because the page must need no network and no JavaScript
library in the repository; places are computed once, when the report is written.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

ROW, GAP, DUMMY = 84.0, 28.0, 14.0  # height of a rank, space beside a node, width of a dummy
HEIGHT = 46.0  # of a node
LONGEST = 40  # ranks of an edge with dummy nodes; longer ones are drawn straight
SWEEPS = 6  # over all ranks, down and up
MOST_DUMMIES = 20_000


@dataclass
class Layout:
    """The centre of every node, and a path for every edge."""

    places: list[tuple[float, float]]
    paths: list[list[tuple[float, float]]]
    width: float = 0.0
    height: float = 0.0


@dataclass
class _Vertex:
    rank: int
    width: float
    x: float = 0.0
    before: list[int] = field(default_factory=list)  # neighbours in the rank above
    after: list[int] = field(default_factory=list)


def layered(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> Layout:
    """The layout of an acyclic graph whose edges go from lower to higher numbers."""
    ranks = _ranks(len(widths), edges)
    vertices = [_Vertex(r, w) for r, w in zip(ranks, widths, strict=True)]
    chains = [_chain(vertices, a, b) for a, b in edges]
    rows: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for i, v in enumerate(vertices):
        rows[v.rank].append(i)
    for sweep in range(SWEEPS):
        _order(vertices, rows, down=sweep % 2 == 0)
    _first_places(vertices, rows)
    for sweep in range(2 * SWEEPS):
        _move(vertices, rows, down=sweep % 2 == 0)
    left = min((v.x - v.width / 2 for v in vertices), default=0.0)
    right = max((v.x + v.width / 2 for v in vertices), default=0.0)
    places = [(v.x - left + GAP, v.rank * ROW + GAP + HEIGHT / 2) for v in vertices]
    paths = [[places[i] for i in chain] for chain in chains]
    height = len(rows) * ROW + 2 * GAP - (ROW - HEIGHT)
    return Layout(places[: len(widths)], paths, right - left + 2 * GAP, height)


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The longest path to each node; nodes without inputs stand right above their first reader."""
    ranks, heads = [0] * count, set()
    for a, b in sorted(edges, key=lambda e: e[1]):
        ranks[b] = max(ranks[b], ranks[a] + 1)
        heads.add(b)
    nearest: dict[int, int] = {}
    for a, b in edges:
        if a not in heads:
            nearest[a] = min(nearest.get(a, ranks[b]), ranks[b])
    for a, rank in nearest.items():
        ranks[a] = rank - 1
    return ranks


def _chain(vertices: list[_Vertex], a: int, b: int) -> list[int]:
    """The vertices of an edge: dummy nodes stand in every rank that it crosses."""
    first, last = vertices[a].rank, vertices[b].rank
    if last - first > LONGEST or len(vertices) > MOST_DUMMIES:
        return [a, b]
    chain = [a]
    for rank in range(first + 1, last):
        vertices.append(_Vertex(rank, DUMMY))
        chain.append(len(vertices) - 1)
    chain.append(b)
    for i, j in itertools.pairwise(chain):
        vertices[i].after.append(j)
        vertices[j].before.append(i)
    return chain


def _order(vertices: list[_Vertex], rows: list[list[int]], down: bool) -> None:
    """Sort each rank by the mean position of its neighbours in the rank before."""
    position = {i: float(n) for row in rows for n, i in enumerate(row)}
    for row in rows if down else reversed(rows):
        key = {}
        for i in row:
            near = vertices[i].before if down else vertices[i].after
            key[i] = sum(position[j] for j in near) / len(near) if near else position[i]
        row.sort(key=key.__getitem__)
        position.update({i: float(n) for n, i in enumerate(row)})


def _first_places(vertices: list[_Vertex], rows: list[list[int]]) -> None:
    for row in rows:
        x = 0.0
        for i in row:
            vertices[i].x = x + vertices[i].width / 2
            x += vertices[i].width + GAP
        for i in row:
            vertices[i].x -= x / 2


def _move(vertices: list[_Vertex], rows: list[list[int]], down: bool) -> None:
    """Move every node towards its neighbours; nodes of a rank keep their order and distance."""
    for row in rows if down else reversed(rows):
        wished = []
        for i in row:
            v = vertices[i]
            near = (v.before or v.after) if down else (v.after or v.before)
            wished.append(sum(vertices[j].x for j in near) / len(near) if near else v.x)
        for i, x in zip(row, _apart(wished, [vertices[i].width for i in row]), strict=True):
            vertices[i].x = x


def _apart(wished: Sequence[float], widths: Sequence[float]) -> list[float]:
    """The places nearest to the wished ones at which no two nodes overlap (least squares)."""
    offsets, at = [], 0.0
    for k, w in enumerate(widths):
        at += w / 2 + (widths[k - 1] / 2 + GAP if k else 0.0)
        offsets.append(at)
    blocks: list[tuple[float, int]] = []  # mean of wish - offset, number of nodes
    for x, off in zip(wished, offsets, strict=True):
        mean, count = x - off, 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean, count = (before * many + mean * count) / (many + count), many + count
        blocks.append((mean, count))
    means = [mean for mean, count in blocks for _ in range(count)]
    return [m + off for m, off in zip(means, offsets, strict=True)]
