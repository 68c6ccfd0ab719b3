"""Importers of TensorList ops, which files with TensorFlow ops (Flex) keep; a list is one tensor.

Keras RNNs that are converted with SELECT_TF_OPS reserve a list before their loop, write one item
in each step and stack it after the loop. The tensor of a list has an axis of items in front.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput
from intaglio.frontends.tflite.file import Subgraph, Tensor
from intaglio.frontends.tflite.node import TfliteNode, importer
from intaglio.ir import Value, constant

MAX_ELEMENTS = 1 << 28  # of a list


def _names(op: str) -> tuple[str, str]:
    return f"FlexTensorList{op}", f"TensorList{op}"


WRITES = _names("SetItem")


@importer(*_names("Reserve"), stored=True, custom=True)
def reserve(n: TfliteNode) -> Value:
    """Zeros; the items that are written to the list tell their shape and element type."""
    count, item = n.ints(1)[0], next(_written_items(n.scope.g, n.op.outputs[0], n), None)
    if item is None or item.dtype not in dtypes.TABLE:
        n.unsupported("nothing is written to the list, so that the shape of its items is unknown")
    shape = (count, *item.shape)
    if min(shape) < 0 or int(np.prod(shape, dtype=np.float64)) > MAX_ELEMENTS:
        raise BadInput(f"a list has shape {shape}; at most {MAX_ELEMENTS} elements are supported")
    return constant(np.zeros(shape, dtypes.numpy_of(item.dtype)))


def _written_items(g: Subgraph, index: int, n: TfliteNode) -> Iterator[Tensor]:
    """The tensors that ops of this graph and of its loops write to list `index`."""
    for op in g.operators:
        if index not in op.inputs:
            continue
        if op.op in WRITES:
            yield g.tensors[op.inputs[2]]
        elif op.op == "WHILE" and op.options is not None:
            body = n.scope.model.file.subgraphs[op.options.BodySubgraphIndex()]
            yield from _written_items(body, body.inputs[op.inputs.index(index)], n)


@importer(*_names("FromTensor"), *_names("Stack"), stored=True, custom=True)
def stacked(n: TfliteNode) -> Value:
    return n.required(0)


@importer(*_names("GetItem"), stored=True, custom=True)
def get_item(n: TfliteNode) -> Value:
    made: Value = ops.gather(n.required(0), ops.reshape(n.required(1), shape=()), axis=0)
    return made


@importer(*WRITES, stored=True, custom=True)
def set_item(n: TfliteNode) -> Value:
    rows, place, item = n.required(0), n.required(1), n.required(2)
    at = ops.reshape(ops.cast(place, dtype="i64"), shape=(1, 1))
    made: Value = ops.scatter_nd(rows, at, ops.reshape(item, shape=(1, *item.shape)))
    return made


@importer(*_names("Length"), stored=True, custom=True)
def length(n: TfliteNode) -> Value:
    return constant(n.required(0).shape[0], dtype="i32")
