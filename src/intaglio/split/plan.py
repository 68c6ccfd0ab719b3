"""The best cut: time on the device, on the link and on the server, for every cut."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import Any

from intaglio import progress
from intaglio.errors import BadInput
from intaglio.ir import Graph
from intaglio.split.cuts import Cut, parts, single_tensor_cuts
from intaglio.split.machines import Machine
from intaglio.text_table import aligned

ALL_EDGE, ALL_CLOUD = "all on the device", "all on the server"
HEADERS = 700  # bytes of HTTP and JSON around the tensors of a request and its response
MOST_TIMED = (
    8  # cuts whose two parts are compiled and timed; times of the others are sums of layers
)


@dataclass(frozen=True)
class Link:
    """The network between device and server."""

    bandwidth: float  # bits a second from the device
    rtt: float  # milliseconds
    downlink: float | None = None  # bits a second to the device; None: as bandwidth

    def __post_init__(self) -> None:
        for name in ("bandwidth", "downlink"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e15:
                raise BadInput(f"{name} is {value:g}; give bits per second above 0, such as 5e6")
        if not 0 <= self.rtt < 1e7:
            raise BadInput(f"rtt is {self.rtt:g}; give milliseconds of at least 0")

    def up(self, size: int) -> float:
        """Milliseconds that a request with so many bytes of tensors takes."""
        return (size + HEADERS) * 8e3 / self.bandwidth

    def down(self, size: int) -> float:
        return (size + HEADERS) * 8e3 / (self.downlink or self.bandwidth)


@dataclass(frozen=True)
class Row:
    """One way to run the model. Times are in milliseconds."""

    place: str  # the tensor that is sent, or ALL_EDGE, ALL_CLOUD
    shape: str
    bytes_up: int
    bytes_down: int
    edge: float
    up: float
    rtt: float
    cloud: float
    down: float
    timed: bool  # its parts were compiled and timed; else its times are sums of the model's layers
    cut: Cut | None = None

    @property
    def total(self) -> float:
        return self.edge + self.up + self.rtt + self.cloud + self.down

    @property
    def per_second(self) -> float:
        """Samples a second if device, link and server work at the same time."""
        return 1e3 / max(self.edge, self.up, self.cloud, self.down, 1e-9)

    def on(self, link: Link) -> Row:
        """The same over another link."""
        if not self.bytes_up:
            return self
        up, down = link.up(self.bytes_up), link.down(self.bytes_down)
        return replace(self, up=up, rtt=link.rtt, down=down)

    def to_dict(self) -> dict[str, Any]:
        plain = {k: v for k, v in asdict(self).items() if k != "cut"}
        return plain | {"total": self.total, "per_second": self.per_second}


@dataclass(frozen=True)
class SplitPlan:
    """All ways to run a model on a device and a server, and the fastest."""

    name: str
    edge: str
    cloud: str
    edge_basis: str
    cloud_basis: str
    link: Link
    rows: list[Row]  # all on the server, the cuts in the model's order, all on the device

    @property
    def best(self) -> Row:
        return min(self.rows, key=lambda r: r.total)

    def row(self, place: str) -> Row:
        """The row of a tensor, or of ALL_EDGE or ALL_CLOUD."""
        for row in self.rows:
            if row.place == place:
                return row
        raise BadInput(f"'{place}' is no cut of this model; `intaglio split` lists the cuts")

    def to_dict(self) -> dict[str, Any]:
        names = ("name", "edge", "cloud", "edge_basis", "cloud_basis")
        return {n: getattr(self, n) for n in names} | {
            "link": asdict(self.link),
            "best": self.best.to_dict(),
            "rows": [r.to_dict() for r in self.rows],
        }

    def __str__(self) -> str:
        table: list[tuple[str, ...]] = [
            ("sent", "shape", "KB", "device", "up", "RTT", "server", "down", "ms", "per s", "")
        ]
        table += [
            (
                r.place,
                r.shape,
                f"{r.bytes_up / 1e3:.1f}" if r.bytes_up else "",
                *(f"{t:.2f}" if t else "" for t in (r.edge, r.up, r.rtt, r.cloud, r.down)),
                f"{r.total:.2f}",
                f"{r.per_second:.1f}",
                "best" if r is self.best else "" if r.timed else "~",
            )
            for r in self.rows
        ]
        lines = aligned(table, range(2, 10), (9, 1, 7, 3))
        lines.append(
            f"device {self.edge}: {self.edge_basis}; server {self.cloud}: {self.cloud_basis}"
        )
        if not all(r.timed for r in self.rows):
            lines.append("~ sums of the times of the whole model's layers; other rows were timed")
        return "\n".join(lines)


def plan_split(
    graph: Graph,
    edge: Machine,
    cloud: Machine,
    link: Link,
    *,
    upload_bytes: int | None = None,
    at: str | None = None,
) -> SplitPlan:
    """Time all on the device, all on the server, and each cut of a quantised graph.

    `upload_bytes` is the size of a compressed input, such as a JPEG picture, that the server could
    take instead of the input's own bytes. `at` is a cut that is timed in any case.
    """
    cuts = single_tensor_cuts(graph)
    answer = sum(v.type.bytes for v in graph.outputs)
    inputs = sum(v.type.bytes for v in graph.inputs)
    with progress.inside(f"timing the model on {edge.name}"):
        whole_edge, edge_layers = edge.milliseconds(graph), edge.layers(graph)
    with progress.inside(f"timing the model on {cloud.name}"):
        whole_cloud, cloud_layers = cloud.milliseconds(graph), cloud.layers(graph)
    size = inputs if upload_bytes is None else upload_bytes
    shape = ", ".join(str(v.type) for v in graph.inputs) if upload_bytes is None else "compressed"
    rows = [
        _row(ALL_CLOUD, shape, size, answer, 0.0, whole_cloud, link, timed=True),
        *_estimated(graph, cuts, (edge_layers, whole_edge), (cloud_layers, whole_cloud), link),
        Row(ALL_EDGE, "", 0, 0, whole_edge, 0.0, 0.0, 0.0, 0.0, True),
    ]
    if at is not None and at not in (r.place for r in rows):
        listed = ", ".join(c.tensor for c in cuts[:6])
        raise BadInput(
            f"'{at}' is no cut of this model; cuts are {listed}{', ...' * (len(cuts) > 6)}"
        )
    for done in range(MOST_TIMED):
        i = _next(rows, at)
        if i is None:
            break
        with progress.inside("timing the parts of cut", done, MOST_TIMED):
            rows[i] = _timed(graph, rows[i], edge, cloud)
    return SplitPlan(graph.name, edge.name, cloud.name, edge.basis, cloud.basis, link, rows)


def _next(rows: Sequence[Row], at: str | None) -> int | None:
    """The row to time next: `at`, then the fastest cut, until the fastest one is timed."""
    cuts = [i for i, r in enumerate(rows) if r.cut is not None]
    if not cuts:
        return None
    named = [i for i in cuts if rows[i].place == at and not rows[i].timed]
    fastest = min(cuts, key=lambda i: rows[i].total)
    return named[0] if named else None if rows[fastest].timed else fastest


def _row(
    place: str, shape: str, up: int, down: int, edge: float, cloud: float, link: Link, *,
    timed: bool, cut: Cut | None = None,
) -> Row:  # fmt: skip
    return Row(
        place, shape, up, down, edge, link.up(up), link.rtt, cloud, link.down(down), timed, cut
    )


def _estimated(
    graph: Graph,
    cuts: Sequence[Cut],
    edge: tuple[list[tuple[str, float]], float],
    cloud: tuple[list[tuple[str, float]], float],
    link: Link,
) -> list[Row]:
    """Each cut by the times of the model's layers on both sides."""
    at = {n.origin: i for i, n in enumerate(graph.nodes()) if n.origin}
    at |= {v.name: i for i, n in enumerate(graph.nodes()) for v in n.outputs if v.name}
    answer = sum(v.type.bytes for v in graph.outputs)
    before_edge, before_cloud = _cumulative(at, edge), _cumulative(at, cloud)
    rows = []
    for c in cuts:
        on_edge, on_cloud = before_edge(c.position), cloud[1] - before_cloud(c.position)
        shape = f"{c.dtype}[{'x'.join(map(str, c.shape))}]"
        rows.append(
            _row(c.tensor, shape, c.bytes, answer, on_edge, on_cloud, link, timed=False, cut=c)
        )
    return rows


def _cumulative(at: dict[str, int], found: tuple[list[tuple[str, float]], float]) -> Any:
    """A function from a position in the graph to the time of all layers up to it."""
    layers, whole = found
    placed, now = [], 0
    for name, time in layers:
        now = max(now, at.get(name, now))  # a layer that the compiler added: with the one before it
        placed.append((now, time))
    scale = whole / (sum(t for _, t in placed) or 1.0)
    ends = [p for p, _ in placed]
    sums = [0.0, *accumulate(t * scale for _, t in placed)]
    return lambda position: sums[bisect.bisect_right(ends, position)]


def _timed(graph: Graph, row: Row, edge: Machine, cloud: Machine) -> Row:
    """A row whose two parts are compiled and timed."""
    device, server = parts(graph, row.place)
    return replace(
        row, edge=edge.milliseconds(device), cloud=cloud.milliseconds(server), timed=True
    )
