"""Cycles of commands, compared with those that tpu-mlir publishes from real chips."""

from __future__ import annotations

import pytest
from tests.npu.chips.bm1684x import networks

from intaglio.npu.chips.bm1684x import bmodel, steps, timing
from intaglio.npu.chips.bm1684x.commands import Command
from intaglio.npu.chips.bm1684x.compile import compile_bmodel
from intaglio.npu.chips.bm1684x.variants import BM1684X, BM1688, SG2260
from intaglio.targets import chip as chips

F16, I16 = 1, 3
BM1688_CHIP = chips.load("bm1688")


def shape(name, *sizes):
    return dict(zip((f"{name}_{d}" for d in "nchw"), sizes, strict=True))


def conv(result, inputs, kernel, prec=0):
    fields = shape("res0", *result) | {"opd0_c": inputs, "opd0_prec": prec, "res0_prec": prec}
    return Command("tiu", "sCONV", fields | {"opd1_h": kernel[0], "opd1_w": kernel[1]})


def window(name, result, width, kernel, stride, prec):
    fields = shape("res0", *result) | {"opd0_w": width, "opd0_prec": prec, "tsk_eu_typ": name}
    fields |= {"opd1_h": kernel, "opd1_w": kernel, "res_op_x_str": stride, "res_op_y_str": stride}
    fields |= {"opd0_lf_pad": int(name == 0)}
    return Command("tiu", "sPorD", fields)


def arithmetic(kind, result, precs, addresses):
    fields = shape("res0", *result) | {"tsk_eu_typ": kind, "tsk_opd_num": len(precs) - 1}
    for name, prec, address in zip(("res0", "opd0", "opd1"), precs, addresses, strict=False):
        fields |= {f"{name}_prec": prec, f"{name}_addr": address}
    return Command("tiu", "sAR", fields)


def load(sizes, code, chip):
    low, high = chip.coefficients & 0xFFFFFFFF, chip.coefficients >> 32
    fields = {f"src_{d}size": n for d, n in zip("nchw", sizes, strict=True)}
    fields |= {"src_data_format": code, "src_start_addr_l32": low, "src_start_addr_h8": high}
    fields |= {"dst_start_addr_l32": chip.local & 0xFFFFFFFF, "dst_start_addr_h8": 0}
    return Command("dma", "DMA_tensor", fields)


MEASURED = [  # command, chip, cycles of its engine
    (conv((1, 24, 64, 64), 24, (1, 1), F16), BM1684X, 1063),
    (conv((1, 32, 32, 32), 32, (3, 3), F16), BM1684X, 2343),
    (conv((1, 80, 16, 16), 72, (1, 1), F16), BM1684X, 424),
    (conv((1, 64, 56, 56), 64, (3, 3)), BM1688, 28426),
    (conv((1, 1024, 14, 14), 256, (1, 1)), BM1688, 12677),
    (conv((1, 42, 32, 32), 36, (1, 1), F16), BM1688, 3108),
    (conv((1, 72, 16, 16), 64, (1, 1), F16), SG2260, 304),
    (window(4, (1, 28, 32, 32), 64, 2, 2, F16), BM1684X, 266),
    (window(4, (1, 88, 8, 8), 16, 2, 2, F16), BM1684X, 74),
    (window(0, (1, 48, 16, 16), 16, 3, 1, F16), BM1684X, 151),
    (window(0, (1, 64, 16, 16), 16, 3, 1, F16), BM1688, 844),
    (arithmetic(2, (1, 24, 64, 64), (F16,) * 3, (0, 1 << 15, 1 << 16)), BM1684X, 267),
    (arithmetic(4, (1, 24, 64, 64), (F16, F16), (0, 0)), BM1684X, 264),
    (arithmetic(14, (1, 256, 28, 56), (0, I16), (0, 1 << 15)), BM1688, 1578),
    (load((1, 24, 64, 64), F16, BM1684X), BM1684X, 3467),
    (load((1, 32, 1, 18528), 0, BM1688), BM1688, 18716),
]


@pytest.mark.parametrize("case", range(len(MEASURED)))
def test_cycles_are_near_those_of_real_chips(case):
    command, chip, measured = MEASURED[case]
    assert timing.cost(command, chip).cycles == pytest.approx(measured, rel=0.12, abs=12)


def test_a_file_and_its_stream_take_the_same_time():
    chip = chips.load("bm1684x")
    made = compile_bmodel(networks.random_network(3), chip)
    stream = steps.of_commands(made.commands, [steps.LayerText("", "")] * 99, BM1684X)
    file = steps.of_file(bmodel.read(made.data))
    assert file.microseconds == pytest.approx(stream.microseconds, abs=0.02)  # end commands
    assert sum(s.bytes for s in file.steps) == sum(s.bytes for s in stream.steps) > 0
    spent, bounds = file.spent()
    assert sum(spent) == pytest.approx(file.microseconds, rel=0.02)
    assert set(bounds) <= {"compute", "bandwidth", "launch", "dependency"}
    slower = steps.of_file(bmodel.read(made.data), clock=500.0, ddr=5.0)
    assert file.microseconds < slower.microseconds < 12 * file.microseconds


def test_cores_run_beside_each_other_between_barriers():
    made = compile_bmodel(networks.random_network(4), BM1688_CHIP, cores=2)
    timed = steps.of_file(bmodel.read(made.data))
    assert timed.cores == 2
    assert set(timed.busy()) == {"TIU 0", "DMA 0", "TIU 1", "DMA 1"}
    alone = steps.of_file(bmodel.read(compile_bmodel(networks.random_network(4), BM1688_CHIP).data))
    assert timed.microseconds < 1.2 * alone.microseconds
    ends = [i for i, s in enumerate(timed.steps) if s.what == "wait" and s.also]
    assert ends
    for i in ends:
        assert timed.begin[i] >= max(timed.end[k] for k in timed.steps[i].also)
        assert len(timed.steps[i].also) == 4
