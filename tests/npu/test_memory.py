"""The memory report: totals, addresses of feature maps, text."""

from __future__ import annotations

from tests.npu.op_networks import Maker, mobile, pyramid, small_chip

from intaglio.npu.compile import build
from intaglio.npu.memory import memory, table


def test_totals():
    made = build(pyramid(Maker(), 64), small_chip(32 << 10, shared=8 << 10))
    found = memory(made)
    assert found.weights == len(made.weights)
    assert found.commands == len(made.program.encode())
    assert found.shared <= 8 << 10
    assert found.total == (
        found.weights
        + found.internal
        - found.shared
        + found.inputs
        + found.outputs
        + found.commands
    )
    assert found.peak <= found.sram
    assert found.to_dict()["maps"][0]["place"] == "input"


def test_spilled_maps_do_not_overlap_while_they_live():
    made = build(pyramid(Maker(), 64), small_chip(32 << 10))
    spilled = made.memory_plan.spilled
    assert spilled, "this net does not fit 32 KiB"
    group = {k: g for g, one in enumerate(made.memory_plan.layouts) for k in one.group.numbers}
    users = {s: [group[k] for k in made.context.users[s]] for s in spilled}
    life = {s: (min(groups), max(groups)) for s, groups in users.items()}
    for a in spilled:
        for b in spilled:
            together = life[a][0] <= life[b][1] and life[b][0] <= life[a][1]
            if a is not b and together:
                ends = [spilled[s] + s.ddr_bytes(s.height) * s.images for s in (a, b)]
                assert spilled[a] >= ends[1] or spilled[b] >= ends[0]


def test_text():
    lines = list(table(memory(build(mobile(Maker(), 64), small_chip(4 << 20)))))
    assert any("1.00 times the lower bound" in line for line in lines)
    assert any("1,6,32,32,16" in line and " tiles " in f"{line} " for line in lines)
