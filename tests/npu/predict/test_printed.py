"""The cycle model reproduces the layer tables that the vendor prints."""

from __future__ import annotations

import pytest
from benchmarks.npu_printed import ROWS, cycles


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r.figure}.{r.layer}")
def test_cycles_are_those_of_the_table(row):
    npu, ddr = cycles(row)
    assert npu == pytest.approx(row.npu, rel=0.02)
    assert ddr == pytest.approx(row.ddr, rel=0.15)
