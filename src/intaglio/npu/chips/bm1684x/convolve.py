"""CONV commands: convolutions."""

from __future__ import annotations

import numpy as np

from intaglio.errors import Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.bm1684x import arithmetic, native_units, numbers, requantize
from intaglio.npu.chips.bm1684x.arithmetic import Fields
from intaglio.npu.chips.bm1684x.lanes import Memory
from intaglio.npu.chips.bm1684x.numbers import F32, FLOATS, I8, I32
from intaglio.npu.chips.bm1684x.windows import BYTE, EXACT, Windows, input_of, per_channel

IC_SHARE = {I8: 1, numbers.F16: 2, numbers.BF16: 2, F32: 64}  # of the inputs side by side


def conv(memory: Memory, f: Fields) -> None:
    """A CONV command."""
    code = f["opd0_prec"]
    if f["tsk_eu_typ"] or code not in IC_SHARE:
        raise Unsupported(f"command CONV of kind {f['tsk_eu_typ']} on type {code} is not simulated")
    windows = Windows(memory, f, input_of(memory, f, f["opd0_c"]))
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
        bias = per_channel(memory, f, "opd2", F32, 1)
        y = float_sums(windows, weights, shape, bias, before)
        y = np.maximum(y, 0) if memory.chip.rounds and f["relu"] else y
    else:
        y = _integer_conv(windows, weights - _weight_zero(memory, f), shape)
        if before is not None:
            y = y + before.astype(np.int64)
        if memory.chip.rounds:
            bias = per_channel(memory, f, "opd2", I32, f["opd2_sign"])
            y = y + bias.astype(np.int64) if bias.any() else y
            y, signed = requantize.fused(memory, f, y), f["res0_sign"]
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
    at_once = max(1, memory.chip.inputs_at_once // IC_SHARE[code])
    row = -(-ic // at_once) * kh * kw * at_once
    shape = 1, oc, 1, row
    blocks = memory.blocks(f["opd1_addr"], oc)
    raw = memory.read(
        f["opd1_addr"], numbers.dtype(code, f["opd1_sign"]), shape, (row * blocks, row, row, 1)
    )
    packed = numbers.from_bits(raw, code).reshape(oc, -1, kh, kw, at_once)
    return packed.transpose(0, 1, 4, 2, 3).reshape(oc, -1, kh, kw)[:, :ic]


def _weight_zero(memory: Memory, f: Fields) -> Array:
    if memory.chip.rounds:
        if not f["opd4_const"]:
            raise Unsupported("command CONV with zeros of weights in memory is not simulated")
        zero = memory.registers.get(requantize.ZERO_REGISTER, 0) if f["rq"] else 0
        return numbers.constant(zero, numbers.I16, 1)
    if f["opd2_const"]:
        return numbers.constant(f["opd2_addr"], I8, f["opd2_sign"]).astype(np.int16)
    shape, address = (1, f["opd0_c"], 1, 1), f["opd2_addr"]
    steps = memory.strides(shape, I8, 1, address)
    return memory.read(address, numbers.dtype(I8, f["opd2_sign"]), shape, steps).astype(np.int16)


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
    half: bool = False,
) -> Array:
    n, oc, oh, ow = shape
    ic = weights.shape[1]
    flat, taps, plane, width = windows.spread()
    pixels = (oh - 1) * width + ow
    offsets = np.arange(ic)[:, None] * plane + taps.reshape(1, -1)  # [inputs, taps]
    weights, sizes = weights.reshape(oc, *offsets.shape), None
    if half:
        native_units.needed("sums of f16")
        offsets, weights, sizes = _in_blocks(offsets, weights, windows.half_block)
    offsets, weights = offsets.reshape(-1), weights.reshape(1, oc, -1)
    starts = [None if a is None else _in_rows(a, shape, width) for a in begin]
    y = np.empty((n, oc, oh * width), np.int32 if exact else np.float32)
    for i in range(n):
        first = [None if a is None else a[i : i + 1, :, :pixels] for a in starts]
        one = flat[i * ic * plane :]
        y[i, :, :pixels] = native_units.sums(
            one, weights, offsets, pixels, exact=exact, begin=first, blocks=sizes
        )[0]
    return y.reshape(n, oc, oh, width)[..., :ow]


def _in_blocks(offsets: Array, weights: Array, size: int) -> tuple[Array, Array, Array]:
    """Taps [inputs, kernel] in the chip's order: `size` inputs, all taps, then the next ones."""
    order, sizes = [], []
    inputs, taps = offsets.shape
    places = np.arange(inputs * taps).reshape(inputs, taps)
    for first in range(0, inputs, size):
        part = places[first : first + size]
        order.append(part.T.reshape(-1))
        sizes += [len(part)] * taps
    index = np.concatenate(order)
    return offsets.reshape(-1)[index], weights.reshape(len(weights), -1)[:, index], np.array(sizes)


def _in_rows(values: Array, shape: tuple[int, ...], width: int) -> Array:
    """A result [n, c, h, w] in rows of another width, [n, c, pixels]."""
    n, c, h, w = shape
    wide = np.zeros((n, c, h, width), np.float32)
    wide[..., :w] = values
    return wide.reshape(n, c, -1)


def float_sums(
    windows: Windows, weights: Array, shape: tuple[int, ...], bias: Array, before: Array | None
) -> Array:
    """f32 sums of a convolution of floats, in the order in which the chip adds."""
    if windows.f["opd0_prec"] != F32:
        first = bias if before is None else bias + before
        return _native_conv(windows, weights, shape, begin=(first, None), half=True)
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
