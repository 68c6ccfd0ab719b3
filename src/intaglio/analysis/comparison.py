"""The result of `intaglio.compare`: the error of every tensor, and a verdict."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from intaglio.analysis.step_names import short
from intaglio.analysis.tensor_error import Range, TensorError

if TYPE_CHECKING:
    from rich.table import Table

STANDS_OUT = 3.0  # times the median relative error of a layer alone
TOO_WIDE = 3.0  # times the span of the golden values
NOTABLE = 0.01  # least relative error of a layer that a verdict blames (40 dB)
NEAR = 0.5  # share of the largest error above which layers are told apart by their ranges
PARTS = ("slice", "split", "gather")
INPUT = "input"  # op of the row of an input
OUTSIDE = 0.05  # share of an input's values that saturate, of which others follow
SEEN = 0.0005  # share of values that saturate which a verdict mentions
WASTEFUL = 6.0  # times the span of the golden values: a range that is mentioned in any case


@dataclass
class Row:
    """One tensor: its errors in each run of the whole model, and of its layer alone."""

    name: str
    op: str
    joined: str  # by "name", "node", "structure" or "output"
    range: Range = field(default_factory=Range)
    entire: dict[str, TensorError] = field(default_factory=dict)  # by run
    single: TensorError | None = None
    fitted: bool = False  # the scale of its integers was fitted, not read
    output: bool = False
    origin: str = ""  # the golden tensor's place in its model file
    other: str = ""  # the name of the tensor that it is compared with
    stored: tuple[str, str] = ("", "")  # name and origin of the integers of that tensor

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "op": self.op,
            "joined_by": self.joined,
            "output": self.output,
            "range": self.range.to_dict(),
            "entire": {run: e.to_dict() for run, e in self.entire.items()},
            "single": None if self.single is None else self._alone(),
            **({"scale_fitted": True} if self.fitted else {}),
        }

    def _alone(self) -> dict[str, Any]:
        assert self.single is not None
        times = excess(self)
        return self.single.to_dict() | {"times_rounding": times if math.isfinite(times) else None}


@dataclass
class Comparison:
    """Every tensor of a model against the golden model."""

    golden: str  # what the golden values are
    runs: list[str]
    rows: list[Row]
    samples: int
    golden_only: list[str] = field(default_factory=list)
    other_only: list[str] = field(default_factory=list)
    shapes_differ: list[str] = field(default_factory=list)
    not_comparable: list[str] = field(default_factory=list)  # outputs, and why
    # golden tensors that are computed directly from each golden tensor
    readers: dict[str, list[str]] = field(default_factory=dict, repr=False)

    @property
    def outputs(self) -> list[Row]:
        """The rows of the model's outputs."""
        return [r for r in self.rows if r.output]

    @property
    def worst_output(self) -> float:
        """The least cosine of an output in any run; NaN without joined outputs."""
        every = [e.cosine for r in self.outputs for e in r.entire.values()]
        return min(every, default=math.nan)

    def by_single(self) -> list[Row]:
        """Layers with their own error, largest first; before them the one that is to blame."""
        own, bad = self._by_relative(), self.guilty
        return own if bad is None else [bad, *(r for r in own if r is not bad)]

    def _by_relative(self) -> list[Row]:
        own = [r for r in self.rows if r.single is not None]
        return sorted(own, key=lambda r: -r.single.relative)  # type: ignore[union-attr]

    @property
    def guilty(self) -> Row | None:
        """The layer whose own error stands out; None if there is none.

        A wrong scale costs many times what rounding to 8 bits costs: such a layer comes first.
        Otherwise it is the layer whose error relative to its values is far above the others'.
        """
        own = self._by_relative()
        if not own:
            return None
        errors = [r.single.relative for r in own]  # type: ignore[union-attr]
        usual = sorted(map(excess, own))[len(own) // 2]
        limit = STANDS_OUT * max(usual, 1.0)
        wrong = [
            r
            for r, e in zip(own, errors, strict=True)
            if e > NOTABLE and excess(r) > limit * self._share(r)
        ]
        if wrong and len(own) > 2:
            return self._first(max(wrong, key=lambda r: excess(r) / self._share(r)), wrong)
        median, first = errors[len(errors) // 2], errors[0]
        stands_out = first > STANDS_OUT * median or len(own) < 3
        if first <= NOTABLE or not stands_out:
            return None
        least = max(NEAR * first, NOTABLE, STANDS_OUT * median if len(own) > 2 else 0.0)
        near = [r for r, e in zip(own, errors, strict=True) if e >= least]
        return max(near, key=excess) if near and math.isfinite(first) else own[0]

    def _share(self, row: Row) -> float:
        """How many times as wide as its own values those are that it is a part of: a part keeps
        the scale of the whole."""
        if row.op not in PARTS:
            return 1.0
        wholes = [r.range.step for r in self.rows if row.name in self.readers.get(r.name, ())]
        return max([1.0, *(w / row.range.step for w in wholes if row.range.step)])

    def _first(self, row: Row, wrong: list[Row]) -> Row:
        """The row, or in a package one that it reads, if that is about as wrong: the factors of
        its channels are fitted to its results, so that an error in them is also in its readers'."""
        if self.runs != ["package"]:
            return row
        least = NEAR * row.single.relative  # type: ignore[union-attr]
        wrong = [r for r in wrong if r.single.relative >= least]  # type: ignore[union-attr]
        makers: dict[str, list[str]] = {}
        for name, readers in self.readers.items():
            for reader in readers:
                makers.setdefault(reader, []).append(name)
        known, suspects = {r.name for r in self.rows}, {r.name: r for r in wrong}
        todo, seen = [row.name], {row.name}
        while todo:
            for name in makers.get(todo.pop(), ()):
                if name not in seen and (name in suspects or name not in known):
                    seen.add(name)
                    todo.append(name)
        found = next(r for r in self.rows if r.name in seen and r.name in suspects)
        return found

    @property
    def widest(self) -> Row | None:
        """The layer with the widest range beside its values, if most of it is wasted."""
        own = [r for r in self.rows if r.range.width > WASTEFUL and r.single is not None]
        notable = [r for r in own if r.single.relative > NOTABLE]  # type: ignore[union-attr]
        return max(notable, key=lambda r: r.range.width, default=None)

    @property
    def verdict(self) -> str:
        """One line: how good the outputs are, and the layer to look at."""
        cosine = self.worst_output
        how = "no output could be joined" if math.isnan(cosine) else f"outputs: cosine {cosine:.5f}"
        overflow = [short(r.name) for r in self.rows if r.range.f16_overflow]
        tail = f"; '{overflow[0]}' is too large for f16" if overflow else ""
        if self.not_comparable:
            tail += f"; not comparable: {'; '.join(self.not_comparable)}"
        bad, wide = self.guilty, self.widest
        if wide is not None and wide is not bad:
            width = f"{wide.range.width:.0f} times as wide as its values"
            tail = f"; the range of '{short(wide.name)}' is {width}{tail}"
        if bad:
            assert bad.single is not None
            cut = f", {bad.range.saturation:.1%} of its values saturate"
            if bad.op == INPUT and bad.range.saturation > OUTSIDE:
                cut += ": give samples like those that it was quantised with"
            if (unused := bad.range.width) > TOO_WIDE:
                tail = f", its range is {unused:.0f} times as wide as its values{tail}"
            return (
                f"{how}; '{short(bad.name)}' ({bad.op}) is the least accurate: alone "
                f"{_db(bad.single.sqnr)}, cosine {bad.single.cosine:.5f}"
                f"{cut if bad.range.saturation > SEEN else ''}{tail}"
            )
        own = self._by_relative()
        if not own or own[0].single is None:
            return f"{how}; layers alone were not compared{self._outside()}{tail}"
        if not own[0].single.off and not own[0].single.wrong:
            return f"{how}; every layer alone is exact{tail}"
        named = f"'{short(own[0].name)}' ({own[0].op})"
        return (
            f"{how}; no layer stands out: the largest error alone is that of {named}, "
            f"{_db(own[0].single.sqnr)}{tail}"
        )

    def _outside(self) -> str:
        """Words for the input with the largest share of values that its integers cannot hold."""
        cut = [r for r in self.rows if r.op == INPUT and r.range.saturation > OUTSIDE]
        if not cut:
            return ""
        row = max(cut, key=lambda r: r.range.saturation)
        return (
            f"; {row.range.saturation:.1%} of the values of input '{short(row.name)}' saturate: "
            "give samples like those that it was quantised with"
        )

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON data."""
        cosine = self.worst_output
        return {
            "golden": self.golden,
            "runs": self.runs,
            "samples": self.samples,
            "verdict": self.verdict,
            "guilty": None if self.guilty is None else self.guilty.name,
            "worst_output_cosine": None if math.isnan(cosine) else cosine,
            "joined_by": dict(Counter(r.joined for r in self.rows)),
            "not_joined": {"golden": self.golden_only, "other": self.other_only},
            "shapes_differ": self.shapes_differ,
            "not_comparable": self.not_comparable,
            "by_single": [r.name for r in self.by_single()],
            "tensors": [r.to_dict() for r in self.rows],
        }

    def __str__(self) -> str:
        from intaglio.analysis.comparison_text import text

        return text(self)

    def __rich__(self) -> Table:
        from intaglio.analysis.comparison_text import rich_table

        return rich_table(self)

    def _repr_html_(self) -> str:
        from intaglio.analysis.comparison_text import html_table

        return html_table(self)


def excess(row: Row) -> float:
    """The error of a layer alone, relative to that of 8-bit integers with a range that fits: a
    wrong scale is many times that, a tensor that is hard to round is near to it."""
    assert row.single is not None
    if row.op == INPUT and row.range.saturation > OUTSIDE:
        return math.inf  # values beyond an input's range are beyond those of the layers behind it
    rounding = row.range.step / math.sqrt(12.0) * math.sqrt(row.range.values)
    return row.single.euclidean / rounding if rounding else math.inf


def _db(sqnr: float) -> str:
    return f"{sqnr:.1f} dB" if math.isfinite(sqnr) else "exact" if sqnr > 0 else "no signal"
