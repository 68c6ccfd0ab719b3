"""What is rounded once: a tensor, all that is moved out of it, and what its function reads.

A slice of a tensor that is rounded is rounded with it, and costs nothing more; but where the tensor
itself is left as it is, the slice is rounded in its place. So neither tells what either costs.
"""

from __future__ import annotations

from collections.abc import Collection

from intaglio.ir import Value
from intaglio.quant.placement.place import Placement, activations, is_function, keeps_scale


class SharedRoundings(dict[str, frozenset[str]]):
    """Names of tensors by that of one of them; `before` are those that a function alone reads."""

    before: frozenset[str] = frozenset()


def shared_roundings(placement: Placement, names: Collection[str]) -> SharedRoundings:
    """What of the named tensors is rounded together, in the order of the graph."""
    of: dict[Value, list[Value]] = {}
    before: set[str] = set()
    for v in placement.tensors:
        of[v] = [v]
        source = _source(v, placement)
        if source is not None and source in of:
            of[source].append(v)
            of[v] = of[source]
            if not keeps_scale(v.producer):  # type: ignore[arg-type]  # it has a source
                before.add(source.name)
    made = SharedRoundings()
    for members in {id(m): m for m in of.values()}.values():
        known = [v.name for v in members if v.name in names]
        if known:
            made[next((n for n in known if n not in before), known[0])] = frozenset(known)
    made.before = frozenset(before)
    return made


def _source(v: Value, placement: Placement) -> Value | None:
    """The tensor that is rounded where `v` is: what a move, or a function by itself, reads."""
    n = v.producer
    if n is None or n not in placement.nodes:
        return None
    read = activations(n)
    alone = is_function(n) and len(read[0].uses) == 1
    return read[0] if keeps_scale(n) or alone else None
