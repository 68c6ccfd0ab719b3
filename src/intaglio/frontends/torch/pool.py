"""Importers of pooling, adaptive pooling, pixel_shuffle and channel_shuffle."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import ops
from intaglio.errors import Unsupported
from intaglio.frontends.torch.importer import importer, ints, permuted, reshaped
from intaglio.frontends.torch.tensors import number
from intaglio.ir import Value

Ints = tuple[int, ...]


def _batched(x: Value, n: int) -> tuple[Value, bool]:
    """x with a batch axis, which is added if missing."""
    return (reshaped(x, (1, *x.shape)), True) if x.type.rank == n + 1 else (x, False)


def _unbatched(y: Value, lone: bool) -> Value:
    return reshaped(y, y.shape[1:]) if lone else y


def _end_padding(
    extents: Ints, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints, ceil: bool
) -> tuple[Ints, Ints]:
    """Padding at the end, and the part of it that ceil_mode adds."""
    ends, more = [], []
    for extent, k, s, p, d in zip(extents, kernel, stride, pad, dilation, strict=True):
        end = p
        if ceil and s > 0:
            span = d * (k - 1) + 1
            count = -(-(extent + 2 * p - span) // s) + 1
            if (count - 1) * s >= extent + p:  # a window must not start in the end padding
                count -= 1
            end = max((count - 1) * s + span - extent - p, 0)
        ends.append(end)
        more.append(max(end - p, 0))
    return tuple(ends), tuple(more)


def max_pooled(
    x: Value,
    n: int,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: bool,
) -> Any:
    x, lone = _batched(x, n)
    kernel = ints(kernel_size, n)
    steps = ints(stride, n) if stride else kernel
    pad, wide = ints(padding, n), ints(dilation, n)
    ends, _ = _end_padding(x.shape[2:], kernel, steps, pad, wide, bool(ceil_mode))
    result = ops.max_pool(
        x, kernel=kernel, stride=steps, pad=(*pad, *ends), dilation=wide, with_indices=indices
    )
    if not indices:
        return _unbatched(result, lone)
    values, places = result
    plane = 1  # our indices count in the whole tensor, PyTorch's in one channel
    for d in x.shape[2:]:
        plane *= d
    places = ops.mod(places, number(plane, "i64"))
    return _unbatched(values, lone), _unbatched(places, lone)


@importer("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(
    self: Value,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Value:
    n = len(kernel_size) if isinstance(kernel_size, list | tuple) else self.type.rank - 2
    result: Value = max_pooled(self, n, kernel_size, stride, padding, dilation, ceil_mode, False)
    return result


@importer("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(
    self: Value,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    n = len(kernel_size) if isinstance(kernel_size, list | tuple) else self.type.rank - 2
    return max_pooled(self, n, kernel_size, stride, padding, dilation, ceil_mode, True)


@importer("max_unpool2d")
def max_unpool2d(self: Value, indices: Value, output_size: Any) -> Value:
    """PyTorch's indices count in one channel, ours in the whole tensor."""
    height, width = ints(output_size)[-2:]
    shape = (*self.shape[:-2], height, width)
    planes = self.type.size // max(self.shape[-1] * self.shape[-2], 1)
    base = np.arange(planes, dtype=np.int64).reshape(*self.shape[:-2], 1, 1) * (height * width)
    result: Value = ops.max_unpool(self, ops.add(indices, base), shape=shape)
    return result


@importer("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    self: Value,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    n = len(kernel_size) if isinstance(kernel_size, list | tuple) else self.type.rank - 2
    x, lone = _batched(self, n)
    kernel = ints(kernel_size, n)
    steps = ints(stride, n) if stride else kernel
    pad, ones = ints(padding, n), (1,) * n
    if divisor_override:
        raise Unsupported("divisor_override of an average pool is not supported")
    ends, more = _end_padding(x.shape[2:], kernel, steps, pad, ones, bool(ceil_mode))
    count = bool(count_include_pad)
    begin: Ints = pad
    if count and any(more):  # padding that ceil_mode adds does not count: pad explicitly
        after = tuple(e - m for e, m in zip(ends, more, strict=True))
        x = ops.pad(x, before=(0, 0, *pad), after=(0, 0, *after))
        begin, ends, count = (0,) * n, more, False
    y = ops.avg_pool(
        x, kernel=kernel, stride=steps, pad=(*begin, *ends), dilation=ones, count_include_pad=count
    )
    return _unbatched(y, lone)


@importer(
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
)
def adaptive_avg_pool(self: Value, output_size: Any) -> Value:
    return adaptive(self, output_size, ops.reduce_mean, ops.avg_pool)


@importer("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(self: Value, output_size: Any) -> tuple[Value, Any]:
    return adaptive(self, output_size, ops.reduce_max, ops.max_pool), None


def adaptive(x: Value, output_size: Any, reduce: Any, pool: Any) -> Value:
    """Adaptive pooling: one pool if windows are equal, else one slice per window."""
    sizes = list(output_size) if isinstance(output_size, list | tuple) else [output_size]
    n = len(sizes)
    x, lone = _batched(x, n)
    extents = x.shape[2:]
    wanted = tuple(e if s is None else int(s) for s, e in zip(sizes, extents, strict=True))
    if all(w == 1 for w in wanted):
        y = reduce(x, axes=tuple(range(2, 2 + n)), keepdims=True)
    elif all(w and e % w == 0 for e, w in zip(extents, wanted, strict=True)):
        kernel = tuple(e // w for e, w in zip(extents, wanted, strict=True))
        y = pool(x, kernel=kernel, stride=kernel, pad=(0,) * (2 * n), dilation=(1,) * n)
    else:
        y = x
        for axis, (extent, count) in enumerate(zip(extents, wanted, strict=True), 2):
            if count == extent:
                continue
            parts = [
                reduce(
                    ops.part(y, i * extent // count, -(-(i + 1) * extent // count), axis=axis),
                    axes=(axis,),
                    keepdims=True,
                )
                for i in range(count)
            ]
            y = ops.concat(*parts, axis=axis)
    return _unbatched(y, lone)


@importer("pixel_shuffle")
def pixel_shuffle(self: Value, upscale_factor: int) -> Value:
    x, lone = _batched(self, 2)
    return _unbatched(ops.depth_to_space(x, blocksize=int(upscale_factor), mode="CRD"), lone)


@importer("pixel_unshuffle")
def pixel_unshuffle(self: Value, downscale_factor: int) -> Value:
    x, lone = _batched(self, 2)
    b, c, h, w = x.shape
    f = int(downscale_factor)
    y = reshaped(x, (b, c, h // f, f, w // f, f))
    y = reshaped(permuted(y, (0, 1, 3, 5, 2, 4)), (b, c * f * f, h // f, w // f))
    return _unbatched(y, lone)


@importer("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(self: Value, groups: int) -> Value:
    result: Value = ops.channel_shuffle(self, groups=int(groups))
    return result
