"""Changes the layout, element type and shape of inputs and outputs.

An input keeps its name and gets a new type; nodes behind it restore the type that the model needs.
An output keeps its name too; nodes before it make the new type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from intaglio.arguments import described
from intaglio.edit.formula import BoundFormula, Formula, Shape, shape_text
from intaglio.edit.inference import Inference, Types
from intaglio.edit.lookup import find_input, find_output
from intaglio.edit.origin import Converted, Rearranged
from intaglio.edit.rearrange import Rearranger
from intaglio.edit.state import State
from intaglio.edit.tensor_types import (
    dtype_of,
    element_type,
    refuse_element_type,
    shape_of,
    tensor_type,
    type_text,
)
from intaglio.errors import BadInput, did_you_mean
from intaglio.frontends.onnx.input_binding import symbol_of
from intaglio.frontends.preprocess import channels_last
from intaglio.ir import Type

LAYOUTS = ("NCHW", "NHWC")


@dataclass(frozen=True)
class Layout:
    """Axes by letters in capitals; `before` is "" if only the new layout is given."""

    before: str
    after: str


Change = Formula | Layout | str  # a str is an element type


def parse_changes(text: str) -> list[Change]:
    """Changes of an input or output: a formula, or layouts and element types with blanks between.

    `uint8 NHWC`, `NCHW->NHWC`, `a,b,c,d->a,c,d,b`.
    """
    joined = re.sub(r"\s*->\s*", "->", text.strip())
    if "->" in joined and not re.search(r"[A-Z]->[A-Z]", joined):
        return [Formula.parse(text)]
    return [_parse_word(word) for word in joined.split()]


def _parse_word(word: str) -> Change:
    if "->" in word or word in LAYOUTS:
        before, _, after = word.rpartition("->")
        same = sorted(before) == sorted(after) and len(set(after)) == len(after)
        if not (before + after).isalpha() or (before and not same):
            raise BadInput(
                f"layout '{word}': both sides need the same letters, one for each axis; write for "
                "example NCHW->NHWC"
            )
        return Layout(before, after)
    found = element_type(word)
    if found is None:
        if word.isalpha() and word.isupper():
            raise BadInput(
                f"layout '{word}': only {' and '.join(LAYOUTS)} are known without the layout "
                f"before; write OLD->{word}"
            )
        raise refuse_element_type(word)
    return found


# ---- inputs --------------------------------------------------------------------------------------
def change_input(state: State, types: Types, name: str, changes: Sequence[Change]) -> str:
    """Change the layout or element type of an input; the nodes behind it stay unchanged."""
    find_input(state, name)
    before = type_text(types[name])
    _refuse_nothing(changes, name)
    if state.is_output(name):
        raise BadInput(f"'{name}' is an input and an output; it cannot be changed")
    for change in changes:
        info = next(i for i in state.graph.input if i.name == name)
        dtype, shape = _known(info.type, name)
        add = Rearranger(state, {**types, name: info.type}, name)
        step: Rearranged | Converted
        if isinstance(change, str):
            after = add.cast(name, dtype, state.fresh(f"{name}_Cast"))
            info.type.tensor_type.elem_type = tensor_type(change, ()).tensor_type.elem_type
            step = Converted(dtype, change)
        else:
            formula = _formula(change, dtype, _shape_needed(shape, name), name, True)
            bound, undone = _undone(formula, _shape_needed(shape, name))
            after = add.rearrange(name, undone.bind(bound.new_shape), None)
            if any(n.op_type == "Shape" for n in add.nodes):
                state.pin(after, info.type)
            info.type.CopyFrom(tensor_type(dtype, bound.new_shape))
            step = Rearranged(formula, undone)
        _put_first(state, name, after, add.nodes)
        view = state.origin.views.get(name)
        if view is not None:
            state.origin.views |= {after: view, name: view.then(step)}
    return f"input '{name}' {before} -> {type_text(info.type)}"


def _undone(formula: Formula, shape: Shape) -> tuple[BoundFormula, Formula]:
    """The formula for a shape, and the one that undoes it; BadInput if open axes are merged."""
    bound = formula.bind(shape)
    for letters in formula.right:
        opened = [c for c in letters if isinstance(bound.extents[c], str)]
        if len(opened) > 1:
            raise BadInput(
                f"formula '{formula}' merges {' and '.join(opened)}, which are open dimensions of "
                f"{shape_text(shape)}; the model could not split them again; fix all but one of "
                f"them, for example [{opened[0]}=1]"
            )
    return bound, formula.inverse([_fixed(bound, axis) for axis in range(len(shape))])


def _fixed(bound: BoundFormula, axis: int) -> int | str:
    """The extent of an axis of the left side; given extents fix open dimensions."""
    extents = [bound.extents[c] for c in bound.formula.left[axis]]
    known = [e for e in extents if isinstance(e, int)]
    return math.prod(known) if len(known) == len(extents) else bound.shape[axis]


def _put_first(state: State, name: str, after: str, nodes: Sequence[Any]) -> None:
    """Add nodes that compute `after` from an input, whose readers then read `after`."""
    if after == name:
        return
    state.redirect(name, after)
    state.nodes.insert(nodes)


# ---- outputs -------------------------------------------------------------------------------------
def change_output(
    state: State, types: Types, inference: Inference, name: str, changes: Sequence[Change]
) -> str:
    """Change the layout or element type of an output; other readers of the tensor keep it."""
    find_output(state, name)
    before = type_text(types[name])
    _refuse_nothing(changes, name)
    if state.nodes.producer(name) is None:
        raise BadInput(f"'{name}' is an output that no node computes; it cannot be changed")
    info = next(o for o in state.graph.output if o.name == name)
    current = inference.type_of(state, types, name)
    for change in changes:
        dtype, shape = _known(current, name)
        inner = state.fresh(f"{name}_original")
        state.move_result(name, inner)
        add = Rearranger(state, {**types, inner: current}, name)
        view = state.origin.views.get(inner)
        step: Rearranged | Converted
        if isinstance(change, str):
            add.cast(inner, change, name)
            current, step = tensor_type(change, shape), Converted(dtype, change)
        else:
            formula = _formula(change, dtype, _shape_needed(shape, name), name, False)
            bound = formula.bind(_shape_needed(shape, name))
            add.rearrange(inner, bound, name)
            current, step = tensor_type(dtype, bound.new_shape), Rearranged(formula, None)
        state.nodes.insert(add.nodes, after=state.nodes.producer(inner))
        if view is not None:
            state.origin.views[name] = view.then(step)
    info.type.CopyFrom(current)
    return f"output '{name}' {before} -> {type_text(info.type)}"


def _refuse_nothing(changes: Sequence[Change], name: str) -> None:
    if not changes:
        raise BadInput(f"no change of '{name}' is given; give a layout, a type or a formula")


def _known(type: Any, name: str) -> tuple[str, Shape | None]:
    dtype = dtype_of(type)
    if dtype is None:
        raise BadInput(f"'{name}' is {type_text(type)}; only tensors of numbers can be changed")
    return dtype, shape_of(type)


def _shape_needed(shape: Shape | None, name: str) -> Shape:
    if shape is None:
        raise BadInput(f"the number of axes of '{name}' is not known; give its shape: set shape")
    return shape


def _formula(
    change: Formula | Layout, dtype: str, shape: Shape, name: str, is_image: bool
) -> Formula:
    """A layout as a formula. Of images the present layout is checked by their channels."""
    if isinstance(change, Formula):
        return change
    before = change.before or next(x for x in LAYOUTS if x != change.after)
    if len(before) != len(shape):
        raise BadInput(
            f"layout {change.after} has {len(before)} axes, '{name}' has {len(shape)}: "
            f"{shape_text(shape)}; write a letter for each, for example CHW->HWC"
        )
    if not change.before and is_image:
        known = Type(dtype, tuple(d if isinstance(d, int) else 0 for d in shape))
        last = channels_last(known, "auto")
        if last is not None and last == (change.after == "NHWC"):
            raise BadInput(
                f"input '{name}' {shape_text(shape)} looks like {change.after} already; to "
                f"transpose it nevertheless, write {before}->{change.after}"
            )
    return Formula(tuple(before.lower()), tuple(change.after.lower()))


# ---- shapes --------------------------------------------------------------------------------------
def checked_shape(shape: Any) -> Shape:
    """A shape from Python; BadInput unless it holds extents and symbols."""
    whole = isinstance(shape, list | tuple) and all(
        isinstance(d, str) or (type(d) is int and d > 0) for d in shape
    )
    if not whole:
        raise BadInput(
            f"the shape is {described(shape)}; give a tuple of extents, and symbols of open "
            'dimensions, such as (1, 3, 224, 224) or ("batch", 3, 224, 224)'
        )
    return tuple(shape)


def set_shape(state: State, types: Types, name: str, shape: Shape) -> str:
    """Fix, change or open dimensions of an input; all other shapes follow from it."""
    find_input(state, name)
    before = types[name]
    known = shape_of(before)
    if known is not None and len(known) != len(shape):
        raise BadInput(
            f"input '{name}' has {len(known)} axes, {shape_text(known)}; {len(shape)} are given; "
            "a formula changes the number of axes: change input"
        )
    info = next(i for i in state.graph.input if i.name == name)
    info.type.CopyFrom(tensor_type(dtype_of(before) or "f32", shape))
    del state.graph.value_info[:]
    state.pinned.clear()
    return f"input '{name}' {type_text(before)} -> {type_text(info.type)}"


def set_dim(state: State, symbol: str, extent: int | str) -> str:
    """Fix an open dimension wherever it is, or give it another symbol."""
    if not (isinstance(extent, str) and extent) and (type(extent) is not int or extent < 1):
        raise BadInput(f"dimension '{symbol}' is {extent!r}; give a number from 1 on, or a symbol")
    places = 0
    symbols = set()
    for info in (*state.graph.input, *state.graph.output, *state.graph.value_info):
        for d in info.type.tensor_type.shape.dim:
            symbols |= {d.dim_param} if symbol_of(d.dim_param) else set()
            if d.dim_param == symbol:
                places += 1
                if isinstance(extent, int):
                    d.dim_value = extent
                else:
                    d.dim_param = extent
    if not places:
        known = f"it has {', '.join(sorted(symbols))}" if symbols else "all are fixed or nameless"
        near = did_you_mean(symbol, symbols) or f"; {known}"
        raise BadInput(f"the model has no open dimension '{symbol}'{near}")
    return f"dimension '{symbol}' -> {extent}"
