"""Runs command lines of vendors' tools in this process."""

from __future__ import annotations

import shlex

import pytest

from intaglio.compat import commands


def run(line: str) -> int:
    """The exit code of a command line."""
    name, *arguments = shlex.split(line)
    return commands.run(name, arguments)


def refused(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The only E line of a command that ends with code 2."""
    capsys.readouterr()
    assert run(line) == 2
    found = [x for x in capsys.readouterr().err.splitlines() if x.startswith("E ")]
    assert len(found) == 1, found
    return found[0]
