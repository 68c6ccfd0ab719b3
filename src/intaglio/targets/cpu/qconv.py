"""cpu.qconv: int8 convolution of channels-last images with packed weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio.dtypes import name_of
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
    shifted_zero,
    wrapped,
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
    zero: Value | None,
    by: Value | None,
    sums: Value | None,
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
    _check_dynamic(x, channels, dtype, zero, by, sums)
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


def _check_dynamic(
    x: Value, channels: int, dtype: str, zero: Value | None, by: Value | None, sums: Value | None
) -> None:
    if zero is None and by is None and sums is None:
        return
    if zero is None or by is None or sums is None or dtype != "f32":
        raise BadInput("zero, by and sums belong together, with a result of f32")
    if (zero.type, by.type) != (Type(x.dtype, x.shape[:1]), Type("f32", x.shape[:1])):
        raise BadInput(f"one {x.dtype} and one f32 per image, not {zero.type} and {by.type}")
    if sums.type != Type("i32", (channels,)):
        raise BadInput(f"one i32 sum per channel is needed, not {sums.type}")


def _qconv_macs(node: Node) -> int:
    deep: int = node.inputs[0].shape[-1] // node.attrs["groups"]  # type: ignore[union-attr]
    return node.outputs[0].type.size * deep * math.prod(map(int, node.attrs["kernel"]))


def _dynamic(
    x: Array,
    w: Array,
    bias: Array,
    scale: Array,
    residual: Array | None,
    window: dict[str, Any],
    zero: Array,
    by: Array,
    sums: Array,
    w_zero: Array | None,
) -> Array:
    """Images with zero points and scales of their own; the results are f32."""
    y = np.zeros_like(accumulate(x, w, bias, window, 0), np.float32)
    for i in range(len(x)):
        z = int(zero[i])
        less = shifted_zero(z, name_of(x.dtype)) * sums.astype(np.int64)
        total = accumulate(x[i : i + 1], w, wrapped(bias - less), window, z, w_zero)
        y[i] = total[0].astype(np.float32) * (scale * by[i])
    return np.ascontiguousarray(y if residual is None else y + residual)


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
    zero: Array | None = None,
    by: Array | None = None,
    sums: Array | None = None,
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
    `second_rows` the rows of `w` to which its last rows are added. `zero` and `by` are zero points
    and scales of images quantised at run time; `sums` are then those of the weights.
    """
    neutral = unpacked(w, x.shape[-1] // groups, channels // groups, kernel, run, second_rows)
    window = {"stride": stride, "pad": pad, "dilation": dilation, "groups": groups}
    if zero is not None and by is not None and sums is not None:
        assert scale is not None
        return _dynamic(x, neutral, bias, scale, residual, window, zero, by, sums, w_zero)
    total = accumulate(x, neutral, bias, window, x_zero, w_zero)
    if dtype == "i32":
        return np.ascontiguousarray(total)
    assert scale is not None
    return requantize(total, scale, residual, table, y_zero, lo, hi, dtype, r_zero, r_scale)
