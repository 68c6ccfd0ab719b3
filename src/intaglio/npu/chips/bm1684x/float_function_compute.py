"""npu.function as commands; function_steps.py has the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from intaglio.npu.chips.bm1684x import tiu
from intaglio.npu.chips.bm1684x.compute import Work
from intaglio.npu.chips.bm1684x.float_functions import layer_steps, series_of
from intaglio.npu.chips.bm1684x.float_ops import STEPS
from intaglio.npu.chips.bm1684x.function_steps import SERIES, Number, Step, registers
from intaglio.npu.chips.bm1684x.local import Local, packed
from intaglio.npu.chips.bm1684x.tiu import Const

PAIRS = {"add": tiu.ADD, "sub": tiu.SUB, "mul": tiu.MUL, "max": tiu.MAX, "min": tiu.MIN}


def function(work: Work) -> None:
    """The commands of npu.function, some blocks of channels at a time."""
    steps = layer_steps(work.layer.attrs)
    at = work.fields.get("table", 0) // work.chip.lanes
    tables = {}
    for name in series_of(steps):
        tables[name] = at
        at += work.chip.aligned(SERIES[name].nbytes)
    for first, count in work.passes():
        y, x = work.y.some_blocks(first, count), work.x.some_blocks(first, count)
        _run(work, y, x, steps, tables)


def _run(work: Work, y: Local, x: Local, steps: Sequence[Step], tables: dict[str, int]) -> None:
    emit = work.emit
    first = packed(work.chip, work.at, "f32", y.channels, y.height, y.width)
    size = first.plane * first.blocks
    operand = x
    if x.dtype != "f32" or not x.regular:
        emit(tiu.arithmetic(tiu.COPY if x.dtype == "f32" else tiu.CAST, first, x))
        operand = first
    found = [operand]
    found += [replace(first, address=first.address + k * size) for k in registers(steps)]
    if y.dtype == "f32" and y.regular:
        found[-1] = y
    for k, s in enumerate(steps):
        to, a = found[k + 1], found[s.a.at]
        b: Any = found[s.b.at] if isinstance(s.b, Number) else s.b
        _emit(emit, s, to, a, b, tables)
    if found[-1] is not y:
        emit(tiu.arithmetic(tiu.COPY if y.dtype == "f32" else tiu.CAST, y, found[-1]))


def _emit(emit: Any, s: Step, to: Local, a: Local, b: Any, tables: dict[str, int]) -> None:
    if s.kind in PAIRS:
        other = b if isinstance(b, Local) else Const(float(np.float32(b)), "f32")
        emit(tiu.arithmetic(PAIRS[s.kind], to, a, other))
        return
    match s.kind:
        case "abs":
            emit(tiu.arithmetic(tiu.ABS, to, a))
        case "round":
            emit(tiu.arithmetic(tiu.CAST, to, a))
        case "integer":
            emit(tiu.arithmetic(tiu.CAST, replace(to, dtype="i32"), a))
        case "add_bits":
            bits = (replace(v, dtype="i32") for v in (to, a, b))
            emit(tiu.arithmetic(tiu.ADD, *bits))
        case "inverse":
            emit(tiu.divide(to, Const(1.0, "f32"), a, STEPS))
        case "root":
            emit(tiu.reciprocal_root(to, a, STEPS))
        case "series":
            emit(tiu.series(to, a, tables[b], len(SERIES[b])))
