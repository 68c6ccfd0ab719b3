"""SFU commands: series and reciprocal square roots."""

from __future__ import annotations

import numpy as np

from intaglio.errors import BadFile, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.bm1684x import arithmetic, numbers
from intaglio.npu.chips.bm1684x.arithmetic import Fields
from intaglio.npu.chips.bm1684x.division import rsqrt
from intaglio.npu.chips.bm1684x.lanes import Memory

TAYLOR_4X, TAYLOR, NORMALIZE, RSQRT = 12, 13, 15, 17


def run(memory: Memory, f: Fields) -> None:
    """An SFU command."""
    kind, code = f["tsk_eu_typ"], f["opd0_prec"]
    if code not in (numbers.F32, numbers.F16) or f["res0_prec"] != code:
        raise Unsupported(f"command SFU on type {numbers.NAMES.get(code, code)} is not simulated")
    x = arithmetic.operand(memory, f, "opd0")
    if kind in (TAYLOR, TAYLOR_4X):
        arithmetic.store(memory, f, _series(memory, f, x), 1)
    elif kind == RSQRT and code == numbers.F32:
        arithmetic.store(memory, f, rsqrt(x, f["opd2_n_str"] + 1), 1)
    else:
        raise Unsupported(f"command SFU of kind {kind} is not simulated")


def _series(memory: Memory, f: Fields, x: Array) -> Array:
    """c0 + x * (c1 + x * (c2 ...)), each step rounded; each lane has its own coefficients."""
    count, channels = f["opd1_n"], f["res0_c"]
    if not count:
        raise BadFile("command SFU has a series without coefficients")
    shape = 1, min(channels, memory.lanes), 1, count
    lane = memory.lane_of(f["opd1_addr"])
    if lane:
        raise Unsupported("command SFU with coefficients that begin in another lane")
    table = memory.read(f["opd1_addr"], x.dtype, shape, (0, 0, count, 1))
    first = memory.lane_of(f["res0_addr"])
    table = table[:, (first + np.arange(channels)) % memory.lanes % shape[1]]
    y = np.broadcast_to(table[..., -1:], x.shape)
    with np.errstate(all="ignore"):
        for k in range(count - 2, -1, -1):
            y = y * x + table[..., k : k + 1]
    return y
