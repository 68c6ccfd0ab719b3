"""Everything Intaglio raises on purpose.

IntaglioError
├── BadInput      a file, shape, name or option that the user gave cannot be used
│   ├── UnknownKeyword   a keyword argument that a function does not have; a TypeError too
│   ├── BadFile   a model or package file that is missing, truncated, corrupt or hostile
│   └── BadKey    a key or signature that is missing, or does not fit the package
├── Unsupported   the model asks for something that Intaglio does not do
└── RunError      a running model met data it cannot compute with (an index out of range, say)
    └── QueueFull a request found no place in the queue of a SessionPool in time

A message is one line: what failed, the value, the rule, the remedy. A remedy that is an option is
written by `option` as a keyword argument of the API; the command line shows it as its own flag.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any


class IntaglioError(Exception):
    """Base of every error that Intaglio raises on purpose."""


class BadInput(IntaglioError):
    """The user gave something that cannot be used; the message says why and what to do."""


class UnknownKeyword(BadInput, TypeError):
    """A function has no keyword argument of this name."""


class BadFile(BadInput):
    """A file is missing, truncated, corrupt or not what its name says."""


class BadKey(BadInput):
    """A key or signature is missing, or does not fit the package."""


class Unsupported(IntaglioError):
    """The model needs something that Intaglio does not do; the message says where and why."""


class RunError(IntaglioError):
    """A running model met data that it cannot compute with."""


class QueueFull(RunError):
    """A request found no place in a queue within its time limit."""


def option(name: str, value: Any = None) -> str:
    """An option in a message: `option("dims", {"batch": 1})` is `dims={"batch": 1}`.

    Without a value it is `dims=`; a value of `...` stands for one that the user must fill in.
    """
    return f"{name}={'' if value is None else _literal(value)}"


def _literal(value: Any) -> str:
    if value is ...:
        return "..."
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_literal(k)}: {_literal(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
    return repr(value)


def did_you_mean(name: str, known: Iterable[str], most: int = 1, likeness: float = 0.6) -> str:
    """`; did you mean 'conv'?` with up to `most` near names, whatever their case; "" without."""
    by_lower = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), list(by_lower), most, likeness)
    quoted = [f"'{by_lower[n]}'" for n in near]
    listed = " or ".join(filter(None, [", ".join(quoted[:-1]), *quoted[-1:]]))
    return f"; did you mean {listed}?" if near else ""


def unknown_keyword(function: str, name: str, known: Iterable[str]) -> UnknownKeyword:
    """The error for a keyword argument that `function` does not have, with the nearest name."""
    hint = did_you_mean(name, known)
    return UnknownKeyword(f"{function}() got an unexpected keyword argument '{name}'{hint}")
