"""space_to_batch and batch_to_space, with which TensorFlow expresses dilated convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Value


def _pairs(x: Value, block: Sequence[int], around: Sequence[int]) -> tuple[list[int], list[int]]:
    m = len(block)
    if len(around) != 2 * m or m >= x.type.rank or min(block, default=1) < 1 or min(around) < 0:
        raise BadInput(
            f"block shape {tuple(block)} with pads or crops {tuple(around)} does not fit {x.type}"
        )
    return list(around[::2]), list(around[1::2])


def space_to_batch(x: Value, block: Sequence[int], pads: Sequence[int]) -> Value:
    """Pad, then move blocks of pixels to the batch; `pads` has begin and end per blocked axis."""
    m = len(block)
    begin, end = _pairs(x, block, pads)
    outer = [0] * (x.type.rank - 1 - m)
    x = ops.pad(x, before=(0, *begin, *outer), after=(0, *end, *outer))
    split = [x.shape[0]]
    for d, b in zip(x.shape[1 : 1 + m], block, strict=True):
        if d % b:
            raise BadInput(f"extent {d} is not divisible by block size {b}")
        split += [d // b, b]
    rest = x.shape[1 + m :]
    y = ops.reshape(x, shape=(*split, *rest))
    inner, between = range(2, 2 * m + 1, 2), range(1, 2 * m, 2)
    y = ops.transpose(y, perm=(*inner, 0, *between, *range(2 * m + 1, y.type.rank)))
    result: Value = ops.reshape(y, shape=(x.shape[0] * math.prod(block), *split[1::2], *rest))
    return result


def batch_to_space(x: Value, block: Sequence[int], crops: Sequence[int]) -> Value:
    """Move the batch to blocks of pixels, then crop; `crops` has begin and end per blocked axis."""
    m, count = len(block), math.prod(block)
    begin, end = _pairs(x, block, crops)
    if x.shape[0] % count:
        raise BadInput(f"batch {x.shape[0]} is not divisible by blocks of {tuple(block)}")
    batch, rest = x.shape[0] // count, x.shape[1 + m :]
    y = ops.reshape(x, shape=(*block, batch, *x.shape[1:]))
    perm = [m]
    for i in range(m):
        perm += [m + 1 + i, i]
    y = ops.transpose(y, perm=(*perm, *range(2 * m + 1, y.type.rank)))
    spatial = tuple(d * b for d, b in zip(x.shape[1 : 1 + m], block, strict=True))
    y = ops.reshape(y, shape=(batch, *spatial, *rest))
    stop = tuple(d - e for d, e in zip(spatial, end, strict=True))
    if any(a > b for a, b in zip(begin, stop, strict=True)):
        raise BadInput(f"crops {tuple(crops)} are larger than the extents {spatial}")
    result: Value = ops.slice_(
        y, start=(0, *begin, *[0] * len(rest)), stop=(batch, *stop, *rest), step=(1,) * y.type.rank
    )
    return result
