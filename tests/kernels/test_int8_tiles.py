"""Convolutions of bytes at the limits of tiles: long rows, few rows, lines beside the image."""

from __future__ import annotations

import numpy as np
import pytest
from tests.check import check
from tests.kernels.test_int8 import RANGES, image, per_channel, ranges
from tests.kernels.test_int8_depthwise import packed_taps

from intaglio.targets.cpu import qconv_packing


@pytest.mark.parametrize("channels", [7, 20])
def test_products_with_long_rows(channels):
    """More weights than a kernel keeps in another order; numbers of rows that no tile divides."""
    deep = 1546
    w = image(1, channels, deep, 1, dtype=np.int8)
    attrs = {"channels": channels, "kernel": (1,), "stride": (1,), "pad": (0, 0), "dilation": (1,)}
    packed = qconv_packing.packed(w, "tap")
    for rows, dtype in ((1, np.uint8), (14, np.int8)):
        x, r = image(1, rows, deep, dtype=dtype), ranges(dtype)[0]
        check("cpu.qconv", x, packed, *per_channel(channels, deep), **attrs, **r)


@pytest.mark.parametrize("channels", [16, 40])
def test_qconv_whose_padding_is_left_out(channels):
    """Pixels of the same taps are multiplied together: nine kinds, of one row or of many."""
    x, w = image(1, 6, 14, 20), image(1, channels, 20, 3, 3, dtype=np.int8)
    pair = {"stride": (1, 1), "pad": (1,) * 4, "dilation": (1, 1), "kernel": (3, 3)}
    extra = image(1, 6, 14, channels, dtype=np.int8)
    add = {"r_zero": -3, "r_scale": 0.75}
    for run in ("tap", "line"):
        packed = qconv_packing.packed(w, run)
        terms = per_channel(channels, 180)
        more = {"channels": channels, "run": run, **pair, **RANGES[0]}
        check("cpu.qconv", x, packed, *terms, **more)
        check("cpu.qconv", x, packed, *terms, extra, **more, **add)


@pytest.mark.parametrize("size", [(1, 1), (1, 6), (2, 9), (5, 12)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_qdepthwise_of_8_channels(size, dilation):
    """Two pixels in a vector; lines above and below the image; no weight is -128."""
    w = np.maximum(image(3, 3, 8, dtype=np.int8), -127)
    for stride in (1, 2):
        attrs = {"stride": (stride,) * 2, "pad": (2, 2, 2, 3), "dilation": (dilation,) * 2}
        packed = packed_taps(w, attrs)
        for dtype in (np.uint8, np.int8):
            x, r = image(2, *size, 8, dtype=dtype), ranges(dtype)[stride]
            check("cpu.qdepthwise", x, packed, *per_channel(8, 9), **attrs, **r)


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (4, 7), (5, 10)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (1, 2), (2, 1)])
def test_qdepthwise_of_whole_blocks(size, stride):
    """3x3 windows of 16 and 32 channels: two output lines at a time, columns at both sides."""
    for channels, pad in ((16, (1, 1, 1, 1)), (32, (0, 2, 2, 0)), (16, (2, 0, 1, 3))):
        reach = size[0] + pad[0] + pad[2], size[1] + pad[1] + pad[3]
        if min(reach) < 3:
            continue
        w = image(3, 3, channels, dtype=np.int8)
        attrs = {"stride": stride, "pad": pad, "dilation": (1, 1)}
        packed = packed_taps(w, attrs)
        for dtype in (np.uint8, np.int8):
            x, r = image(2, *size, channels, dtype=dtype), ranges(dtype)[0]
            check("cpu.qdepthwise", x, packed, *per_channel(channels, 9), **attrs, **r)


@pytest.mark.parametrize("channels", [8, 24, 40])
@pytest.mark.parametrize("stride", [1, 2])
def test_qdepthwise_of_large_sums(stride, channels):
    """Scaled sums that leave 16 bits, in some of the channels or in all; bounds and tables."""
    w = image(3, 3, channels, dtype=np.int8)
    attrs = {"stride": (stride,) * 2, "pad": (1, 1, 1, 1), "dilation": (1, 1)}
    packed = packed_taps(w, attrs)
    bias, scale = per_channel(channels, 9)
    large = np.where(np.arange(channels) % 16 < 8, scale, 0.75).astype(np.float32)
    table = image(256, dtype=np.int8)
    for dtype in (np.uint8, np.int8):
        x = image(1, 5, 8, channels, dtype=dtype)
        for r in ranges(dtype):
            check("cpu.qdepthwise", x, packed, bias, large, **attrs, **r)
        r = ranges(dtype)[3]
        check("cpu.qdepthwise", x, packed, bias * 70000, scale, table, **attrs, **r)
        check("cpu.qdepthwise", x, packed, bias * 70000, scale, **attrs, **r)


@pytest.mark.parametrize(("rows", "deep"), [(13, 12), (31, 28), (128, 8), (140, 40)])
@pytest.mark.parametrize("channels", [56, 72])
def test_products_of_many_panels(channels, rows, deep):
    """Rows that a kernel packs for all panels; scaled sums within 16 bits and beyond."""
    x, w = image(1, rows, deep), image(1, channels, deep, 1, dtype=np.int8)
    attrs = {"channels": channels, "kernel": (1,), "stride": (1,), "pad": (0, 0), "dilation": (1,)}
    packed = qconv_packing.packed(w, "tap")
    bias, scale = per_channel(channels, deep)
    large = np.where(np.arange(channels) % 40 < 20, scale, 0.4).astype(np.float32)
    for dtype, by in ((np.uint8, scale), (np.int8, large)):
        for r in ranges(dtype)[2:]:
            check("cpu.qconv", x.view(dtype), packed, bias, by, **attrs, **r)
    residual = image(1, rows, channels, dtype=np.int8)
    add = {"r_zero": 5, "r_scale": 0.5}
    check("cpu.qconv", x, packed, bias, scale, residual, **attrs, **RANGES[3], **add)


@pytest.mark.parametrize("channels", [5, 8, 16, 24, 40])
@pytest.mark.parametrize("deep", [3, 16, 44])
def test_a_row_alone(channels, deep):
    """Sums of weights are made beside the products of one row."""
    x, w = image(1, 1, deep), image(1, channels, deep, 1, dtype=np.int8)
    attrs = {"channels": channels, "kernel": (1,), "stride": (1,), "pad": (0, 0), "dilation": (1,)}
    packed = qconv_packing.packed(w, "tap")
    bias, scale = per_channel(channels, deep)
    for dtype in (np.uint8, np.int8):
        for r in ranges(dtype):
            check("cpu.qconv", x.view(dtype), packed, bias, scale, **attrs, **r)
    zeros = image(channels, dtype=np.int8).astype(np.int32)
    check("cpu.qconv", x, packed, bias, scale, None, None, zeros, **attrs, **RANGES[0])
    check("cpu.qconv", x, packed, bias, scale * 3000, **attrs, **RANGES[3])
