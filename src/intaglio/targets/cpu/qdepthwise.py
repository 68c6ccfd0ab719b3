"""cpu.qdepthwise: int8 depthwise convolution of channels-last images."""

from __future__ import annotations

import math

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.registry import op
from intaglio.targets.cpu.depthwise_packing import FOUR, tap_packing, why_not_packed
from intaglio.targets.cpu.int8_arithmetic import (
    accumulate,
    check_parameters,
    image_result,
    round_and_clamp,
)
from intaglio.targets.cpu.packing import PANEL, Ints


def _qdepthwise_type(
    x: Value,
    w: Value,
    bias: Value,
    scale: Value,
    table: Value | None,
    *,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    x_zero: int,
    y_zero: int,
    lo: int,
    hi: int,
    dtype: str,
) -> Type:
    channels = x.shape[-1]
    check_parameters(x, bias, scale, channels, x_zero, y_zero, lo, hi, dtype)
    result = image_result(
        x, (channels, 1, *kernel), dtype, stride=stride, pad=pad, dilation=dilation, groups=channels
    )
    if why := why_not_packed(kernel, stride, dilation):
        raise BadInput(f"cpu.qdepthwise: {why}")
    vectors, blocks = tap_packing(kernel, stride, dilation).vectors, -(-channels // PANEL)
    fitting = [Type("i8", (blocks, parts * vectors, PANEL * FOUR)) for parts in (1, 2)]
    if w.type not in fitting:
        raise BadInput(f"weights {w.type} are not packed for {channels} channels, kernel {kernel}")
    if table is None:
        return result
    if table.shape != (256,) or table.dtype not in ("i8", "u8"):
        raise BadInput(f"a table of 256 bytes is needed, not {table.type}")
    return Type(table.dtype, result.shape)


def _qdepthwise_macs(node: Node) -> int:
    return node.outputs[0].type.size * math.prod(map(int, node.attrs["kernel"]))


@op(_qdepthwise_type, name="cpu.qdepthwise", macs=_qdepthwise_macs)
def qdepthwise(
    x: Array,
    w: Array,
    bias: Array,
    scale: Array,
    table: Array | None = None,
    *,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    x_zero: int,
    y_zero: int,
    lo: int,
    hi: int,
    dtype: str,
) -> Array:
    """int8 depthwise convolution; `w` is packed by depthwise_packing.py.

    `table` maps each byte of the result, taken as u8, to the final result.
    """
    channels = x.shape[-1]
    taps = tap_packing(kernel, stride, dilation).unpacked(w, channels)
    neutral = taps.T.reshape(channels, 1, *kernel)
    window = {"stride": stride, "pad": pad, "dilation": dilation, "groups": channels}
    sums = accumulate(x, neutral, bias, window, x_zero)
    result = round_and_clamp(sums.astype(np.float32) * scale, y_zero, lo, hi, dtype)
    return result if table is None else table[result.view(np.uint8)]
