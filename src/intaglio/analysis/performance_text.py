"""Predictions as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from intaglio.analysis.performance import LayerRow, Performance
from intaglio.npu import isa

COLUMNS = ("id", "op", "type", "on", "input", "output", "DDR cycles", "NPU cycles", "max", "us",
           "MACs used", "KiB", "cores", "all cores", "bound by", "name")  # fmt: skip
NUMBERS = range(6, 14)  # of these columns
SHOWN = 12  # kinds of op that a ranking lists


def cells(r: LayerRow) -> tuple[str, ...]:
    npu = r.unit == "NPU"
    return (str(r.id), r.op, r.dtype, r.unit, r.inputs, r.output,
            f"{r.ddr_cycles:.0f}" if npu else "", f"{r.npu_cycles:.0f}" if npu else "",
            f"{r.max_cycles:.0f}" if npu else "", f"{r.microseconds:.1f}",
            f"{r.mac_use:.0%}" if npu else "", f"{r.bytes / 1024:.0f}" if npu else "",
            "/".join(f"{100 * v:.0f}" for v in r.load) if npu else "",
            f"x{r.all_cores:.2f}" if npu else "", r.bound, r.name)  # fmt: skip


def aligned(rows: Sequence[Sequence[str]], right: range) -> list[str]:
    """Columns as wide as their widest cell; those in `right` end at the same place."""
    wide = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(c.rjust(w) if i in right else c.ljust(w)
                  for i, (c, w) in enumerate(zip(r, wide, strict=True))).rstrip()
        for r in rows
    ]  # fmt: skip


def text(p: Performance, hints: bool = True) -> str:
    """The whole report for a terminal."""
    lines = aligned([COLUMNS, *map(cells, p.layers)], NUMBERS)
    lines += ["", *ranking(p), "", *summary(p)]
    if hints:
        told = helpful(p)
        lines += ["", "what would help most:"] if told else []
        lines += [f"  {r.microseconds:8.1f} us  {r.op} {r.name}: {r.hint}" for r in told]
    return "\n".join(lines)


def helpful(p: Performance, count: int = 8) -> list[LayerRow]:
    """The layers that take longest of those for which something would help."""
    return sorted((r for r in p.layers if r.hint), key=lambda r: -r.microseconds)[:count]


def ranking(p: Performance) -> list[str]:
    rows = [("op", "layers", "us", "share")]
    rows += [(op, str(n), f"{t:.1f}", f"{s:.1%}") for op, n, t, s in p.ranking()[:SHOWN]]
    return aligned(rows, range(1, 4))


def summary(p: Performance) -> list[str]:
    guesses = f"; {len(p.estimates)} figures of the chip are guesses" if p.estimates else ""
    batch = f" for {p.batch} samples" if p.batch > 1 else ""
    lines = [
        f"{p.chip} at {p.clock:g} MHz, {p.ddr:g} GB/s, {p.cores} core{'s' * (p.cores > 1)}: "
        f"{p.milliseconds:.3f} ms{batch}, {p.fps:.1f} frames a second{guesses}",
        f"NPU {p.npu_milliseconds:.3f} ms, CPU {p.cpu_milliseconds:.3f} ms; "
        f"{p.bytes / 1e6:.2f} MB to and from DDR; {p.mac_use:.0%} of the MACs used",
        f"bound by {', '.join(f'{k} {v:.0%}' for k, v in p.bounds().items())} of the time",
    ]
    for number, busy in enumerate(p.busy):
        parts = [f"{q} {' '.join(f'{v:.0%}' for v in busy[q])}" for q in (*isa.QUEUES, "ddr")]
        lines.append(f"npu{number}: busy {', '.join(parts)}")
    if p.chip_cores > p.cores:
        lines.append(f"all {p.chip_cores} cores would be {p.all_cores:.2f} times as fast at most; "
                     "--payoff compiles for them")  # fmt: skip
    return lines
