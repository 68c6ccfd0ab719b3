"""Messages in the words of the command line: `dims={"batch": 1}` becomes `--dim batch=1`, and
`intaglio.quantize(model, samples)` becomes `intaglio quantize`.

The library writes options as keyword arguments (`intaglio.errors.option`). Each click parameter
carries the keyword's name and the flag, so the mapping between the two is the commands themselves.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

import click

# Keywords of `intaglio.load` whose flag has another name. `intaglio quantize` also has --weights,
# for an element type: there only a file name belongs to --blobs.
_RENAMED = {"weights": "blobs"}
# Functions of the API that messages name, and the command that does the same.
_COMMANDS = {"open": "run", "compile": "compile", "quantize": "quantize", "optimize": "optimize"}
# A Python literal: a container without a nested one of the same kind, a string, a plain word.
_LITERAL = r"""\{[^{}]*\}|\[[^][]*\]|\([^()]*\)|"(?:[^"\\]|\\.)*"|\.\.\.|-?\w+(?:\.\w+)?"""


def with_flags(message: str, command: click.Command) -> str:
    """The message, with each keyword argument that `command` has a flag for as that flag."""
    flags = {p.name: p for p in command.params if isinstance(p, click.Option) and p.name}
    names = "|".join(map(re.escape, [*flags, *_RENAMED, "dtypes"]))

    def flag(match: re.Match[str]) -> str:
        name, text = match[1], match[2]
        if name == "dtypes":
            return _element_types(text) if "shapes" in flags else match[0]
        value = None if text is None else _value(text)
        if name in _RENAMED and (name not in flags or "." in str(value)):
            name = _RENAMED[name]
        return _flag(flags[name], value) if name in flags else match[0]

    with_commands = re.sub(
        rf"\bintaglio\.({'|'.join(_COMMANDS)})\b(?:\([^()]*\)(?:\.\w+\([^()]*\))?|(?!\())",
        lambda match: f"`intaglio {_COMMANDS[match[1]]}`",
        message,
    )
    return re.sub(rf"(?<![\w.\"'])({names})=({_LITERAL})?", flag, with_commands)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _flag(option: click.Option, value: Any) -> str:
    flag = option.opts[-1]
    if value is False and option.secondary_opts:
        return option.secondary_opts[0]
    if value is None or value is True or option.is_flag:
        return flag
    if isinstance(value, Mapping):
        return " ".join(f"{flag} {name}={_typed(option, v)}" for name, v in value.items())
    if isinstance(value, list):
        return " ".join(f"{flag} {_typed(option, v)}" for v in value)
    return f"{flag} {_typed(option, value)}"


def _typed(option: click.Option, value: Any) -> str:
    """A value as it is typed: extents with x between them, other numbers with commas."""
    if value is ...:
        return "..."
    if isinstance(value, tuple):
        between = "x" if option.name in ("shapes", "letterbox") else ","
        return between.join(map(str, value))
    return str(value)


def _element_types(text: str | None) -> str:
    """An element type is a part of --shape."""
    types = _value(text) if text else None
    if not isinstance(types, Mapping):
        return "--shape NAME=SHAPE:TYPE"
    return " ".join(f"--shape {name}=SHAPE:{dtype}" for name, dtype in types.items())
