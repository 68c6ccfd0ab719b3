"""More samples of text than were given: the frame of real ones, with words drawn at random.

What few sentences show of a layer's inputs is too little to fit weights to. Words are rows of a
table, and the inputs that random rows make are much like those that other sentences would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Graph, Value

ENOUGH = 320
REAL = 5  # one in so many samples is one that was given: those count more than random ones
FRAME = 0.5  # share of the samples that have a number which is no word: ends, padding
FULLEST = 4  # one in so many samples serves as a frame: those with the most words


def word_inputs(graph: Graph) -> dict[str, int]:
    """Inputs whose numbers are rows of a constant table, and how many rows it has."""
    found = {}
    for v in graph.inputs:
        tables = [n for n in v.uses if n.op == "gather" and n.inputs[1] is v]
        rows = [t.shape[0] for n in tables if (t := n.inputs[0]) and _is_table(t, n.attrs["axis"])]
        if rows and dtypes.is_integer(v.dtype):
            found[v.name] = min(rows)
    return found


def _is_table(v: Value, axis: int) -> bool:
    return v.data is not None and v.type.rank == 2 and axis == 0


def _frame(samples: Sequence[Mapping[str, Array]], name: str) -> list[int]:
    """Numbers that most samples have: where sentences begin and end, and what fills them up."""
    common = Counter(int(w) for s in samples for w in np.unique(s[name]))
    return [w for w, times in common.items() if times >= FRAME * len(samples)]


def not_padding(graph: Graph, samples: Sequence[Mapping[str, Array]]) -> list[Array] | None:
    """Which places of each sample hold something; None where inputs are no words."""
    inputs = word_inputs(graph)
    if not inputs or not samples:
        return None
    name = max(inputs, key=inputs.__getitem__)
    frame = _frame(samples, name)
    many = {w: sum(int((s[name] == w).sum()) > 1 for s in samples) for w in frame}
    filler = max(many, key=many.__getitem__, default=None)  # the only one that comes repeatedly
    if filler is None or not many[filler]:
        return None
    return [s[name] != filler for s in samples]


def with_random_words(
    graph: Graph, samples: Sequence[Mapping[str, Array]], count: int = ENOUGH, seed: int = 0
) -> list[Mapping[str, Array]]:
    """The samples, and more like them up to `count`, if their inputs are words; the same always."""
    inputs = word_inputs(graph)
    if not inputs or len(samples) >= count or len(samples) < 2:
        return list(samples)
    name, rows = max(inputs.items(), key=lambda pair: pair[1])
    frame = _frame(samples, name)
    free = [~np.isin(s[name], frame) for s in samples]
    fullest = sorted(range(len(samples)), key=lambda i: -int(free[i].sum()))
    fullest = fullest[: max(len(samples) // FULLEST, 1)]
    rng = np.random.default_rng(seed)
    made = list(samples) * max(count // (REAL * len(samples)), 1)
    while len(made) < count:
        at = fullest[len(made) % len(fullest)]
        words = np.where(free[at], rng.integers(0, rows, free[at].shape), samples[at][name])
        made.append({**samples[at], name: words.astype(samples[at][name].dtype)})
    return made
