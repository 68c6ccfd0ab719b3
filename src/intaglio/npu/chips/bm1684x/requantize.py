"""RQ and DQ commands: between accumulators and bytes, by one scale per channel or a constant."""

from __future__ import annotations

import numpy as np

from intaglio.errors import Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.bm1684x import arithmetic, native_units, numbers
from intaglio.npu.chips.bm1684x.arithmetic import Fields
from intaglio.npu.chips.bm1684x.lanes import LANE, Memory
from intaglio.npu.chips.bm1684x.numbers import F32, I32

RQ0, RQ1, _, DQ0, DQ1 = range(5)
# registers of chips that round in windowed commands; the first may hold an address instead
MULTIPLIER_REGISTER, SHIFT_REGISTER, OFFSET_REGISTER = 6, 32, 33
ZERO_REGISTER = 5  # the zero of weights


def _parameters(memory: Memory, f: Fields, code: int, at: int) -> Array:
    """One number per channel; those of a channel lie side by side, `at` is the byte."""
    shape = 1, f["res0_c"], 1, 1
    address = f["opd1_addr"]
    step = memory.chip.scale_step // numbers.BYTES[code]
    steps = step * memory.blocks(address, f["res0_c"]), step, 1, 1
    return memory.read(address + at, numbers.dtype(code, 1), shape, steps)


def _fast(memory: Memory, f: Fields, kind: int) -> bool:
    """Run RQ in C, where its types are those of networks; False: not run."""
    code, signed, mode = (f[k] for k in ("res0_prec", "opd2_sign", "opd2_n_str"))
    plain = f["opd0_prec"] in numbers.INTEGERS and code in numbers.INTEGERS
    if not plain or not native_units.available() or (mode if kind == RQ0 else mode > 6):
        return False
    if (f["opd0_prec"] == I32 and not f["opd0_sign"]) or (code == I32 and not signed):
        return False
    shape = tuple(f[s] for s in arithmetic.SHAPE)
    if f["opd1_const"]:
        if kind == RQ0:
            parameters = [numbers.constant(f[k], F32, 1) for k in ("opd1_addr", "opd2_addr")]
        else:
            parameters = _constants(f)
    else:
        kinds = ((F32, 0), (F32, 4)) if kind == RQ0 else ((I32, 0), (I32, 4), (I32, 8))
        parameters = [_parameters(memory, f, c, at) for c, at in kinds]
        if kind == RQ1:
            parameters[2] = _zeros(f, parameters[2])
    if kind == RQ1:
        if np.abs(parameters[1].astype(np.int64)).max() > numbers.MOST_SHIFT:
            return False
    elif not all(np.isfinite(p).all() for p in parameters):
        return False
    y, a = (
        native_units.tensor(
            memory,
            f[f"{name}_addr"],
            numbers.dtype(kind_, sign),
            shape,
            memory.strides(shape, kind_, 0, f[f"{name}_addr"]),
        )
        for name, kind_, sign in (("res0", code, signed), ("opd0", f["opd0_prec"], f["opd0_sign"]))
    )
    native_units.rows(
        "rq0" if kind == RQ0 else "rq1",
        shape,
        y,
        a,
        mode=mode,
        parameters=parameters,
        lanes=memory.lanes,
    )
    return True


def fused(memory: Memory, f: Fields, x: Array) -> Array:
    """What a windowed command does with its sums: ReLU, and rounding as RQ1 does."""
    if f["relu"]:
        x = np.maximum(x, 0)
    if not f["rq"]:
        return x
    multiplier, by, zero = _fused_parameters(memory, f)
    return numbers.shift(x.astype(np.int64) * multiplier, by, f["opd2_n_str"]) + zero


def store_fused(memory: Memory, f: Fields, x: Array) -> bool:
    """The same in C, with the result stored; False: its types or sizes need numpy."""
    code, signed = f["res0_prec"], f["res0_sign"]
    most = np.iinfo(np.int32).max
    if not native_units.available() or not f["rq"] or f["opd2_n_str"] > 6:
        return False
    if code not in numbers.INTEGERS or (code == I32 and not signed):
        return False
    if x.dtype != np.int32 and (int(x.max()) > most or int(x.min()) < -most):
        return False
    parameters = _fused_parameters(memory, f)
    if np.abs(parameters[1].astype(np.int64)).max() > numbers.MOST_SHIFT:
        return False
    n, c, h, w = shape = tuple(f[s] for s in arithmetic.SHAPE)
    to = f["res0_addr"]
    blocks, lane = memory.blocks(to, c), memory.lane_of(to)
    plane = h * w * n
    if blocks * plane * 4 > LANE:
        return False
    at = (blocks, memory.lanes, n, h, w), np.int32, memory.scratch.data, 0
    sums = np.ndarray(*at, (plane * 4, LANE, h * w * 4, w * 4, 4)).transpose(2, 0, 1, 3, 4)
    x = np.maximum(x, 0) if f["relu"] else x
    first = 0
    for block in range(blocks):
        start = lane if not block else 0
        count = min(memory.lanes - start, c - first)
        sums[:, block, start : start + count] = x[:, first : first + count]
        first += count
    y = native_units.tensor(
        memory, to, numbers.dtype(code, signed), shape, memory.strides(shape, code, 0, to)
    )
    given = memory.scratch.ctypes.data, h * w * 4, plane * 4, w * 4, 4, lane
    a = native_units.Tensor(*given, native_units.TYPES[np.dtype(np.int32)])
    mode = f["opd2_n_str"]
    native_units.rows("rq1", shape, y, a, mode=mode, parameters=parameters, lanes=memory.lanes)
    return True


def _fused_parameters(memory: Memory, f: Fields) -> list[Array]:
    """Multiplier, shift and zero of the rounding in a windowed command."""
    at = memory.registers.get(MULTIPLIER_REGISTER, 0)
    if f["opd5_const"]:
        by = numbers.constant(memory.registers.get(SHIFT_REGISTER, 0), numbers.I8, 1)
        zero = numbers.constant(memory.registers.get(OFFSET_REGISTER, 0), numbers.I16, 1)
        return [numbers.constant(at, I32, 1), by, zero]
    shape = 1, f["res0_c"], 1, 2
    both = memory.read(at, numbers.dtype(I32, 1), shape, memory.strides(shape, I32, 1, at))
    second = both[..., 1:]
    return [both[..., :1], second.astype(np.int8), (second >> 16).astype(np.int16)]


def _zeros(f: Fields, zero: Array) -> Array:
    """The zeros of RQ1 have 16 bits, with a sign where the result has one."""
    return zero.astype(np.int16 if f["opd2_sign"] else np.uint16)


def _constants(f: Fields) -> list[Array]:
    """Multiplier, shift and zero of RQ1 in a command."""
    two = f["opd2_addr"]
    return [
        numbers.constant(f["opd1_addr"], I32, 1),
        numbers.constant(two, numbers.I8, 1),
        numbers.constant(two >> 8, numbers.I16, f["opd2_sign"]),
    ]


def run(memory: Memory, f: Fields) -> None:
    """An RQ or DQ command."""
    kind, mode, constant = f["tsk_eu_typ"], f["opd2_n_str"], f["opd1_const"]
    if kind in (RQ0, RQ1) and _fast(memory, f, kind):
        return
    x = arithmetic.operand(memory, f, "opd0")
    one, two = f["opd1_addr"], f["opd2_addr"]
    code, signed = f["res0_prec"], f["opd2_sign"]
    if kind == RQ0:
        if constant:
            scale, offset = (numbers.constant(v, F32, 1) for v in (one, two))
        else:
            scale, offset = (_parameters(memory, f, F32, at) for at in (0, 4))
        y = x.astype(np.float32) * scale + offset
        arithmetic.store(memory, f, numbers.to_integer(y, mode, code, signed), signed)
    elif kind == RQ1:
        if constant:
            multiplier, by, zero = _constants(f)
        else:
            multiplier, by, zero = (_parameters(memory, f, I32, at) for at in (0, 4, 8))
            zero = _zeros(f, zero)
        product = x.astype(np.int64) * multiplier
        y = numbers.shift(product, by, mode) + zero
        arithmetic.store(memory, f, numbers.saturate(y, code, signed), signed)
    elif kind == DQ0:
        if constant:
            first, second = (one, two) if memory.chip.zero_first else (two, one)
            zero, scale = numbers.constant(first, I32, 1), numbers.constant(second, F32, 1)
        else:
            first, second = (0, 4) if memory.chip.zero_first else (4, 0)
            zero, scale = _parameters(memory, f, I32, first), _parameters(memory, f, F32, second)
        arithmetic.store(memory, f, (x.astype(np.int64) - zero).astype(np.float32) * scale, 1)
    elif kind == DQ1:
        if constant:
            zero = numbers.constant(one, numbers.I16, f["opd0_sign"])
            by = numbers.constant(one >> 16, numbers.I8, 1)
            multiplier = numbers.constant(two, I32, 1)
        else:
            zero, multiplier, by = (_parameters(memory, f, I32, at) for at in (0, 4, 8))
        y = numbers.shift((x.astype(np.int64) - zero) * multiplier, by, mode)
        arithmetic.store(memory, f, numbers.saturate(y, code, f["opd0_sign"]), f["opd0_sign"])
    else:
        raise Unsupported(f"command RQ&DQ of kind {kind} is not simulated")
