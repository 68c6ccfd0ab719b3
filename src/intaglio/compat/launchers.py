"""Small programs with the vendors' names: model_transform.py and others, in a folder of yours.

A wheel cannot install scripts for an extra alone, and names such as model_transform belong to
tpu-mlir. So nothing is installed under them unless you ask for it.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from intaglio.compat import commands
from intaglio.compat.log import Log
from intaglio.errors import BadInput

TEXT = """\
#!{python}
# Made by `python -m intaglio.compat install-scripts`; runs Intaglio's {name}.
import sys

from intaglio.compat.commands import run

sys.exit(run("{name}", sys.argv[1:]))
"""
MARK = "# Made by `python -m intaglio.compat install-scripts`"


def main(arguments: Sequence[str], log: Log) -> int:
    """install-scripts DIR: write a launcher for every command, with and without .py."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: install-scripts DIR\n\nWrites launchers such as model_transform.py into DIR.")
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    paths = [
        (name, folder / f"{name}{ending}")
        for name in commands.COMMANDS
        if name.isidentifier()
        for ending in ("", ".py")
    ]
    for _, path in paths:  # all or none
        if path.exists() and MARK not in path.read_text("utf-8", errors="replace"):
            raise BadInput(f"'{path}' exists and is not ours; give another folder")
    for name, path in paths:
        path.write_text(TEXT.format(python=sys.executable, name=name), "utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    log.info(f"{folder}: {len(paths)} launchers; put it on the PATH: export PATH={folder}:$PATH")
    return 0
