"""RQ and DQ commands: between accumulators and bytes, by one scale per channel or a constant."""

from __future__ import annotations

import numpy as np

from intaglio.errors import Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.bm1684x import arithmetic, numbers
from intaglio.npu.chips.bm1684x.arithmetic import Fields
from intaglio.npu.chips.bm1684x.lanes import LANE, Memory, strides
from intaglio.npu.chips.bm1684x.numbers import F32, I32

RQ0, RQ1, _, DQ0, DQ1 = range(5)


def _parameters(memory: Memory, f: Fields, code: int, at: int) -> Array:
    """One number per channel; those of a channel lie side by side, `at` is the byte."""
    shape = 1, f["res0_c"], 1, 1
    address = f["opd1_addr"]
    steps = strides(shape, code, 0, address // LANE)
    return memory.read(address + at, numbers.dtype(code, 1), shape, steps)


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
            multiplier = numbers.constant(one, I32, 1)
            by = numbers.constant(two, numbers.I8, 1)
            zero = numbers.constant(two >> 8, numbers.I16, signed)
        else:
            multiplier, by, zero = (_parameters(memory, f, I32, at) for at in (0, 4, 8))
        product = x.astype(np.int64) * multiplier
        y = numbers.shift(product, by, mode) + zero
        arithmetic.store(memory, f, numbers.saturate(y, code, signed), signed)
    elif kind == DQ0:
        if constant:
            zero, scale = numbers.constant(one, I32, 1), numbers.constant(two, F32, 1)
        else:
            zero, scale = _parameters(memory, f, I32, 0), _parameters(memory, f, F32, 4)
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
