"""Commands that move data inside local memory: TRANS&BC, SG."""

from __future__ import annotations

import numpy as np

from intaglio.errors import BadFile, Unsupported
from intaglio.npu.chips.bm1684x import numbers
from intaglio.npu.chips.bm1684x.arithmetic import SHAPE, Fields
from intaglio.npu.chips.bm1684x.lanes import STATIC_AT, Memory, align

CW, WC, COPY, BROADCAST, STATIC_BROADCAST, STATIC_DISTRIBUTE = range(6)


def run(memory: Memory, f: Fields) -> None:
    """A TRANS&BC command."""
    kind, code = f["tsk_eu_typ"], f["res0_prec"]
    n, c, h, w = shape = tuple(f[s] for s in SHAPE)
    dtype = numbers.dtype(code, 0)
    to, start = f["res0_addr"], f["opd0_addr"]
    if kind in (CW, WC):
        turned = n, w, h, c
        steps = memory.strides(turned, code, 0, start)
        values = memory.read(start, dtype, turned, steps).transpose(0, 3, 2, 1)
        to_steps = memory.strides(shape, code, 0, to)
        if kind == CW:  # rows of the result begin at multiples of 64 bytes
            line = align(w, memory.eu_bytes // dtype.itemsize)
            to_steps = h * line * memory.blocks(to, c), h * line, line, 1
        memory.write(to, values.copy(), to_steps)
    elif kind in (COPY, BROADCAST):
        from_shape = (n, 1, h, w) if kind == BROADCAST else shape
        values = memory.read(start, dtype, from_shape, memory.strides(from_shape, code, 0, start))
        values = np.broadcast_to(values, shape).copy()
        memory.write(to, values, memory.strides(shape, code, 0, to))
    elif kind in (STATIC_BROADCAST, STATIC_DISTRIBUTE):
        _static(memory, f, kind, dtype)
    else:
        raise Unsupported(f"command TRANS&BC of kind {kind} is not simulated")


def _static(memory: Memory, f: Fields, kind: int, dtype: np.dtype) -> None:
    c, w = f["res0_c"], f["res0_w"]
    count = w if kind == STATIC_BROADCAST else c
    at = f["opd0_addr"] % STATIC_AT if f["opd0_addr"] >= STATIC_AT else f["opd0_addr"]
    if at + count * dtype.itemsize > len(memory.static):
        raise BadFile(f"a command reads {count} numbers at byte {at} of static memory")
    values = np.ndarray((count,), dtype, memory.static.data, at)
    if kind == STATIC_BROADCAST:
        shape, layout = (1, c, 1, w), 0
        tensor = np.broadcast_to(values, shape)
    else:
        shape, layout = (1, c, 1, 1), 1
        tensor = values.reshape(shape)
    steps = memory.strides(shape, f["res0_prec"], layout, f["res0_addr"])
    memory.write(f["res0_addr"], tensor, steps)


def gather(memory: Memory, f: Fields) -> None:
    """An SG command."""
    kind = f["tsk_eu_typ"]
    code, wide = f["res0_prec"], f["opd1_prec"]
    dtype, index_type = numbers.dtype(code, 0), numbers.dtype(wide, 0)
    n, c, _, w = tuple(f[s] for s in SHAPE)
    start, at, to = f["opd0_addr"], f["opd1_addr"], f["res0_addr"]
    if kind in (5, 13, 6, 14):
        scatter = kind in (6, 14)
        length = f["opd0_w"] * max(1, f["opd0_h"])
        one = 1, c, 1, length
        steps = list(memory.strides(one, code, 0, start))
        if f["opd0_str"]:
            steps[1] = 0  # one table for all channels of a lane
        data = memory.read(start, dtype, one, steps)
        places = n, c, 1, f["opd1_w"]
        index = memory.read(at, index_type, places, memory.strides(places, wide, 0, at))
        target = n, c, 1, w
        to_steps = memory.strides(target, code, 0, to)
        index = index.astype(np.int64)
        if scatter:
            values = memory.read(to, dtype, target, to_steps).copy()
            source = np.broadcast_to(data[..., : f["opd1_w"]], (n, c, 1, f["opd1_w"]))
            inside = index < w
            for i in range(f["opd1_w"]):
                spot = np.minimum(index[..., i : i + 1], w - 1)
                old = np.take_along_axis(values, spot, 3)
                new = np.where(inside[..., i : i + 1], source[..., i : i + 1], old)
                np.put_along_axis(values, spot, new, 3)
        else:
            safe = np.minimum(index, length - 1)
            table = np.broadcast_to(data, (n, c, 1, length))
            values = np.take_along_axis(table, safe, 3)
            if not (index < length).all():
                fill = np.array([f["opd2_addr"]], np.uint32).view(dtype)[0]
                keep = memory.read(to, dtype, target, to_steps)
                beyond = fill if f["opd2_const"] else keep
                values = np.where(index < length, values, beyond)
        memory.write(to, np.ascontiguousarray(values, dtype), to_steps)
    elif kind == 0:
        data = memory.read(
            start,
            dtype,
            (n, c, 1, f["opd0_w"]),
            memory.strides((n, c, 1, f["opd0_w"]), code, 0, start),
        )
        places = 1, f["opd1_c"], 1, 1
        index = memory.read(at, index_type, places, memory.strides(places, wide, 1, at))
        index = index.astype(np.int64).reshape(-1)[:w]
        if len(index) < w or index.max(initial=0) >= f["opd0_w"]:
            raise Unsupported("command SG: an index beyond the table is not simulated")
        shape = n, c, 1, w
        memory.write(to, data[..., index], memory.strides(shape, code, 0, to))
    else:
        raise Unsupported(f"command SG of kind {kind} is not simulated")
