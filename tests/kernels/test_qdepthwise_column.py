"""Depthwise convolutions of bytes whose results are one pixel wide, as in models of streams."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.check import check
from tests.kernels.test_int8 import image, per_channel, ranges
from tests.kernels.test_int8_depthwise import packed_taps


@pytest.mark.parametrize("channels", [3, 24, 40, 64, 100])
@pytest.mark.parametrize(
    ("size", "kernel", "pad", "stride"),
    [
        ((5, 1), (5, 1), (0, 0, 0, 0), 1),
        ((21, 1), (21, 1), (0, 0, 0, 0), 1),
        ((9, 1), (3, 1), (2, 0, 1, 0), 2),
        ((6, 3), (2, 3), (1, 0, 0, 0), 1),
        ((4, 2), (3, 3), (1, 1, 1, 0), 1),
        ((2, 5, 1), (2, 3, 1), (1, 1, 0, 0, 1, 0), 1),
    ],
)
def test_all_kernels_give_the_same_bits(size, kernel, pad, stride, channels):
    axes = len(kernel)
    attrs = {"stride": (stride,) * axes, "pad": pad, "dilation": (1,) * axes}
    w = packed_taps(image(*kernel, channels, dtype=np.int8), attrs)
    for dtype, table in ((np.uint8, None), (np.int8, image(256, dtype=np.int8))):
        x, end = image(2, *size, channels, dtype=dtype), per_channel(channels, math.prod(kernel))
        (y,) = check("cpu.qdepthwise", x, w, *end, table, **attrs, **ranges(dtype)[stride])
        assert y.shape[-2] == 1
