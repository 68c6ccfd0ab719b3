"""Derive the bands around predictions from networks that were left out of the fit.

python -m benchmarks.npu_fit --left-out benchmarks/npu_left_out.csv
python -m benchmarks.npu_bands [--rows benchmarks/npu_left_out.csv] [--write]

The rows of a family and kind are pooled. All networks count the same, however many rows they have.
The band reaches from the 10 % to the 90 % quantile of published / predicted, and is widened until
80 % of the rows lie inside bands that were derived without all sizes of their own network. A group
of few rows or networks, or whose networks do not tell about each other, has no band of its own;
`intaglio.npu.predict.bands` says which one serves instead.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import npu_zoo
from intaglio.npu.predict import bands

ROWS = Path(__file__).with_name("npu_left_out.csv")
TAIL = 0.1  # of the rows on each side
INSIDE = 1 - 2 * TAIL
MOST_WIDER = 3.0
HEAD = """\
# Bands around predictions: published / predicted of networks that were left out of the fit.
# Written by `python -m benchmarks.npu_bands --write` from benchmarks/npu_left_out.csv.
# `inside` is the share of rows inside bands derived without all sizes of their own network.
"""


@dataclass(frozen=True)
class Row:
    """A published speed and its prediction by a fit without its network."""

    family: str
    kind: str
    net: str
    ratio: float  # log(published / predicted)

    @property
    def root(self) -> str:
        """The architecture, of all sizes."""
        return npu_zoo.family(self.net)


def read(path: Path = ROWS) -> list[Row]:
    with path.open() as file:
        return [
            Row(
                r["family"],
                r["kind"],
                r["net"],
                math.log(float(r["published"]) / float(r["left_out"])),
            )
            for r in csv.DictReader(file)
        ]


def quantiles(rows: Sequence[Row], wider: float = 1.0) -> tuple[float, float]:
    """Logarithms of the ends of a band. It contains the prediction itself."""
    order = sorted(rows, key=lambda r: r.ratio)
    ratios = np.array([r.ratio for r in order])
    many = {r.net: sum(x.net == r.net for x in rows) for r in rows}
    weights = np.array([1 / many[r.net] for r in order])
    at = (np.cumsum(weights) - weights / 2) / weights.sum()
    low, high = np.interp([TAIL, 1 - TAIL], at, ratios)
    return min(float(low), 0.0) * wider, max(float(high), 0.0) * wider


def inside(rows: Sequence[Row], wider: float) -> float:
    """The share of rows inside bands that were derived without all sizes of their network."""
    count = 0
    for family in {r.root for r in rows}:
        if not (others := [r for r in rows if r.root != family]):
            return 0.0
        low, high = quantiles(others, wider)
        count += sum(low <= r.ratio <= high for r in rows if r.root == family)
    return count / len(rows)


def derived(rows: Sequence[Row]) -> dict[str, bands.Range]:
    """The bands of all groups that have enough rows and networks."""
    groups: dict[str, list[Row]] = {}
    for r in rows:
        for name in (f"{r.family}.{r.kind}", f"{r.family}.any", f"any.{r.kind}", "any.any"):
            groups.setdefault(name, []).append(r)
    found = {}
    for name, mine in sorted(groups.items()):
        nets = len({r.net for r in mine})
        if len(mine) < bands.LEAST_ROWS or nets < bands.LEAST_NETWORKS:
            continue
        wider = 1.0
        while inside(mine, wider) < INSIDE and wider < MOST_WIDER:
            wider = round(wider + 0.05, 2)
        if inside(mine, wider) < INSIDE:
            continue  # its networks do not tell about each other
        low, high = quantiles(mine, wider)
        share = round(inside(mine, wider), 3)
        made = (round(math.exp(low), 3), round(math.exp(high), 3), len(mine), nets, share)
        found[name] = bands.Range(*made)
    return found


def toml(found: dict[str, bands.Range]) -> str:
    lines = [HEAD]
    for name, r in found.items():
        lines += [
            f"[{name}]",
            f"low = {r.low}\nhigh = {r.high}\nrows = {r.rows}\nnetworks = {r.networks}",
            f"inside = {r.inside}\n",
        ]
    return "\n".join(lines)


def table(rows: Sequence[Row], found: dict[str, bands.Range]) -> str:
    """The errors of left-out networks by family and kind, for docs/predict.md."""
    lines = ["| family | kind | rows | networks | mean error | worst | band | inside |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    groups = sorted({(r.family, r.kind) for r in rows})
    for family, kind in [*groups, ("all", "")]:
        mine = [r for r in rows if family == "all" or (r.family, r.kind) == (family, kind)]
        off = {r: math.exp(-r.ratio) - 1 for r in mine}
        worst = max(mine, key=lambda r: abs(off[r]))
        mean = 100 * float(np.mean([abs(v) for v in off.values()]))
        nets = len({r.net for r in mine})
        band = found.get("any.any" if family == "all" else f"{family}.{kind}")
        ends = f"{band.low:.2f} to {band.high:.2f} | {band.inside:.0%}" if band else "- | -"
        lines.append(
            f"| {family} | {kind} | {len(mine)} | {nets} | {mean:.1f} % "
            f"| {100 * off[worst]:+.0f} % ({worst.net}) | {ends} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.npu_bands")
    parser.add_argument("--rows", type=Path, default=ROWS, help="table of left-out rows")
    parser.add_argument("--write", action="store_true", help="write the file of bands")
    args = parser.parse_args()
    rows = read(args.rows)
    found = derived(rows)
    print(table(rows, found))
    if args.write:
        bands.FILE.write_text(toml(found))


if __name__ == "__main__":
    main()
