"""How the command ends on an error: one line on stderr, an exit code, no traceback.

2: a wrong option, file or model, or a full disk or memory; 130: Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from intaglio.errors import IntaglioError, did_you_mean
from intaglio.startup import EXIT_INTERRUPTED, INTERRUPTED


class Interrupted(Exception):
    """Ctrl-C while a command ran."""


@contextmanager
def ended() -> Iterator[None]:
    """End the process with one line if the block raises an error that is not a bug of ours."""
    try:
        yield
    except click.exceptions.Exit as e:
        sys.exit(e.exit_code)
    except click.ClickException as e:
        path = e.ctx.command_path if isinstance(e, click.UsageError) and e.ctx else "intaglio"
        words = _words(e)
        see = " See" if words.endswith("?") else "; see"
        _fail(f"{path}: {words}{see} '{path} --help'")
    except IntaglioError as e:
        _fail(f"intaglio: {e}")
    except (Interrupted, click.Abort, KeyboardInterrupt):
        line = "\n" * sys.stderr.isatty() + INTERRUPTED  # after the ^C that the terminal shows
        print(line, file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:  # the reader (head, less) closed the pipe
        _drop_stdout()
        sys.exit(0)
    except MemoryError as e:
        what = f": {e}" if str(e) else ""
        _fail(f"intaglio: out of memory{what}; give a smaller shape or batch, or free memory")
    except OSError as e:
        _drop_stdout()
        what = f"{e.filename}: " if e.filename else "cannot write the output: "
        _fail(f"intaglio: {what}{e.strerror or e}")


def one_line(text: str) -> str:
    """The text without line breaks and repeated blanks."""
    return " ".join(text.split())


def _words(e: click.ClickException) -> str:
    """click's message; an unknown option with the nearest one of the command."""
    if isinstance(e, click.NoSuchOption) and e.ctx:
        known = [o for p in e.ctx.command.get_params(e.ctx) for o in (*p.opts, *p.secondary_opts)]
        hint = did_you_mean(e.option_name, [o for o in known if o.startswith("-")])
        return f"no option is called '{e.option_name}'{hint}"
    message = e.format_message()
    return message.removesuffix(".")


def _drop_stdout() -> None:
    """Discard what is not written yet, so that Python does not fail again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(line: str) -> NoReturn:
    print(one_line(line), file=sys.stderr)
    sys.exit(2)
