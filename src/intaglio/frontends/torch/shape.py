"""Importers of reshape, permute, cat, split, slice, flip, roll and others."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.frontends.torch.importer import (
    axis_of,
    importer,
    integer,
    ints,
    permuted,
    promoted,
    reshaped,
    tensor,
    tensors,
)
from intaglio.frontends.torch.tensors import Complex
from intaglio.ir import Value
from intaglio.ops.registry import broadcast_shapes, normalize_axis


@importer("view", "reshape", "_unsafe_view", "_reshape_alias", "view_copy", "reshape_copy")
def reshape(self: Value, size: Any, *rest: Any) -> Value:
    if not isinstance(size, list | tuple):
        raise BadInput("a view as another element type is not supported; use to()")
    result: Value = ops.reshape(self, shape=ints(size))
    return result if result.shape != self.shape else self


@importer("view_as", "reshape_as")
def view_as(self: Value, other: Value) -> Value:
    return reshaped(self, other.shape)


@importer("flatten")
def flatten(self: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    if not self.type.rank:
        return reshaped(self, (1,))
    a, b = axis_of(start_dim, self), axis_of(end_dim, self)
    s = self.shape
    return reshaped(self, (*s[:a], math.prod(s[a : b + 1]), *s[b + 1 :]))


@importer("ravel")
def ravel(self: Value) -> Value:
    return reshaped(self, (self.type.size,))


@importer("unflatten")
def unflatten(self: Value, dim: int, sizes: Any) -> Value:
    axis = axis_of(dim, self)
    parts = list(ints(sizes))
    if -1 in parts:
        rest = math.prod(p for p in parts if p >= 0)
        parts[parts.index(-1)] = self.shape[axis] // max(rest, 1)
    return reshaped(self, (*self.shape[:axis], *parts, *self.shape[axis + 1 :]))


@importer("permute")
def permute(self: Any, dims: Any) -> Any:
    if isinstance(self, Complex):
        rank = self.pairs.type.rank - 1
        return Complex(permuted(self.pairs, [*(integer(d) % rank for d in dims), rank]))
    return permuted(self, [axis_of(d, self) for d in dims])


@importer("transpose", "swapaxes", "swapdims")
def transpose(self: Any, dim0: int, dim1: int) -> Any:
    if isinstance(self, Complex):
        rank = self.pairs.type.rank - 1
        a, b = integer(dim0) % rank, integer(dim1) % rank
        order = {a: b, b: a}
        return Complex(permuted(self.pairs, [order.get(i, i) for i in range(rank + 1)]))
    perm = list(range(self.type.rank))
    if perm:
        a, b = axis_of(dim0, self), axis_of(dim1, self)
        perm[a], perm[b] = b, a
    return permuted(self, perm)


@importer("t")
def t(self: Value) -> Value:
    return permuted(self, list(range(self.type.rank))[::-1])


@importer("mT", "mH", "adjoint")
def matrix_t(self: Value) -> Value:
    result: Value = transpose(self, -2, -1)
    return result


@importer("numpy_T")
def numpy_t(self: Value) -> Value:
    return permuted(self, list(range(self.type.rank))[::-1])


@importer("movedim", "moveaxis")
def movedim(self: Value, source: Any, destination: Any) -> Value:
    a = [axis_of(d, self) for d in (source if isinstance(source, list | tuple) else [source])]
    b = [
        axis_of(d, self)
        for d in (destination if isinstance(destination, list | tuple) else [destination])
    ]
    rest = iter(i for i in range(self.type.rank) if i not in a)
    at = dict(zip(b, a, strict=True))
    return permuted(self, [at[i] if i in at else next(rest) for i in range(self.type.rank)])


@importer("squeeze")
def squeeze(self: Value, dim: Any = None) -> Value:
    if dim is None:
        gone = set(range(self.type.rank))
    else:
        gone = {axis_of(d, self) for d in (dim if isinstance(dim, list | tuple) else [dim])}
    return reshaped(self, [d for i, d in enumerate(self.shape) if i not in gone or d != 1])


@importer("unsqueeze")
def unsqueeze(self: Value, dim: int) -> Value:
    axis = normalize_axis(integer(dim), self.type.rank + 1)
    return reshaped(self, (*self.shape[:axis], 1, *self.shape[axis:]))


@importer("expand", "broadcast_to")
def expand(self: Value, size: Any, implicit: bool = False) -> Value:
    want = ints(size)
    lead = len(want) - self.type.rank
    shape = tuple(self.shape[i - lead] if d < 0 and i >= lead else d for i, d in enumerate(want))
    result: Value = self if shape == self.shape else ops.expand(self, shape=shape)
    return result


@importer("expand_as")
def expand_as(self: Value, other: Value) -> Value:
    return expand(self, list(other.shape))


@importer("broadcast_tensors")
def broadcast_tensors(tensors_: Any) -> list[Value]:
    xs = tensors(tensors_)
    shape = broadcast_shapes(*xs)
    return [expand(x, list(shape)) for x in xs]


@importer("repeat", "tile")
def repeat(self: Value, repeats: Any) -> Value:
    times = ints(repeats)
    x = self
    if len(times) > x.type.rank:
        x = reshaped(x, (*[1] * (len(times) - x.type.rank), *x.shape))
    times = (*[1] * (x.type.rank - len(times)), *times)
    result: Value = ops.tile(x, repeats=times) if any(t != 1 for t in times) else x
    return result


@importer("repeat_interleave")
def repeat_interleave(self: Value, repeats: Any, dim: Any = None, output_size: Any = None) -> Value:
    x = reshaped(self, (self.type.size,)) if dim is None else self
    axis, times = (0 if dim is None else axis_of(dim, x)), integer(repeats)
    y = reshaped(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
    y = ops.expand(y, shape=(*x.shape[: axis + 1], times, *x.shape[axis + 1 :]))
    return reshaped(y, (*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :]))


@importer("cat", "concat", "concatenate")
def cat(tensors_: Any, dim: int = 0) -> Value:
    xs = promoted(*tensors(tensors_))
    some = [
        x for x in xs if x.shape != (0,)
    ] or xs  # an empty vector can be concatenated with any tensor
    result: Value = ops.concat(*some, axis=axis_of(dim, some[0])) if len(some) > 1 else some[0]
    return result


@importer("stack")
def stack(tensors_: Any, dim: int = 0) -> Value:
    xs = promoted(*tensors(tensors_))
    axis = normalize_axis(integer(dim), xs[0].type.rank + 1)
    each = [reshaped(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in xs]
    result: Value = ops.concat(*each, axis=axis) if len(each) > 1 else each[0]
    return result


@importer("hstack", "column_stack")
def hstack(tensors_: Any) -> Value:
    xs = tensors(tensors_)
    return cat(xs, 0 if xs and xs[0].type.rank < 2 else 1)


@importer("vstack", "row_stack")
def vstack(tensors_: Any) -> Value:
    xs = [reshaped(x, (1, x.type.size)) if x.type.rank < 2 else x for x in tensors(tensors_)]
    return cat(xs, 0)


def pieces(x: Value, sizes: list[int], axis: int) -> list[Value]:
    ends, result = 0, []
    for size in sizes:
        result.append(ops.part(x, ends, ends + size, axis=axis))
        ends += size
    return result


@importer("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes")
def split(self: Value, split_size: Any, dim: int = 0) -> list[Value]:
    axis = axis_of(dim, self)
    extent = self.shape[axis]
    if isinstance(split_size, list | tuple):
        return pieces(self, list(ints(split_size)), axis)
    size = integer(split_size)
    if size < 1 or extent // size > 100_000:
        raise BadInput(f"an axis of {extent} cannot be split into pieces of {size}")
    return pieces(self, [min(size, extent - i) for i in range(0, extent, size)] or [0], axis)


@importer("chunk", "unsafe_chunk")
def chunk(self: Value, chunks: int, dim: int = 0) -> list[Value]:
    axis = axis_of(dim, self)
    return split(self, max(-(-self.shape[axis] // max(integer(chunks), 1)), 1), axis)


@importer("tensor_split")
def tensor_split(self: Value, indices_or_sections: Any, dim: int = 0) -> list[Value]:
    axis = axis_of(dim, self)
    extent = self.shape[axis]
    if isinstance(indices_or_sections, list | tuple):
        cuts = [0, *ints(indices_or_sections), extent]
    else:
        n = integer(indices_or_sections)
        cuts = [0]
        for i in range(n):
            cuts.append(cuts[-1] + extent // n + (1 if i < extent % n else 0))
    return [ops.part(self, a, b, axis=axis) for a, b in itertools.pairwise(cuts)]


@importer("unbind")
def unbind(self: Value, dim: int = 0) -> list[Value]:
    axis = axis_of(dim, self)
    if self.shape[axis] > 100_000:
        raise BadInput(f"unbind of an axis of {self.shape[axis]} gives too many tensors")
    return [select(self, axis, i) for i in range(self.shape[axis])]


@importer("slice")
def slice_(self: Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Value:
    axis, extent = axis_of(dim, self), self.shape[axis_of(dim, self)]
    low, high = (None if v is None else integer(v) for v in (start, end))
    a, b, s = slice(low, high, integer(step)).indices(extent)
    if s < 1:
        raise BadInput(f"a slice has step {s}; it must be positive")
    if (a, s) == (0, 1) and b >= extent:
        return self
    result: Value = ops.part(self, a, max(a, b), axis=axis, step=s)
    return result


@importer("narrow")
def narrow(self: Value, dim: int, start: Any, length: Any) -> Value:
    first = integer(start)
    first += self.shape[axis_of(dim, self)] if first < 0 else 0
    return slice_(self, dim, first, first + integer(length))


@importer("select")
def select(self: Value, dim: int, index: Any) -> Value:
    axis = axis_of(dim, self)
    if isinstance(index, Value) and index.data is None:
        result: Value = ops.gather(self, reshaped(index, ()), axis=axis)
        return result
    at, extent = integer(index), self.shape[axis]
    if not -extent <= at < extent:
        raise BadInput(f"index {at} is outside of an axis of {extent}")
    one = ops.part(self, at % extent, at % extent + 1, axis=axis)
    return reshaped(one, (*self.shape[:axis], *self.shape[axis + 1 :]))


@importer("flip", "fliplr", "flipud")
def flip(self: Value, dims: Any = None) -> Value:
    x, rank = self, self.type.rank
    axes = {axis_of(d, x) for d in dims} if dims is not None else {1}
    start = tuple(d - 1 if i in axes else 0 for i, d in enumerate(x.shape))
    stop = tuple(-d - 1 if i in axes else d for i, d in enumerate(x.shape))
    step = tuple(-1 if i in axes else 1 for i in range(rank))
    result: Value = ops.slice_(x, start=start, stop=stop, step=step)
    return result


@importer("diagonal")
def diagonal(self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    a, b, k = axis_of(dim1, self), axis_of(dim2, self), integer(offset)
    x = permuted(self, [*(i for i in range(self.type.rank) if i not in (a, b)), a, b])
    rows, columns = x.shape[-2:]
    count = max(min(rows + min(k, 0), columns - max(k, 0)), 0)
    at = (np.arange(count) + max(-k, 0)) * columns + np.arange(count) + max(k, 0)
    result: Value = ops.gather(reshaped(x, (*x.shape[:-2], rows * columns)), at, axis=-1)
    return result


@importer("unfold")
def unfold(self: Value, dimension: int, size: Any, step: Any) -> Value:
    """Sliding windows along one axis, as a new last axis."""
    axis, width, by = axis_of(dimension, self), integer(size), integer(step)
    count = (self.shape[axis] - width) // max(by, 1) + 1
    at = np.arange(count)[:, None] * by + np.arange(width)
    y = ops.gather(self, at, axis=axis)
    rank = y.type.rank
    return permuted(y, [*(i for i in range(rank) if i != axis + 1), axis + 1])


@importer("meshgrid")
def meshgrid(tensors_: Any, indexing: str = "ij") -> list[Value]:
    xs = tensors(tensors_)
    if indexing == "xy" and len(xs) > 1:
        xs[0], xs[1] = xs[1], xs[0]
    shape = tuple(x.type.size for x in xs)
    results = []
    for i, x in enumerate(xs):
        line = reshaped(x, [x.type.size if j == i else 1 for j in range(len(xs))])
        results.append(expand(line, list(shape)))
    if indexing == "xy" and len(xs) > 1:
        results = [permuted(m, (1, 0, *range(2, len(xs)))) for m in results]
        results[0], results[1] = results[1], results[0]
    return results


@importer("atleast_1d")
def atleast_1d(self: Any) -> Value:
    x = tensor(self)
    return x if x.type.rank else reshaped(x, (1,))


@importer("one_hot")
def one_hot(self: Value, num_classes: int = -1) -> Value:
    if num_classes < 1:
        raise BadInput(
            "one_hot is called without num_classes, so that its shape is unknown; give num_classes"
        )
    result: Value = ops.one_hot(self, np.array([0, 1], np.int64), depth=int(num_classes), axis=-1)
    return result


@importer("roll")
def roll(self: Value, shifts: Any, dims: Any = ()) -> Value:
    moves = shifts if isinstance(shifts, list | tuple) else [shifts]
    axes = dims if isinstance(dims, list | tuple) else [dims]
    x = self if axes else reshaped(self, (self.type.size,))
    for shift, dim in zip(moves, axes or [0], strict=True):
        axis = axis_of(dim, x)
        extent = x.shape[axis]
        cut = -integer(shift) % max(extent, 1)
        if cut:
            x = ops.concat(
                ops.part(x, cut, extent, axis=axis), ops.part(x, 0, cut, axis=axis), axis=axis
            )
    return reshaped(x, self.shape)
