"""Cycles and times of streams; the golden cycles are those of tpu-mlir's cycle model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from intaglio.npu.chips.cv18xx import timing
from intaglio.npu.chips.cv18xx.commands import CHIPS, tdma, tiu
from intaglio.npu.chips.cv18xx.fields import TDMA, TIU

HERE = Path(__file__).parent
COMMANDS = json.loads((HERE / "golden_commands.json").read_text())
# Cycles of the TIU commands of golden_commands.json by CV18xx_profiling.cpp, in their order.
CYCLES = json.loads((HERE / "golden_cycles.json").read_text())
LOAD = {"src_c": 8, "src_h": 16, "src_w": 16, "dst_c": 8, "dst_h": 16, "dst_w": 16}
LOAD |= {"src_h_stride": 16, "dst_h_stride": 16, "src_c_stride_low": 256, "dst_c_stride_low": 256}
LOAD |= {"src_n_stride": 2048, "dst_n_stride": 256}


def test_cycles_of_the_tiu() -> None:
    rows = [r for r in COMMANDS if r["name"] == "tiu"]
    assert len(rows) == len(CYCLES) > 10
    for row, want in zip(rows, CYCLES, strict=True):
        got = timing.tiu_cycles(TIU.resets | row["fields"], CHIPS[row["chip"]])
        assert got == pytest.approx(want, abs=1), row


def test_bytes_of_ddr() -> None:
    resets = TDMA.resets
    assert timing.ddr_bytes(resets | LOAD) == 2048  # one piece
    assert timing.ddr_bytes(resets | LOAD | {"src_base_addr_low": 32}) == 2048 + 64
    apart = LOAD | {"src_h_stride": 64, "src_c_stride_low": 1024, "src_n_stride": 8192}
    assert timing.ddr_bytes(resets | apart) == 8 * 16 * 64  # a line for each row
    assert timing.ddr_bytes(resets | LOAD | {"trans_dir": 3}) == 0
    assert timing.ddr_bytes(resets | LOAD | {"trans_dir": 2}) == 4096
    assert timing.ddr_bytes(resets | {"trans_fmt": 1, "src_n_stride": 1000}) == 1024
    assert timing.ddr_bytes(resets | LOAD | {"spec_func": 4}) == 0
    huge = {"src_n": 65535, "src_c": 65535, "src_h": 65535, "src_h_stride": 65535}
    assert timing.ddr_bytes(resets | huge) > 1 << 40  # without a list of the pieces


def test_engines_work_beside_each_other() -> None:
    chip = CHIPS["cv181x"]
    compute = {"tsk_typ": 3, "tsk_eu_typ": 0, "res0_h": 64, "res0_c_str": 1024}
    cycles = timing.tiu_cycles(TIU.resets | compute, chip) / chip.clock
    load = 2048 / 1e9
    alone = [tdma(LOAD), tiu(compute)]
    assert timing.measure(alone, chip, 1e9).total == pytest.approx(max(cycles, load))
    waits = [tdma(LOAD), tiu(compute, 1), tdma(LOAD), tdma(LOAD, 1)]
    times = timing.measure(waits, chip, 1e9)
    assert times.total == pytest.approx(load + max(cycles, load) + load)
    assert times.tdma == pytest.approx(3 * load)
    assert times.ddr_bytes == 3 * 2048
    assert times.overlap == pytest.approx(1)
