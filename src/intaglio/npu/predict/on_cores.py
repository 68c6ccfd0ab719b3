"""A program on fewer cores than it was compiled for: the order of its instructions there.

Between two barriers, the parts of several cores run one after the other on the same core and in
its memory. csrc/npu/run.c simulates the same.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from intaglio.errors import BadFile
from intaglio.ir import Array
from intaglio.npu.own import isa
from intaglio.npu.predict.cycles import Costs

QUEUES = len(isa.QUEUES)


def on_cores(c: Costs, given: int) -> Costs:
    """The costs of a program's instructions on `given` cores, in the order in which each runs them.

    Core k of the program runs on core k % given. One barrier of each core remains.
    """
    cores = int(c.core.max(initial=0)) + 1
    if given >= cores:
        return c
    part = _parts(c, cores)
    core = c.core % given
    order = np.lexsort((np.arange(len(c)), c.core, part, core))
    last_of_core = c.core + given >= cores  # the last of the parts that share a core
    kept = (c.op != isa.CODES["barrier"]) | last_of_core
    wait = _waits(c, order, kept, part, given)
    chosen = order[kept[order]]
    taken: dict[str, Any] = {f.name: getattr(c, f.name)[chosen] for f in fields(c)}
    taken["core"], taken["wait"] = core[chosen], wait[chosen]
    return Costs(**taken)


def _parts(c: Costs, cores: int) -> Array:
    """For each instruction the number of barriers of its core before it."""
    barrier = c.op == isa.CODES["barrier"]
    part, counts = np.zeros(len(c), np.int64), set()
    for core in range(cores):
        mine = c.core == core
        part[mine] = np.cumsum(barrier[mine]) - barrier[mine]
        counts.add(int(barrier[mine].sum()))
    if len(counts) > 1:
        raise BadFile(f"NPU program: its cores have {min(counts)} to {max(counts)} barriers")
    return part


def _waits(c: Costs, order: Array, kept: Array, part: Array, given: int) -> Array:
    """The waits of all instructions as numbers of instructions of the shared queues.

    A part also waits for the part before it on the same core, whose memory it takes.
    """
    ended: dict[tuple[int, int], list[int]] = {}  # by core of the program and queue
    counts = [[0] * QUEUES for _ in range(given)]  # instructions so far, by core and queue
    begun, now = [0] * QUEUES, (-1, -1)
    wait = np.zeros_like(c.wait)
    rows = zip(*(a[order].tolist() for a in (c.core, c.queue, part, c.wait, kept)), strict=True)
    for i, (core, queue, number, waits, stays) in zip(order.tolist(), rows, strict=True):
        count = counts[core % given]
        if (core, number) != now:
            now, begun = (core, number), list(count)
        for q in range(QUEUES):
            before = ended.setdefault((core, q), [0])
            if waits[q] >= len(before):
                raise BadFile(f"NPU program: instruction {i} waits for one that never ends")
            wait[i, q] = max(before[waits[q]], begun[q])
        count[queue] += stays
        ended[core, queue].append(count[queue])
    return wait
