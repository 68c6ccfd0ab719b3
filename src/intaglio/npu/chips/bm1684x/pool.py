"""PorD commands: depthwise convolutions and pools."""

from __future__ import annotations

import numpy as np

from intaglio.errors import Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.bm1684x import arithmetic, native_units, numbers, requantize
from intaglio.npu.chips.bm1684x.arithmetic import Fields
from intaglio.npu.chips.bm1684x.lanes import Memory
from intaglio.npu.chips.bm1684x.numbers import FLOATS, I32
from intaglio.npu.chips.bm1684x.variants import SG2260
from intaglio.npu.chips.bm1684x.windows import BYTE, EXACT, Windows, input_of, per_channel

DEPTHWISE, AVERAGE, DEPTHWISE_RELU, _, MAX = range(5)


def run(memory: Memory, f: Fields) -> None:
    """A PorD command."""
    kind, code, result = f["tsk_eu_typ"], f["opd0_prec"], f["res0_prec"]
    windows = Windows(memory, f, input_of(memory, f, f["res0_c"]))
    kh, kw = windows.kernel
    taps = [(y, x) for y in range(kh) for x in range(kw)]
    if kind == MAX:
        found = windows.tap(0, 0)
        if code in FLOATS and memory.chip is not SG2260:  # it begins at the smallest finite number
            found = np.maximum(found, np.finfo(found.dtype).min)
        for y, x in taps[1:]:
            found = np.maximum(found, windows.tap(y, x))
        arithmetic.store(memory, f, found, f["opd0_sign"])
        return
    if kind not in (DEPTHWISE, AVERAGE, DEPTHWISE_RELU):
        raise Unsupported(f"command PorD of kind {kind} is not simulated")
    wide = np.dtype(np.float32 if code in FLOATS else np.int64)
    if code == numbers.F16:
        wide = np.dtype(np.float16)
    weights = _pool_weights(memory, f, kind).astype(wide)
    if f["kernel_rotate"]:
        weights = weights[:, :, ::-1, ::-1]
    shape = f["res0_n"], f["res0_c"], *windows.out
    signed = f["opd0_sign"] | (f["opd1_sign"] if kind != AVERAGE or f["opd1_const"] else 0)
    bias = None
    if kind != AVERAGE:
        bias = per_channel(memory, f, "opd2", code if code in FLOATS else I32, 1)
        signed |= f["opd2_sign"]
    total = window_sums(windows, weights, bias, code, shape)
    if bias is not None and code not in FLOATS and bias.any():
        total = total + bias.astype(np.int64)
    if kind == DEPTHWISE_RELU:
        total = np.maximum(total, 0)
    if code in FLOATS:
        arithmetic.store(memory, f, total, 1)
        return
    if memory.chip.rounds:
        total, signed = requantize.fused(memory, f, total.astype(np.int64)), f["res0_sign"]
        by = 0
    else:
        by = -(f["opd2_addr"] & 0xFF) if kind == AVERAGE else signed_byte(f["res1_addr"])
    if by:
        total = numbers.shift(total.astype(np.int64), by, f["opd2_n_str"])
    if result != I32 or total.dtype != np.int32 or not signed:
        total = numbers.saturate(total, result, signed)
    arithmetic.store(memory, f, total, signed)


def window_sums(
    windows: Windows, weights: Array, bias: Array | None, code: int, shape: tuple[int, ...]
) -> Array:
    """The sums of each channel's windows; those of floats begin with the bias.

    Products of floats are dealt to two sums in turn. f16 and bf16 round each step.
    """
    if native_units.available() and code not in (numbers.F16, numbers.BF16):
        exact = 0 if code in FLOATS else EXACT // (BYTE * BYTE)
        return _native_pool(windows, weights, shape, exact, None if exact else bias)
    wide = weights.dtype
    sums = [np.zeros(shape, wide), np.zeros(shape, wide)]
    if bias is not None and code in FLOATS:
        sums[1] += bias.astype(wide)
    width = windows.kernel[1]
    for k in range(windows.kernel[0] * width):
        y, x = divmod(k, width)
        one: Array = weights[:, :, y : y + 1, x : x + 1]
        product = _rounded(windows.tap(y, x).astype(wide) * one, code)
        sums[k % 2] = _rounded(sums[k % 2] + product, code)
    return _rounded(sums[0] + sums[1], code)


def _rounded(x: Array, code: int) -> Array:
    """A result of f32 in bf16, if that is the type."""
    return numbers.from_bits(numbers.to_bf16(x), code) if code == numbers.BF16 else x


def signed_byte(bits: int) -> int:
    """The lowest byte as a number with a sign."""
    return (bits & 0xFF ^ 0x80) - 0x80


def _pool_weights(memory: Memory, f: Fields, kind: int) -> Array:
    kh, kw, c, code = f["opd1_h"], f["opd1_w"], f["res0_c"], f["opd0_prec"]
    if kind == AVERAGE or f["opd1_const"]:
        value = numbers.constant(f["opd1_addr"], code, f["opd1_sign"])
        return np.broadcast_to(value, (1, 1, kh, kw))
    shape, address = (1, c, kh, kw), f["opd1_addr"]
    steps = memory.strides(shape, code, 1, address)
    raw = memory.read(address, numbers.dtype(code, f["opd1_sign"]), shape, steps)
    return numbers.from_bits(raw, code)


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
