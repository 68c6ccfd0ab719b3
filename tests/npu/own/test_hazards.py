"""Conflicting accesses of different queues are ordered by waits."""

from __future__ import annotations

import time

import numpy as np
import pytest

from intaglio.npu.own.hazards import Hazards
from intaglio.npu.own.isa import QUEUES

TOUCH = {"load": ("internal", "sram"), "compute": ("sram", "sram"), "store": ("sram", "internal")}


@pytest.mark.parametrize("seed", range(8))
def test_conflicts_are_in_order(seed: int):
    """Queues and waits connect the earlier instruction with the later one."""
    random = np.random.default_rng(seed)
    waits, past = Hazards(), []
    numbers: dict[str, list[int]] = {q: [] for q in QUEUES}
    for i in range(150):
        queue = QUEUES[random.integers(len(QUEUES))]
        source, target = TOUCH[queue]
        spans = [(int(a), int(a + n)) for a, n in random.integers((0, 1), (40, 12), (2, 2))]
        counts = waits.add(queue, [(source, spans[0])], [(target, spans[1])])
        before = {j for q, n in zip(QUEUES, counts, strict=True) for j in numbers[q][:n]}
        before |= set(numbers[queue])
        before |= {k for j in before for k in past[j][1]}
        touched = [(source, spans[0], False), (target, spans[1], True)]
        for j, (others, _) in enumerate(past):
            meets = any(
                m == n and a[0] < b[1] and b[0] < a[1] and (w or v)
                for m, a, w in touched
                for n, b, v in others
            )
            assert not meets or j in before, f"{i} does not wait for {j}"
        numbers[queue].append(i)
        past.append((touched, before))


def test_memories_without_conflicts_are_not_searched():
    waits = Hazards()
    for i in range(100):
        assert waits.add("load", [("weights", (0, 9))], [("sram", (i, i + 1))]) == (0, 0, 0)
        assert waits.add("store", [("sram", (i, i + 1))], [("output", (0, 9))])[2] == 0
    assert set(waits.accesses) == {"sram"}


def test_time_is_linear_in_the_program():
    """Each instruction is compared with all live accesses, vectorised."""
    waits, n = Hazards(), 20_000
    start = time.process_time()
    for i in range(n):
        waits.add("store", [("sram", (0, 64))], [("internal", (64 * i, 64 * i + 64))])
    assert time.process_time() - start < 20
