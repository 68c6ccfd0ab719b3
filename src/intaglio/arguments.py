"""Checks of arguments of the Python API: their types, ranges and names.

A caller's mistake is reported where it is made, so that no later stage blames the model file.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from intaglio.errors import BadInput, option
from intaglio.ir import Graph
from intaglio.symint import SymInt

MAX_SHOWN = 60  # characters of a value in a message
MAX_THREADS = 256  # ITG_MAX_THREADS of csrc/runtime.h


def described(value: Any) -> str:
    """A value in a message: what it is, and its content where that is short."""
    if value is None or isinstance(value, bool | int | float):
        return _cut(repr(value))
    if isinstance(value, str):
        return f"the string {_cut(repr(value))}"
    if isinstance(value, os.PathLike):
        return f"the path {_cut(repr(os.fspath(value)))}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = type(value).__name__
    article = "an" if kind[0] in "aeiouAEIO" else "a"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        shape = _cut(str(list(value.shape)))
        return f"an array {value.dtype}{shape}" if kind == "ndarray" else f"{article} {kind}{shape}"
    if isinstance(value, list | tuple | Mapping | set | bytes):
        return f"{article} {kind} of {len(value)}"
    return f"{article} {kind}"


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """An integer argument as an int; BadInput unless it lies within its range."""
    try:
        symbolic = isinstance(value, SymInt)  # it keeps its formula
        number = None if isinstance(value, bool) else value if symbolic else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        extent = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise BadInput(f"{name} is {_cut(repr(value))}; give a whole number {extent}")
    return number


def default_threads(threads: int | None) -> int:
    """The number of threads: by default that of the CPUs that this process may use."""
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return whole_number("threads", threads, 1, MAX_THREADS)


def by_name(name: str, value: Any, what: str, example: Any) -> Mapping[str, Any]:
    """An argument that maps names; BadInput with `example` unless it does."""
    if isinstance(value, Mapping):
        wrong = [k for k in value if not isinstance(k, str)]
        if not wrong:
            return value
        found = f"has the key {_cut(repr(wrong[0]))}"
    else:
        found = f"is {described(value)}"
    raise BadInput(f"{name} {found}; it maps {what}; give for example {option(name, example)}")


def list_of_names(name: str, value: Any, least: int = 0) -> Sequence[str]:
    """An argument that lists names; BadInput unless it does."""
    if isinstance(value, str):
        listed = option(name, [value])
        raise BadInput(f"{name} is {described(value)}; it is a list of names; give {listed}")
    names = list(value) if isinstance(value, Iterable) else None
    if names is None or any(not isinstance(n, str) for n in names):
        raise BadInput(f"{name} is {_cut(repr(value))}; it is a list of names, which are strings")
    if len(names) < least:
        raise BadInput(f"{name} is an empty list; name at least {least}, or leave {name}= out")
    return names


def extents(name: str, value: Any, least: int) -> tuple[int, ...]:
    """A shape; BadInput unless it is a sequence of integers of at least `least`."""
    try:
        if isinstance(value, str):
            raise TypeError
        return tuple(whole_number(name, d, least) for d in value)
    except (TypeError, BadInput):
        raise BadInput(
            f"{name} is {_cut(repr(value))}; a shape is a tuple of whole numbers of at least "
            f"{least}, such as (1, 3, 224, 224)"
        ) from None


def file_path(function: str, value: Any, example: str) -> str:
    """A path as a string; BadInput with an example unless it is a path."""
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if isinstance(path, str) and path and "\0" not in path:
            return path
    raise BadInput(f"{function} takes the path of a file, got {described(value)}; give {example}")


def require_graph(value: Any, function: str) -> Graph:
    """`value`, which must be a Graph; BadInput says how to make one of it."""
    if isinstance(value, Graph):
        return value
    remedy = "make one with intaglio.load"
    if isinstance(value, str | os.PathLike):
        remedy = f'load the file first: intaglio.load("{os.fspath(value)}")'
    elif type(value).__name__ == "Package":
        remedy = "a Package is compiled already; keep the Graph that you compiled"
    raise BadInput(f"{function} takes a Graph, got {described(value)}; {remedy}")


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 4] + " ..."
