"""Keeps the declared types of outputs and inner tensors right after an edit."""

from __future__ import annotations

from typing import Any

from intaglio.edit.correspondence import changed_tensors
from intaglio.edit.inference import Inference, Types
from intaglio.edit.state import State, keep_only
from intaglio.edit.tensor_types import dtype_of, shape_of


def update(before: State, known: Types, after: State, types: Types, inference: Inference) -> None:
    """Replace declared types that the edit made wrong; all others stay as the file has them.

    `known` and `types` are the inferred types before and after the edit.
    """
    stated = {i.name: i.type for i in (*before.graph.output, *before.graph.value_info)}
    for info in (*after.graph.output, *after.graph.value_info):
        name, found = info.name, types.get(info.name)
        kept = info.type == stated.get(name)  # else the edit declares it, or gave it another name
        if name not in inference.inferred or shape_of(found) is None:
            if kept and after.is_output(name) and _is_another(before, after, name):
                _set_unknown(after, types, inference, info)
        elif known[name] != found if kept and name in known else not _agree(info.type, found):
            info.type.CopyFrom(found)
    _restore(before, after, types, inference)
    types |= {o.name: o.type for o in after.graph.output if shape_of(types.get(o.name)) is None}


def _is_another(before: State, after: State, name: str) -> bool:
    """Whether an output is another tensor than before, or computed otherwise."""
    one, two = (s.origin.views.get(name) for s in (before, after))
    return one != two or name in changed_tensors(after)


def _set_unknown(after: State, types: Types, inference: Inference, info: Any) -> None:
    """The type of an output that onnx cannot infer: by importing the model, or without a shape."""
    others = {name: t for name, t in types.items() if name != info.name}
    found = inference.type_of(after, others, info.name)
    if found is None:
        info.type.tensor_type.ClearField("shape")
    elif not _agree(info.type, found):
        info.type.CopyFrom(found)


def _restore(before: State, after: State, types: Types, inference: Inference) -> None:
    """Declare inner tensors again that were declared before; outputs are declared only once."""
    outputs = {o.name for o in after.graph.output}
    keep_only(after.graph.value_info, lambda v: v.name not in outputs)
    listed = {v.name for v in after.graph.value_info} | outputs
    present = set(after.tensor_names()) & inference.inferred
    for info in before.graph.value_info:
        if info.name in present and info.name not in listed:
            after.graph.value_info.add(name=info.name).type.CopyFrom(types[info.name])


def _agree(declared: Any, found: Any) -> bool:
    """Whether a declared type is possible for a tensor of the inferred type."""
    if dtype_of(declared) != dtype_of(found):
        return False
    mine, theirs = shape_of(declared), shape_of(found)
    if mine is None or theirs is None:
        return True
    pairs = zip(mine, theirs, strict=False)
    return len(mine) == len(theirs) and all(
        isinstance(a, str) or isinstance(b, str) or a == b for a, b in pairs
    )
