"""The report of `--explain`: which rules fired, which refused and why, and how long they took."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from intaglio.passes import Event, Record
from intaglio.text_table import wrapped

MAX_NAMED = 3  # nodes that are named for each reason


@dataclass
class Reason:
    """Why a rule refused: the words for one node, the number of such nodes, and some of their
    names.
    """

    words: str
    count: int = 0
    nodes: list[str] = field(default_factory=list)


@dataclass
class RuleReport:
    """One rule, summed over all passes that tried it."""

    rule: str
    level: int  # the lowest at which it is tried
    fired: int = 0
    refused: int = 0  # nodes at which it refused, each counted once
    seconds: float = 0.0
    reasons: list[Reason] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def explain(records: Iterable[Record]) -> list[RuleReport]:
    """One report per rule that was tried, in the order of the first attempts."""
    reports: dict[str, RuleReport] = {}
    refusals: dict[Event, None] = {}
    for record in records:
        for name, seconds in record.times.items():
            report = reports.setdefault(name, RuleReport(name, record.level))
            report.level = min(report.level, record.level)
            report.seconds += seconds
        for event in record.events:
            report = reports.setdefault(event.rule, RuleReport(event.rule, record.level))
            if event.refusal is None:
                report.fired += 1
            else:
                refusals[event] = None
    for event in refusals:
        _add(reports[event.rule], event)
    return list(reports.values())


def _add(report: RuleReport, event: Event) -> None:
    """Count a refusal; reasons that differ only in numbers are merged."""
    report.refused += 1
    words = str(event.refusal)
    same = [r for r in report.reasons if _shape(r.words) == _shape(words)]
    reason = same[0] if same else Reason(words)
    if not same:
        report.reasons.append(reason)
    reason.count += 1
    if len(reason.nodes) < MAX_NAMED and event.origin:
        reason.nodes.append(event.origin)


def _shape(words: str) -> str:
    return re.sub(r"\d[\dx.e+-]*", "#", words)


def table(reports: Iterable[RuleReport]) -> str:
    """The reports as text; the last line counts the rules that matched nothing."""
    reports = list(reports)
    told = [r for r in reports if r.fired or r.refused]
    width = max([len(r.rule) for r in told], default=4)
    lines = [f"{'rule':{width}}  level  fired  refused       ms"] if told else []
    for r in told:
        lines.append(
            f"{r.rule:{width}}  {r.level:5}  {r.fired:5}  {r.refused:7}  {1e3 * r.seconds:7.1f}"
        )
        for reason in sorted(r.reasons, key=lambda reason: -reason.count):
            more = " ..." if reason.count > len(reason.nodes) else ""
            at = f" ({', '.join(reason.nodes)}{more})" if reason.nodes else ""
            lines.append(f"    {reason.count} x {reason.words}{at}")
    quiet = Counter({r.rule: r.seconds for r in reports if r not in told})
    lines.append(f"{len(quiet)} more rules matched nothing, in {1e3 * quiet.total():.1f} ms")
    return wrapped("\n".join(lines))
