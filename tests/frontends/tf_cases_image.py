"""TensorFlow ops on images: convolution, pooling, normalisation, resizing, NMS."""

from __future__ import annotations

import numpy as np
from tests.frontends.tf_case import F32, I32, I64, Case, Const, case, ints, normal

IMAGE, SQUARE = normal(1, 7, 9, 4), normal(2, 8, 8, 3)
W = normal(3, 3, 4, 6, seed=1)
ONE = {"strides": [1, 1, 1, 1], "padding": "SAME"}


def conv_reference(
    x: np.ndarray, w: np.ndarray, stride: int = 1, same: bool = True, dilation: int = 1
) -> np.ndarray:
    """A convolution by its definition, NHWC and HWIO."""
    kh, kw = ((k - 1) * dilation + 1 for k in w.shape[:2])
    pads = []
    for d, k in zip(x.shape[1:3], (kh, kw), strict=True):
        total = max((-(-d // stride) - 1) * stride + k - d, 0) if same else 0
        pads.append((total // 2, total - total // 2))
    padded = np.pad(x, [(0, 0), *pads, (0, 0)])
    views = np.lib.stride_tricks.sliding_window_view(padded, (kh, kw), (1, 2))
    views = views[:, ::stride, ::stride, :, ::dilation, ::dilation]
    return np.einsum("nyxchw,hwco->nyxo", views, w)


def windows(x: np.ndarray, k: int, s: int) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, (k, k), (1, 2))[:, ::s, ::s]


CASES: dict[str, Case] = {
    "conv": case("Conv2D", IMAGE, Const(W), want=conv_reference, **ONE),
    "conv stride": case(
        "Conv2D",
        IMAGE,
        Const(W),
        strides=[1, 2, 2, 1],
        padding="SAME",
        want=lambda x, w: conv_reference(x, w, 2),
    ),
    "conv valid dilated": case(
        "Conv2D",
        IMAGE,
        Const(W),
        strides=[1, 1, 1, 1],
        padding="VALID",
        dilations=[1, 2, 2, 1],
        want=lambda x, w: conv_reference(x, w, same=False, dilation=2),
    ),
    "conv explicit": case(
        "Conv2D",
        IMAGE,
        Const(W),
        strides=[1, 1, 1, 1],
        padding="EXPLICIT",
        explicit_paddings=[0, 0, 1, 0, 2, 3, 0, 0],
        want=lambda x, w: conv_reference(
            np.pad(x, [(0, 0), (1, 0), (2, 3), (0, 0)]), w, same=False
        ),
    ),
    "conv groups": case(
        "Conv2D",
        IMAGE,
        Const(W[:, :, :2]),
        **ONE,
        want=lambda x, w: np.concatenate(
            [conv_reference(x[..., :2], w[..., :3]), conv_reference(x[..., 2:], w[..., 3:])], -1
        ),
    ),
    "depthwise": case(
        "DepthwiseConv2dNative",
        IMAGE,
        Const(normal(3, 3, 4, 2)),
        **ONE,
        want=lambda x, w: np.concatenate(
            [conv_reference(x[..., i : i + 1], w[:, :, i : i + 1]) for i in range(4)], -1
        ),
    ),
    "backprop": case(
        "Conv2DBackpropInput",
        Const(ints(1, 14, 18, 5)),
        Const(normal(3, 3, 5, 4)),
        IMAGE,
        T=F32,
        strides=[1, 2, 2, 1],
        padding="SAME",
    ),
    "max pool": case(
        "MaxPool",
        SQUARE,
        ksize=[1, 2, 2, 1],
        strides=[1, 2, 2, 1],
        padding="VALID",
        want=lambda x: windows(x, 2, 2).max((-1, -2)),
    ),
    "avg pool": case(
        "AvgPool",
        SQUARE,
        ksize=[1, 3, 3, 1],
        strides=[1, 2, 2, 1],
        padding="VALID",
        want=lambda x: windows(x, 3, 2).mean((-1, -2)),
    ),
    "avg pool same": case(
        "AvgPool", IMAGE, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME"
    ),
    "bias": case("BiasAdd", IMAGE, Const(normal(4)), want=np.add),
    "bias first": case(
        "BiasAdd",
        IMAGE,
        Const(normal(7)),
        data_format="NCHW",
        want=lambda x, b: x + b[:, None, None],
    ),
    "batch norm": case(
        "FusedBatchNormV3",
        IMAGE,
        *(Const(abs(normal(4, seed=i))) for i in range(4)),
        U=F32,
        epsilon=0.01,
        is_training=False,
        want=lambda x, g, b, m, v: g * (x - m) / np.sqrt(v + np.float32(0.01)) + b,
    ),
    "lrn": case(
        "LRN",
        IMAGE,
        depth_radius=1,
        alpha=0.2,
        beta=0.7,
        bias=1.5,
        want=lambda x: (
            x
            / (
                1.5
                + 0.2
                * np.stack([(x[..., max(i - 1, 0) : i + 2] ** 2).sum(-1) for i in range(4)], -1)
            )
            ** 0.7
        ),
    ),
    "bilinear": case("ResizeBilinear", IMAGE, Const(ints(14, 5))),
    "bilinear corners": case(
        "ResizeBilinear",
        IMAGE,
        Const(ints(13, 17)),
        align_corners=True,
        want=lambda x, s: np.stack(
            [
                np.stack(
                    [
                        (
                            x[:, y // 2, z // 2]
                            + x[:, (y + 1) // 2, z // 2]
                            + x[:, y // 2, (z + 1) // 2]
                            + x[:, (y + 1) // 2, (z + 1) // 2]
                        )
                        / 4
                        for z in range(17)
                    ],
                    1,
                )
                for y in range(13)
            ],
            1,
        ),
    ),
    "bilinear half": case("ResizeBilinear", IMAGE, Const(ints(20, 20)), half_pixel_centers=True),
    "nearest": case(
        "ResizeNearestNeighbor",
        IMAGE,
        Const(ints(14, 18)),
        want=lambda x, s: x.repeat(2, 1).repeat(2, 2),
    ),
    "nearest corners": case("ResizeNearestNeighbor", IMAGE, Const(ints(10, 5)), align_corners=True),
    "nearest half": case(
        "ResizeNearestNeighbor", IMAGE, Const(ints(10, 5)), half_pixel_centers=True
    ),
    "depth to space": case("DepthToSpace", IMAGE, block_size=2),
    "space to depth": case(
        "SpaceToDepth",
        SQUARE,
        block_size=2,
        want=lambda x: x.reshape(2, 4, 2, 4, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(2, 4, 4, 12),
    ),
    "space to batch": case(
        "SpaceToBatchND",
        SQUARE,
        Const(ints(2, 2)),
        Const([[1, 1], [0, 2]]),
        Tblock_shape=I32,
        Tpaddings=I64,
    ),
    "batch to space": case(
        "BatchToSpaceND",
        normal(8, 3, 3, 2),
        Const(ints(2, 2)),
        Const([[1, 0], [0, 1]]),
        Tblock_shape=I32,
        Tcrops=I64,
    ),
    "patches": case(
        "ExtractImagePatches",
        SQUARE,
        ksizes=[1, 3, 3, 1],
        strides=[1, 2, 2, 1],
        rates=[1, 1, 1, 1],
        padding="VALID",
        want=lambda x: windows(x, 3, 2).transpose(0, 1, 2, 4, 5, 3).reshape(2, 3, 3, 27),
    ),
    "max and where": case(
        "MaxPoolWithArgmax",
        SQUARE,
        ksize=[1, 2, 2, 1],
        strides=[1, 2, 2, 1],
        padding="VALID",
        Targmax=I64,
        outputs=2,
    ),
    "backprop 3d": case(
        "Conv3DBackpropInputV2",
        Const(ints(1, 6, 8, 8, 2)),
        Const(normal(2, 3, 3, 2, 3)),
        normal(1, 3, 4, 4, 3),
        T=F32,
        Tshape=I32,
        strides=[1, 2, 2, 2, 1],
        padding="SAME",
    ),
    "shrunk": case(
        "ScaleAndTranslate",
        IMAGE,
        Const(ints(3, 4)),
        Const(np.float32([3 / 7, 4 / 9])),
        Const(np.zeros(2, np.float32)),
        T=F32,
        kernel_type="triangle",
        antialias=True,
    ),
    "bicubic": case(
        "ResizeBicubic", IMAGE, Const(ints(14, 5)), half_pixel_centers=True, tolerance=2e-3
    ),  # TensorFlow uses a table of the cubic,
    "fused pad": case(
        "FusedPadConv2D",
        IMAGE,
        Const(np.int32([[0, 0], [1, 1], [2, 1], [0, 0]])),
        Const(W),
        mode="REFLECT",
        strides=[1, 1, 1, 1],
        padding="VALID",
        want=lambda x, p, w: conv_reference(np.pad(x, p, "reflect"), w, same=False),
    ),
    "fused resize": case(
        "FusedResizeAndPadConv2D",
        IMAGE,
        Const(ints(9, 12)),
        Const(np.int32([[0, 0], [1, 1], [2, 1], [0, 0]])),
        Const(W),
        mode="REFLECT",
        strides=[1, 2, 2, 1],
        padding="SAME",
    ),
    "own statistics": case(
        "FusedBatchNorm",
        IMAGE,
        Const(normal(4, seed=1)),
        Const(normal(4, seed=2)),
        Const(np.zeros(0, np.float32)),
        Const(np.zeros(0, np.float32)),
        epsilon=0.01,
        is_training=True,
        want=lambda x, g, b, *_: g * (x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + 0.01) + b,
    ),
    "suppressed": case(
        "NonMaxSuppressionV3",
        np.float32([[0, 0, 1, 1], [0, 0, 1, 0.9], [0, 2, 1, 3], [5, 5, 6, 6]]),
        np.float32([0.5, 0.9, 0.8, 0.1]),
        Const(np.int32(3)),
        Const(np.float32(0.5)),
        Const(np.float32(0.2)),
        T_threshold=F32,
        want=lambda *_: ints(1, 2),
    ),
}
