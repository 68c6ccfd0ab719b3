"""TensorArray (TensorFlow 1) and TensorList (2), each imported as one stacked tensor."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput
from intaglio.frontends.tensorflow.node import EdgeValue, TensorList, TfNode, importer
from intaglio.ir import Value, constant

MAX_LENGTH = 1 << 20  # of a list


def _list_operand(n: TfNode, i: int) -> TensorList:
    held = n.operand(i)
    if not isinstance(held, TensorList):
        raise BadInput(f"operand {i} is not a list")
    return held


def _count(n: TfNode, i: int) -> int:
    count = n.whole(i)
    if not 0 <= count <= MAX_LENGTH:
        raise BadInput(f"a list has {count} elements; at most {MAX_LENGTH} are supported")
    return count


def _shape(n: TfNode, i: int) -> tuple[int, ...] | None:
    """The element shape that an operand gives; None if it is open."""
    if not n.is_const(i) or n.value(i).type.rank != 1:
        return None
    shape = n.ints(i)
    return None if min(shape, default=0) < 0 else shape


def _stacked(n: TfNode, rows: TensorList, element: tuple[int, ...] | None = None) -> Value:
    """The stacked tensor of a list; zeros before the first write."""
    if rows.value is not None:
        return rows.value
    shape = rows.element if element is None else element
    if shape is None:
        n.unsupported("the list is read before it is written, and its element shape is unknown")
    if rows.count * int(np.prod(shape, dtype=np.int64)) > 1 << 28:
        raise BadInput(f"a list of {rows.count} elements of shape {shape} is too large")
    return constant(np.zeros((rows.count, *shape), dtypes.numpy_of(rows.dtype)))


def _list_of(v: Value) -> TensorList:
    if not v.type.rank:
        raise BadInput("a list is made from a scalar; an axis of elements is needed")
    return TensorList(v, v.shape[0], v.dtype, v.shape[1:])


def _written(n: TfNode, rows: TensorList, index: Value, item: Value) -> TensorList:
    held = _stacked(n, rows, item.shape)
    place = ops.reshape(index, shape=(1, 1))
    return _list_of(ops.scatter_nd(held, place, ops.reshape(item, shape=(1, *item.shape))))


# ---- TensorFlow 1: a handle, and a flow value that orders its uses ------------------------------
@importer("TensorArrayV3")
def tensor_array(n: TfNode) -> list[EdgeValue]:
    shape = n.attr("element_shape")
    known = shape if isinstance(shape, tuple) and min(shape, default=0) >= 0 else None
    rows = TensorList(None, _count(n, 0), n.dtype("dtype"), known or None)
    return [rows, rows]


@importer("TensorArrayScatterV3")
def tensor_array_scatter(n: TfNode) -> EdgeValue:
    x, rows = n.value(2), _list_operand(n, 3)
    order = n.ints(1)
    if order == tuple(range(len(order))) and len(order) == rows.count:
        return _list_of(x)
    held = _stacked(n, rows, x.shape[1:])
    return _list_of(ops.scatter_nd(held, constant(np.array(order).reshape(-1, 1)), x))


@importer("TensorArrayReadV3")
def tensor_array_read(n: TfNode) -> Value:
    result: Value = ops.gather(
        _stacked(n, _list_operand(n, 2)), ops.reshape(n.value(1), shape=()), axis=0
    )
    return result


@importer("TensorArrayWriteV3")
def tensor_array_write(n: TfNode) -> EdgeValue:
    return _written(n, _list_operand(n, 3), n.value(1), n.value(2))


@importer("TensorArrayGatherV3")
def tensor_array_gather(n: TfNode) -> Value:
    held, order = _stacked(n, _list_operand(n, 2)), n.ints(1)
    if order == tuple(range(held.shape[0])):
        return held
    result: Value = ops.gather(held, constant(np.array(order, np.int64)), axis=0)
    return result


@importer("TensorArraySizeV3")
def tensor_array_size(n: TfNode) -> Value:
    return constant(_list_operand(n, 1).count, dtype="i32")


# ---- TensorFlow 2: a list is a value -------------------------------------------------------------
@importer("TensorListReserve")
def tensor_list_reserve(n: TfNode) -> EdgeValue:
    return TensorList(None, _count(n, 1), n.dtype("element_dtype"), _shape(n, 0))


@importer("EmptyTensorList")
def empty_tensor_list(n: TfNode) -> EdgeValue:
    return TensorList(None, 0, n.dtype("element_dtype"), _shape(n, 0))


@importer("TensorListFromTensor")
def tensor_list_from_tensor(n: TfNode) -> EdgeValue:
    return _list_of(n.value(0))


@importer("TensorListGetItem")
def tensor_list_get_item(n: TfNode) -> Value:
    held = _stacked(n, _list_operand(n, 0), _shape(n, 2))
    result: Value = ops.gather(held, ops.reshape(n.value(1), shape=()), axis=0)
    return result


@importer("TensorListSetItem")
def tensor_list_set_item(n: TfNode) -> EdgeValue:
    return _written(n, _list_operand(n, 0), n.value(1), n.value(2))


@importer("TensorListPushBack")
def tensor_list_push_back(n: TfNode) -> EdgeValue:
    rows, item = _list_operand(n, 0), n.value(1)
    one = ops.reshape(item, shape=(1, *item.shape))
    return _list_of(one if rows.count == 0 else ops.concat(_stacked(n, rows), one, axis=0))


@importer("TensorListStack")
def tensor_list_stack(n: TfNode) -> Value:
    return _stacked(n, _list_operand(n, 0), _shape(n, 1))


@importer("TensorListGather")
def tensor_list_gather(n: TfNode) -> Value:
    result: Value = ops.gather(_stacked(n, _list_operand(n, 0), _shape(n, 2)), n.value(1), axis=0)
    return result


@importer("TensorListLength")
def tensor_list_length(n: TfNode) -> Value:
    return constant(_list_operand(n, 0).count, dtype="i32")


@importer("TensorListElementShape")
def tensor_list_element_shape(n: TfNode) -> Value:
    rows = _list_operand(n, 0)
    if rows.element is None:
        n.unsupported("the shape of its elements is unknown")
    return constant(list(rows.element), dtype=n.dtype("shape_type", "i32"))
