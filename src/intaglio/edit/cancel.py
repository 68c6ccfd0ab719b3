"""Removes a Transpose or Reshape that an edit added, together with one that undoes it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from intaglio.edit.inference import Types
from intaglio.edit.state import State
from intaglio.edit.surgery import bypass
from intaglio.edit.tensor_types import shape_of


def cancel(state: State, types: Types, known: Collection[str]) -> int:
    """Remove pairs of neighbours of which one is not in `known`; returns the number of pairs."""
    pairs = 0
    while (pair := _find(state, types, known)) is not None:
        for label in pair:
            bypass(state, label, None, mark=False)
        pairs += 1
    return pairs


def _find(state: State, types: Types, known: Collection[str]) -> tuple[str, str] | None:
    """Labels of two neighbours that undo each other, the second first."""
    for label, first in state.nodes.items():
        if first.op_type not in ("Transpose", "Reshape"):
            continue
        readers = state.nodes.readers(first.output[0])
        if len(readers) != 1 or state.is_output(first.output[0]):
            continue
        second = state.nodes[readers[0]]
        if {label, readers[0]} <= set(known) or second.input[0] != first.output[0]:
            continue
        if state.is_output(second.output[0]) and state.is_input(first.input[0]):
            continue
        if _undo(first, second, types):
            return readers[0], label
    return None


def _undo(first: Any, second: Any, types: Types) -> bool:
    if first.op_type != second.op_type:
        return False
    if first.op_type == "Transpose":
        one, two = _permutation(first), _permutation(second)
        return bool(one) and [one[i] for i in two] == list(range(len(one)))
    before = shape_of(types.get(first.input[0]))
    fixed = before is not None and all(isinstance(d, int) for d in before)
    return fixed and before == shape_of(types.get(second.output[0]))


def _permutation(node: Any) -> list[int]:
    return next((list(a.ints) for a in node.attribute if a.name == "perm"), [])
