"""The log of a facade: lines of one letter and one sentence, as the vendors' tools print them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from intaglio.errors import BadInput

COLOURS = {"W": "\033[33m", "E": "\033[31m"}
END = "\033[0m"


class Log:
    """Prints I and D lines to stdout, W and E lines to stderr, and all to a file if one is given.

    `verbose` may be "debug", which adds D lines. I lines of `detail` need verbose.
    """

    def __init__(self, verbose: bool | str = False, file: str | Path | None = None):
        if verbose not in (True, False, "debug"):
            raise BadInput(f"verbose is {verbose!r}; it is True, False or 'debug'")
        self.verbose = verbose
        self.warned: set[str] = set()
        self.file: TextIO | None = None
        if file is not None and verbose:
            try:
                self.file = open(file, "w", encoding="utf-8")  # noqa: SIM115  # until `close`
            except OSError as e:
                raise BadInput(f"verbose_file is '{file}': {e.strerror}; give a file") from None

    def info(self, words: str) -> None:
        self._print("I", words)

    def detail(self, words: str) -> None:
        """An I line that only a verbose log has."""
        if self.verbose:
            self._print("I", words)

    def debug(self, words: str) -> None:
        if self.verbose == "debug":
            self._print("D", words)

    def warning(self, words: str) -> None:
        """Each warning is printed once."""
        if words not in self.warned:
            self.warned.add(words)
            self._print("W", words)

    def error(self, words: str) -> None:
        self._print("E", words)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Warnings of the core within the block become W lines."""
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            yield
        for one in found:
            self.warning(" ".join(str(one.message).split()))

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None

    def _print(self, letter: str, words: str) -> None:
        line = f"{letter} {words}"
        stream = sys.stderr if letter in COLOURS else sys.stdout
        coloured = letter in COLOURS and stream.isatty()
        print(f"{COLOURS[letter]}{line}{END}" if coloured else line, file=stream, flush=True)
        if self.file is not None:
            print(line, file=self.file, flush=True)
