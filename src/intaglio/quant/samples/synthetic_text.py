"""Synthetic text samples: real sentences with their words replaced by random ones.

Fitting weights needs more rows of a layer's input than a few sentences give. Words are rows of an
embedding table, and random rows make inputs much like those of other sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Graph, Value

SAMPLES = 320  # real and synthetic samples together
REAL = 5  # one in this many samples is a real one, repeated if need be
FRAME = 0.5  # a token in at least this share of the samples is no word: start, end, padding
FULLEST = 4  # one in this many samples, those with the most words, serves as a template


def word_inputs(graph: Graph) -> dict[str, int]:
    """Inputs that index an embedding table, and the number of the table's rows."""
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
    """Tokens that most samples have: start, end and padding."""
    common = Counter(int(w) for s in samples for w in np.unique(s[name]))
    return [w for w, times in common.items() if times >= FRAME * len(samples)]


def padding_masks(graph: Graph, samples: Sequence[Mapping[str, Array]]) -> list[Array] | None:
    """For each sample, which positions are not padding; None if the inputs are no words."""
    inputs = word_inputs(graph)
    if not inputs or not samples:
        return None
    name = max(inputs, key=inputs.__getitem__)
    frame = _frame(samples, name)
    many = {w: sum(int((s[name] == w).sum()) > 1 for s in samples) for w in frame}
    filler = max(many, key=many.__getitem__, default=None)  # it repeats
    if filler is None or not many[filler]:
        return None
    return [s[name] != filler for s in samples]


def with_random_words(
    graph: Graph, samples: Sequence[Mapping[str, Array]], count: int = SAMPLES, seed: int = 0
) -> list[Mapping[str, Array]]:
    """The samples and, if their inputs are words, synthetic ones up to `count`; deterministic."""
    inputs = word_inputs(graph)
    if not inputs or len(samples) >= count or len(samples) < 2:
        return list(samples)
    name, rows = max(inputs.items(), key=lambda pair: pair[1])
    frame = _frame(samples, name)
    free = [~np.isin(s[name], frame) for s in samples]
    fullest = sorted(range(len(samples)), key=lambda i: -int(free[i].sum()))
    fullest = fullest[: max(len(samples) // FULLEST, 1)]
    rng = np.random.default_rng(seed)
    result = list(samples) * max(count // (REAL * len(samples)), 1)
    while len(result) < count:
        at = fullest[len(result) % len(fullest)]
        words = np.where(free[at], rng.integers(0, rows, free[at].shape), samples[at][name])
        result.append({**samples[at], name: words.astype(samples[at][name].dtype)})
    return result
