"""Sequences of known length: the import replaces them by their tensors.

Exporters write them for `torch.split` and lists of tensors. A sequence that must exist at run time
(an input, an output, a carried value of a loop) is not supported.
"""

from __future__ import annotations

import numpy as np

from intaglio.errors import BadInput
from intaglio.frontends.onnx.importer import OnnxNode, importer, scalar
from intaglio.frontends.onnx.shape import split_into
from intaglio.ir import Value, constant
from intaglio.ops.registry import normalize_axis
from intaglio.ops.shape import concat, reshape


def _operand(n: OnnxNode) -> tuple[Value, ...]:
    parts = n.sequence(0)
    if parts is None:
        raise BadInput("operand 0 is a tensor; a sequence is needed")
    return parts


@importer("SequenceConstruct")
def import_construct(n: OnnxNode) -> list[None]:
    return n.make_sequence([n.required(i) for i in range(len(n.inputs))])


@importer("SplitToSequence")
def import_split(n: OnnxNode) -> list[None]:
    x, split = n.required(0), n.const(1)
    axis = normalize_axis(n.attr("axis", 0), x.type.rank)
    if axis in x.type.dynamic:
        n.unsupported(f"the number of parts of axis {axis} of {x.type} is known only at run time")
    extent = x.shape[axis]
    size = 1 if split is None else None if split.ndim else int(split)
    if size is not None and size < 1:
        raise BadInput(f"the extent of the parts is {size}; it must be positive")
    sizes = (
        split.tolist() if size is None else [min(size, extent - i) for i in range(0, extent, size)]
    )
    parts = split_into(x, sizes, axis)
    if split is None and not n.attr("keepdims", 1):
        shape = x.shape[:axis] + x.shape[axis + 1 :]
        parts = [reshape(p, shape=shape) for p in parts]
    return n.make_sequence(parts)


@importer("SequenceAt")
def import_at(n: OnnxNode) -> Value:
    parts, index = _operand(n), scalar(n.const(1))
    if not -len(parts) <= index < len(parts):
        raise BadInput(f"position {index} is outside of a sequence of {len(parts)} tensors")
    return parts[index]


@importer("SequenceLength")
def import_length(n: OnnxNode) -> Value:
    return constant(np.array(len(_operand(n)), np.int64))


@importer("ConcatFromSequence")
def import_concat(n: OnnxNode) -> Value:
    parts, stacked = _operand(n), bool(n.attr("new_axis", 0))
    if not parts:
        raise BadInput("the sequence is empty; ConcatFromSequence needs a tensor")
    axis = normalize_axis(n.attr("axis"), parts[0].type.rank + stacked)
    if stacked:
        parts = tuple(reshape(p, shape=(*p.shape[:axis], 1, *p.shape[axis:])) for p in parts)
    return concat(*parts, axis=axis)
