"""The largest costs of a prediction, and what would change them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from intaglio.analysis.performance import LayerRow, Performance
from intaglio.analysis.whatif import WhatIf
from intaglio.targets import chip as chips

COUNT = 3
MORE = 1.25  # of clock and bandwidth, to see what they change
START, PICTURE, OTHER = "start", "picture", "ops beside the units"


@dataclass(frozen=True)
class Cost:
    """Layers of one kind that one thing bounds."""

    what: str
    bound: str
    microseconds: float
    share: float  # of the whole time
    layers: int
    largest: str  # the layer that takes the most time
    change: str


def explain(p: Performance, again: Callable[[WhatIf], Performance], what: WhatIf) -> list[Cost]:
    """The largest costs; `again` predicts the same with other figures."""
    groups: dict[tuple[str, str], list[LayerRow]] = {}
    for r in p.layers:
        groups.setdefault((_kind(r), r.bound), []).append(r)
    order = sorted(groups.items(), key=lambda g: -_sum(g[1]))[:COUNT]
    faster = {
        "compute": ("clock", f"a clock of {p.clock * MORE:g} MHz", p.clock * MORE),
        "bandwidth": ("ddr", f"a bandwidth of {p.ddr * MORE:.3g} GB/s", p.ddr * MORE),
    }
    found = []
    for (kind, bound), rows in order:
        words = _change(kind, bound, rows, p, what)
        if bound in faster:
            name, figure, value = faster[bound]
            other = replace(what, **{name: value})  # type: ignore[arg-type]
            less = p.milliseconds - again(other).milliseconds
            words += f"; {figure} would save {max(less, 0.0):.3f} ms of the whole"
        largest = max(rows, key=lambda r: r.microseconds)
        time = _sum(rows)
        share = time / (1e3 * p.milliseconds) if p.milliseconds else 0.0
        found.append(Cost(kind, bound, time, share, len(rows), largest.name, words))
    return found


def _sum(rows: Sequence[LayerRow]) -> float:
    return sum(r.microseconds for r in rows)


def _kind(r: LayerRow) -> str:
    if r.op in (START, PICTURE):
        return r.op
    return OTHER if r.unit == "CPU" else r.op.split("+")[0]


def _change(kind: str, bound: str, rows: list[LayerRow], p: Performance, what: WhatIf) -> str:
    if kind == START:
        return "it is the same for every run: a larger batch shares it"
    if kind == PICTURE:
        return "a model with an input of uint8 needs no conversion; a smaller picture needs less"
    if kind == OTHER:
        return _without_others(rows)
    largest = max(rows, key=lambda r: r.microseconds if r.hint else -1.0)
    if largest.hint:
        return largest.hint
    if bound == "compute":
        known = chips.load(p.chip).units["conv"].rate
        now = known.get(largest.dtype, 0.0)
        if what.dtype is None and now < known.get("i8", 0.0):
            return (
                f"int8 has {known['i8'] / now:g} times the rate of {largest.dtype}" if now else ""
            )
        return "fewer channels, a smaller input, or pruning lower its products"
    return "fewer or smaller layers"


def _without_others(rows: list[LayerRow]) -> str:
    """How to be rid of the ops that take longest."""
    each = dict.fromkeys((r.op for r in rows), 0.0)
    for r in rows:
        each[r.op] += r.microseconds
    longest = sorted(each, key=lambda op: -each[op])
    if longest[0] == "transpose":
        return (
            f"its transposes take {each['transpose'] / 1e3:.3f} ms: write the layers between them "
            "for the order of axes that the others have"
        )
    return (
        f"end the model before {', '.join(longest[:3])}, and compute them on another processor "
        "while the NPU works on the next picture"
    )


def text(costs: Sequence[Cost]) -> str:
    """The costs for a terminal."""
    lines = ["the largest costs:"]
    for i, c in enumerate(costs, 1):
        many = f"{c.layers} layers, the largest {c.largest}" if c.layers > 1 else c.largest
        lines.append(
            f"  {i}. {c.share:.0%}, {c.microseconds / 1e3:.3f} ms: {c.what}"
            f"{f' (bound by {c.bound})' if c.what not in (START, PICTURE, OTHER) else ''}, {many}"
        )
        lines.append(f"     to change it: {c.change}")
    return "\n".join(lines)


def to_list(costs: Sequence[Cost]) -> list[dict[str, Any]]:
    return [asdict(c) for c in costs]
