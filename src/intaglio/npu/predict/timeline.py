"""The timeline of a program: queues in order, waits, barriers, and one DDR for all cores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio.errors import BadFile
from intaglio.ir import Array
from intaglio.npu.own import isa
from intaglio.npu.predict.cycles import Costs, constants, costs
from intaglio.npu.predict.on_cores import on_cores
from intaglio.targets.chip import Chip

BOUNDS = ("compute", "bandwidth", "launch")


@dataclass(slots=True)
class Timeline:
    """Start and end of each instruction, in cycles of the chip's clock."""

    chip: Chip
    costs: Costs
    start: Array  # cycles, of each instruction
    end: Array
    cores: int

    @property
    def cycles(self) -> float:
        """Cycles from the first instruction to the end of the last."""
        return float(self.end.max(initial=0.0))

    @property
    def milliseconds(self) -> float:
        """The time of the program, with the start of the NPU."""
        return self.cycles / self.chip.clock / 1e3 + constants(self.chip)["start"] / 1e3

    def layers(self) -> list[dict[str, Any]]:
        """For each layer: cycles of units and DDR, its part of the total time, and its bound.

        The parts are those of the critical path, so they sum up to the total.
        """
        c = self.costs
        gone = self.spent()
        why = np.where(c.queue != 1, 1, np.where(c.idle > c.work, 2, 0))
        count = int(c.layer.max(initial=-1)) + 1
        sums = {
            k: np.bincount(c.layer, v, count)
            for k, v in (
                ("cycles", gone),
                ("npu", np.where(c.queue == 1, c.work, 0)),
                ("ddr", c.ddr),
                ("products", c.products),
                ("read", c.read),
                ("written", c.written),
                ("near", c.near),
            )
        }
        bound = np.array([np.bincount(c.layer, gone * (why == k), count) for k in range(3)])
        there = np.bincount(c.layer, minlength=count)
        rate = max(self.chip.units["conv"].rate.values())
        rows = []
        for k in np.flatnonzero(there):
            row: dict[str, Any] = {"layer": int(k), "instructions": int(there[k])}
            row |= {name: float(v[k]) for name, v in sums.items()}
            row["bound"] = BOUNDS[int(bound[:, k].argmax())]
            row["use"] = row["products"] / max(row["cycles"] * rate * self.cores, 1e-9)
            rows.append(row)
        return rows

    def spent(self) -> Array:
        """The cycles of each instruction on the critical path; 0 if it is not on it."""
        c, gone = self.costs, np.zeros(len(self.costs))
        if not len(c):
            return gone
        before = _causes(c, self.end)
        i, until = int(self.end.argmax()), self.cycles
        while i >= 0:
            cause = int(before[i])
            begun = float(self.end[cause]) if cause >= 0 else 0.0
            gone[i] = until - begun
            i, until = cause, begun
        return gone

    def loads(self) -> dict[int, tuple[float, ...]]:
        """The share of each layer's work on each core."""
        c, result = self.costs, {}
        work = np.where(c.queue == 1, c.work, 0.0)
        count = int(c.layer.max(initial=-1)) + 1
        by_core = np.array(
            [np.bincount(c.layer, work * (c.core == k), count) for k in range(self.cores)]
        )
        whole = np.maximum(by_core.sum(0), 1e-9)
        for k in range(count):
            result[k] = tuple(float(v) for v in by_core[:, k] / whole[k])
        return result

    def busy(self) -> dict[str, list[float]]:
        """The share of the time in which each queue of each core, and DDR, is busy."""
        whole, c = max(self.cycles, 1e-9), self.costs
        found = {}
        for q, name in enumerate(isa.QUEUES):
            used = [
                (self.end - self.start)[(c.core == k) & (c.queue == q)].sum()
                for k in range(self.cores)
            ]
            found[name] = [float(u / whole) for u in used]
        found["ddr"] = [float(c.ddr.sum() / whole)]
        return found

    def units(self) -> dict[str, float]:
        """Cycles of work by kind of instruction, summed over all cores."""
        c = self.costs
        sums = np.bincount(c.op, c.work, len(isa.NAMES) + 1)
        return {isa.NAMES[k]: float(sums[k]) for k in isa.NAMES if (c.op == k).any()}


def timeline(
    program: isa.Program | Array, chip: Chip, needs: Costs | None = None, on: int | None = None
) -> Timeline:
    """Schedule a program's instructions on `chip`; `needs` replaces their costs.

    With `on` they run on so many cores, at most as many as the program was compiled for.
    """
    result = costs(program, chip, on) if needs is None else needs
    if on is not None:
        result = on_cores(result, on)
    start, end = _run(result)
    cores = int(result.core.max(initial=0)) + 1
    return Timeline(chip, result, start, end, cores)


def _causes(c: Costs, end: Array) -> Array:
    """For each instruction the one that it waited for last; -1 if it did not wait."""
    lanes = c.core * 3 + c.queue
    longest = -np.ones(len(c), np.int64)
    latest = np.zeros(len(c))

    def later(who: Array, of: Array) -> None:
        """Make `of` the causes of `who` if they end later than the known ones."""
        wins = end[of] > latest[who]
        longest[who[wins]], latest[who[wins]] = of[wins], end[of[wins]]

    for core in range(int(c.core.max()) + 1):
        mine = np.flatnonzero(c.core == core)
        for k in range(3):
            queue = np.flatnonzero(lanes == core * 3 + k)
            later(queue[1:], queue[:-1])
            waits = c.wait[mine, k]
            who = mine[waits > 0]
            later(who, queue[c.wait[who, k] - 1])
    meet = np.flatnonzero(c.op == isa.CODES["barrier"])
    by_core = [meet[c.core[meet] == k] for k in np.unique(c.core[meet])]
    if by_core:
        each = np.array([b[: min(map(len, by_core))] for b in by_core])
        last = each[end[each].argmax(0), np.arange(each.shape[1])]
        who = np.flatnonzero(c.barrier > 0)
        later(who, last[c.barrier[who] - 1])
    return longest


def _run(c: Costs) -> tuple[Array, Array]:
    """Start and end of each instruction; DDR serves one transfer at a time."""
    n, cores = len(c), int(c.core.max(initial=0)) + 1
    lanes = c.core * 3 + c.queue
    queues: list[list[int]] = [np.flatnonzero(lanes == k).tolist() for k in range(cores * 3)]
    work, idle, ddr = c.work.tolist(), c.idle.tolist(), c.ddr.tolist()
    waits, level, lane = c.wait.tolist(), c.barrier.tolist(), lanes.tolist()
    is_barrier = (c.op == isa.CODES["barrier"]).tolist()
    start, end = [0.0] * n, [0.0] * n
    ends: list[list[float]] = [
        [0.0] for _ in queues
    ]  # ends[q][k]: the time at which k instructions of queue q have ended
    arrived: list[list[float]] = [[] for _ in range(cores)]
    passed = [0.0]  # passed[k]: the time at which all cores have passed k barriers
    never = float("inf")

    def ready(q: int) -> float:
        """The time at which a queue's next instruction can start; `never` if not known yet."""
        done, queue = ends[q], queues[q]
        if len(done) > len(queue):
            return never
        i = queue[len(done) - 1]
        base = q - q % 3
        when = done[-1]
        if level[i]:
            if level[i] >= len(passed):
                return never
            when = max(when, passed[level[i]])
        for k, count in enumerate(waits[i]):
            if count:
                other = ends[base + k]
                if count >= len(other):
                    return never
                if other[count] > when:
                    when = other[count]
        return when

    heads = [ready(q) for q in range(len(queues))]
    free = 0.0  # the time at which DDR is free
    for _ in range(n):
        when = min(heads)
        if when == never:
            stuck = next(
                queue[len(ends[q]) - 1]
                for q, queue in enumerate(queues)
                if len(ends[q]) <= len(queue)
            )
            raise BadFile(f"NPU program: instruction {stuck} waits for one that never ends")
        q = heads.index(when)
        i = queues[q][len(ends[q]) - 1]
        start[i] = when
        done = when + work[i]
        if ddr[i]:
            free = (free if free > when else when) + ddr[i]
            if free > done:
                done = free
        if is_barrier[i]:
            core = lane[i] // 3
            arrived[core].append(done)
            done_by_all = min(map(len, arrived))
            if done_by_all >= len(passed):
                passed.append(max(a[done_by_all - 1] for a in arrived) + idle[i])
                for k, h in enumerate(heads):
                    if h == never and k != q:
                        heads[k] = ready(k)
        else:
            done += idle[i]
        end[i] = done
        ends[q].append(done)
        base = q - q % 3
        for k in (base, base + 1, base + 2):
            if k == q or heads[k] == never:
                heads[k] = ready(k)
    return np.array(start), np.array(end)
