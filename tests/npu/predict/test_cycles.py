"""The cycle model on small programs whose times are computed by hand."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from intaglio.errors import BadFile, BadInput
from intaglio.npu.own.isa import Feature, Instruction, Port, Program
from intaglio.npu.predict.cycles import costs
from intaglio.npu.predict.element_types import as_bytes
from intaglio.npu.predict.timeline import timeline
from intaglio.targets import chip

TIMING = {
    "efficiency": 0.5,
    "write": 2.0,
    "port": 16.0,
    "steps": 4,
    "taps": 0,
    "launch": 10.0,
    "layer": 0.0,
    "transfer": 5.0,
    "barrier": 50.0,
    "start": 0.0,
}
# DDR reads 16 bytes per cycle, or writes 8
REAL = chip.load("rk3588")
TABLES = replace(REAL.units["lut"], rate={"i8": 4})
CHIP = replace(
    REAL,
    clock=1000.0,
    ddr=32.0 * 2 / 3,
    burst=64,
    timing=TIMING,
    units={**REAL.units, "lut": TABLES},
)


def box(
    space: str, channels: int, height: int, width: int, at: int = 0, c2: int = 16, rows: int = 0
) -> Feature:
    row = width * c2
    return Feature(space, at, "i8", channels, height, width, c2, (rows or height) * row, row, c2)


def conv(inputs: int, outputs: int, size: int, kernel: int = 1, **more: object) -> dict:
    return {
        "src": box("sram", inputs, size, size),
        "dst": box("sram", outputs, size, size),
        "kernel": (kernel, kernel),
        "stride": (1, 1),
        "dilation": (1, 1),
        "in_atom": 32,
        "out_atom": 32,
        **more,
    }


def program(*instructions: Instruction, cores: int = 1, near: int = 0) -> Program:
    port = Port("i8", (1, 16, 8, 8))
    return Program(
        "rk3588", cores, 1 << 18, 1 << 20, 1 << 20, [port], [port], list(instructions), near
    )


def move(op: str, channels: int, size: int, **more) -> Instruction:
    out, inside = box("internal", channels, size, size), box("sram", channels, size, size)
    both = (out, inside) if op == "load" else (inside, out)
    return Instruction(op, dict(zip(("src", "dst"), both, strict=True)), **more)


@pytest.mark.parametrize(
    ("fields", "cycles"),
    [
        (conv(64, 64, 56), 56 * 56 * 4 * 2),  # at least 4 cycles per output
        (conv(64, 64, 56, 3), 56 * 56 * 18 * 2),
        (conv(3, 64, 112, 7), 112 * 112 * 49 * 2),
        (conv(256, 33, 10), 10 * 10 * 8 * 2),  # a part of an atom costs as much as a whole
        (conv(64, 64, 56, entries=256), 56 * 56 * 64 / 4),  # the table is slower
        (conv(64, 64, 56, residual=box("sram", 64, 56, 56)), 56 * 56 * 4 * 2),
    ],
)
def test_convolutions_count_whole_atoms(fields, cycles):
    made = costs(program(Instruction("conv", fields)), CHIP)
    assert made.work[0] == cycles
    src, dst = fields["src"], fields["dst"]
    taps = fields["kernel"][0] ** 2
    assert made.products[0] == dst.height * dst.width * dst.channels * src.channels * taps


def test_on_one_engine_tables_and_residuals_follow_a_product():
    """Each output takes some 32-bit instructions; tables and residuals take more."""
    one = replace(CHIP, timing={**TIMING, "apart": 3.0})
    fields = conv(64, 64, 56, entries=256, residual=box("sram", 64, 56, 56))
    made = 56 * 56 * 64
    product, table, add = 56 * 56 * 4 * 2, made / 4, made / 16
    expected = product + table + add + 3 * made / (16 / 4)  # a fourth of the rate of bytes
    assert costs(program(Instruction("conv", fields)), one).work[0] == expected


def test_passes_over_results_depend_on_the_type():
    """A chip that rounds inside of the product needs none for bytes, but some for floats."""
    fields = conv(64, 64, 56)
    plain = costs(program(Instruction("conv", fields)), CHIP).work[0]
    passes = {"apart.i8": 0.5, "apart.f16": 3.0}
    one = replace(CHIP, timing={**TIMING, **passes})
    each = 56 * 56 * 64 / (16 / 4)
    assert costs(program(Instruction("conv", fields)), one).work[0] == plain + 0.5 * each
    floats = replace(as_bytes(one, "f16"), units=one.units)
    assert costs(program(Instruction("conv", fields)), floats).work[0] == plain + 3 * each


def test_taps_of_few_channels_share_an_atom():
    few = replace(CHIP, timing={**TIMING, "fold": 4})
    for channels, atoms in ((3, -(-3 * 49 // 32)), (8, 49)):
        work = costs(program(Instruction("conv", conv(channels, 32, 10, 7))), few).work[0]
        assert work == 10 * 10 * atoms


def test_some_work_does_not_parallelise():
    shared = replace(CHIP, timing={**TIMING, "alone": 0.25})
    each = [Instruction("conv", conv(64, 64, 56), core=k) for k in range(3)]
    usual, less = (costs(program(*each, cores=3), c).work[0] for c in (CHIP, shared))
    assert less == usual * 1.5  # a third of all but a fourth, and that fourth
    one = costs(program(each[0]), shared).work[0]
    assert one == usual
    batch = program(*each, cores=3)
    batch.inputs[0].shape = (4, 16, 8, 8)
    assert costs(batch, shared).work[0] == usual * 1.125  # whole images are distributed


def test_other_units_count_elements():
    a, b = box("sram", 24, 8, 8), box("sram", 24, 4, 4)
    window = {"kernel": (2, 2), "stride": (2, 2), "dilation": (1, 1)}
    made = costs(
        program(
            Instruction("pool", {"src": a, "dst": b, **window}),
            Instruction("eltwise", {"src": a, "other": a, "dst": a}),
            Instruction("lut", {"src": a, "dst": a, "entries": 256}),
            Instruction("resize", {"src": b, "dst": a, "factor": (2, 2)}),
            Instruction("copy", {"src": a, "dst": a}),
            Instruction("depthwise", {**conv(24, 24, 8, 3), "in_atom": 64, "out_atom": 64}),
            Instruction("matmul", {"src": box("sram", 40, 8, 1), "dst": box("sram", 70, 8, 1)}),
        ),
        CHIP,
    )
    whole = 8 * 8 * 32  # 24 channels are two blocks
    assert made.work.tolist() == [
        whole / 16,
        whole / 16,
        whole / 4,
        whole / 16,
        whole / 16,
        8 * 8 * 9,
        8 * 4 * 3,
    ]
    lanes = replace(CHIP, timing={**TIMING, "taps": 1})
    pool = program(Instruction("pool", {"src": a, "dst": b, **window}))
    assert costs(pool, lanes).work[0] == 4 * 4 * 32 * 4 / 16


def test_transfers_count_whole_bursts():
    some = box("internal", 32, 2, 3, rows=9)  # 2 blocks of 2 contiguous rows of 48 bytes
    gaps = replace(some, row=64, plane=64 * 9)  # 4 separate rows
    load = [Instruction("load", {"src": f, "dst": box("sram", 32, 2, 3)}) for f in (some, gaps)]
    made = costs(program(*load, move("load", 32, 8), move("store", 32, 8)), CHIP)
    assert made.read.tolist() == [2 * 128, 4 * 64, 2048, 0]
    assert made.written.tolist() == [0, 0, 0, 2048]
    assert made.ddr.tolist() == [16, 16, 128, 256]
    assert made.idle.tolist() == [5] * 4


def test_shared_sram_saves_ddr_traffic():
    made = costs(program(move("load", 32, 8), near=1024), CHIP)
    assert (made.read[0], made.near[0], made.ddr[0]) == (1024, 1024, 64)


def test_queues_run_in_parallel_and_obey_waits():
    work = conv(64, 64, 8)  # 512 cycles, and 10 to launch; 2048 bytes are 128 cycles, and 5
    made = timeline(
        program(
            move("load", 32, 8),
            Instruction("conv", work, wait=(1, 0, 0), layer=0),
            move("load", 32, 8, layer=1),
            Instruction("conv", work, wait=(2, 0, 0), layer=1),
            move("store", 32, 8, wait=(0, 2, 0), layer=1),
        ),
        CHIP,
    )
    assert made.start.tolist() == [0, 133, 133, 133 + 522, 133 + 1044]
    assert made.end.tolist() == [133, 655, 266, 1177, 1177 + 256 + 5]
    assert made.cycles == 1438
    assert made.milliseconds == pytest.approx(1438e-6)
    first, second = made.layers()
    assert (first["cycles"], second["cycles"]) == (655, 783)
    assert first["npu"] == second["npu"] == 512
    assert (second["ddr"], second["read"], second["written"]) == (128 + 256, 2048, 2048)
    assert first["bound"] == second["bound"] == "compute"
    assert made.units() == {"load": 256, "store": 128, "conv": 1024}
    assert made.busy()["compute"] == [pytest.approx(1044 / 1438)]


def test_cores_share_ddr_and_meet_at_barriers():
    both = []
    for core in (0, 1):
        both += [move("load", 32, 8, core=core), Instruction("barrier", {}, core, wait=(1, 0, 0))]
    both.append(move("load", 32, 8, core=1, barrier=1))
    made = timeline(program(*both, cores=2), CHIP)
    assert made.end[[0, 2]].tolist() == [133, 261]  # the second waits for the first one's bytes
    assert made.end[[1, 3]].tolist() == [133, 261]
    assert made.start[4] == 261 + 50


def test_layers_have_an_overhead():
    slow = replace(CHIP, timing={**TIMING, "layer": 1000.0})
    work = [Instruction("conv", conv(64, 64, 8), layer=k) for k in (0, 0, 1)]
    assert timeline(program(*work), slow).cycles == 3 * 522 + 2000
    tiny = Instruction("conv", conv(32, 32, 1), layer=0)
    assert timeline(program(tiny), slow).layers()[0]["bound"] == "launch"


def test_use_and_images_scale_products():
    one = program(Instruction("conv", conv(64, 64, 8)))
    half = replace(CHIP, timing={**TIMING, "use.i8": 0.5, "images": 4})
    assert costs(one, half).work[0] == 512 * 2 * 4
    after = replace(half, timing={**half.timing, "apart": 1.0})
    more = costs(one, after).work[0] - costs(one, half).work[0]
    one.inputs[0].shape = (8, 16, 8, 8)
    assert costs(one, half).work[0] == 512 * 2
    assert (
        costs(one, after).work[0] - 512 * 2 == more > 0
    )  # only products process four images at once


def test_linear_layers_use_the_rate_of_matmul_if_it_is_lower():
    line = conv(64, 64, 8)
    line["src"], line["dst"] = box("sram", 64, 64, 1), box("sram", 64, 64, 1)
    slow = replace(REAL.units["matmul"], rate={"i8": 256.0})
    chip = replace(CHIP, units={**CHIP.units, "matmul": slow})
    of = {
        True: program(Instruction("conv", line)),
        False: program(Instruction("conv", conv(64, 64, 8))),
    }
    assert costs(of[True], CHIP).work[0] == costs(of[False], chip).work[0] == 512
    assert costs(of[True], chip).work[0] == 512 * 4
    half = replace(chip, timing={**TIMING, "use.i8": 0.5})  # still more than the rate of matmul
    assert costs(of[True], half).work[0] == 512 * 4
    third = replace(chip, timing={**TIMING, "use.i8": 0.125})
    assert costs(of[True], third).work[0] == costs(of[False], third).work[0] == 512 * 8


def test_a_program_that_waits_for_itself_is_refused():
    load = move("load", 32, 8, wait=(0, 1, 0))
    work = Instruction("conv", conv(64, 64, 8), wait=(1, 0, 0))
    with pytest.raises(BadFile, match="instruction 0 waits for one that never ends"):
        timeline(program(load, work), CHIP)


def test_programs_that_the_chip_cannot_run_are_refused():
    f32 = conv(64, 64, 8)
    f32["src"] = replace(f32["src"], dtype="f32")
    with pytest.raises(BadInput, match="rk3588: conv does not take f32"):
        costs(program(Instruction("conv", f32)), CHIP)
    with pytest.raises(BadFile, match="no valid instruction at"):
        costs(program(move("load", 32, 8)).encode()[:-4], CHIP)


def test_a_hundred_thousand_instructions_take_a_second():
    one = [
        move("load", 32, 8, wait=(0, 0, 0)),
        Instruction("conv", conv(64, 64, 8)),
        move("store", 32, 8),
    ]
    parts = program(*one)
    code = parts.encode()
    sizes = [len(i.encode()) for i in one]
    body = code[len(code) - sum(sizes) :]
    n = 33_334
    head = code[: len(code) - sum(sizes)].copy()
    head[20:24] = np.frombuffer(np.uint32(3 * n).tobytes(), np.uint8)  # how many
    long = np.concatenate([head, np.tile(body, n)])
    best = min(_seconds(long) for _ in range(2))
    assert best < 2.0  # 0.5 s on an idle machine


def _seconds(code) -> float:
    begun = time.process_time()
    assert timeline(code, CHIP).cycles > 0
    return time.process_time() - begun
