"""Generates docs/compat-*.md: every public method of a vendor's tool, its state and its tests.

python -m intaglio.compat.conformance rknn docs/compat-rknn.md

A method's docstring has its summary, then paragraphs that begin with "Deviation:" or "Missing:".
Tests are the files of tests/compat that call it.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intaglio.compat.command_conformance import command_rows, states, words_of
from intaglio.compat.tpu_mlir.option_table import Command
from intaglio.files import write_atomically

TESTS = Path("tests") / "compat"
DEVIATION, MISSING = "Deviation:", "Missing:"


@dataclass(frozen=True)
class Facade:
    """What a page is about."""

    title: str
    head: str  # text before the tables
    classes: dict[str, type]  # by the vendor's name
    functions: dict[str, Callable[..., Any]]
    options: dict[str, tuple[str, str]] = field(default_factory=dict)  # default and effect, by name
    options_of: str = ""  # the method that takes them
    attributes: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)  # by class
    commands: Sequence[Command] = ()  # a page of command lines has these instead of classes


@dataclass(frozen=True)
class Method:
    """One public method or function."""

    name: str  # as users write it: RKNN.build
    arguments: str
    summary: str
    deviation: str
    missing: str
    tests: list[str]
    scripts: list[str]

    @property
    def state(self) -> str:
        if not self.tests:
            return "untested"
        return "partial" if self.missing else "complete"


def methods(facade: Facade, tests: Path = TESTS) -> list[Method]:
    """All methods and functions, with the tests that call them."""
    called = calls(tests)
    found = []
    for title, owner in facade.classes.items():
        short = title.rpartition(".")[2]
        using = {p: names for p, names in called.items() if short in names}
        found.append(_method(short, short, owner, using))
        for name in sorted(n for n in dir(owner) if not n.startswith("_")):
            if callable(function := getattr(owner, name)):
                found.append(_method(f"{short}.{name}", name, function, using))
    for title, function in facade.functions.items():
        using = {p: names for p, names in called.items() if title.rpartition(".")[2] in names}
        found.append(_method(title, function.__name__, function, using))
    return found


def _method(name: str, called: str, function: Any, files: dict[Path, set[str]]) -> Method:
    text = inspect.cleandoc(function.__doc__ or "")
    parts = [" ".join(p.split()) for p in text.split("\n\n")]
    notes = {
        kind: " ".join(p.removeprefix(kind).strip() for p in parts if p.startswith(kind))
        for kind in (DEVIATION, MISSING)
    }
    using = sorted(p for p, names in files.items() if called in names)
    return Method(
        name,
        _arguments(function),
        parts[0],
        notes[DEVIATION],
        notes[MISSING],
        [p.stem for p in using if "scripts" not in p.parts],
        [p.stem for p in using if "scripts" in p.parts],
    )


def _arguments(function: Any) -> str:
    given = inspect.signature(function).parameters.values()
    words = []
    for p in given:
        if p.name == "self":
            continue
        stars = "**" if p.kind is p.VAR_KEYWORD else ""
        default = "" if p.default is p.empty else f"={p.default!r}"
        words.append(f"{stars}{p.name}{default}")
    return ", ".join(words)


def calls(folder: Path) -> dict[Path, set[str]]:
    """The names that every test file and script calls, and those that it imports."""
    found = {}
    for path in [*sorted(folder.glob("test_*.py")), *sorted((folder / "scripts").rglob("*.py"))]:
        names = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                f = node.func
                names.add(f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", ""))
            elif isinstance(node, ast.ImportFrom):
                names.update(a.name for a in node.names)
                names.add((node.module or "").rpartition(".")[2])
        found[path] = names
    return found


# ---- the page ------------------------------------------------------------------------------------
def page(name: str, tests: Path = TESTS) -> str:
    """The text of a page."""
    facade = facades()[name]
    if facade.commands:
        return command_page(name, facade, tests)
    found = methods(facade, tests)
    command = f"python -m intaglio.compat.conformance {name} docs/compat-{name}.md"
    lines = [
        f"<!-- Made by `{command}`; change the docstrings and tests, not this file. -->",
        f"# {facade.title}",
        "",
        facade.head,
        "",
        "## Methods",
        "",
        "`complete`: nothing is missing. `partial`: the list below the table says what is missing. "
        "Differences are there too.",
        "Tests are files of `tests/compat` that call it; scripts are those of "
        "`tests/compat/scripts`.",
        "",
        "| method | state | tests | scripts |",
        "|---|---|---|---|",
    ]
    for m in found:
        count = len(m.scripts) or ""
        lines.append(f"| `{m.name}` | {m.state} | {_short(m.tests)} | {count} |")
    lines += ["", "## What each does, and what differs", ""]
    for m in found:
        lines += _entry(m, short=m.name == facade.options_of)
    if facade.options:
        lines += ["", f"## Arguments of {facade.options_of}", ""]
        lines += ["| argument | default | effect |", "|---|---|---|"]
        lines += _table(facade.options)
    for owner, attributes in facade.attributes.items():
        lines += ["", f"## Attributes of {owner}", ""]
        lines += ["| attribute | default | effect |", "|---|---|---|", *_table(attributes)]
    return "\n".join(lines) + "\n"


def _table(options: dict[str, tuple[str, str]]) -> list[str]:
    return [f"| `{name}` | `{default}` | {effect} |" for name, (default, effect) in options.items()]


def command_page(name: str, facade: Facade, tests: Path = TESTS) -> str:
    """The text of a page about command lines."""
    used = words_of(tests)
    command = f"python -m intaglio.compat.conformance {name} docs/compat-{name}.md"
    lines = [
        f"<!-- Made by `{command}`; change the tables of options and tests, not this file. -->",
        f"# {facade.title}",
        "",
        facade.head,
        "",
        *states(facade.commands, used),
    ]
    for one in facade.commands:
        lines += command_rows(one, used)
    return "\n".join(lines) + "\n"


def _short(names: list[str]) -> str:
    words = [n.removeprefix("test_") for n in names]
    return ", ".join(words[:4]) + (f" and {len(words) - 4} more" if len(words) > 4 else "")


def _entry(m: Method, short: bool) -> list[str]:
    """A list item, wrapped: signature (without arguments, if `short`), summary, deviations."""
    signature = f"{m.name}(...)" if short else f"{m.name}({m.arguments})"
    parts = [f"`{signature}`", m.summary]
    if m.deviation:
        parts.append(f"*Differs:* {m.deviation}")
    if m.missing:
        parts.append(f"*Missing:* {m.missing}")
    lines = []
    for i, part in enumerate(parts):
        first = "- " if i == 0 else "  "
        lines += textwrap.wrap(part, 150, initial_indent=first, subsequent_indent="  ")
    return lines


def facades() -> dict[str, Facade]:
    """The facades by name; each vendor's package has one."""
    from intaglio.compat.nncase.facade import facade as nncase
    from intaglio.compat.rknn.facade import facade as rknn
    from intaglio.compat.tpu_mlir.facade import facade as sophgo

    return {"rknn": rknn(), "nncase": nncase(), "sophgo": sophgo()}


def main(arguments: list[str]) -> int:
    if len(arguments) != 2 or arguments[0] not in facades():
        known = "|".join(facades())
        print(f"usage: python -m intaglio.compat.conformance {known} FILE.md", file=sys.stderr)
        return 2
    write_atomically(arguments[1], page(arguments[0]).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
