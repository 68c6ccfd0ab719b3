"""Programs fit the core's memory, move few bytes, and are deterministic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.npu.op_networks import Maker, graph, mobile, pyramid, small_chip

from intaglio import interpret
from intaglio.errors import BadInput, Unsupported
from intaglio.npu import ops
from intaglio.npu.compile import build
from intaglio.npu.own.hazards import span
from intaglio.npu.own.isa import Program
from intaglio.npu.simulate import functional
from intaglio.targets import chip as chips

NETS = {"mobile": mobile, "pyramid": pyramid}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("chip", ["rk3588", "rk3566", "k230", "bm1684x"])
def test_programs_fit_in_sram(name: str, chip: str):
    there = chips.load(chip)
    made = build(NETS[name](Maker(), 64), there)
    for i in made.program.instructions:
        for f in i.fields.values():
            if getattr(f, "space", "") == "sram":
                low, high = span(f)
                assert 0 <= low < high <= made.program.sram
                assert f.offset % (f.c2 if there.packed else made.program.align) == 0


@pytest.mark.parametrize("name", NETS)
def test_groups_move_less_than_layers(name: str):
    net, chip = NETS[name](Maker(), 64), small_chip(48 << 10)
    groups, layers = build(net, chip), build(net, chip, grouped=False)
    assert len(groups.memory_plan.layouts) < len(layers.memory_plan.layouts)
    assert groups.least_traffic <= groups.traffic < layers.traffic


def test_traffic_is_minimal_if_memory_suffices():
    made = build(mobile(Maker(), 64), small_chip(4 << 20))
    unread = made.least_traffic - made.traffic  # alignment gaps between constants
    assert 0 <= unread < 64 * len(made.net.layers)
    assert made.program.internal == 0


def test_only_the_blocks_that_are_read_are_loaded():
    """Attention heads read one slice each, so the map is loaded once, not once per head."""
    m = Maker()
    x = m.image(1, 16, 8, 8)
    y = m.conv(x, 64, 1)
    heads = [m.conv(ops.slice_(y, first=16 * k, count=16), 16, 1) for k in range(4)]
    made = build(graph(x, *heads), chips.load("rk3588"), grouped=False)
    moves = [i.fields for i in made.program.instructions if i.op == "load"]
    inner = [f["src"].channels for f in moves if f["src"].space == "internal"]
    assert inner == [16] * 4


def test_packed_rows_have_no_padding():
    """A column of 64 pixels has rows of 16 bytes; aligned, each would take 64."""
    m = Maker()
    x = m.image(1, 16, 64, 1)
    net, chip = graph(x, m.conv(x, 16, 1)), small_chip(1 << 16, align=64)
    apart, packed = (build(net, replace(chip, packed=p)) for p in (False, True))
    inside = [made.program.instructions[-1].fields["src"] for made in (apart, packed)]
    assert [f.row for f in inside] == [64, 16]
    assert [f.plane for f in inside] == [64 * 64, 16 * 64]
    odd = m.image(1, 32, 3, 1)  # two blocks of 48 bytes
    made = build(graph(odd, m.conv(odd, 16, 1)), replace(chip, packed=True))
    conv = next(i.fields for i in made.program.instructions if i.op == "conv")
    assert (conv["src"].row, conv["src"].plane) == (16, 64)


def test_the_same_net_gives_the_same_bytes():
    one, two = (build(pyramid(Maker()), small_chip(32 << 10)) for _ in range(2))
    assert np.array_equal(one.program.encode(), two.program.encode())
    assert np.array_equal(one.weights, two.weights)


def test_a_layer_that_does_not_fit_is_named_with_the_missing_bytes():
    m = Maker()
    x = m.image(1, 512, 8, 8)
    with pytest.raises(Unsupported, match=r"conv 'conv64' needs \d+ bytes .* are missing"):
        build(graph(x, m.conv(x, 64, 3)), small_chip(8 << 10))


def test_more_cores_than_there_are():
    with pytest.raises(BadInput, match="4 cores are requested; it has 3"):
        build(mobile(Maker()), chips.load("rk3588"), cores=4)


def test_cores_share_the_bands_of_a_group():
    made = build(pyramid(Maker(), 64), small_chip(64 << 10), cores=3)
    work = [0, 0, 0]
    for i in made.program.instructions:
        work[i.core] += i.queue == "compute"
    assert min(work) > 0
    assert any(i.op == "barrier" for i in made.program.instructions)


def test_attention_is_split_over_cores_if_that_is_faster():
    """The keys are needed whole, so attention would run in one band, on one core."""
    m = Maker()
    x = m.image(1, 64, 128, 1)
    q, k, v = (m.conv(x, 64, 1) for _ in range(3))
    end = {"a_zero": 0, "b_zero": 0, "factor": 0.01, "low": -128, "high": 127, "dtype": "i8"}
    score = ops.matmul(q, k, turned=True, **end)
    net = graph(x, m.conv(ops.matmul(score, v, **end), 64, 1))
    made = build(net, small_chip(1 << 20), cores=2)
    work = [
        sum(i.queue == "compute" for i in made.program.instructions if i.core == c)
        for c in range(2)
    ]
    assert made.context.split_over_cores
    assert min(work) > 0
    feed = np.random.default_rng(1).integers(-128, 128, x.shape).astype(np.int8)
    found = functional.run(Program.decode(made.program.encode()), made.weights, [feed])[0]
    assert np.array_equal(found, next(iter(interpret(net, {"x": feed}).values())))
