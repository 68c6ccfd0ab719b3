"""The algorithm choices of a package: which algorithm computes each layer, measured or
estimated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from intaglio.text_table import shortened, terminal_width, wrapped

Choice = Mapping[str, Any]  # as intaglio.tune.Decision.to_dict writes it into a package


def of_package(meta: Mapping[str, Any]) -> list[Choice]:
    """The choices in a package's metadata; none if it was stripped."""
    found = meta.get("choices", [])
    return [c for c in found if isinstance(c, dict) and {"origin", "rule", "way"} <= set(c)]


def labels(choices: Sequence[Choice]) -> dict[str, str]:
    """By origin, for example `Winograd 4x4, measured`."""
    return {
        c["origin"]: f"{c['way']}, {'measured' if c.get('microseconds') else 'estimated'}"
        for c in choices
    }


def label_of(step: Any, known: Mapping[str, str]) -> str:
    """The label of a step or its profile; data movement shares a layer's origin but has no
    choice.
    """
    return known.get(step.origin, "") if step.op.startswith("cpu.") else ""


def table(choices: Sequence[Choice]) -> str:
    """One line per layer with a choice: the chosen algorithm, and the time of each."""
    if not choices:
        return "no layer has a choice"
    width = terminal_width()
    wide = max(len(c["origin"]) for c in choices)
    wide = min(wide, width // 2) if width else wide
    lines = []
    for c in choices:
        times = c.get("microseconds") or {}
        ranked = sorted(times.items(), key=lambda item: item[1])
        shown = ", ".join(f"{way} {_time(t)}" for way, t in ranked) or "estimated"
        other = c.get("estimate", c["way"]) != c["way"]
        note = f" (estimate: {c['estimate']})" if other else ""
        lines.append(f"{shortened(c['origin'], wide):{wide}}  {c['way']}{note}: {shown}")
    return wrapped("\n".join(lines))


def _time(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:.3g} us"
    return f"{microseconds / 1e3:.3g} ms"
