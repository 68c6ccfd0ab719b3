"""Lists of sizes: a model that is compiled for several shapes, as several plans of one package.

`dims={"seq": [16, 64]}` and `shapes={"ids": [(1, 16), (1, 64)]}` list sizes. Dimensions are
combined with each other; the shapes of several inputs belong together by their place in the lists.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from intaglio.errors import BadInput, option
from intaglio.frontends.ranges import parse_range

MAX_PLANS = 64  # of one package


def variants(load: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The options of `load` for each size; one set unless sizes are listed."""
    dims, shapes = load.get("dims") or {}, load.get("shapes") or {}
    if not isinstance(dims, Mapping) or not isinstance(shapes, Mapping):
        return [dict(load)]  # `load` says what is wrong
    several_dims = {n: _distinct(f"dimension '{n}'", d) for n, d in dims.items() if _lists(d)}
    several = {n: list(s) for n, s in shapes.items() if _lists_shapes(s)}
    if not several_dims and not several:
        return [dict(load)]
    counts = {len(s) for s in several.values()}
    if len(counts) > 1:
        given = ", ".join(f"'{n}' {len(s)}" for n, s in several.items())
        raise BadInput(
            f"shapes: the inputs have lists of different lengths ({given}); give as many shapes "
            "for each, in the same order"
        )
    made = []
    for i in range(max(counts, default=1)):
        at = {**shapes, **{n: s[i] for n, s in several.items()}}
        for extents in itertools.product(*several_dims.values()):
            chosen = {**dims, **dict(zip(several_dims, extents, strict=True))}
            made.append({**load, "dims": chosen, "shapes": at})
    if len(made) > MAX_PLANS:
        raise BadInput(
            f"{len(made)} combinations of sizes are listed; a package holds at most {MAX_PLANS}; "
            f"list fewer, or give a range such as {option('dims', {'seq': '1..512'})}"
        )
    return made


def with_batches(
    variants: Sequence[dict[str, Any]], batch: int | str | Sequence[int] | None
) -> list[tuple[dict[str, Any], int | str | None]]:
    """Each set of options with each batch."""
    several = [batch] if batch is None or isinstance(batch, int | str) else batch
    made = [(at, n) for at in variants for n in several]
    if len(made) > MAX_PLANS:
        raise BadInput(
            f"{len(made)} combinations of sizes and batches are listed; a package holds at most "
            f"{MAX_PLANS}; list fewer"
        )
    return made


def _lists(given: Any) -> bool:
    return isinstance(given, list | tuple)


def _lists_shapes(given: Any) -> bool:
    """Whether an input has a list of shapes instead of one."""
    return isinstance(given, list | tuple) and bool(given) and all(map(_lists, given))


def _distinct(what: str, given: Sequence[Any]) -> list[Any]:
    if not given:
        raise BadInput(f"{what} is an empty list; give at least one extent")
    for extent in given:
        if isinstance(extent, str):
            parse_range(what, extent)
    return list(dict.fromkeys(given))
