"""First and last layers: int8 kernels whose vectors hold pixels instead of channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.check import check
from tests.kernels.test_int8 import image, per_channel, ranges

from intaglio.targets.cpu import qconv_packing
from intaglio.targets.cpu.piecewise_tables import lines_of

WINDOWS = [(3, 3, 1), (3, 3, 2), (3, 5, 1), (1, 5, 1), (1, 5, 2), (1, 5, 3), (3, 3, 4)]


def layer(deep: int, kernel: int, stride: int, channels: int, **more: Any) -> tuple[Any, ...]:
    run = qconv_packing.best_run(deep, (kernel,) * 2, (1, 1), 1)
    w = qconv_packing.packed(image(1, channels, deep, kernel, kernel, dtype=np.int8), run)
    attrs = {
        "channels": channels,
        "kernel": (kernel,) * 2,
        "stride": (stride,) * 2,
        "dilation": (1, 1),
        "pad": (kernel // 2,) * 4,
        "run": run,
        **more,
    }
    return w, attrs


@pytest.mark.parametrize(("deep", "kernel", "stride"), WINDOWS)
@pytest.mark.parametrize("channels", [3, 16, 24, 72])
def test_windows(deep, kernel, stride, channels):
    """Lines of 15, 17 and 34 pixels: fewer than 16 lanes, and blocks that overlap."""
    for width in (15, 17, 34):
        w, attrs = layer(deep, kernel, stride, channels, dilation=(1 + width % 2, 1))
        attrs["pad"] = (kernel, kernel // 2, kernel // 2, kernel // 2)
        for dtype, r in ((np.uint8, width % 4), (np.int8, width // 2 % 4)):
            x = image(2, 6, (width - 1) * stride + 1, deep, dtype=dtype)
            r = ranges(dtype)[r]
            check("cpu.qconv", x, w, *per_channel(channels, deep * kernel**2), **attrs, **r)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("deep", "kernel", "stride"), [(3, 3, 2), (1, 5, 1)])
def test_tables(deep, kernel, stride, large):
    """Tables of bytes, and piecewise linear tables for more entries, also after large scales."""
    w, attrs = layer(deep, kernel, stride, 20)
    bias, scale = per_channel(20, deep * kernel**2)
    x = image(1, 5, 40, deep)
    for entries, dtype in ((200, np.int8), (256, np.uint8), (900, np.int8), (900, np.uint8)):
        low = int(np.iinfo(dtype).min)
        rising = low + np.maximum(np.arange(entries) - 100, 0) * 255 // entries
        table = lines_of(rising.astype(dtype)) if entries > 256 else image(entries, dtype=dtype)
        assert table is not None
        scales = scale * np.float32(entries / 256)
        scales[3] = 0.75 if large else scales[3]
        check(
            "cpu.qconv",
            x,
            w,
            bias,
            scales,
            None,
            table,
            **attrs,
            x_zero=7,
            y_zero=entries // 3,
            lo=0,
            hi=entries - 1,
            dtype="i8" if dtype == np.int8 else "u8",
        )


@pytest.mark.parametrize("deep", [16, 32, 48, 64])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_floats_of_few_channels(deep, channels):
    """Last layers: a vector of whole pixels is multiplied by the weights of one channel."""
    w = qconv_packing.packed(image(1, channels, deep, 1, 1, dtype=np.int8), "tap")
    attrs = {
        "channels": channels,
        "kernel": (1, 1),
        "stride": (1, 1),
        "dilation": (1, 1),
        "pad": (0,) * 4,
        "run": "tap",
        "dtype": "f32",
    }
    bias, scale = per_channel(channels, deep)
    bias[0] = 2**31 - 9  # sums wrap
    for dtype in (np.uint8, np.int8):
        for size in ((1, 3, 5), (2, 4, 4), (1, 9, 11)):
            x = image(*size, deep, dtype=dtype)
            check("cpu.qconv", x, w, bias, scale, **attrs, x_zero=3, tolerance=0)
    attrs["stride"] = (2, 1)
    check("cpu.qconv", image(1, 9, 11, deep), w, bias, scale, **attrs, x_zero=3, tolerance=0)
