"""Deformable convolution (version 1) as a custom operator in Python: one class.

    from intaglio import custom
    custom.load("deform_conv.py")          # or: import deform_conv

Every tap of the kernel is moved by an offset of its own, and reads the image there by bilinear
interpolation. deform_conv.c has the same operator in C.
"""

import numpy as np

from intaglio import custom


@custom.register
class DeformConv:
    name = "example.deform_conv"
    onnx = "example.ops::DeformConv"

    def shape(self, x, weight, offset, bias=None, *, stride=(1, 1), pad=(0, 0)):
        n, channels, height, width = x.shape
        out, per_group, kh, kw = weight.shape
        if channels != per_group:
            raise ValueError(f"the image has {channels} channels, the weights {per_group}")
        oh = (height + 2 * pad[0] - kh) // stride[0] + 1
        ow = (width + 2 * pad[1] - kw) // stride[1] + 1
        if offset.shape != (n, 2 * kh * kw, oh, ow):
            raise ValueError(f"offset is {offset.shape}, not {(n, 2 * kh * kw, oh, ow)}")
        return n, out, oh, ow

    def macs(self, x, weight, offset, bias=None, *, stride=(1, 1), pad=(0, 0)):
        n, out, oh, ow = self.shape(x, weight, offset, bias, stride=stride, pad=pad)
        return n * out * oh * ow * weight.shape[1] * weight.shape[2] * weight.shape[3]

    def compute(self, x, weight, offset, bias=None, *, stride=(1, 1), pad=(0, 0)):
        n, channels, height, width = x.shape
        out, _, kh, kw = weight.shape
        oh, ow = offset.shape[2:]
        moved = offset.reshape(n, kh, kw, 2, oh, ow)  # (y, x) of each tap
        ky, kx, oy, ox = np.ogrid[:kh, :kw, :oh, :ow]
        y = moved[:, :, :, 0] + (oy * stride[0] - pad[0] + ky).astype(np.float32)
        z = moved[:, :, :, 1] + (ox * stride[1] - pad[1] + kx).astype(np.float32)
        pixels = x.reshape(n, channels, 1, height * width)
        columns = np.zeros((n, channels, kh * kw * oh * ow), np.float32)
        top, left = np.floor(y), np.floor(z)
        for row, by in ((top, 1 - (y - top)), (top + 1, y - top)):
            for column, bz in ((left, 1 - (z - left)), (left + 1, z - left)):
                inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
                at = np.where(inside, row * width + column, 0).astype(np.int64).reshape(n, 1, -1)
                picked = np.take_along_axis(pixels[:, :, 0], at, 2)
                columns += picked * np.where(inside, by * bz, 0).reshape(n, 1, -1)
        columns = columns.reshape(n, channels * kh * kw, oh * ow)
        result = (weight.reshape(out, -1) @ columns).reshape(n, out, oh, ow)
        return result if bias is None else result + bias.reshape(-1, 1, 1)
