"""The band around a prediction, from networks with published speeds that were left out of the fit.

`benchmarks.npu_bands` derives the file: of 100 left-out rows of a group, 80 lie inside its band.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("bands.toml")
LEAST_ROWS, LEAST_NETWORKS = 8, 3  # of a group with a band of its own
CNN, DETECTOR, TRANSFORMER = "cnn", "detector", "transformer"
FEW = 20_000  # elements that a classifier hands over at most
GUESS = 2.0  # factor both ways, where no rows tell
PRODUCTS = {  # ops that multiply activations, and how many products they have
    "matmul": 1,
    "qlinear_matmul": 1,
    "attention": 2,
    "cpu.attention": 2,
}
LEAST_PRODUCTS = 6  # of a transformer; detectors and readers of text have an attention or two


@dataclass(frozen=True)
class Range:
    """Published / predicted of left-out rows: the ends of the band, and what it comes from."""

    low: float
    high: float
    rows: int
    networks: int
    inside: float  # share of the rows inside bands derived without their own network


@dataclass(frozen=True)
class Band:
    """The milliseconds between which 80 % of such networks would lie."""

    low: float
    high: float
    group: str  # family and kind of the rows behind it; "any" is all of them
    rows: int  # 0: a guess

    @property
    def calibrated(self) -> bool:
        return self.rows > 0

    def __str__(self) -> str:
        ends = f"{_short(self.low)}–{_short(self.high)}"
        return f"({ends})" if self.calibrated else f"({ends}, a guess)"


def kind(ops: Iterable[str], moved: int) -> str:
    """The kind of a network: by its ops, and the elements of a sample that its layers hand over."""
    names = (op.split("+")[0].removeprefix("npu.") for op in ops)
    if sum(PRODUCTS.get(name, 0) for name in names) >= LEAST_PRODUCTS:
        return TRANSFORMER
    return DETECTOR if moved > FEW else CNN


def kind_of(meta: Mapping[str, Any]) -> str:
    """The kind of network in a package, by its metadata."""
    layers = [layer["op"] for program in meta["npu"] for layer in program["layers"]]
    others = meta.get("outline", {}).get("others", [])
    ops = [*layers, *(op["op"] for o in others for op in o["ops"])]
    return kind(ops, sum(o["moved"] for o in others))


def band(family: str, kind: str, milliseconds: float) -> Band:
    """The band around a prediction.

    Groups without enough rows take the band of their kind in all families, or of their family.
    Transformers have no other group: nothing tells how far off they are.
    """
    names = [f"{family}.{kind}", f"any.{kind}"]
    if kind != TRANSFORMER:
        names += [f"{family}.any", "any.any"]
    for name in names:
        if name in ranges():
            r = ranges()[name]
            return Band(milliseconds * r.low, milliseconds * r.high, name, r.rows)
    return Band(milliseconds / GUESS, milliseconds * GUESS, "", 0)


@cache
def ranges() -> dict[str, Range]:
    """All bands of the file, by family and kind."""
    plain = tomllib.loads(FILE.read_text("utf-8"))
    return {f"{f}.{k}": Range(**r) for f, kinds in plain.items() for k, r in kinds.items()}


def _short(milliseconds: float) -> str:
    digits = 3 if milliseconds < 1 else 2 if milliseconds < 10 else 1 if milliseconds < 100 else 0
    return f"{milliseconds:.{digits}f}"
