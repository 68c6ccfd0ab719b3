"""Ranges of extents as a user writes them: "1..512", or "64..640:32" for multiples of 32."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from intaglio.errors import BadInput, option
from intaglio.symint import Symbol, Symbols

_RANGE = re.compile(r"\s*(\d+)\s*\.\.\s*(\d+)\s*(?::\s*(\d+)\s*)?")


def parse_range(what: str, text: str) -> Symbol:
    """An open dimension without a name; BadInput unless the text is a range."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise BadInput(
            f'{what} is {text!r}; give a whole number, or a range such as "1..512" or '
            '"64..640:32" (multiples of 32)'
        )
    low, high, multiple = (int(g or 1) for g in found.groups())
    return Symbol(what, low, high, multiple)


def with_ranges(
    shapes: Mapping[str, Sequence[Any]], dims: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options with a SymInt for each range.

    Ranges of symbolic dimensions have the name of the dimension. Ranges in shapes have the name of
    their input and axis, but equal ranges of first axes are one dimension, the batch.
    """
    found: dict[str, Symbol] = {}
    named = {n: _named(n, f"dimension '{n}'", d, found) for n, d in dims.items()}
    listed = {
        name: shape
        if isinstance(shape, str) or not hasattr(shape, "__iter__")
        else tuple(_axis(name, i, d, found) for i, d in enumerate(shape))
        for name, shape in shapes.items()
    }
    if not found:
        return dict(shapes), dict(dims)
    symbols = Symbols(list(found.values()))

    def extent(x: Any) -> Any:
        return symbols.extent(x.name) if isinstance(x, Symbol) else x

    made = {n: tuple(map(extent, s)) if isinstance(s, tuple) else s for n, s in listed.items()}
    return made, {n: extent(d) for n, d in named.items()}


def _axis(name: str, axis: int, given: Any, found: dict[str, Symbol]) -> Any:
    what = f"axis {axis} of '{name}'"
    if axis == 0 and isinstance(given, str):
        batch = replace(parse_range(what, given), name="batch")
        if found.setdefault("batch", batch) == batch:
            return batch
    return _named(f"{name}.{axis}", what, given, found)


def _named(name: str, what: str, given: Any, found: dict[str, Symbol]) -> Any:
    if not isinstance(given, str):
        return given
    symbol = replace(parse_range(what, given), name=name)
    if found.setdefault(name, symbol) != symbol:
        raise BadInput(
            f"{what} is {symbol}, but dimension '{name}' is {found[name]}; give both with "
            f"{option('dims')}"
        )
    return symbol
