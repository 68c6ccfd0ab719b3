"""Depthwise convolutions of bytes: every kernel gives the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.check import check
from tests.kernels.test_int8 import RANGES, image, per_channel, ranges

from intaglio.targets.cpu.depthwise_packing import tap_packing


def packed_taps(w: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    """Weights [window.., channels], packed for the kernel; sets `attrs["kernel"]`."""
    attrs["kernel"] = w.shape[:-1]
    taps_order = tap_packing(attrs["kernel"], attrs["stride"], attrs["dilation"])
    packed = taps_order.packed(w)
    np.testing.assert_array_equal(
        taps_order.unpacked(packed, w.shape[-1]), w.reshape(-1, w.shape[-1])
    )
    return packed


@pytest.mark.parametrize("channels", [1, 24, 32, 33, 58, 64, 96, 130])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"),
    [
        (3, 1, 1),
        (3, 2, 1),
        (5, 1, 1),
        (5, 2, 1),
        (7, 3, 1),
        (3, 1, 2),
        (3, 2, 3),
        (1, 2, 1),
        (2, 2, 40),
    ],
)
def test_qdepthwise(channels, kernel, stride, dilation):
    pad = (kernel - 1) * dilation // 2
    attrs = {"stride": (stride, stride), "pad": (pad, pad, pad + 1, 0), "dilation": (dilation,) * 2}
    if (kernel - 1) * dilation > 20:
        attrs["pad"] = (40, 40, 40, 40)
    w = packed_taps(image(kernel, kernel, channels, dtype=np.int8), attrs)
    for dtype in (np.uint8, np.int8):
        x = image(2, 9, 11, channels, dtype=dtype)
        for r in ranges(dtype):
            check("cpu.qdepthwise", x, w, *per_channel(channels, kernel * kernel), **attrs, **r)


@pytest.mark.parametrize("channels", [5, 16, 20, 48, 72, 144])
@pytest.mark.parametrize("size", [(1, 1), (3, 1), (2, 3), (7, 7), (5, 28)])
def test_qdepthwise_of_small_images(size, channels):
    """Fewer pixels or channels than a vector has, and the last pixels of the image's memory."""
    for stride in (1, 2):
        for pad in ((1, 1, 1, 1), (1, 0, 1, 2), (2, 2, 1, 1)):
            attrs = {"stride": (stride,) * 2, "pad": pad, "dilation": (1, 1)}
            w = packed_taps(image(3, 3, channels, dtype=np.int8), attrs)
            for dtype in (np.uint8, np.int8):
                x, r = image(1, *size, channels, dtype=dtype), ranges(dtype)[stride]
                check("cpu.qdepthwise", x, w, *per_channel(channels, 9), **attrs, **r)


@pytest.mark.parametrize("size", [(1, 1), (2, 6), (7, 7), (14, 13), (71, 4), (9, 28), (6, 129)])
@pytest.mark.parametrize("stride", [1, 2])
def test_qdepthwise_of_5x5_windows(size, stride):
    """Windows that start at each line of a group of four; groups reuse the ring buffer."""
    for channels in (8, 37, 80):
        attrs = {"stride": (stride,) * 2, "dilation": (1, 1)}
        w = packed_taps(image(5, 5, channels, dtype=np.int8), attrs)
        for pad in ((2, 2, 2, 2), (4, 9, 3, 0)):
            if size[1] + pad[1] + pad[3] < 5 or (channels > 8 and size[1] > 28):
                continue
            attrs["pad"] = pad
            for dtype in (np.uint8, np.int8):
                x, r = image(2, *size, channels, dtype=dtype), ranges(dtype)[(stride + pad[3]) % 4]
                check("cpu.qdepthwise", x, w, *per_channel(channels, 25), **attrs, **r)


@pytest.mark.parametrize(("size", "channels"), [(14, 240), (14, 120), (15, 96), (7, 288)])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (5, 1), (5, 2)])
def test_qdepthwise_split_by_lines_and_by_channels(size, channels, kernel, stride):
    """Threads split the image as the 1x1 convolution before it does: by lines or by channels."""
    pad = (kernel // 2,) * 4
    attrs = {"stride": (stride,) * 2, "pad": pad, "dilation": (1, 1)}
    w = packed_taps(image(kernel, kernel, channels, dtype=np.int8), attrs)
    x, r = image(1, size, size, channels, dtype=np.int8), ranges(np.int8)[0]
    check("cpu.qdepthwise", x, w, *per_channel(channels, kernel * kernel), **attrs, **r)


@pytest.mark.parametrize("channels", [5, 24, 64, 144])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2)])
def test_qdepthwise_with_a_table(kernel, stride, channels):
    attrs = {"stride": (stride,) * 2, "pad": (1,) * 4, "dilation": (1, 1)}
    w = packed_taps(image(kernel, kernel, channels, dtype=np.int8), attrs)
    for r, dtype in ((RANGES[1], np.int8), (RANGES[2], np.uint8), (RANGES[3], np.int8)):
        x, table = image(1, 8, 9, channels), image(256, dtype=dtype)
        (y,) = check("cpu.qdepthwise", x, w, *per_channel(channels, 9), table, **attrs, **r)
        assert y.dtype == dtype


def test_qdepthwise_of_other_ranks():
    r = RANGES[1]
    for shape, kernel in (((2, 17, 20), (3,)), ((1, 5, 6, 7, 20), (2, 3, 3))):
        axes = len(kernel)
        attrs = {"stride": (1,) * axes, "pad": (1,) * 2 * axes, "dilation": (1,) * axes, **r}
        w = packed_taps(image(*kernel, shape[-1], dtype=np.int8), attrs)
        check("cpu.qdepthwise", image(*shape), w, *per_channel(shape[-1], 9), **attrs)
