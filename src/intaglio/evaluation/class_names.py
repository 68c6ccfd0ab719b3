"""Names of the classes of a dataset with YOLO's labels, from the .yaml file beside it.

Only the entry `names` is read, in the three forms that such files have. PyYAML is not among the
packages that Intaglio needs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

ENDINGS = (".yaml", ".yml")
LONGEST = 1 << 20  # bytes of a file that is read
MOST = 100_000  # names
KEY = re.compile(r"^names\s*:\s*(.*)$")
NUMBERED = re.compile(r"^\s+[\"']?(\d{1,5})[\"']?\s*:\s*(.+)$")
LISTED = re.compile(r"^\s*-\s+(.+)$")
COMMENT = re.compile(r"\s+#.*$")


def dataset_names(places: Iterable[Path | None]) -> list[str] | None:
    """The names in the first .yaml file of these folders, or of those above them, that has any."""
    folders = [p if p.is_dir() else p.parent for p in places if p is not None]
    for folder in dict.fromkeys(f for each in folders for f in (each, each.resolve().parent)):
        for path in sorted(p for p in folder.iterdir() if p.suffix.lower() in ENDINGS):
            if path.is_file() and path.stat().st_size <= LONGEST:
                names = parsed(path.read_text("utf-8-sig", errors="replace"))
                if names:
                    return names
    return None


def parsed(text: str) -> list[str] | None:
    """The entry `names` of a YAML file: [a, b], lines with "- a", or lines with "0: a"."""
    lines = text.splitlines()
    for n, line in enumerate(lines):
        if found := KEY.match(line):
            rest = COMMENT.sub("", found[1]).strip()
            return _flow(rest, lines[n + 1 :]) if rest else _block(lines[n + 1 :])
    return None


def _flow(first: str, more: list[str]) -> list[str] | None:
    """[a, 'b'] or {0: a}, on one or several lines."""
    end = {"[": "]", "{": "}"}.get(first[0])
    if end is None:
        return None
    text = first
    for line in more:
        if end in text:
            break
        text += " " + COMMENT.sub("", line).strip()
    inner, closed, _ = text[1:].partition(end)
    items = [part.strip() for part in inner.split(",")]
    if not closed:
        return None
    if end == "]":
        return [_plain(i) for i in items if i]
    return _numbered({k: v for k, colon, v in (i.partition(":") for i in items) if colon})


def _block(lines: list[str]) -> list[str] | None:
    """Lines below `names:`, up to the next key."""
    listed: list[str] = []
    numbered: dict[str, str] = {}
    for line in lines:
        line = COMMENT.sub("", line)
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if found := LISTED.match(line):
            listed.append(_plain(found[1]))
        elif found := NUMBERED.match(line):
            numbered[found[1]] = found[2]
        else:
            break
    return listed or _numbered(numbered)


def _numbered(names: dict[str, str]) -> list[str] | None:
    found = {
        int(k.strip(" \"'")): _plain(v) for k, v in names.items() if k.strip(" \"'").isdecimal()
    }
    most = max(found, default=-1)
    return [found.get(i, "") for i in range(most + 1)] if 0 <= most < MOST else None


def _plain(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        try:
            return str(ast.literal_eval(text))
        except (ValueError, SyntaxError):
            return text[1:-1]
    return text
