"""The window of a convolution or pooling command of BM chips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intaglio.errors import Unsupported
from intaglio.npu.layers import Layer

Fields = dict[str, int]


@dataclass(frozen=True, slots=True)
class Window:
    """Kernel, stride, dilation and padding (top, bottom, left, right) of a windowed command."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int, int, int]

    def fields(self) -> Fields:
        up, down, left, right = self.pad
        return {
            "opd1_h": self.kernel[0],
            "opd1_w": self.kernel[1],
            "opd1_y_ins0": self.dilation[0] - 1,
            "opd1_x_ins0": self.dilation[1] - 1,
            "res_op_y_str": self.stride[0],
            "res_op_x_str": self.stride[1],
            "opd0_up_pad": up,
            "opd0_dn_pad": down,
            "opd0_lf_pad": left,
            "opd0_rt_pad": right,
        }


def window_of(
    layer: Layer, f: Mapping[str, Any], y: tuple[int, int], x: tuple[int, int], chip: str
) -> Window:
    """The window of an instruction; `y` and `x` are rows and columns of the result and operand."""
    kernel, stride, dilation = f["kernel"], f["stride"], f["dilation"]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    sizes = zip(y, stride, reach, f["pad"], x, strict=True)
    ends = [(n - 1) * s + r - p - m for n, s, r, p, m in sizes]
    up, left = f["pad"]
    if up < 0:
        raise Unsupported(
            f"{chip}: {layer.op} '{layer.name}' has windows that lie in the padding only, in a "
            "band of rows; use padding that is smaller than the window"
        )
    pad = up, max(ends[0], 0), left, max(ends[1], 0)
    return Window(tuple(kernel), tuple(stride), tuple(dilation), pad)
