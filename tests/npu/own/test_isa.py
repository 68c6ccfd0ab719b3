"""Programs survive encoding; invalid bytes are refused with a message."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.errors import BadFile
from intaglio.npu.own.disassembly import disassemble
from intaglio.npu.own.isa import OPS, Feature, Instruction, Port, Program


def program() -> Program:
    box = Feature("sram", 64, "i8", 20, 4, 5, 16, 320, 80, 16, first=3)
    outside = Feature("input", 0, "i8", 20, 4, 5, 1, 20, 5, 1, slot=1)
    conv = {"src": box, "dst": box, "kernel": (3, 3), "pad": (-1, 1), "r_factor": 1.5}
    return Program(
        "rk3588",
        2,
        1 << 18,
        100,
        50,
        [Port("i8", (1, 20, 4, 5)), Port("i8", (1, 20, 4, 5))],
        [Port("f32", (1, 7))],
        [
            Instruction("load", {"src": outside, "dst": box}),
            Instruction("conv", conv, core=1, layer=7, wait=(1, 0, 3), barrier=2),
        ],
        near=10,
        align=16,
    )


def test_programs_survive_encoding():
    before = program()
    after = Program.decode(before.encode())
    for name in ("chip", "cores", "sram", "internal", "weights", "near", "align", "outputs"):
        assert getattr(after, name) == getattr(before, name)
    load, conv = after.instructions
    assert load.fields == before.instructions[0].fields
    assert (conv.op, conv.core, conv.layer, conv.wait, conv.barrier) == ("conv", 1, 7, (1, 0, 3), 2)
    assert (conv.fields["pad"], conv.fields["residual"]) == ((-1, 1), None)
    assert Program.decode(after.encode()).instructions == after.instructions


def test_disassembly_lines():
    load, conv = disassemble(program())
    assert "load src=input1[0x0]:i8(20x4x5)/1 dst=sram[0x40]:i8(20+3x4x5)/16" in load
    assert all(w in conv for w in ("L7", "r_factor=1.5", "[load>=1,store>=3,barrier>=2]"))


def test_records_are_multiples_of_8_bytes():
    assert all(dtype.itemsize % 8 == 0 for dtype in OPS.values())


@pytest.mark.parametrize("cut", [1, 50, 120, 300, -1])
def test_truncated_programs_are_refused(cut: int):
    with pytest.raises(BadFile, match="NPU program"):
        Program.decode(program().encode()[:cut])


def test_any_wrong_byte_raises_bad_file_only():
    good, random = program().encode(), np.random.default_rng(0)
    Program.decode(good)
    refused = 0
    for _ in range(500):
        bad = good.copy()
        bad[random.integers(len(bad))] = random.integers(256)
        try:
            Program.decode(bad)
        except BadFile:  # nothing else may be raised
            refused += 1
    assert 25 < refused < 475
