"""Names of classes: from a file with one on each line, or from the model's own metadata."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from intaglio.errors import BadFile

KEYS = ("names", "labels", "classes")  # of metadata; Ultralytics' exports have the first


def read_labels(path: str | Path) -> list[str]:
    """The names in a text file, one on each line."""
    try:
        lines = Path(path).read_text("utf-8-sig").splitlines()
    except OSError as e:
        raise BadFile(f"{path}: cannot be read ({(e.strerror or str(e)).lower()})") from None
    except UnicodeDecodeError:
        raise BadFile(f"{path}: not a text file; write the name of a class on each line") from None
    names = [line.strip() for line in lines]
    while names and not names[-1]:
        names.pop()
    if not names:
        raise BadFile(f"{path}: no names in it; write the name of a class on each line")
    return names


def names_in(metadata: Mapping[str, Any]) -> list[str] | None:
    """The names in a model's metadata, such as "{0: 'cat', 1: 'dog'}"; None if it has none."""
    for key in KEYS:
        text = metadata.get(key)
        if isinstance(text, str) and (names := _parsed(text)):
            return names
    return None


def _parsed(text: str) -> list[str] | None:
    try:
        content = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(content, dict) and all(isinstance(k, int) for k in content):
        most = max(content, default=-1)
        if not 0 <= most < 100_000:  # a file may be hostile
            return None
        return [str(content.get(i, f"class {i}")) for i in range(most + 1)]
    if isinstance(content, list | tuple) and all(isinstance(n, str) for n in content):
        return list(content)
    return None


def name_of(label: int, names: Sequence[str] | None) -> str:
    """The name of a class, or its number if it has none."""
    if names is not None and 0 <= label < len(names) and names[label]:
        return names[label]
    return f"class {label}"
