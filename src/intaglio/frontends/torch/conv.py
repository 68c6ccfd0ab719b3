"""Importers of convolution, transposed and deformable convolution, col2im and im2col."""

from __future__ import annotations

from typing import Any

from intaglio import ops
from intaglio.errors import Unsupported
from intaglio.frontends.torch.importer import importer, ints, reshaped
from intaglio.ir import Value


def convolved(
    x: Value, w: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Value:
    """A convolution; padding is numbers, "same" or "valid"; a batch axis is added if missing."""
    n = w.type.rank - 2
    if x.type.rank == n + 1:
        whole = convolved(reshaped(x, (1, *x.shape)), w, bias, stride, padding, dilation, groups)
        return reshaped(whole, whole.shape[1:])
    steps, wide = ints(stride, n), ints(dilation, n)
    result: Value = ops.conv(
        x,
        w,
        bias,
        stride=steps,
        pad=_pad(padding, w.shape[2:], wide, n),
        dilation=wide,
        groups=int(groups),
    )
    return result


def _pad(
    padding: Any, kernel: tuple[int, ...], dilation: tuple[int, ...], n: int
) -> tuple[int, ...]:
    if padding == "valid":
        return (0,) * (2 * n)
    if padding == "same":  # an odd pixel goes to the end
        total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return (*(t // 2 for t in total), *(t - t // 2 for t in total))
    if isinstance(padding, str):
        raise Unsupported(f"padding '{padding}' is not supported; use numbers, same or valid")
    return ints(padding, n) * 2


def spread(
    x: Value,
    w: Value,
    bias: Value | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Value:
    n = w.type.rank - 2
    if x.type.rank == n + 1:
        whole = spread(
            reshaped(x, (1, *x.shape)), w, bias, stride, padding, output_padding, groups, dilation
        )
        return reshaped(whole, whole.shape[1:])
    result: Value = ops.conv_transpose(
        x,
        w,
        bias,
        stride=ints(stride, n),
        pad=ints(padding, n) * 2,
        output_pad=ints(output_padding, n),
        dilation=ints(dilation, n),
        groups=int(groups),
    )
    return result


@importer("conv1d", "conv2d", "conv3d", "mkldnn_convolution")
def conv(
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    return convolved(input, weight, bias, stride, padding, dilation, groups)


@importer("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Value:
    return spread(input, weight, bias, stride, padding, output_padding, groups, dilation)


@importer("_convolution", "convolution")
def convolution(
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *flags: Any,
) -> Value:
    if transposed:
        return spread(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return convolved(input, weight, bias, stride, padding, dilation, groups)


@importer("_convolution_mode")
def convolution_mode(
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Any,
    padding: str,
    dilation: Any,
    groups: int,
) -> Value:
    return convolved(input, weight, bias, stride, padding, dilation, groups)


@importer("torchvision::deform_conv2d")
def deform_conv2d(
    input: Value,
    weight: Value,
    offset: Value,
    mask: Value,
    bias: Value,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Value:
    result: Value = ops.deform_conv(
        input,
        weight,
        offset,
        bias,
        mask if use_mask else None,
        stride=(stride_h, stride_w),
        pad=(pad_h, pad_w) * 2,
        dilation=(dilation_h, dilation_w),
        groups=groups,
        offset_groups=offset_groups,
    )
    return result


@importer("col2im", "fold")
def col2im(
    self: Value, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Value:
    result: Value = ops.col2im(
        self,
        image=ints(output_size, 2),
        block=ints(kernel_size, 2),
        stride=ints(stride, 2),
        pad=ints(padding, 2) * 2,
        dilation=ints(dilation, 2),
    )
    return result


@importer("im2col")
def im2col(self: Value, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    """Windows as columns: one slice per kernel position."""
    x = self if self.type.rank == 4 else reshaped(self, (1, *self.shape))
    kernel, step = ints(kernel_size, 2), ints(stride, 2)
    wide, pad = ints(dilation, 2), ints(padding, 2)
    if any(pad):
        x = ops.pad(x, before=(0, 0, *pad), after=(0, 0, *pad))
    b, c, *extents = x.shape
    counts = [(extents[i] - wide[i] * (kernel[i] - 1) - 1) // step[i] + 1 for i in range(2)]
    taps = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            y = x
            for axis, at in ((2, i), (3, j)):
                k = axis - 2
                start = at * wide[k]
                y = ops.part(
                    y, start, start + (counts[k] - 1) * step[k] + 1, axis=axis, step=step[k]
                )
            taps.append(reshaped(y, (b, c, 1, counts[0] * counts[1])))
    result = reshaped(ops.concat(*taps, axis=2), (b, c * len(taps), counts[0] * counts[1]))
    return result if self.type.rank == 4 else reshaped(result, result.shape[1:])
