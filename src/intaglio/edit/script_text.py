"""Names, targets and values in the lines of a script, read and written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from intaglio.arguments import described
from intaglio.edit.node_expression import NodeExpression, Place, Word
from intaglio.errors import BadInput

MAX_LIST = 16  # elements of a list that is written out


def outside_quotes(text: str) -> Iterator[tuple[int, str]]:
    """The characters that are not in quotes, with their places; BadInput if a quote is open."""
    quote = ""
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        else:
            yield i, c
    if quote:
        raise BadInput(f"'{text}': a quote ({quote}) is not closed; close it")


def split(text: str) -> tuple[str, str]:
    """Target and value, with `=` or a colon and a blank between them; "" without a value."""
    for i, c in outside_quotes(text):
        if c == "=" or (c == ":" and (i + 1 == len(text) or text[i + 1].isspace())):
            return text[:i].strip(), text[i + 1 :].strip()
    return text.strip(), ""


def names(text: str) -> list[str]:
    """Names with commas between them."""
    commas = [i for i, c in outside_quotes(text) if c == ","]
    parts = [text[a + 1 : b] for a, b in pairwise([-1, *commas, len(text)])]
    found = [unquoted(part) for part in parts]
    if not all(found):
        raise BadInput(f"'{text}': a name is empty; write names with commas between them")
    return found


def unquoted(text: str) -> str:
    """A name without its quotes."""
    plain = text.strip()
    return plain[1:-1] if re.fullmatch(r"\"[^\"]*\"|'[^']*'", plain) else plain


def quoted(name: str) -> str:
    """A name as a script writes it: with quotes if it has blanks, commas or other marks.

    BadInput if it is not a string.
    """
    if not isinstance(name, str):
        raise BadInput(f"{described(name)} is no name; give a string")
    plain = re.fullmatch(r"[^\s,()\[\]=\"'#]+(?<!:)", name)
    return name if plain else f'"{name}"'


def selector(nodes: str) -> str:
    """A name of nodes, a pattern, or `every Dropout`."""
    return nodes if isinstance(nodes, str) and nodes.startswith("every ") else quoted(nodes)


def value_text(value: Any) -> str:
    """A value of an attribute or constant."""
    if isinstance(value, Word):
        return quoted(value.text)
    if isinstance(value, str):
        return quoted(value)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        if not value.shape or (len(value.shape) == 1 and value.shape[0] <= MAX_LIST):
            return value_text(value.tolist())
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def expression(node: str, operands: Sequence[Any], keywords: Mapping[str, Any]) -> NodeExpression:
    """A node from text, with more operands and keywords from Python."""
    made = NodeExpression.parse(node)
    for o in operands:
        place = re.fullmatch(r"_(\d*)", o) if isinstance(o, str) else None
        if place:
            made.operands.append(Place(int(place[1] or 0)))
        else:
            made.operands.append(Word(o) if isinstance(o, str) else o)
    made.keywords |= {k: Word(v) if isinstance(v, str) else v for k, v in keywords.items()}
    return made


def node_text(node: str, operands: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    """A node as a script writes it."""
    if not operands and not keywords:
        return " ".join(node.split())
    parts = [value_text(o) for o in operands]
    parts += [f"{k}={value_text(v)}" for k, v in keywords.items()]
    head, bracket, rest = node.strip().partition("(")
    inner = rest.rstrip().removesuffix(")")
    return f"{head}({', '.join([*([inner] if bracket and inner else []), *parts])})"


def shape_value(shape: Sequence[int | str]) -> str:
    """A shape as a script writes it."""
    if all(isinstance(d, int) for d in shape):
        return "x".join(map(str, shape)) or "scalar"
    return f"[{', '.join(str(d) if d != '' else '?' for d in shape)}]"
