"""Cases: channel shuffles, depth_to_space and upsampling."""

from __future__ import annotations

import numpy as np
from tests.passes.cases.build import IMAGE, case, conv, f32

from intaglio import ops
from intaglio.ir import Value, constant

ONE = f32(1, 6, 4, 2)


def turned(x: Value, split: tuple[int, ...], perm: tuple[int, ...], *shape: int) -> Value:
    made: Value = ops.reshape(ops.transpose(ops.reshape(x, shape=split), perm=perm), shape=shape)
    return made


case("channel_shuffle", lambda x: turned(x, (2, 2, 2, 6, 6), (0, 2, 1, 3, 4), 2, 4, 6, 6), IMAGE)
case("channel_shuffle", lambda x: turned(x, (1, 3, 2, 8), (0, 2, 1, 3), 1, 6, 4, 2), ONE)
case("channel_shuffle", lambda x: turned(x, (2, 3, 4, 2), (1, 0, 2, 3), 1, 6, 4, 2), ONE)
case("channel_shuffle", lambda x: turned(x, (3, 2, 2, 5), (0, 2, 1, 3), 3, 4, 5), f32(3, 4, 5))
WIDE = f32(2, 8, 3, 5)
for perm, split in (
    ((0, 1, 4, 2, 5, 3), (2, 2, 2, 2, 3, 5)),
    ((0, 3, 4, 1, 5, 2), (2, 2, 2, 2, 3, 5)),
):
    case("pixel_shuffle", lambda x, s=split, p=perm: turned(x, s, p, 2, 2, 6, 10), WIDE)
for perm in ((0, 1, 3, 5, 2, 4), (0, 3, 5, 1, 2, 4)):
    case("pixel_shuffle", lambda x, p=perm: turned(x, (2, 4, 3, 2, 3, 2), p, 2, 16, 3, 3), IMAGE)

# ---- every second pixel --------------------------------------------------------------------------
YOLO = ((0, 0), (1, 0), (0, 1), (1, 1))
ROWS = ((0, 0), (0, 1), (1, 0), (1, 1))
END = 2**62


def slices(x: Value, places: tuple[tuple[int, int], ...], channels: int) -> Value:
    at = (2, 3) if channels == 1 else (1, 2)
    parts = []
    for place in places:
        start, step = [0] * 4, [1] * 4
        for axis, first in zip(at, place, strict=True):
            start[axis], step[axis] = first, 2
        parts.append(ops.slice_(x, start=tuple(start), stop=(END,) * 4, step=tuple(step)))
    made: Value = ops.concat(*parts, axis=channels)
    return made


for places in (YOLO, ROWS, ROWS[::-1]):
    case("space_to_depth_of_slices", lambda x, p=places: slices(x, p, 1), IMAGE)
for places in (YOLO, ROWS):
    case("space_to_depth_of_slices", lambda x, p=places: slices(x, p, 3), f32(2, 6, 4, 5))

# ---- upsampling ----------------------------------------------------------------------------------


def expanded(x: Value, one: tuple[int, ...], many: tuple[int, ...], *shape: int) -> Value:
    wide = ops.expand(ops.reshape(x, shape=one), shape=many)
    made: Value = ops.reshape(wide, shape=shape)
    return made


case(
    "upsample_of_expand",
    lambda x: expanded(x, (2, 4, 6, 1, 6, 1), (2, 4, 6, 2, 6, 3), 2, 4, 12, 18),
    IMAGE,
)
case(
    "upsample_of_expand",
    lambda x: expanded(x, (2, 4, 6, 1, 6), (2, 4, 6, 2, 6), 2, 4, 12, 6, 1),
    IMAGE,
)
TWICE = constant(np.repeat(np.arange(6), 2))
case("upsample_of_gather", lambda x: ops.gather(x, TWICE, axis=2), IMAGE)
case("upsample_of_gather", lambda x: ops.gather(x, TWICE, axis=-1), IMAGE)
COPY = {"pad": (0,) * 4, "output_pad": (0, 0), "dilation": (1, 1)}
ONES = constant(np.ones((4, 1, 2, 3), np.float32))
case(
    "upsample_of_conv_transpose",
    lambda x: ops.conv_transpose(x, ONES, stride=(2, 3), groups=4, **COPY),
    IMAGE,
)


def repeated(x: Value, axis: int, times: int) -> Value:
    made: Value = ops.resize(
        x,
        axes=(axis,),
        shape=(x.shape[axis] * times,),
        scales=(float(times),),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    return made


case("upsample_of_upsample", lambda x: repeated(repeated(x, 2, 2), 3, 3), IMAGE)
case("upsample_of_upsample", lambda x: repeated(repeated(x, 2, 2), 2, 3), IMAGE)

# ---- into weights --------------------------------------------------------------------------------
for mode in ("DCR", "CRD"):
    case(
        "space_to_depth_into_conv",
        lambda x, m=mode: conv(
            ops.space_to_depth(x, blocksize=2, mode=m), stride=(2, 1), pad=(1, 0, 1, 2)
        ),
        IMAGE,
    )
ORDER = constant(np.array([2, 0, 3, 1]))
case("channel_order_into_conv", lambda x: conv(ops.gather(x, ORDER, axis=1)), IMAGE)
case(
    "channel_order_into_conv",
    lambda x: conv(ops.gather(x, np.array([2, 0, 3, 1, 1, 2]), axis=1)),
    IMAGE,
)
case("channel_order_into_conv", lambda x: conv(ops.channel_shuffle(x, groups=2)), IMAGE)
