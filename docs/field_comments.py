"""A griffe extension for the API reference: the comment of a class's field is its description.

The comment stands behind the field, or in the lines before it.
"""

from __future__ import annotations

from typing import Any

import griffe


class FieldComments(griffe.Extension):
    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if attr.docstring or "class-attribute" not in attr.labels or attr.lineno is None:
            return
        lines = attr.lines_collection[attr.filepath]
        text = _behind(lines[attr.lineno - 1 : attr.endlineno]) or _before(lines, attr.lineno - 1)
        if text:
            attr.docstring = griffe.Docstring(text, parent=attr)


def _behind(lines: list[str]) -> str:
    comments = [line.partition("  # ")[2].strip() for line in lines]
    return " ".join(c for c in comments if c)


def _before(lines: list[str], field: int) -> str:
    first = field
    while first and lines[first - 1].strip().startswith("# "):
        first -= 1
    return " ".join(line.strip().removeprefix("# ") for line in lines[first:field])
