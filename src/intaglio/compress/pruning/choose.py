"""Choose how many channels every group keeps, so that a goal is met."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from intaglio.compress.pruning.groups import Coupling, Group
from intaglio.ir import Array, Value

Kept = dict[int, int]  # classes that stay, by group
SEARCHES = 24  # halvings of the interval


def estimate(coupling: Coupling, kept: Mapping[int, int]) -> tuple[float, float]:
    """MACs and weights of all products if every group keeps as many classes."""
    share = {i: kept.get(i, len(g)) / max(len(g), 1) for i, g in enumerate(coupling.groups)}
    part: dict[Value, float] = {}

    def of(v: Value | None) -> float:
        if v is None or v not in coupling.axes:
            return 1.0
        if v not in part:
            n = v.shape[coupling.axes[v]]
            part[v] = sum(share[coupling.of[v, c][0]] for c in range(n)) / n
        return part[v]

    macs, weights = float(coupling.other_macs), 0.0
    for layer in coupling.layers:
        by = of(layer.makes) * (1.0 if layer.depthwise else of(layer.reads))
        macs, weights = macs + layer.macs * by, weights + layer.weights * by
    return macs, weights


def unit(group: Group, round_to: int) -> int:
    """The number of classes that makes a multiple of `round_to` channels."""
    wide = max(len(group.classes[0][n.outputs[0]]) for n in group.layers)
    return max(1, round_to // wide)


def rounded(group: Group, wish: float, round_to: int, least: float) -> int:
    """The nearest allowed number of classes to keep."""
    n, step = len(group), unit(group, round_to)
    floor = max(1, int(np.ceil(least * n)))
    if n <= step:
        return n if wish > n / 2 or floor > n / 2 else max(floor, round(wish))
    near = max(step, step * round(wish / step))
    while near < floor:
        near += step
    return min(n, near)


def plan(
    coupling: Coupling, ranks: Mapping[int, Array], keep: float, spread: str, round_to: int,
    least: float,
) -> Kept:  # fmt: skip
    """Classes to keep for a share `keep` of all of them: the same in each group, or by score."""
    free = [i for i, g in enumerate(coupling.groups) if not g.kept and i in ranks]
    if spread == "uniform":
        return {i: rounded(coupling.groups[i], keep * len(ranks[i]), round_to, least) for i in free}
    every = np.sort(np.concatenate([ranks[i] for i in free])) if free else np.zeros(1)
    at = min(int((1 - keep) * len(every)), len(every) - 1)
    bar = every[at]
    return {
        i: rounded(coupling.groups[i], float((ranks[i] >= bar).sum()), round_to, least)
        for i in free
    }


def search(
    make: Callable[[float], Kept], measure: Callable[[Kept], float], goal: float, times: int
) -> tuple[Kept, float]:
    """The largest plan whose measure meets the goal, and that measure."""
    low, high = 0.0, 1.0
    best = make(low)
    reached = measure(best)
    if reached > goal:
        return best, reached
    for _ in range(times):
        middle = (low + high) / 2
        kept = make(middle)
        value = measure(kept)
        if value <= goal:
            low, best, reached = middle, kept, value
        else:
            high = middle
    return best, reached


def lowest(ranks: Array, count: int) -> Array:
    """The indices of the `count` classes with the lowest scores."""
    return np.argsort(ranks, kind="stable")[:count]
