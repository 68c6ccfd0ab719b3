"""Two builds of a model, profiled, side by side.

Builds fuse operations in different ways. Steps are joined where both builds compute the same
tensor, and the times of the steps in between are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from intaglio.analysis.profile import Profile, StepTime
from intaglio.text_table import aligned

REST = "(after the last joined step)"


def difference(before: Profile, after: Profile) -> list[dict[str, Any]]:
    """Microseconds of the same parts of two builds, largest change first."""
    rows = [_row(name, a, b) for name, a, b in _parts(before.steps, after.steps)]
    return sorted(rows, key=lambda r: -abs(r["change"]))


def _parts(
    a: Sequence[StepTime], b: Sequence[StepTime]
) -> list[tuple[str, Sequence[StepTime], Sequence[StepTime]]]:
    """Steps up to each end that both builds have, in the order of both."""
    places: dict[str, list[int]] = {}
    for j, s in enumerate(b):
        for end in s.ends:
            places.setdefault(end, []).append(j)
    found, i0, j0 = [], 0, 0
    for i, s in enumerate(a):
        later = [j for end in s.ends for j in places.get(end, ()) if j >= j0]
        if later:
            found.append((s.name or s.op, a[i0 : i + 1], b[j0 : min(later) + 1]))
            i0, j0 = i + 1, min(later) + 1
    if i0 < len(a) or j0 < len(b):
        found.append((REST, a[i0:], b[j0:]))
    return found


def _row(name: str, a: Sequence[StepTime], b: Sequence[StepTime]) -> dict[str, Any]:
    before, after = (sum(s.microseconds for s in each) for each in (a, b))
    return {
        "name": name,
        "before": before,
        "after": after,
        "change": after - before,
        "steps_before": len(a),
        "steps_after": len(b),
    }


def difference_text(before: Profile, after: Profile, most: int = 20) -> str:
    """The parts whose times changed most, and the totals."""
    rows = difference(before, after)[:most]
    table = [("up to step", "before µs", "steps", "after µs", "steps", "change µs")]
    table += [
        (
            r["name"],
            f"{r['before']:.1f}",
            str(r["steps_before"]),
            f"{r['after']:.1f}",
            str(r["steps_after"]),
            f"{r['change']:+.1f}",
        )
        for r in rows
    ]
    ratio = before.milliseconds / after.milliseconds
    total = (
        f"{before.milliseconds:.3f} ms -> {after.milliseconds:.3f} ms, {ratio:.2f} times as fast"
    )
    return "\n".join([*aligned(table, range(1, 6)), total])
