"""Command lines as tables: every option of the vendor's tool, its default, and what it does here.

The parser, the warnings, the refusals and the conformance page are made from the same rows.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import intaglio
from intaglio.compat.log import Log
from intaglio.errors import BadInput, did_you_mean

IGNORED, REFUSED = "ignored", "refused"  # words that begin the effect of options without one
NEGATIVE = re.compile(r"-\.?\d")  # begins a value such as -1.5,-2
WIDTH = 100  # columns of --help


@dataclass(frozen=True)
class Option:
    """One option: its names as users type them, and what it does here.

    An effect that begins with "ignored" is a warning where the option is given; one that begins
    with "refused" is an error, whose remedy is the rest of its words.
    """

    names: tuple[str, ...]
    effect: str
    kind: Callable[[str], Any] = str
    default: Any = None
    choices: tuple[Any, ...] | None = None
    flag: bool = False
    required: bool = False
    nargs: str | None = None

    @property
    def key(self) -> str:
        """Its name in the parsed arguments: the first long one."""
        long = next((n for n in self.names if n.startswith("--")), self.names[0])
        return long.lstrip("-")

    @property
    def state(self) -> str:
        """implemented, ignored or refused."""
        word = self.effect.partition(":")[0]
        return word if word in (IGNORED, REFUSED) else "implemented"


def option(names: str, effect: str, kind: Callable[[str], Any] = str, **rest: Any) -> Option:
    """A row; names are separated by blanks."""
    return Option(tuple(names.split()), effect, kind, **rest)


def flag(names: str, effect: str) -> Option:
    """A row of an option without a value."""
    return Option(tuple(names.split()), effect, default=False, flag=True)


@dataclass(frozen=True)
class Command:
    """A tool: its name without .py, one sentence, and its options."""

    name: str
    about: str
    options: tuple[Option, ...]

    def parse(self, arguments: Sequence[str], log: Log) -> argparse.Namespace:
        """The arguments; BadInput says which one is wrong. Options without effect are warned of."""
        parser = _Parser(
            prog=self.name,
            description=self.about,
            formatter_class=lambda prog: argparse.HelpFormatter(prog, width=WIDTH),
        )
        version = f"intaglio {intaglio.__version__}, command lines of tpu-mlir 1.30"
        parser.add_argument("-V", "--version", action="version", version=version)
        for o in self.options:
            _add(parser, o)
        found = parser.parse_args(_joined(arguments, parser))
        for o in self.options:
            given = getattr(found, o.key)
            if given == o.default or o.state == "implemented":
                continue
            words = f"{o.names[0]} is {o.effect}"
            if o.state == REFUSED:
                reason = o.effect.partition(": ")[2]
                shown = "" if o.flag else f" {given if isinstance(given, str) else repr(given)}"
                raise BadInput(f"{o.names[0]}{shown}: {reason}")
            log.warning(f"{self.name}: {words}")
        return found


class _Parser(argparse.ArgumentParser):
    """argparse whose errors are one line with the nearest option."""

    def error(self, message: str) -> NoReturn:
        known = [s for a in self._actions for s in a.option_strings]
        if found := re.match(r"unrecognized arguments: (-\S+)", message):
            name = found[1].partition("=")[0]
            hint = did_you_mean(name, known)
            raise BadInput(f"no option is called '{name}'{hint or '; see --help'}")
        words = message.replace("the following arguments are required:", "missing:")
        raise BadInput(f"{words}; see --help")

    def _print_message(self, message: str, file: Any = None) -> None:
        print(message, end="", file=file or sys.stdout)


def _add(parser: argparse.ArgumentParser, o: Option) -> None:
    words = o.effect.replace("%", "%%")
    if o.flag:
        parser.add_argument(*o.names, dest=o.key, action="store_true", help=words)
        return
    keywords: dict[str, Any] = {"type": o.kind, "help": words, "nargs": o.nargs}
    if o.choices is not None:
        keywords |= {"choices": o.choices, "metavar": _metavar(o)}
    if not o.names[0].startswith("-"):
        parser.add_argument(o.names[0], **keywords)
        return
    parser.add_argument(*o.names, dest=o.key, default=o.default, required=o.required, **keywords)


def _metavar(o: Option) -> str:
    shown = [str(c) for c in o.choices or () if c != ""]
    return "|".join(shown) if len(shown) < 6 else o.key.upper()


def _joined(arguments: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """Options with a value that begins with a minus as one word: --mean=-1,-2."""
    takes = {s for a in parser._actions for s in a.option_strings if a.nargs != 0}
    found: list[str] = []
    for word in arguments:
        if found and found[-1] in takes and NEGATIVE.match(word):
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


# ---- kinds of values -----------------------------------------------------------------------------
def words(text: str) -> list[str]:
    """Words between commas or semicolons."""
    return [w.strip() for w in re.split(r"[,;]", text) if w.strip()]


def listed(text: str) -> list[str]:
    """Words that may stand in brackets or quotes: [int32,float32]."""
    return words(re.sub(r"[\[\]\"']", "", text))


def numbers(text: str) -> list[float]:
    """Numbers between commas."""
    return [float(w) for w in text.split(",")]


def integers(text: str) -> list[int]:
    """Whole numbers between commas."""
    return [int(w) for w in text.split(",")]


def shapes(text: str) -> list[list[int]]:
    """Shapes of inputs: [[1,3,224,224],[10]], or one [1,3,224,224]."""
    found = [
        [int(d) for d in re.split(r"[,\sx]+", part.strip(" ,")) if d]
        for part in re.findall(r"[\[(]([^\[\]()]*)[\])]", text)
    ]
    if not found or re.sub(r"[\[\]()\d,\sx]", "", text):
        raise argparse.ArgumentTypeError(f"'{text}'; write shapes as [[1,3,224,224],[10]]")
    return found


def upper(text: str) -> str:
    """A word in capitals."""
    return text.upper()


def lower(text: str) -> str:
    """A word in small letters."""
    return text.lower()


def truth(text: str) -> bool:
    """yes, true, 1 or no, false, 0."""
    known = dict.fromkeys(("yes", "true", "t", "y", "1"), True)
    known |= dict.fromkeys(("no", "false", "f", "n", "0"), False)
    if text.lower() not in known:
        raise argparse.ArgumentTypeError(f"'{text}'; write true or false")
    return known[text.lower()]
