"""Which network fits my chip: the catalogue with published figures and speed by chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from intaglio import catalogue
from intaglio.analysis.catalogue_speed import predicted
from intaglio.analysis.performance import Performance
from intaglio.analysis.stats import stats
from intaglio.text_table import aligned

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class CatalogueRow:
    """A network: our figures, the published ones, and milliseconds by chip.

    `predicted_ms` has None where a chip cannot run the network; it is empty if only the least times
    were wanted, which the peak of the units and the speed of DDR allow. 80 % of measured times are
    expected within the band.
    """

    name: str
    size: int
    parameters: int
    macs: int
    bytes: int
    published_parameters: float | None  # millions
    published_macs: float | None  # 10^9
    source: str
    least_ms: dict[str, float] = field(default_factory=dict)
    predicted_ms: dict[str, float | None] = field(default_factory=dict)
    bands: dict[str, tuple[float, float]] = field(default_factory=dict)

    def ms(self, chip: str) -> float | None:
        """The predicted time, else the least one."""
        return self.predicted_ms.get(chip) if self.predicted_ms else self.least_ms[chip]

    @property
    def difference(self) -> float:
        """The larger relative difference from the published figures."""
        pairs = (
            (self.parameters / 1e6, self.published_parameters),
            (self.macs / 1e9, self.published_macs),
        )
        return max((abs(a / b - 1) for a, b in pairs if b), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        names = ("name", "size", "parameters", "macs", "bytes", "published_parameters")
        rest = ("published_macs", "source", "least_ms", "predicted_ms", "bands", "difference")
        return {n: getattr(self, n) for n in (*names, *rest)}


@dataclass(frozen=True)
class CatalogueTable:
    """Networks of the catalogue on chips."""

    rows: list[CatalogueRow]
    chips: list[str]

    def to_dict(self) -> dict[str, Any]:
        return {"chips": self.chips, "networks": [r.to_dict() for r in self.rows]}

    def titles(self) -> list[str]:
        figures = ["M params", "published", "GMACs", "published", "differs"]
        return ["network", "size", *figures, *(f"{c} ms" for c in self.chips), "source"]

    def cells(self, r: CatalogueRow) -> list[str]:
        published = (r.published_parameters, r.published_macs)
        p, m = ("" if x is None else f"{x:.3f}" for x in published)
        times = ["-" if (ms := r.ms(c)) is None else f"{ms:.2f}" for c in self.chips]
        own = f"{r.parameters / 1e6:.3f}", p, f"{r.macs / 1e9:.3f}", m
        return [r.name, str(r.size), *own, f"{r.difference:.1%}", *times, r.source]

    def __str__(self) -> str:
        rows = [self.titles(), *map(self.cells, self.rows)]
        right = range(1, len(rows[0]) - 1)
        lines = aligned(rows, right, drop=[len(rows[0]) - 1, *range(len(rows[0]) - 2, 7, -1)])
        return "\n".join([*lines, *([self.note()] if self.chips else [])])

    @property
    def predicted(self) -> bool:
        """Whether times are predicted, not the least ones."""
        return any(r.predicted_ms for r in self.rows)

    def note(self) -> str:
        if self.predicted:
            return "ms: predicted for one core in int8, as the vendor's compiler would run it"
        return "ms: least time on one core in int8 by the chip's peaks, no prediction"

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table()
        for title in self.titles():
            table.add_column(title, overflow="fold")
        for r in self.rows:
            table.add_row(*self.cells(r))
        return table

    def _repr_html_(self) -> str:
        from intaglio.analysis.html_table import html_table

        return html_table("catalogue", self.titles(), [self.cells(r) for r in self.rows])

    def svg(self, chip: str = "") -> str:
        """A plot: of one chip frames per second by MACs, of several a grid of frames per second."""
        from intaglio.analysis.catalogue_plot import grid, scatter

        one = chip or (self.chips[0] if len(self.chips) == 1 else "")
        most = "" if self.predicted else "at most "
        return scatter(self.rows, one, most) if one else grid(self.rows, self.chips, most)


def catalogue_table(
    chips: Sequence[str] = (), networks: Sequence[str] = (), predict: bool = True
) -> CatalogueTable:
    """The catalogue, or some networks of it, with times on chips: predicted ones, which take about
    a second each, or without `predict` the least ones."""
    rows, names = [], list(networks or catalogue.NETWORKS)
    for k, name in enumerate(names):
        n, found = catalogue.find(name), stats(catalogue.build(name))
        times = {c: found.least_ms(c) for c in chips}
        speed: dict[str, Performance | None] = {}
        if predict and chips:
            speed = dict(predicted(name, chips, k * len(chips), len(names) * len(chips)))
        rows.append(
            CatalogueRow(
                name,
                n.size,
                found.parameters,
                found.macs,
                found.bytes,
                n.parameters,
                n.macs,
                n.source,
                times,
                {c: None if p is None else p.milliseconds for c, p in speed.items()},
                {c: (p.band.low, p.band.high) for c, p in speed.items() if p is not None},
            )
        )
    return CatalogueTable(rows, list(chips))
