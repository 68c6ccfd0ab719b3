"""Nodes written as text: `Clip(min=0, max=6)`, `com.microsoft.Gelu`, `Add(_, bias)`.

Operands come first, in order, then attributes and named operands. `_` is the tensor at the place of
the edit, `_1` the second operand of a node that is replaced. Other words are names of tensors;
numbers and lists are constants, and so is a file (`w.npy`). A text in quotes is a name or a string.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from intaglio.errors import BadInput

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"[^"]*"|'[^']*')|(?P<mark>[()\[\],=])|(?P<word>[^\s()\[\],="']+))"""
)
_WHOLE = re.compile(r"[+-]?\d+")
EXAMPLE = "Clip(min=0, max=6)"


@dataclass(frozen=True)
class Word:
    """The name of a tensor, or a string for an attribute."""

    text: str
    quoted: bool = False


@dataclass(frozen=True)
class Place:
    """An operand that the place of the edit gives: `_` or `_0` is the first."""

    index: int


@dataclass
class NodeExpression:
    """A node before its operator is looked up."""

    op: str
    domain: str = ""
    # Word, Place, a number, a list of numbers, an array, or None for an operand that is left out
    operands: list[Any] = field(default_factory=list)
    keywords: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> NodeExpression:
        """BadInput if the text is no node."""
        return _Parser(text).node()


def parse_value(text: str) -> Any:
    """A number, a list of numbers or texts, or a Word."""
    parser = _Parser(text)
    value = parser.value()
    parser.end()
    return value


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.wrong("a quote is not closed", "close it")
            kind = found.lastgroup or ""
            self.tokens.append((kind, found[kind]))
            at = found.end()
        self.tokens.append(("end", ""))
        self.at = 0

    def wrong(self, what: str, remedy: str) -> BadInput:
        return BadInput(f"'{' '.join(self.text.split())}': {what}; {remedy}")

    def next(self, expected: str = "") -> tuple[str, str]:
        kind, text = self.tokens[self.at]
        if expected and text != expected:
            found = f"'{text}'" if text else "the end"
            raise self.wrong(f"'{expected}' is missing before {found}", f"write {EXAMPLE}")
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return kind, text

    def sees(self, text: str) -> bool:
        return self.tokens[self.at][1] == text and self.tokens[self.at][0] != "text"

    def end(self) -> None:
        if self.tokens[self.at][0] != "end":
            raise self.wrong(f"'{self.tokens[self.at][1]}' is left over", "remove it")

    def node(self) -> NodeExpression:
        kind, name = self.next()
        domain, _, op = name.rpartition(".")
        if kind != "word" or not op.isidentifier():
            raise self.wrong("it does not begin with an operator", f"write {EXAMPLE}")
        made = NodeExpression(op, "" if domain == "ai.onnx" else domain)
        if self.sees("("):
            self.next()
            self.items(")", lambda: self.argument(made))
        self.end()
        return made

    def items(self, close: str, read: Callable[[], None]) -> None:
        """Read items with commas between them, up to the closing bracket."""
        while not self.sees(close):
            read()
            if not self.sees(close):
                self.next(",")
        self.next(close)

    def argument(self, made: NodeExpression) -> None:
        after = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        if self.sees(","):
            made.operands.append(None)
        elif after == ("mark", "="):
            _, name = self.next()
            self.next()
            if name in made.keywords:
                raise self.wrong(f"'{name}' is given twice", "give it once")
            made.keywords[name] = self.value()
        elif made.keywords:
            raise self.wrong("an operand follows a name", "write operands first")
        else:
            value = self.value()
            found = re.fullmatch(r"_(\d*)", value.text) if isinstance(value, Word) else None
            place = found and isinstance(value, Word) and not value.quoted
            made.operands.append(Place(int(found[1] or 0)) if found and place else value)

    def value(self) -> Any:
        kind, text = self.next()
        if kind == "text":
            return Word(text[1:-1], True)
        if text == "[":
            values: list[Any] = []
            self.items("]", lambda: values.append(self.value()))
            return values
        if kind != "word":
            raise self.wrong(f"a value is missing before '{text or 'the end'}'", f"write {EXAMPLE}")
        return _number(text)


def _number(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _WHOLE.fullmatch(text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return Word(text)
