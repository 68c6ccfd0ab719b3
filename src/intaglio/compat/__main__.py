"""`python -m intaglio.compat script.py [args]`: run a script written for a vendor's tool."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import textwrap
from collections.abc import Sequence

from intaglio.compat import commands
from intaglio.compat.aliases import ALIASES, install, real_name
from intaglio.errors import BadInput, IntaglioError, did_you_mean

USAGE = """\
usage: python -m intaglio.compat [--board CHIP] SCRIPT [ARGS]
       python -m intaglio.compat -m MODULE [ARGS]
       python -m intaglio.compat COMMAND [ARGS]

"""


def usage() -> str:
    """The help text, in 80 columns."""
    packages = f"Runs a program in which these packages are Intaglio's own: {', '.join(ALIASES)}."
    names = f"Commands of vendors' tools: {', '.join(commands.COMMANDS)}."
    board = "--board rk3588: scripts for a board see that board, and run in its simulator."
    return USAGE + "\n".join(textwrap.fill(text, 78) for text in (packages, names, board))


def main(arguments: Sequence[str]) -> int:
    """Run the script or module; the exit code is its own, or 2 if it cannot be run."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if commands.find(arguments[0]) and not os.path.isfile(arguments[0]):
        return commands.run(arguments[0], arguments[1:])
    if arguments[0] == "--board" or arguments[0].startswith("--board="):
        try:
            arguments = _on_board(list(arguments))
        except IntaglioError as e:
            print(f"intaglio.compat: {' '.join(str(e).split())}", file=sys.stderr)
            return 2
    install()
    if arguments[0] == "-m":
        return _run_module(arguments[1:])
    script = arguments[0]
    if not os.path.isfile(script):
        hint = did_you_mean(script, commands.COMMANDS)
        print(
            f"intaglio.compat: no script '{script}'{hint or '; give the path of a Python file'}",
            file=sys.stderr,
        )
        return 2
    sys.argv = list(arguments)
    sys.path[0] = os.path.dirname(os.path.abspath(script))  # as `python script.py` has it
    runpy.run_path(script, run_name="__main__")
    return 0


def _on_board(arguments: list[str]) -> list[str]:
    """The arguments after `--board CHIP`; the process then seems to run on such a board."""
    from intaglio.compat.board import pretend

    flag, equals, chip = arguments.pop(0).partition("=")
    chip = chip if equals else arguments.pop(0) if arguments else ""
    if not arguments:
        raise BadInput(f"{flag} needs a chip and a script: {flag} rk3588 script.py")
    pretend(chip)
    return arguments


def _run_module(arguments: Sequence[str]) -> int:
    if not arguments:
        print("intaglio.compat: -m needs the name of a module", file=sys.stderr)
        return 2
    if commands.find(arguments[0]):
        return commands.run(arguments[0], arguments[1:])
    name = real_name(arguments[0]) or arguments[0]
    sys.argv = list(arguments)
    try:
        found = importlib.util.find_spec(name) is not None
    except ImportError as e:
        found, name = False, f"{name} ({e})"
    if not found:
        print(f"intaglio.compat: no module '{name}'; give the name of one", file=sys.stderr)
        return 2
    runpy.run_module(name, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
