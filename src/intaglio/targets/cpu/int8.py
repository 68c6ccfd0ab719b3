"""Convolutions and products of bytes on the CPU: channel-last, weights packed by fours.

`sum = Σ x · w + bias` runs over whole windows with padding read as the image's zero, so that the
zero's share is one number per channel, a part of the bias. Bytes of an i8 image count from 0 as
those of u8 do (x + 128); that too is in the bias. Then
`y = clamp(rint(f32(sum) · scale) + y_zero)`, between the bounds `lo` and `hi`.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import numpy as np

from intaglio import dtypes, heap, native, ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.quantized import ENTRIES as ENTRIES
from intaglio.ops.registry import op
from intaglio.targets.cpu.depthwise_packing import FOUR as FOUR
from intaglio.targets.cpu.depthwise_packing import weave_of, why_not_woven
from intaglio.targets.cpu.ops import PANEL, Ints
from intaglio.targets.cpu.piecewise_tables import PIECES, table_of

LINE = 64  # bytes of a line of the window up to which a whole window may make one run
RUNS = ("tap", "line", "window")  # what makes one run of bytes in a packed matrix


def _run(deep: int, kernel: Ints, run: str) -> int:
    """Bytes of one run."""
    return deep * {"tap": 1, "line": kernel[-1], "window": math.prod(kernel)}[run]


def packed(w: Array, run: str = "tap") -> Array:
    """Weights [groups, m, c, window..] as [groups, panels, rows, 16 columns of fours]."""
    groups, per, deep = w.shape[:3]
    size = _run(deep, w.shape[3:], run)
    runs, fours, panels = math.prod(w.shape[3:]) * deep // size, -(-size // FOUR), -(-per // PANEL)
    full = np.ascontiguousarray(np.moveaxis(w, 2, -1)).reshape(groups, per, runs, size)
    if (per, size) != (panels * PANEL, fours * FOUR):
        given = full
        full = np.zeros((groups, panels * PANEL, runs, fours * FOUR), np.int8)
        full[:, :per, :, :size] = given
    words = full.view(np.uint32).reshape(groups, panels, PANEL, runs * fours)  # copied as they are
    made = heap.lasting((groups, panels, runs * fours, PANEL), np.uint32)
    made[:] = words.swapaxes(2, 3)
    return made.view(np.int8).reshape(groups, panels, runs * fours, PANEL * FOUR)


def unpacked(w: Array, deep: int, per: int, kernel: Ints, run: str = "tap") -> Array:
    """What `packed` was given, as [groups * m, c, window..]."""
    groups, panels, rows = w.shape[:3]
    size = _run(deep, kernel, run)
    words = np.ascontiguousarray(w).view(np.uint32).reshape(groups, panels, rows, PANEL)
    full = np.ascontiguousarray(words.swapaxes(2, 3)).view(np.int8)
    runs = full.reshape(groups, panels * PANEL, math.prod(kernel) * deep // size, -1)
    turned = runs[:, :per, :, :size].reshape(groups * per, *kernel, deep)
    return np.moveaxis(turned, -1, 1)


def best_run(deep: int, kernel: Ints, dilation: Ints, groups: int) -> str:
    """Lines of taps lie together in the image; few channels are gathered to whole windows."""
    if groups != 1 or dilation[-1] != 1 or math.prod(kernel) == 1:
        return "tap"
    line, window = deep * kernel[-1], deep * math.prod(kernel)
    lines = math.prod(kernel[:-1]) * -(-line // FOUR)
    return "window" if line <= LINE and deep <= FOUR and -(-window // FOUR) < lines else "line"


def _shifted(x_zero: int, dtype: str) -> int:
    """The zero of the image as the sums see it."""
    return x_zero + 128 if dtype == "i8" else x_zero


@functools.cache
def _library() -> ctypes.CDLL:
    lib = native.compiler_library()
    pointer, u64 = ctypes.c_void_p, ctypes.c_uint64
    lib.itg_signed_sums.argtypes = [pointer, u64, u64, pointer, pointer]
    lib.itg_signed_sums.restype = None
    return lib


def signed_sums(w: Array) -> tuple[Array, Array]:
    """What the weights of each output channel above 0 sum up to, and those below."""
    rows = np.ascontiguousarray(w.reshape(w.shape[0], math.prod(w.shape[1:])), np.int8)
    above, below = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    _library().itg_signed_sums(rows.ctypes.data, *rows.shape, above.ctypes.data, below.ctypes.data)
    return above, below


def zero_share(w: Array, x_zero: int, dtype: str) -> Array:
    """What the image's zero adds to the sums of each output channel."""
    sums = w.reshape(w.shape[0], -1).sum(axis=1, dtype=np.int64)
    return np.asarray(sums * _shifted(x_zero, dtype))


def wrapped(a: Array) -> Array:
    """Sums as 32 bits keep them."""
    return a.astype(np.int64).astype(np.uint64).astype(np.uint32).view(np.int32)


def _check(
    x: Value,
    bias: Value,
    scale: Value,
    channels: int,
    x_zero: int,
    y_zero: int,
    lo: int,
    hi: int,
    dtype: str,
) -> None:
    if x.dtype not in ("u8", "i8") or dtype not in ("u8", "i8"):
        raise BadInput(f"8-bit images and results are needed, not {x.type} and {dtype}")
    if bias.type != Type("i32", (channels,)) or scale.type != Type("f32", (channels,)):
        raise BadInput(f"one i32 and one f32 per channel are needed, not {bias.type}, {scale.type}")
    first, last = dtypes.limits(dtype)
    if not (first <= lo <= hi <= last and first <= y_zero <= last):
        raise BadInput(f"zero {y_zero} and bounds {lo}, {hi} do not fit into {dtype}")
    first, last = dtypes.limits(x.dtype)
    if not first <= x_zero <= last:
        raise BadInput(f"zero {x_zero} does not fit into {x.dtype}")


def check_operands(
    x: Value,
    bias: Value,
    scale: Value | None,
    table: Value | None,
    channels: int,
    x_zero: int,
    y_zero: int,
    lo: int,
    hi: int,
    dtype: str,
) -> None:
    """Refuse an image, a bias, a scale or bounds that do not fit each other."""
    like = scale if scale is not None else Value(Type("f32", (channels,)))
    if dtype in ("u8", "i8") and table is None:
        _check(x, bias, like, channels, x_zero, y_zero, lo, hi, dtype)
    else:
        _check(x, bias, like, channels, x_zero, 0, 0, 0, "u8")


def _image(x: Value) -> Value:
    if not 3 <= x.type.rank <= 5:
        raise BadInput(f"a channel-last image of one to three spatial axes is needed, not {x.type}")
    return Value(Type("i8", (x.shape[0], x.shape[-1], *x.shape[1:-1])))


def image_result(x: Value, w: tuple[int, ...], dtype: str, **window: Any) -> Type:
    """The type of a convolution with weights of shape `w`."""
    made = ops.conv_integer.infer(_image(x), Value(Type("i8", w)), None, None, **window)
    assert isinstance(made, Type)
    return Type(dtype, (made.shape[0], *made.shape[2:], made.shape[1]))


def _qconv_type(
    x: Value,
    w: Value,
    bias: Value,
    scale: Value | None,
    residual: Value | None,
    table: Value | None,
    w_zero: Value | None,
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
        raise BadInput(f"results of u8, i8, i32 or f32 are made, not {dtype}")
    check_operands(x, bias, scale, table, channels, x_zero, y_zero, lo, hi, dtype)
    deep = x.shape[-1] // groups
    if run not in RUNS or (run != "tap" and (groups != 1 or dilation[-1] != 1)):
        raise BadInput(f"taps make no run '{run}' in {groups} groups with dilation {dilation}")
    size = _run(deep, kernel, run)
    rows = math.prod(kernel) * deep // size * -(-size // FOUR)
    want = Type("i8", (groups, -(-(channels // groups) // PANEL), rows, PANEL * FOUR))
    if channels % groups or x.shape[-1] % groups or w.type != want:
        raise BadInput(
            f"weights {w.type} are not packed for {x.shape[-1]} -> {channels} channels "
            f"in {groups} groups with kernel {kernel}"
        )
    if run == "window" and deep * kernel[-1] > LINE:
        raise BadInput(f"{deep * kernel[-1]} bytes of a line of the window are too many to gather")
    if w_zero is not None and w_zero.type != Type("i32", (channels,)):
        raise BadInput(f"one i32 per channel is needed for the weights' zeros, not {w_zero.type}")
    made = image_result(
        x,
        (channels, deep, *kernel),
        dtype,
        stride=stride,
        pad=pad,
        dilation=dilation,
        groups=groups,
    )
    check_endings(made, scale, residual, table, r_zero, y_zero, lo, hi)
    return made


def _check_table(made: Type, table: Value, y_zero: int, lo: int, hi: int) -> None:
    shapes = [(hi - lo + 1,), *((3, n) for n in PIECES)]
    if made.dtype not in ("u8", "i8") or table.type not in [Type(made.dtype, s) for s in shapes]:
        raise BadInput(f"a table of {hi - lo + 1} {made.dtype} is needed, not {table.type}")
    if not (-32768 <= lo <= hi <= 65535 and hi - lo < ENTRIES and -32768 <= y_zero <= 65535):
        raise BadInput(f"zero {y_zero}, bounds {lo}, {hi} are no 16 bits or the table is too large")


def check_endings(
    made: Type,
    scale: Value | None,
    residual: Value | None,
    table: Value | None,
    r_zero: int,
    y_zero: int,
    lo: int,
    hi: int,
) -> None:
    """Refuse what may not stand beside a result of this type."""
    dtype = made.dtype
    if table is not None:
        _check_table(made, table, y_zero, lo, hi)
    elif dtype == "i32" and (scale is not None or residual is not None):
        raise BadInput("sums have no scale and no residual")
    if dtype != "i32" and scale is None:
        raise BadInput(f"results of {dtype} need a scale")
    if residual is None:
        return
    like = ("f32",) if dtype == "f32" else ("u8", "i8")
    if residual.shape != made.shape or residual.dtype not in like:
        raise BadInput(f"the residual {residual.type} does not fit the result {made}")
    first, last = dtypes.limits(residual.dtype) if dtype != "f32" else (r_zero, r_zero)
    if not first <= r_zero <= last:
        raise BadInput(f"zero {r_zero} does not fit into {residual.dtype}")


def _sums(
    x: Array,
    w: Array,
    bias: Array,
    window: dict[str, Any],
    x_zero: int,
    w_zero: Array | None = None,
) -> Array:
    """What the kernels sum up, channels last; `w` is [m, c, window..], `w_zero` minus its zeros."""
    zero = None if w_zero is None else -w_zero
    sums = ops.conv_integer.body(np.moveaxis(x, -1, 1), w, np.array(x_zero, x.dtype), **window)
    share = zero_share(w, x_zero, dtypes.name_of(x.dtype)) + bias
    wide = np.moveaxis(sums, 1, -1).astype(np.int64) + share
    if zero is not None:  # the sum of the bytes that a window sees, padding and all
        ones = np.ones((w.shape[0], *w.shape[1:]), np.int8)
        seen = ops.conv_integer.body(
            np.moveaxis(x, -1, 1), ones, np.array(x_zero, x.dtype), **window
        )
        seen = np.moveaxis(seen, 1, -1).astype(np.int64)
        seen = seen + zero_share(ones, x_zero, dtypes.name_of(x.dtype))
        wide = wide - seen * zero
    return wrapped(wide)


def _finished(real: Array, y_zero: int, lo: int, hi: int, dtype: str) -> Array:
    y = np.clip(real, lo - y_zero, hi - y_zero)
    return np.ascontiguousarray((np.rint(y) + y_zero).astype(dtypes.numpy_of(dtype)))


def ended(
    sums: Array,
    scale: Array,
    residual: Array | None,
    table: Array | None,
    y_zero: int,
    lo: int,
    hi: int,
    dtype: str,
    r_zero: int,
    r_scale: float,
) -> Array:
    """What sums become."""
    real = sums.astype(np.float32) * scale
    if dtype == "f32":
        return np.ascontiguousarray(real if residual is None else real + residual)
    if residual is not None:
        apart = residual.astype(np.int32) - r_zero
        real = real + apart.astype(np.float32) * np.float32(r_scale)
    if table is None:
        return _finished(real, y_zero, lo, hi, dtype)
    entries = table if table.ndim == 1 else table_of(table, hi - lo + 1)
    return np.asarray(entries[_finished(real, y_zero, lo, hi, "i32") - lo])


def _requantized(
    x: Array,
    w: Array,
    bias: Array,
    scale: Array,
    window: dict[str, Any],
    x_zero: int,
    y_zero: int,
    lo: int,
    hi: int,
    dtype: str,
) -> Array:
    """`w` is [m, c, window..]."""
    sums = _sums(x, w, bias, window, x_zero)
    return _finished(sums.astype(np.float32) * scale, y_zero, lo, hi, dtype)


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
    """Convolution of bytes [n, .., c]; `w` is packed in runs of a tap, a line or the window.

    `residual` is added before rounding: f32(residual - r_zero) * r_scale, or as it is to f32;
    with a `table`, `table[clamp(.., lo, hi) - lo]`, or on lines in its place
    (piecewise_tables.py); `w_zero` is minus the zeros of the weights.
    """
    neutral = unpacked(w, x.shape[-1] // groups, channels // groups, kernel, run)
    window = {"stride": stride, "pad": pad, "dilation": dilation, "groups": groups}
    sums = _sums(x, neutral, bias, window, x_zero, w_zero)
    if dtype == "i32":
        return np.ascontiguousarray(sums)
    assert scale is not None
    return ended(sums, scale, residual, table, y_zero, lo, hi, dtype, r_zero, r_scale)


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
    _check(x, bias, scale, channels, x_zero, y_zero, lo, hi, dtype)
    made = image_result(
        x, (channels, 1, *kernel), dtype, stride=stride, pad=pad, dilation=dilation, groups=channels
    )
    if why := why_not_woven(kernel, stride, dilation):
        raise BadInput(f"cpu.qdepthwise: {why}")
    vectors = weave_of(kernel, stride, dilation).vectors
    if w.type != Type("i8", (-(-channels // PANEL), vectors, PANEL * FOUR)):
        raise BadInput(f"weights {w.type} are not packed for {channels} channels, kernel {kernel}")
    if table is None:
        return made
    if table.shape != (256,) or table.dtype not in ("i8", "u8"):
        raise BadInput(f"a table of 256 bytes is needed, not {table.type}")
    return Type(table.dtype, made.shape)


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
    """Convolution of bytes in which each channel has a window of its own; `w` is woven.

    `table` says what each byte of the result becomes in the end, counted as u8.
    """
    channels = x.shape[-1]
    taps = weave_of(kernel, stride, dilation).unpacked(w, channels)
    neutral = taps.T.reshape(channels, 1, *kernel)
    window = {"stride": stride, "pad": pad, "dilation": dilation, "groups": channels}
    made = _requantized(x, neutral, bias, scale, window, x_zero, y_zero, lo, hi, dtype)
    return made if table is None else table[made.view(np.uint8)]
