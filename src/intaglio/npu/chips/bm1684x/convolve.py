"""CONV (convolution) and PorD (depthwise convolution, pooling)."""

from __future__ import annotations

import numpy as np

from intaglio.errors import BadFile, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.bm1684x import arithmetic, native_units, numbers
from intaglio.npu.chips.bm1684x.arithmetic import Fields
from intaglio.npu.chips.bm1684x.lanes import LANE, LANES, MOST, Memory, strides
from intaglio.npu.chips.bm1684x.native_units import BEYOND
from intaglio.npu.chips.bm1684x.numbers import F32, FLOATS, I8, I32

IC_AT_ONCE = {I8: 64, numbers.F16: 32, numbers.BF16: 32, F32: 1}  # inputs side by side in weights
BYTE = 256  # a byte, or the difference of two, is smaller
EXACT = 1 << 24  # integers up to here are exact in f32
DEPTHWISE, AVERAGE, DEPTHWISE_RELU, _, MAX = range(5)


class Windows:
    """The input of a convolution or pooling: padded, spread out, and its taps."""

    def __init__(self, memory: Memory, f: Fields, x: Array):
        self.f = f
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
            strides(shape, code, 1, address // LANE),
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


def _input(memory: Memory, f: Fields, channels: int) -> Array:
    shape = f["res0_n"], channels, f["opd0_h"], f["opd0_w"]
    return arithmetic.operand(memory, f, "opd0", shape)


def conv(memory: Memory, f: Fields) -> None:
    """A CONV command."""
    code = f["opd0_prec"]
    if f["tsk_eu_typ"] or code not in IC_AT_ONCE:
        raise Unsupported(f"command CONV of kind {f['tsk_eu_typ']} on type {code} is not simulated")
    windows = Windows(memory, f, _input(memory, f, f["opd0_c"]))
    weights = _weights(memory, f)
    if f["kernel_rotate"]:
        weights = weights[:, :, ::-1, ::-1]
    n, oc = f["res0_n"], f["res0_c"]
    shape = n, oc, *windows.out
    signed, before = 1, None
    if code not in FLOATS:
        signed = f["opd0_sign"] | f["opd1_sign"] | f["opd2_sign"]
    if f["res_add"]:
        before = arithmetic.operand(memory, {**_of_result(f), "opd_sign": signed}, "opd")
    if code in FLOATS:
        bias = _per_channel(memory, f, "opd2", F32, 1)
        y = _float_conv(windows, weights, shape, bias, before)
    else:
        y = _integer_conv(windows, weights - _weight_zero(memory, f), shape)
        if before is not None:
            y = y + before.astype(np.int64)
        if f["res0_prec"] != I32 or y.dtype != np.int32 or not signed:
            y = numbers.saturate(y.astype(np.int64), f["res0_prec"], signed)
    arithmetic.store(memory, {**f, "res0_str": 0}, y, signed)


def _of_result(f: Fields) -> dict[str, int]:
    names = ("res0_n", "res0_c", "res0_h", "res0_w")
    return {**{k: f[k] for k in names}, "opd_prec": f["res0_prec"], "opd_addr": f["res0_addr"]}


def _weights(memory: Memory, f: Fields) -> Array:
    """Weights [outputs, inputs, h, w]."""
    code, oc, ic, kh, kw = (f[k] for k in ("opd0_prec", "res0_c", "opd0_c", "opd1_h", "opd1_w"))
    if f["opd1_const"]:
        value = numbers.constant(f["opd1_addr"], code, f["opd1_sign"])
        return np.broadcast_to(value, (oc, ic, kh, kw))
    at_once = IC_AT_ONCE[code]
    row = -(-ic // at_once) * kh * kw * at_once
    shape = 1, oc, 1, row
    blocks = -(-(f["opd1_addr"] // LANE + oc) // LANES)
    raw = memory.read(
        f["opd1_addr"], numbers.dtype(code, f["opd1_sign"]), shape, (row * blocks, row, row, 1)
    )
    packed = numbers.from_bits(raw, code).reshape(oc, -1, kh, kw, at_once)
    return packed.transpose(0, 1, 4, 2, 3).reshape(oc, -1, kh, kw)[:, :ic]


def _weight_zero(memory: Memory, f: Fields) -> Array:
    if f["opd2_const"]:
        return numbers.constant(f["opd2_addr"], I8, f["opd2_sign"]).astype(np.int16)
    shape, address = (1, f["opd0_c"], 1, 1), f["opd2_addr"]
    steps = strides(shape, I8, 1, address // LANE)
    return memory.read(address, numbers.dtype(I8, f["opd2_sign"]), shape, steps).astype(np.int16)


def _per_channel(memory: Memory, f: Fields, name: str, code: int, signed: int) -> Array:
    """A number per result channel, compact, or a constant."""
    if f[f"{name}_const"]:
        return numbers.constant(f[f"{name}_addr"], code, signed)
    shape, address = (1, f["res0_c"], 1, 1), f[f"{name}_addr"]
    steps = strides(shape, code, 1, address // LANE)
    raw = memory.read(address, numbers.dtype(code, signed), shape, steps)
    return numbers.from_bits(raw, code)


def _integer_conv(windows: Windows, weights: Array, shape: tuple[int, ...]) -> Array:
    """Sums of products, by products of f32 matrices that stay exact."""
    n, oc, oh, ow = shape
    kh, kw = windows.kernel
    ic = weights.shape[1]
    if native_units.available():
        return _native_conv(windows, weights, shape, exact=EXACT // (BYTE * BYTE))
    most_w = int(np.abs(weights).max(initial=1)) or 1
    most_x = max(1, int(windows.x.max(initial=0)), -int(windows.x.min(initial=0)))
    step = max(1, EXACT // (most_w * most_x))
    y = np.zeros((n, oc, oh * ow), np.int64)
    flat = np.ascontiguousarray(weights.transpose(0, 2, 3, 1), np.float32).reshape(oc, -1)
    columns = np.empty((kh * kw * ic, oh * ow), np.float32)
    for i in range(n):
        for k in range(kh * kw):
            columns[k * ic : (k + 1) * ic] = windows.tap(k // kw, k % kw)[i].reshape(ic, -1)
        for first in range(0, len(columns), step):
            y[i] += (flat[:, first : first + step] @ columns[first : first + step]).astype(np.int64)
    return y.reshape(shape)


def _native_conv(
    windows: Windows,
    weights: Array,
    shape: tuple[int, ...],
    exact: int = 0,
    begin: tuple[Array | None, Array | None] = (None, None),
) -> Array:
    n, oc, oh, ow = shape
    ic = weights.shape[1]
    flat, taps, plane, width = windows.spread()
    pixels = (oh - 1) * width + ow
    offsets = (np.arange(ic)[:, None] * plane + taps.reshape(1, -1)).reshape(-1)
    starts = [None if a is None else _in_rows(a, shape, width) for a in begin]
    y = np.empty((n, oc, oh * width), np.int32 if exact else np.float32)
    for i in range(n):
        first = [None if a is None else a[i : i + 1, :, :pixels] for a in starts]
        flat_weights = weights.reshape(1, oc, -1)
        one = flat[i * ic * plane :]
        found = native_units.sums(one, flat_weights, offsets, pixels, exact=exact, begin=first)
        y[i, :, :pixels] = found[0]
    return y.reshape(n, oc, oh, width)[..., :ow]


def _in_rows(values: Array, shape: tuple[int, ...], width: int) -> Array:
    """A result [n, c, h, w] in rows of another width, [n, c, pixels]."""
    n, c, h, w = shape
    wide = np.zeros((n, c, h, width), np.float32)
    wide[..., :w] = values
    return wide.reshape(n, c, -1)


def _native_pool(
    windows: Windows, weights: Array, shape: tuple[int, ...], exact: int, bias: Array | None
) -> Array:
    n, c, oh, ow = shape
    flat, taps, plane, width = windows.spread()
    pixels = (oh - 1) * width + ow
    all_weights = np.broadcast_to(weights, (n, c, *weights.shape[2:])).reshape(n * c, 1, -1)
    first = None
    if bias is not None:
        first = np.broadcast_to(bias.reshape(1, -1), (n, c)).reshape(n * c, 1, 1)
    places = taps.reshape(-1)
    found = native_units.sums(flat, all_weights, places, pixels, plane, exact, (None, first))
    if pixels == oh * width:
        return found.reshape(n, c, oh, width)[..., :ow]
    y = np.empty((n, c, oh * width), found.dtype)
    y[..., :pixels] = found.reshape(n, c, pixels)
    return y.reshape(n, c, oh, width)[..., :ow]


def _float_conv(
    windows: Windows, weights: Array, shape: tuple[int, ...], bias: Array, before: Array | None
) -> Array:
    if native_units.available():
        return _native_conv(windows, weights, shape, begin=native_units.two_sums(bias, before))
    kh, kw = windows.kernel
    sums = [
        np.broadcast_to(np.float32(0) if a is None else a, shape).astype(np.float32)
        for a in native_units.two_sums(bias, before)
    ]
    for k in range(weights.shape[1] * kh * kw):
        channel, (y, x) = k // (kh * kw), divmod(k % (kh * kw), kw)
        tap = windows.tap(y, x)[:, channel : channel + 1].astype(np.float32)
        one = weights[:, channel, y, x].astype(np.float32).reshape(1, -1, 1, 1)
        sums[k % 2] = sums[k % 2] + tap * one
    return sums[0] + sums[1]


def pool(memory: Memory, f: Fields) -> None:
    """A PorD command."""
    kind, code, result = f["tsk_eu_typ"], f["opd0_prec"], f["res0_prec"]
    windows = Windows(memory, f, _input(memory, f, f["res0_c"]))
    kh, kw = windows.kernel
    taps = [(y, x) for y in range(kh) for x in range(kw)]
    if kind == MAX:
        found = windows.tap(0, 0)
        if code in FLOATS:  # the search begins at the smallest finite number
            found = np.maximum(found, np.finfo(found.dtype).min)
        for y, x in taps[1:]:
            found = np.maximum(found, windows.tap(y, x))
        arithmetic.store(memory, f, found, f["opd0_sign"])
        return
    if kind not in (DEPTHWISE, AVERAGE, DEPTHWISE_RELU):
        raise Unsupported(f"command PorD of kind {kind} is not simulated")
    wide = np.float32 if code in FLOATS else np.int64
    weights = _pool_weights(memory, f, kind).astype(wide)
    if f["kernel_rotate"]:
        weights = weights[:, :, ::-1, ::-1]
    shape = f["res0_n"], f["res0_c"], *windows.out
    signed = f["opd0_sign"] | (f["opd1_sign"] if kind != AVERAGE or f["opd1_const"] else 0)
    bias = None
    if kind != AVERAGE:
        bias = _per_channel(memory, f, "opd2", code if code in FLOATS else I32, 1)
        signed |= f["opd2_sign"]
    if native_units.available():
        exact = 0 if code in FLOATS else EXACT // (BYTE * BYTE)
        total = _native_pool(windows, weights, shape, exact, None if exact else bias)
    else:
        sums = [np.zeros(shape, wide), np.zeros(shape, wide)]
        if bias is not None and code in FLOATS:
            sums[1] += bias
        for k, (y, x) in enumerate(taps):
            one: Array = weights[:, :, y : y + 1, x : x + 1]
            sums[k % 2] += windows.tap(y, x).astype(wide) * one
        total = sums[0] + sums[1]
    if bias is not None and code not in FLOATS and bias.any():
        total = total + bias.astype(np.int64)
    if kind == DEPTHWISE_RELU:
        total = np.maximum(total, 0)
    if code in FLOATS:
        arithmetic.store(memory, f, total, 1)
        return
    by = -(f["opd2_addr"] & 0xFF) if kind == AVERAGE else signed_byte(f["res1_addr"])
    if by:
        total = numbers.shift(total.astype(np.int64), by, f["opd2_n_str"])
    if result != I32 or total.dtype != np.int32 or not signed:
        total = numbers.saturate(total, result, signed)
    arithmetic.store(memory, f, total, signed)


def signed_byte(bits: int) -> int:
    """The lowest byte as a number with a sign."""
    return (bits & 0xFF ^ 0x80) - 0x80


def _pool_weights(memory: Memory, f: Fields, kind: int) -> Array:
    kh, kw, c, code = f["opd1_h"], f["opd1_w"], f["res0_c"], f["opd0_prec"]
    if kind == AVERAGE or f["opd1_const"]:
        value = numbers.constant(f["opd1_addr"], code, f["opd1_sign"])
        return np.broadcast_to(value, (1, 1, kh, kw))
    shape, address = (1, c, kh, kw), f["opd1_addr"]
    steps = strides(shape, code, 1, address // LANE)
    raw = memory.read(address, numbers.dtype(code, f["opd1_sign"]), shape, steps)
    return numbers.from_bits(raw, code)
