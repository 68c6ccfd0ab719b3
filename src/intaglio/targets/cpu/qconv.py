"""cpu.qconv: int8 convolution of channels-last images with packed weights."""

from __future__ import annotations

import math

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.registry import op
from intaglio.targets.cpu.depthwise_packing import FOUR
from intaglio.targets.cpu.int8_arithmetic import (
    accumulate,
    check_operands,
    check_result,
    image_result,
    requantize,
)
from intaglio.targets.cpu.packing import PANEL, Ints
from intaglio.targets.cpu.qconv_packing import MAX_GATHERED_LINE, RUNS, run_bytes, unpacked


def _qconv_type(
    x: Value,
    w: Value,
    bias: Value,
    scale: Value | None,
    residual: Value | None,
    table: Value | None,
    w_zero: Value | None,
    second_rows: Value | None,
    *,
    channels: int,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int,
    run: str,
    x_zero: int,
    y_zero: int,
    lo: int,
    hi: int,
    dtype: str,
    r_zero: int,
    r_scale: float,
) -> Type:
    if dtype not in ("u8", "i8", "f32", "i32"):
        raise BadInput(f"the result must be u8, i8, i32 or f32, not {dtype}")
    check_operands(x, bias, scale, table, channels, x_zero, y_zero, lo, hi, dtype)
    deep = x.shape[-1] // groups
    if run not in RUNS or (run != "tap" and (groups != 1 or dilation[-1] != 1)):
        raise BadInput(f"run '{run}' needs one group and dilation 1, not {groups} and {dilation}")
    size = run_bytes(deep, kernel, run)
    rows = math.prod(kernel) * deep // size * -(-size // FOUR)
    if second_rows is not None:
        if second_rows.dtype != "i32" or second_rows.type.rank != 1 or w_zero is not None:
            raise BadInput(f"a list of i32 and no zero points are needed, not {second_rows.type}")
        rows += second_rows.type.size
    want = Type("i8", (groups, -(-(channels // groups) // PANEL), rows, PANEL * FOUR))
    if channels % groups or x.shape[-1] % groups or w.type != want:
        raise BadInput(
            f"weights {w.type} are not packed for {x.shape[-1]} -> {channels} channels "
            f"in {groups} groups with kernel {kernel}"
        )
    if run == "window" and deep * kernel[-1] > MAX_GATHERED_LINE:
        raise BadInput(
            f"a line of the window has {deep * kernel[-1]} bytes; "
            f"at most {MAX_GATHERED_LINE} are gathered"
        )
    if w_zero is not None and w_zero.type != Type("i32", (channels,)):
        raise BadInput(f"one i32 zero point per channel is needed, not {w_zero.type}")
    result = image_result(
        x,
        (channels, deep, *kernel),
        dtype,
        stride=stride,
        pad=pad,
        dilation=dilation,
        groups=groups,
    )
    check_result(result, scale, residual, table, r_zero, y_zero, lo, hi)
    return result


def _qconv_macs(node: Node) -> int:
    deep: int = node.inputs[0].shape[-1] // node.attrs["groups"]  # type: ignore[union-attr]
    return node.outputs[0].type.size * deep * math.prod(map(int, node.attrs["kernel"]))


@op(_qconv_type, name="cpu.qconv", macs=_qconv_macs)
def qconv(
    x: Array,
    w: Array,
    bias: Array,
    scale: Array | None = None,
    residual: Array | None = None,
    table: Array | None = None,
    w_zero: Array | None = None,
    second_rows: Array | None = None,
    *,
    channels: int,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int = 1,
    run: str = "tap",
    x_zero: int,
    y_zero: int = 0,
    lo: int = 0,
    hi: int = 0,
    dtype: str,
    r_zero: int = 0,
    r_scale: float = 0.0,
) -> Array:
    """int8 convolution of an image [n, .., c]; `w` is packed in runs of a tap, a line or the
    window.

    `residual` is added before rounding, as f32(residual - r_zero) * r_scale, or unscaled if the
    result is f32. With a `table` the result is `table[clamp(.., lo, hi) - lo]`; it may be stored as
    piecewise lines (piecewise_tables.py). `w_zero` holds the negated zero points of the weights, or
    `second_rows` the rows of `w` to which its last rows are added.
    """
    neutral = unpacked(w, x.shape[-1] // groups, channels // groups, kernel, run, second_rows)
    window = {"stride": stride, "pad": pad, "dilation": dilation, "groups": groups}
    sums = accumulate(x, neutral, bias, window, x_zero, w_zero)
    if dtype == "i32":
        return np.ascontiguousarray(sums)
    assert scale is not None
    return requantize(sums, scale, residual, table, y_zero, lo, hi, dtype, r_zero, r_scale)
