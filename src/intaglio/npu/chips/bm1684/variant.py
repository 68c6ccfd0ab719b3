"""The sizes and addresses of the BM1684."""

from __future__ import annotations

from intaglio.npu.chips.bm1684x.variants import Variant

WORD = 4  # bytes, which hold one pixel of four images
TABLE = 0xA2000  # where lookup tables lie in L2 memory
TABLE_ENTRIES = 256
BM1684 = Variant(
    name="bm1684",
    title="BM1684",
    lanes=64,
    eu_bytes=128,
    lane_bytes=512 << 10,
    inputs_at_once=WORD,
    scale_step=WORD,
    zero_first=False,
    signs_results=False,
    rounds=False,
    pool_indices=False,
    local=0x0800_0000,
    coefficients=0x1_0510_0000,
    neurons=0,
    l2=0x1000_0000,
    l2_bytes=4 << 20,
)
