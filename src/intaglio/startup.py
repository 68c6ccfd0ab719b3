"""Ctrl-C while the `intaglio` command still imports its modules: one line instead of a traceback.

`intaglio/__init__.py` imports this file first. It does nothing in any other program.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from typing import Any

INTERRUPTED = "intaglio: interrupted"
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count


def is_command(argv: list[str], original: list[str]) -> bool:
    """Whether the process is `intaglio ...` or `python -m intaglio ...`."""
    name = os.path.basename(argv[0]) if argv else ""
    if name != "-m":  # which Python sets while it looks for the module
        return name in ("intaglio", "intaglio.exe")
    return ("-m", "intaglio") in itertools.pairwise(original)


def end_quietly_on_interrupt() -> None:
    """Until `restore_interrupt`, Ctrl-C ends the command at once."""
    if is_command(sys.argv, sys.orig_argv):
        signal.signal(signal.SIGINT, _end)


def restore_interrupt() -> None:
    """From here on, Ctrl-C is a KeyboardInterrupt again, which commands can handle."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: Any) -> None:
    os.write(2, f"{INTERRUPTED}\n".encode())
    os._exit(EXIT_INTERRUPTED)
