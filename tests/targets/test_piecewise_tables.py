"""Tables as pieces of straight lines: exactly the same entries, or none."""

from __future__ import annotations

import numpy as np
import pytest
from tests.check import check
from tests.kernels.test_int8 import image, per_channel

from intaglio.targets.cpu import qconv_packing, qwinograd
from intaglio.targets.cpu.piecewise_tables import PIECES, lines_of, shift_of, table_of

RNG = np.random.default_rng(4)


def smooth(entries: int, low: float, high: float, dtype: type = np.int8) -> np.ndarray:
    """Swish, as bytes."""
    real = np.linspace(low, high, entries)
    y = real / (1 + np.exp(-real))
    made = np.rint((y - y.min()) / np.ptp(y) * 255) - (128 if dtype == np.int8 else 0)
    return made.astype(dtype)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("entries", [700, 1024, 1025, 1500, 2048, 3000, 4096])
def test_lines_have_the_entries_of_the_table(entries, dtype):
    for low, high in ((-6, 6), (-2, 10), (-4, 8)):
        table = smooth(entries, low, high, dtype)
        lines = lines_of(table)
        assert lines is not None
        assert lines.dtype == dtype
        np.testing.assert_array_equal(table_of(lines, entries), table)


def test_pieces_are_as_small_as_they_can_be():
    assert [shift_of(n, 128) for n in (1, 128, 129, 256, 257, 1024, 1025, 4096)] == [
        0,
        0,
        1,
        1,
        2,
        3,
        4,
        5,
    ]
    assert len(lines_of((np.arange(1000) // 4).astype(np.uint8)).T) in PIECES


def test_discontinuous_tables_have_no_lines():
    assert lines_of(image(1500, dtype=np.int8)) is None
    steep = smooth(1500, -6, 6)
    steep[700] += 9
    assert lines_of(steep) is None


def test_kernels_follow_lines():
    x, w = image(1, 9, 8, 24), image(40, 24, 3, 3, dtype=np.int8)
    bias, scale = per_channel(40, 24)
    for entries, dtype in ((600, np.int8), (900, np.uint8), (1500, np.int8), (4000, np.uint8)):
        table = smooth(entries, -5, 5, dtype)
        lines = lines_of(table)
        assert lines is not None
        attrs = {
            "channels": 40,
            "pad": (1,) * 4,
            "x_zero": 7,
            "lo": -entries // 3,
            "y_zero": 20,
            "dtype": "i8" if dtype == np.int8 else "u8",
        }
        attrs["hi"] = attrs["lo"] + entries - 1
        ends = bias, scale * np.float32(entries / 256)
        window = {"kernel": (3, 3), "stride": (1, 1), "dilation": (1, 1)}
        packed = qconv_packing.packed(w[None], "line")
        (want,) = check("cpu.qconv", x, packed, *ends, None, table, run="line", **attrs, **window)
        (made,) = check("cpu.qconv", x, packed, *ends, None, lines, run="line", **attrs, **window)
        np.testing.assert_array_equal(made, want)
        tiled = qwinograd.tiled_weights(w)
        (made,) = check("cpu.qwinograd", x, tiled, *ends, None, lines, **attrs)
        np.testing.assert_array_equal(made, want)
        few = {**attrs, "pad": (0,) * 4, "kernel": (1, 1), "stride": (1, 1), "dilation": (1, 1)}
        ones = qconv_packing.packed(image(1, 40, 24, 1, 1, dtype=np.int8), "tap")
        check("cpu.qconv", x, ones, *ends, image(1, 9, 8, 40), lines, r_scale=0.4, r_zero=3, **few)
