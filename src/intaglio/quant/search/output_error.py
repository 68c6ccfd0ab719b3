"""Error of a quantised model's outputs against the float model's, by output and group of columns.

One figure for a whole tensor hides errors: boxes in the hundreds beside scores below one give a
cosine of 0.9999 whatever the scores are. Columns of one output are therefore grouped by magnitude,
and each group is compared on its own.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intaglio import dtypes, native
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph
from intaglio.quant.ranges.probe import sessions
from intaglio.quant.search.policy import POLICY, Policy
from intaglio.quant.search.score_columns import score_columns

GAP = 4.0  # bits between the magnitudes of columns that belong to different groups
MOST_COLUMNS = 1024
MOST_GROUPS = 6
SUM_TOLERANCE = 1e-3  # by which the sum of a softmax may differ from 1
BACKGROUND = 0.8  # least mean square of the class that stands for "nothing here"


@functools.cache
def _library() -> ctypes.CDLL:
    lib = native.compiler_library()
    pointer = ctypes.c_void_p
    lib.itg_match.argtypes, lib.itg_match.restype = (
        [pointer, pointer, ctypes.c_uint64, pointer],
        None,
    )
    return lib


@dataclass
class Match:
    """Agreement of two runs of one tensor, accumulated over samples."""

    dot: float = 0.0
    own: float = 0.0  # sum of squares of the float model's values
    other: float = 0.0
    off: float = 0.0  # sum of squares of the differences

    def add(self, a: Array, b: Array) -> None:
        """Add one sample's tensors: of the float model and of the other."""
        x, y = (np.ascontiguousarray(v, np.float32) for v in (a, b))
        if x.size != y.size:
            raise BadInput(f"tensors of {a.shape} and {b.shape} cannot be compared")
        sums = np.array([self.dot, self.own, self.other, self.off])
        _library().itg_match(x.ctypes.data, y.ctypes.data, x.size, sums.ctypes.data)
        self.dot, self.own, self.other, self.off = map(float, sums)

    @classmethod
    def sum(cls, matches: Iterable[Match]) -> Match:
        """The agreement over the samples of all these."""
        each = [(m.dot, m.own, m.other, m.off) for m in matches]
        return cls(*map(math.fsum, zip(*each, strict=True))) if each else cls()

    @property
    def cosine(self) -> float:
        """Cosine similarity; 1 if both are 0."""
        if self.own == 0 or self.other == 0:
            return 1.0 if self.own == self.other else 0.0
        return min(self.dot / float(np.sqrt(self.own) * np.sqrt(self.other)), 1.0)

    @property
    def error(self) -> float:
        """The Euclidean length of the difference, relative to the float model's."""
        if self.own == 0:
            return 0.0 if self.off == 0 else float("inf")
        return float(np.sqrt(self.off / self.own))


@dataclass(frozen=True)
class Columns:
    """A part of an output: some indices of one axis, or everything (axis None)."""

    axis: int | None = None
    indices: tuple[int, ...] = ()

    def of(self, a: Array) -> Array:
        return a if self.axis is None else np.take(a, self.indices, self.axis)

    def __str__(self) -> str:
        if self.axis is None:
            return ""
        runs: list[list[int]] = []
        for i in self.indices:
            if runs and i == runs[-1][1] + 1:
                runs[-1][1] = i
            else:
                runs.append([i, i])
        words = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
        shown = ",".join(words[:4]) + (",..." if len(words) > 4 else "")
        return f"[{':,' * self.axis}{shown}]"


def column_groups(
    arrays: Sequence[Array], scores: tuple[int, tuple[int, ...]] | None = None
) -> list[Columns]:
    """Parts of an output that are judged separately: `scores` (an axis and its indices) and the
    other columns, or columns whose magnitudes differ by bits.

    `arrays` are the float model's, one for each sample. An output without such columns is one part.
    """
    if scores is not None:
        axis, indices = scores
        others = tuple(i for i in range(arrays[0].shape[axis]) if i not in set(indices))
        parts = [Columns(axis, indices), *([Columns(axis, others)] if others else [])]
        return sorted(parts, key=lambda p: p.indices)
    best: tuple[float, int, list[Array]] | None = None
    first = arrays[0]
    same = all(a.shape == first.shape for a in arrays)
    if not same or not first.size or not dtypes.is_float(_name(first)):
        return [Columns()]
    for axis in range(first.ndim):
        if not 1 < first.shape[axis] <= MOST_COLUMNS or first.size == first.shape[axis]:
            continue
        rest = tuple(i for i in range(first.ndim) if i != axis)
        high = np.max([a.max(rest) for a in arrays], 0).astype(np.float64)
        low = np.min([a.min(rest) for a in arrays], 0).astype(np.float64)
        found = (
            _clusters(np.maximum(-low, high))
            or _shares(low, high)
            or _background(arrays, axis, low)
        )
        if found and (best is None or found[0] > best[0]):
            best = (found[0], axis, found[1])
    if best is None:
        return [Columns()]
    parts = [Columns(best[1], tuple(map(int, part))) for part in best[2]]
    return sorted(parts, key=lambda p: p.indices)


def _name(a: Array) -> str:
    return dtypes.name_of(a.dtype)


def _clusters(sizes: Array) -> tuple[float, list[Array]] | None:
    """The widest gap among the columns' magnitudes, in bits, and the runs of columns between gaps.

    Only contiguous runs count: a class that no sample shows is small too, but no group.
    """
    bits = np.log2(np.maximum(sizes, sizes.max() * 2.0**-24 if sizes.max() > 0 else 1.0))
    ranked = np.sort(bits)
    gaps = np.diff(ranked)
    widest, starts = 0.0, {0}
    for i in np.argsort(-gaps, kind="stable"):
        if gaps[i] < GAP:
            break
        above = bits > (ranked[i] + ranked[i + 1]) / 2
        borders = np.nonzero(np.diff(above.astype(int)))[0] + 1
        if len(borders) == 1:
            widest = max(widest, float(gaps[i]))
            starts.add(int(borders[0]))
    if not 1 < len(starts) <= MOST_GROUPS:
        return None
    return widest, np.split(np.arange(len(sizes)), sorted(starts)[1:])


def _shares(low: Array, high: Array) -> tuple[float, list[Array]] | None:
    """One run of columns with values between 0 and 1, and the other columns."""
    inside = (low >= 0) & (high <= 1)
    borders = np.nonzero(np.diff(inside.astype(int)))[0] + 1
    return (0.0, np.split(np.arange(len(low)), borders)) if len(borders) == 1 else None


def _background(arrays: Sequence[Array], axis: int, low: Array) -> tuple[float, list[Array]] | None:
    """The background column of a softmax, and the other columns.

    A detector's background has a probability near 1 almost everywhere and would hide the errors of
    all other classes.
    """
    if low.min() < 0 or any(np.abs(a.sum(axis) - 1).max() > SUM_TOLERANCE for a in arrays):
        return None
    others = tuple(i for i in range(arrays[0].ndim) if i != axis)
    sizes = np.mean([np.square(a, dtype=np.float64).mean(others) for a in arrays], 0)
    at = int(sizes.argmax())
    if at not in (0, len(sizes) - 1) or sizes[at] < BACKGROUND:
        return None
    return 0.0, np.split(np.arange(len(sizes)), [1 if at == 0 else at])


def _is_share(a: Array) -> bool:
    return bool(a.size) and a.min() >= 0 and a.max() <= 1


@dataclass(frozen=True)
class OutputMatch:
    """One part of one output."""

    output: str
    columns: Columns
    cosine: float
    error: float

    @property
    def name(self) -> str:
        return f"{self.output}{self.columns}"

    def to_dict(self) -> dict[str, Any]:
        return {"output": self.name, "cosine": self.cosine, "error": self.error}


@dataclass
class Reference:
    """The float model's outputs for some samples, with which quantised models are compared."""

    samples: list[Mapping[str, Array]]
    outputs: list[dict[str, Array]]
    parts: dict[str, list[Columns]] = field(default_factory=dict)
    highest: dict[str, float] = field(default_factory=dict)  # score parts: the least score judged
    policy: Policy = POLICY

    @classmethod
    def of(cls, graph: Graph, samples: Iterable[Mapping[str, Array]]) -> Reference:
        """Run the float model on every sample."""
        kept = list(samples)
        if not kept:
            raise BadInput("there are no samples to compare with; at least one is needed")
        with sessions(graph) as pool:
            return cls.by(kept, list(pool.in_order(lambda s, x: s.run(x), kept)), graph)

    @classmethod
    def by(
        cls,
        samples: list[Mapping[str, Array]],
        outputs: list[dict[str, Array]],
        graph: Graph | None = None,
        policy: Policy = POLICY,
    ) -> Reference:
        """From the float model's outputs for each sample; the graph tells which are scores."""
        for i, result in enumerate(outputs, 1):
            for name, a in result.items():
                if dtypes.is_float(_name(a)) and not np.isfinite(a.astype(np.float32)).all():
                    raise BadInput(
                        f"output '{name}' of the float model holds NaN or infinite "
                        f"values in sample {i} of {len(samples)}: no accuracy can be "
                        "measured; check the model and its preprocessing"
                    )
        scores = score_columns(graph) if graph else {}
        parts = {n: column_groups([o[n] for o in outputs], scores.get(n)) for n in outputs[0]}
        reference = cls(samples, outputs, parts, policy=policy)
        reference.highest = {
            f"{n}{p}": reference._least_judged(n, p) for n, p in reference._score_parts(scores)
        }
        return reference

    def names(self) -> list[str]:
        """The names of the parts of all outputs."""
        return [f"{n}{p}" for n, parts in self.parts.items() for p in parts]

    def _score_parts(self, scores: Mapping[str, Any]) -> list[tuple[str, Columns]]:
        """Parts that hold scores, if other parts do not: a threshold decides on each detection.

        A model whose graph does not show its scores is judged by range: parts between 0 and 1.
        """

        def is_score(n: str, p: Columns) -> bool:
            own = scores.get(n, ()) if scores else None
            if own == () or (own and p.indices != own[1]):
                return False
            return all(dtypes.is_float(_name(o[n])) and _is_share(p.of(o[n])) for o in self.outputs)

        every = [(n, p) for n, parts in self.parts.items() for p in parts]
        found = [(n, p) for n, p in every if is_score(n, p)]
        return found if len(found) < len(every) else []

    def _least_judged(self, n: str, p: Columns) -> float:
        """The least of the highest scores: lower ones are surely below any threshold."""
        scores = np.concatenate([p.of(o[n]).ravel() for o in self.outputs])
        count = max(self.policy.score_count, int(self.policy.score_share * scores.size))
        return float(np.sort(scores)[-min(count, scores.size)])

    def judge(self, match: Match, part: tuple[str, Columns], i: int, made: Array) -> None:
        """Add the error of one part of an output that was `made` of sample `i` to `match`.

        Of scores only the highest are judged, by their square roots: the many places that show
        nothing would hide the few that could pass a threshold.
        """
        n, p = part
        wanted = self.outputs[i][n]
        if made.shape != wanted.shape:  # a dynamic shape differs
            match.add(wanted, np.zeros_like(wanted))
        elif (least := self.highest.get(f"{n}{p}")) is None:
            match.add(p.of(wanted), p.of(made))
        else:
            high = p.of(wanted) >= least
            a, b = (np.sqrt(np.maximum(p.of(v)[high], 0)) for v in (wanted, made))
            match.own += a.size * self.policy.score_scale**2
            match.off += float(np.square(a - b).sum())

    def compare(self, graph: Graph) -> list[OutputMatch]:
        """Compare the compiled `graph` on the same samples, part by part of every output."""
        totals = {(n, p): Match() for n, parts in self.parts.items() for p in parts}
        with sessions(graph) as pool:
            every = pool.in_order(lambda s, x: s.run(x), self.samples)
            for result, wanted in zip(every, self.outputs, strict=True):
                for (n, p), total in totals.items():
                    if result[n].shape == wanted[n].shape:
                        total.add(p.of(wanted[n]), p.of(result[n]))
                    else:  # a dynamic shape differs
                        total.add(wanted[n], np.zeros_like(wanted[n]))
        return [OutputMatch(n, p, t.cosine, t.error) for (n, p), t in totals.items()]
