"""Which network fits my chip: the catalogue with published figures and times by chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from intaglio import catalogue
from intaglio.analysis.stats import stats
from intaglio.text_table import aligned

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class CatalogueRow:
    """A network: our figures, the published ones, and least times by chip."""

    name: str
    size: int
    parameters: int
    macs: int
    bytes: int
    published_parameters: float | None  # millions
    published_macs: float | None  # 10^9
    source: str
    least_ms: dict[str, float] = field(default_factory=dict)

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
        rest = ("published_macs", "source", "least_ms", "difference")
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
        times = [f"{r.least_ms[c]:.2f}" for c in self.chips]
        own = f"{r.parameters / 1e6:.3f}", p, f"{r.macs / 1e9:.3f}", m
        return [r.name, str(r.size), *own, f"{r.difference:.1%}", *times, r.source]

    def __str__(self) -> str:
        rows = [self.titles(), *map(self.cells, self.rows)]
        right = range(1, len(rows[0]) - 1)
        lines = aligned(rows, right, drop=[len(rows[0]) - 1, *range(len(rows[0]) - 2, 7, -1)])
        note = "ms: least time on one core in int8 (peak of the units, DDR speed); `intaglio perf`"
        return "\n".join([*lines, f"{note} predicts real ones"])

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
        return scatter(self.rows, one) if one else grid(self.rows, self.chips)


def catalogue_table(chips: Sequence[str] = (), networks: Sequence[str] = ()) -> CatalogueTable:
    """The catalogue, or some networks of it, with least times on chips."""
    rows = []
    for name in networks or catalogue.NETWORKS:
        n, found = catalogue.find(name), stats(catalogue.build(name))
        times = {c: found.least_ms(c) for c in chips}
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
            )
        )
    return CatalogueTable(rows, list(chips))
