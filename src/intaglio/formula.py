"""Formulas of open dimensions: ("symbol", name), ("number", n) or (operation, formula, formula)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Formula = tuple[Any, ...]
MAX_TERMS = 4096  # of one formula: numbers, symbols and operations

# Operations of formulas, in the order of their codes in a package. All are exact. A quotient
# or remainder by 0 is 0.
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else 0,
    "%": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
}


def evaluate(formula: Formula, sizes: Mapping[str, int]) -> int:
    """The value of a formula at these sizes of the symbols."""
    match formula:
        case ("number", n):
            return int(n)
        case ("symbol", name):
            return sizes[name]
        case (operation, a, b):
            return OPERATIONS[operation](evaluate(a, sizes), evaluate(b, sizes))
    raise AssertionError(formula)


def names_in(formula: Formula) -> Iterator[str]:
    """The symbols of a formula, in order."""
    if formula[0] == "symbol":
        yield formula[1]
    elif formula[0] != "number":
        for part in formula[1:]:
            yield from names_in(part)


def show(formula: Formula) -> str:
    """The formula as a Python expression."""
    match formula:
        case ("number", n):
            return str(n)
        case ("symbol", name):
            return str(name)
        case ("min" | "max" as name, a, b):
            return f"{name}({show(a)}, {show(b)})"
        case (operation, a, b):
            sides = [show(s) if len(s) == 2 else f"({show(s)})" for s in (a, b)]
            return f"{sides[0]}{operation}{sides[1]}"
    raise AssertionError(formula)
