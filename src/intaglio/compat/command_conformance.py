"""Tables of docs/compat-*.md for command lines: every option, its effect here, and its tests.

A test file uses a command if a string in it has the command's name as a word, and an option if a
string has it too.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from intaglio.compat.tpu_mlir.option_table import Command, Option


def words_of(folder: Path) -> dict[Path, set[str]]:
    """The words in the strings of every test file."""
    found = {}
    for path in sorted(folder.glob("test_*.py")):
        tree = ast.walk(ast.parse(path.read_text()))
        strings = [
            n.value for n in tree if isinstance(n, ast.Constant) and isinstance(n.value, str)
        ]
        found[path] = {w.removesuffix(".py") for text in strings for w in text.split()}
    return found


def tests_of(command: Command, used: dict[Path, set[str]]) -> list[Path]:
    """The test files that run a command."""
    first = command.name.split()[0]
    return [p for p, words in used.items() if first in words]


def states(commands: Sequence[Command], used: dict[Path, set[str]]) -> list[str]:
    """A table with one row for each command."""
    lines = ["## Commands", "", "| command | options | implemented | ignored | refused | tests |"]
    lines.append("|---|---|---|---|---|---|")
    for c in commands:
        kinds = [o.state for o in c.options]
        counts = (kinds.count(k) for k in ("implemented", "ignored", "refused"))
        files = [p.stem.removeprefix("test_") for p in tests_of(c, used)]
        row = (f"`{c.name}`", str(len(kinds)), *map(str, counts), ", ".join(files) or "none")
        lines.append(f"| {' | '.join(row)} |")
    return lines


def command_rows(command: Command, used: dict[Path, set[str]]) -> list[str]:
    """The options of a command, and whether a test gives them."""
    files = tests_of(command, used)
    given = {w for p in files for w in used[p]}
    lines = ["", f"## {command.name}", "", command.about, ""]
    lines += ["| option | default | tested | here |", "|---|---|---|---|"]
    for o in command.options:
        tested = "yes" if any(n in given for n in o.names) else ""
        lines.append(f"| `{', '.join(o.names)}` | {_default(o)} | {tested} | {_effect(o)} |")
    return lines


def _default(o: Option) -> str:
    if o.flag:
        return "off"
    value: Any = o.default
    if value is None or value in ("", []):
        return "required" if o.required else ""
    if isinstance(value, list):
        value = ",".join(f"{x:g}" if isinstance(x, float) else str(x) for x in value)
    return f"`{value}`"


def _effect(o: Option) -> str:
    return o.effect.replace("|", "\\|")
