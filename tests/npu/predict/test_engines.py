"""The timeline of a vendor's commands: waits, critical path and bounds."""

from __future__ import annotations

import pytest

from intaglio.npu.predict.engines import LayerText, Step, Timed, numbered_waits

LAYERS = [LayerText("conv", "a"), LayerText("conv", "b")]


def move(layer, long, waits=-1):
    return Step("DMA", "copy", layer, long, waits=waits, moves=True)


def compute(layer, long, waits=-1):
    return Step("TIU", "conv", layer, long, waits=waits)


def test_engines_run_beside_each_other_and_wait():
    timed = Timed([move(0, 4), compute(0, 3, 0), move(1, 1), compute(1, 2, 2)], LAYERS, "", 1, 1)
    assert timed.begin == [0, 4, 4, 7]
    assert timed.microseconds == 9
    assert timed.busy() == {"DMA": pytest.approx(5 / 9), "TIU": pytest.approx(5 / 9)}
    assert timed.critical() == [3, 1, 0]  # the second load is hidden
    spent, bounds = timed.spent()
    assert spent == [7, 2]
    assert bounds == ["dependency", "compute"]  # the first conv waits for its load


def test_a_layer_that_only_loads_is_bound_by_bandwidth():
    timed = Timed([move(0, 8), compute(0, 1, 0)], LAYERS, "", 1, 1)
    assert timed.spent()[1][0] == "bandwidth"


def test_a_command_that_mostly_starts_is_bound_by_launch():
    timed = Timed([Step("TIU", "conv", 0, 10, 9)], LAYERS, "", 1, 1)
    assert timed.spent()[1][0] == "launch"


def test_waits_are_found_by_the_numbers_of_the_other_engine():
    other = {"tiu": "dma", "dma": "tiu"}
    engines, numbers = ["dma", "dma", "tiu", "dma", "tiu"], [1, 2, 1, 3, 2]
    assert numbered_waits(engines, numbers, [0, 0, 1, 1, 3], other) == [-1, -1, 0, 2, 3]
