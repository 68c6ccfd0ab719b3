"""Tables and lines that fit the terminal. Output to a file or a pipe keeps its full width."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Sequence

UNLIMITED = 0
LEAST_TEXT = 10  # characters that a shortened column keeps
MAX_HANGING = 28  # columns of a label that the following lines leave free


def terminal_width() -> int:
    """The columns of the terminal, or of the variable COLUMNS; UNLIMITED for a file or a pipe."""
    given = os.environ.get("COLUMNS", "")
    if given.isdigit() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    except (OSError, ValueError):
        return UNLIMITED


def aligned(
    rows: Sequence[Sequence[str]],
    right: Sequence[int],
    drop: Sequence[int] = (),
    width: int | None = None,
) -> list[str]:
    """Rows as text in columns; those in `right` are right-aligned.

    If they are wider than the terminal, columns in `drop` are left out, the first ones first; then
    texts are shortened. A last line names the columns that are left out.
    """
    most = terminal_width() if width is None else width
    kept = list(range(len(rows[0])))
    wide = [max(len(r[i]) for r in rows) for i in kept]
    left_out = []
    for i in drop:
        if not most or _total(wide, kept) <= most:
            break
        kept.remove(i)
        left_out.append(rows[0][i])
    while most and _total(wide, kept) > most:
        longest = max((i for i in kept if i not in right), key=wide.__getitem__, default=None)
        if longest is None or wide[longest] <= LEAST_TEXT:
            break
        wide[longest] = max(wide[longest] - (_total(wide, kept) - most), LEAST_TEXT)
    cells = [[shortened(r[i], wide[i]) for i in kept] for r in rows]
    lines = [
        "  ".join(
            c.rjust(wide[i]) if i in right else c.ljust(wide[i])
            for i, c in zip(kept, row, strict=True)
        ).rstrip()
        for row in cells
    ]
    if left_out:
        note = f"left out, as the terminal has {most} columns: {', '.join(dict.fromkeys(left_out))}"
        lines += wrapped(note, most).splitlines()
    return lines


def _total(wide: Sequence[int], kept: Sequence[int]) -> int:
    return sum(wide[i] for i in kept) + 2 * (len(kept) - 1)


def shortened(text: str, most: int) -> str:
    """The text with its middle left out if it is longer than `most`."""
    if len(text) <= most:
        return text
    tail = (most - 3) // 2
    return f"{text[: most - 3 - tail]}...{text[len(text) - tail :]}"


def wrapped(text: str, width: int | None = None) -> str:
    """The text with lines that are too long continued below, behind their label."""
    most = terminal_width() if width is None else width
    if not most:
        return text
    return "\n".join(
        line if len(line) <= most else _continued(line, most) for line in text.split("\n")
    )


def _continued(line: str, most: int) -> str:
    label = re.match(r"\s*(\S+\s{2,})?", line)
    hanging = label.end() if label and 0 < label.end() <= MAX_HANGING else 4
    return textwrap.fill(
        line,
        most,
        subsequent_indent=" " * hanging,
        replace_whitespace=False,
        expand_tabs=False,
        break_on_hyphens=False,
    )
