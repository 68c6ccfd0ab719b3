"""Outputs that hold strings, such as the names of classes, are left out of a graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

from intaglio.errors import option


def without_strings(
    names: Sequence[str], holds_strings: Callable[[str], bool], file_format: str
) -> list[str]:
    """The outputs that hold numbers; all of them if none does, so that the import refuses them."""
    kept = [n for n in names if not holds_strings(n)]
    if kept and len(kept) < len(names):
        left = ", ".join(f"'{n}'" for n in names if n not in kept)
        warnings.warn(
            f"{file_format}: output {left} holds strings, which are not supported; it is left out; "
            f"{option('outputs')} chooses outputs",
            stacklevel=2,
        )
    return kept or list(names)
