"""RQ and DQ commands: between accumulators and bytes, by one scale per channel or a constant."""

from __future__ import annotations

import numpy as np

from intaglio.errors import Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.bm1684x import arithmetic, numbers
from intaglio.npu.chips.bm1684x.arithmetic import Fields
from intaglio.npu.chips.bm1684x.lanes import Memory
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


def fused(memory: Memory, f: Fields, x: Array) -> Array:
    """What a windowed command does with its sums: ReLU, and rounding as RQ1 does."""
    if f["relu"]:
        x = np.maximum(x, 0)
    if not f["rq"]:
        return x
    multiplier, by, zero = fused_parameters(memory, f)
    return numbers.shift(x.astype(np.int64) * multiplier, by, f["opd2_n_str"]) + zero


def fused_parameters(memory: Memory, f: Fields) -> list[Array]:
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


def constants(f: Fields) -> list[Array]:
    """Multiplier, shift and zero of RQ1 in a command."""
    two = f["opd2_addr"]
    return [
        numbers.constant(f["opd1_addr"], I32, 1),
        numbers.constant(two, numbers.I8, 1),
        numbers.constant(two >> 16, numbers.I16, f["opd2_sign"]),
    ]


def run(memory: Memory, f: Fields) -> None:
    """An RQ or DQ command."""
    kind, mode, constant = f["tsk_eu_typ"], f["opd2_n_str"], f["opd1_const"]
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
            multiplier, by, zero = constants(f)
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
