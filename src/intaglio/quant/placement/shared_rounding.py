"""Tensors that share one rounding: a tensor, its slices and views, and its pre-activation.

A slice of a rounded tensor is rounded already, at no further error. If the tensor is left exact,
its slice is rounded instead. So the search must measure such tensors together.
"""

from __future__ import annotations

from collections.abc import Collection

from intaglio.ir import Value
from intaglio.quant.placement.place import Placement, activations, is_function, keeps_scale


class SharedRoundings(dict[str, frozenset[str]]):
    """Groups of tensor names, by the name of one member.

    `before` are tensors that only a function reads: pre-activations."""

    before: frozenset[str] = frozenset()


def shared_roundings(placement: Placement, names: Collection[str]) -> SharedRoundings:
    """The groups among the named tensors, in graph order."""
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
    result = SharedRoundings()
    for members in {id(m): m for m in of.values()}.values():
        known = [v.name for v in members if v.name in names]
        if known:
            result[next((n for n in known if n not in before), known[0])] = frozenset(known)
    result.before = frozenset(before)
    return result


def _source(v: Value, placement: Placement) -> Value | None:
    """The input of a node that moves values, or of a function that is its only reader."""
    n = v.producer
    if n is None or n not in placement.nodes:
        return None
    read = activations(n)
    alone = is_function(n) and len(read[0].uses) == 1
    return read[0] if keeps_scale(n) or alone else None
