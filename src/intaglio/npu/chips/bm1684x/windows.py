"""Inputs of convolutions and pools: padded, spread out, and their taps."""

from __future__ import annotations

import numpy as np

from intaglio.errors import BadFile, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.bm1684x import arithmetic, numbers
from intaglio.npu.chips.bm1684x.arithmetic import Fields
from intaglio.npu.chips.bm1684x.lanes import MOST, Memory
from intaglio.npu.chips.bm1684x.native_units import BEYOND
from intaglio.ops.windows import Ints, window_counts

BYTE = 256  # a byte, or the difference of two, is smaller
EXACT = 1 << 24  # integers up to here are exact in f32


class Windows:
    """The input of a convolution or pooling: padded, spread out, and its taps."""

    def __init__(self, memory: Memory, f: Fields, x: Array):
        self.f = f
        self.half_block = memory.chip.inputs_at_once // 2  # products of f16 added at once
        self.kernel = f["opd1_h"], f["opd1_w"]
        self.stride = f["res_op_y_str"], f["res_op_x_str"]
        self.dilation = f["opd1_y_ins0"] + 1, f["opd1_x_ins0"] + 1
        self.out = f["res0_h"], f["res0_w"]
        if 0 in (*self.kernel, *self.stride):
            raise BadFile(f"a command has a kernel of {self.kernel}, a stride of {self.stride}")
        self.x = self._padded(memory, x)
        for axis in (0, 1):
            span = (self.out[axis] - 1) * self.stride[axis]
            span += (self.kernel[axis] - 1) * self.dilation[axis] + 1
            if span > self.x.shape[2 + axis]:
                raise BadFile(
                    f"a command computes {self.out[axis]} rows or columns, which need {span} of "
                    f"its input; it has {self.x.shape[2 + axis]} with its padding"
                )

    @classmethod
    def over(
        cls,
        x: Array,
        code: int,
        half_block: int,
        kernel: Ints,
        stride: Ints,
        dilation: Ints,
        pad: Ints,
        fill: float = 0,
    ) -> Windows:
        """Windows over an array [n, c, h, w] of a type, padded at its top, left, bottom, right."""
        made = cls.__new__(cls)
        made.f, made.half_block = {"opd0_prec": code}, half_block
        made.kernel, made.stride = (kernel[0], kernel[1]), (stride[0], stride[1])
        made.dilation = dilation[0], dilation[1]
        high, wide = window_counts(x.shape[2:], kernel, stride, pad, dilation)
        made.out = high, wide
        sides = (0, 0), (0, 0), (pad[0], pad[2]), (pad[1], pad[3])
        made.x = np.pad(x, sides, constant_values=fill) if any(pad) else x
        return made

    def _padded(self, memory: Memory, x: Array) -> Array:
        f = self.f
        n, c, h, w = x.shape
        gap_y, gap_x = f["opd0_y_ins0"], f["opd0_x_ins0"]
        up, down, left, right = (f[f"opd0_{d}_pad"] for d in ("up", "dn", "lf", "rt"))
        if not any((gap_y, gap_x, up, down, left, right)):
            return x
        if f["pad_mode"] and any((up, down, left, right)):
            modes = {1: "reflect", 2: "edge", 3: "wrap"}
            if gap_y or gap_x or max(up, down) >= h or max(left, right) >= w:
                raise Unsupported("padding by mirroring of a small or spread input")
            pads = (0, 0), (0, 0), (up, down), (left, right)
            return np.pad(x, pads, modes[f["pad_mode"]])  # type: ignore[call-overload,no-any-return]
        height, width = h + (h - 1) * gap_y, w + (w - 1) * gap_x
        shape = n, c, height + up + down, width + left + right
        if shape[0] * shape[1] * shape[2] * shape[3] > 4 * MOST:
            raise BadFile(f"a command pads its input to {shape}")
        fill, between = self._fillers(memory, c, x.dtype)
        wide = np.empty(shape, x.dtype)
        wide[...] = fill
        inner = wide[:, :, up : up + height, left : left + width]
        if gap_y or gap_x:
            inner[...] = between
        inner[:, :, :: gap_y + 1, :: gap_x + 1] = x
        return wide

    def _fillers(self, memory: Memory, c: int, dtype: np.dtype) -> tuple[Array, Array]:
        """The values of padding and of inserted elements."""
        f = self.f
        code = f["opd0_prec"]
        if f["opd3_const"]:
            value = numbers.constant(f["opd3_addr"], code, f["opd0_sign"])
            return value, value
        shape, address = (1, c, 1, 2), f["opd3_addr"]
        raw = memory.read(
            address,
            numbers.dtype(code, f["opd0_sign"]),
            shape,
            memory.strides(shape, code, 1, address),
        )
        both = numbers.from_bits(raw, code)
        return both[..., :1], both[..., 1:]

    def spread(self) -> tuple[Array, Array, int, int]:
        """The input as f32, the elements of each phase of the strides side by side.

        Also the place of each tap within a channel, the numbers of a channel and of a row.
        """
        (sy, sx), (dy, dx), (kh, kw) = self.stride, self.dilation, self.kernel
        n, c, h, w = self.x.shape
        rows, width = -(-h // sy), -(-w // sx)
        plane = sy * sx * rows * width
        flat = np.zeros(n * c * plane + kw * dx + BEYOND, np.float32)
        phases = flat[: n * c * plane].reshape(n, c, sy, sx, rows, width)
        for y in range(sy):
            for x in range(sx):
                part = self.x[:, :, y::sy, x::sx]
                phases[:, :, y, x, : part.shape[2], : part.shape[3]] = part
        tops, lefts = np.arange(kh)[:, None] * dy, np.arange(kw)[None] * dx
        places = (tops % sy * sx + lefts % sx) * rows * width
        return flat, places + tops // sy * width + lefts // sx, plane, width

    def tap(self, y: int, x: int) -> Array:
        """The elements [n, c, out h, out w] that one weight meets."""
        (sy, sx), (dy, dx), (oh, ow) = self.stride, self.dilation, self.out
        top, left = y * dy, x * dx
        bottom, right = top + (oh - 1) * sy + 1, left + (ow - 1) * sx + 1
        return self.x[:, :, top:bottom:sy, left:right:sx]


def input_of(memory: Memory, f: Fields, channels: int) -> Array:
    shape = f["res0_n"], channels, f["opd0_h"], f["opd0_w"]
    return arithmetic.operand(memory, f, "opd0", shape)


def per_channel(memory: Memory, f: Fields, name: str, code: int, signed: int) -> Array:
    """A number per result channel, compact, or a constant."""
    if f[f"{name}_const"]:
        return numbers.constant(f[f"{name}_addr"], code, signed)
    shape, address = (1, f["res0_c"], 1, 1), f[f"{name}_addr"]
    steps = memory.strides(shape, code, 1, address)
    raw = memory.read(address, numbers.dtype(code, signed), shape, steps)
    return numbers.from_bits(raw, code)
