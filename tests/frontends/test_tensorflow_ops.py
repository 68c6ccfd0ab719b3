"""TensorFlow's ops, each in a graph, against numpy, and against TensorFlow where it is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.frontends.tf_build import Bytes, GraphDef, Kind

import intaglio

F32, I32, I64 = Kind("float32"), Kind("int32"), Kind("int64")


def normal(*dims: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=dims).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


@dataclass
class Const:
    """An operand that is a constant."""

    data: Any


@dataclass
class Case:
    """One node: arrays are fed, constants stand in the file."""

    op: str
    operands: list[Any]
    want: Callable[..., Any] | None = None  # of the operands; None: TensorFlow alone knows
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    tolerance: float = 2e-5


def case(
    op: str,
    *operands: Any,
    want: Callable[..., Any] | None = None,
    outputs: int = 1,
    tolerance: float = 2e-5,
    **attrs: Any,
) -> Case:
    return Case(op, list(operands), want, attrs, outputs, tolerance)


def build(c: Case, folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    graph, feeds, names = GraphDef(), {}, []
    for i, v in enumerate(c.operands):
        if isinstance(v, Const):
            held = v.data if isinstance(v.data, Bytes) else np.asarray(v.data)
            names.append(graph.const(f"c{i}", held))
        else:
            names.append(graph.placeholder(f"x{i}", v.shape, v.dtype.name))
            feeds[names[-1]] = v
    first = c.operands[0].data if isinstance(c.operands[0], Const) else c.operands[0]
    attrs = {"T": Kind(np.asarray(first).dtype.name), **c.attrs}
    graph.add("y", c.op, " ".join(names), **{k: v for k, v in attrs.items() if v is not None})
    return graph.save(folder / "one.pb"), feeds


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


IMAGE, SQUARE = normal(1, 7, 9, 4), normal(2, 8, 8, 3)
W = normal(3, 3, 4, 6, seed=1)
ONE = {"strides": [1, 1, 1, 1], "padding": "SAME"}
X = normal(3, 4, 5)
MASKS = {
    "begin_mask": 0,
    "end_mask": 0,
    "ellipsis_mask": 0,
    "new_axis_mask": 0,
    "shrink_axis_mask": 0,
    "Index": I32,
}
FAKE = np.linspace(-3, 5, 40, dtype=np.float32)


def fake_quant(
    x: np.ndarray, low: float, high: float, bits: int = 8, narrow: bool = False
) -> np.ndarray:
    """As TensorFlow documents it."""
    first, last = int(narrow), (1 << bits) - 1
    scale = np.float32(high - low) / np.float32(last - first)
    zero = min(max(round(first - low / float(scale)), first), last)
    lo, hi = (first - zero) * scale, (last - zero) * scale
    return np.round((np.clip(x, lo, hi) - lo) / scale) * scale + lo


def lstm_cell(
    x: np.ndarray, c: np.ndarray, h: np.ndarray, w: np.ndarray, b: np.ndarray, forget: float
) -> list[np.ndarray]:
    """Input gate, state, forget gate, output gate, candidate, its tanh, output; clipped at 3."""
    i, new, f, o = np.split(np.concatenate([x, h], 1) @ w + b, 4, 1)
    i, f, o, new = (*(1 / (1 + np.exp(-v)) for v in (i, f + forget, o)), np.tanh(new))
    c = (new * i + c * f).clip(-3, 3)
    return [i, c, f, o, new, np.tanh(c), np.tanh(c) * o]


CASES = {
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
    "matmul": case(
        "MatMul", normal(3, 4), Const(normal(5, 4)), transpose_b=True, want=lambda a, b: a @ b.T
    ),
    "matmul a": case(
        "MatMul", normal(4, 3), Const(normal(4, 5)), transpose_a=True, want=lambda a, b: a.T @ b
    ),
    "batch matmul": case(
        "BatchMatMulV2", X, normal(1, 6, 5), adj_y=True, want=lambda a, b: a @ b.transpose(0, 2, 1)
    ),
    "einsum": case(
        "Einsum",
        X,
        normal(3, 5, 2),
        equation="abc,acd->adb",
        N=2,
        want=lambda a, b: np.einsum("abc,acd->adb", a, b),
    ),
    "slice": case(
        "Slice",
        X,
        Const(ints(1, 0, 2)),
        Const(ints(2, -1, 3)),
        Index=I32,
        want=lambda x, b, s: x[1:3, :, 2:5],
    ),
    "strided": case(
        "StridedSlice",
        X,
        Const(ints(1, -1, 0)),
        Const(ints(0, -9, 5)),
        Const(ints(1, -2, 2)),
        **{**MASKS, "shrink_axis_mask": 1},
        want=lambda x, *_: x[1, ::-2, ::2],
    ),
    "strided new": case(
        "StridedSlice",
        X,
        Const(ints(0, 0, 0, 1)),
        Const(ints(0, 0, 0, 3)),
        Const(ints(1, 1, 1, 1)),
        **{**MASKS, "new_axis_mask": 1, "ellipsis_mask": 2, "begin_mask": 4, "shrink_axis_mask": 4},
        want=lambda x, *_: x[None, ..., 0, 1:3],
    ),
    "strided open": case(
        "StridedSlice",
        X,
        Const(ints(1, 3)),
        Const(ints(0, 0)),
        Const(ints(1, -1)),
        **{**MASKS, "begin_mask": 2, "end_mask": 3},
        want=lambda x, *_: x[1:, ::-1],
    ),
    "reshape": case(
        "Reshape", X, Const(ints(-1, 10)), Tshape=I32, want=lambda x, _: x.reshape(6, 10)
    ),
    "squeeze": case(
        "Squeeze", normal(1, 3, 1, 2), squeeze_dims=[-2], want=lambda x: x.reshape(1, 3, 2)
    ),
    "expand": case("ExpandDims", X, Const(np.int32(-2)), Tdim=I32, want=lambda x, _: x[:, :, None]),
    "transpose": case(
        "Transpose", X, Const(ints(2, 0, 1)), Tperm=I32, want=lambda x, p: x.transpose(p)
    ),
    "concat": case(
        "ConcatV2",
        X,
        X + 1,
        Const(np.int32(-1)),
        N=2,
        Tidx=I32,
        want=lambda a, b, _: np.concatenate([a, b], -1),
    ),
    "pack": case("Pack", X, X + 1, N=2, axis=1, want=lambda a, b: np.stack([a, b], 1)),
    "unpack": case("Unpack", X, num=4, axis=1, outputs=4, want=lambda x: list(x.swapaxes(0, 1))),
    "split": case(
        "Split",
        Const(np.int32(1)),
        X,
        T=F32,
        num_split=2,
        outputs=2,
        want=lambda _, x: np.split(x, 2, 1),
    ),
    "split v": case(
        "SplitV",
        X,
        Const(ints(1, -1, 2)),
        Const(np.int32(2)),
        Tlen=I32,
        num_split=3,
        outputs=3,
        want=lambda x, *_: np.split(x, [1, 3], 2),
    ),
    "pad": case(
        "PadV2",
        X,
        Const([[1, 0], [0, 2], [1, 1]]),
        Const(np.float32(7)),
        Tpaddings=I64,
        want=lambda x, p, v: np.pad(x, p, constant_values=v),
    ),
    "mirror": case(
        "MirrorPad",
        X,
        Const([[1, 0], [0, 2], [1, 1]]),
        Tpaddings=I64,
        mode="REFLECT",
        want=lambda x, p: np.pad(x, p, "reflect"),
    ),
    "symmetric": case(
        "MirrorPad",
        X,
        Const([[1, 0], [0, 2], [1, 1]]),
        Tpaddings=I64,
        mode="SYMMETRIC",
        want=lambda x, p: np.pad(x, p, "symmetric"),
    ),
    "tile": case("Tile", X, Const(ints(1, 2, 3)), Tmultiples=I32, want=np.tile),
    "broadcast": case(
        "BroadcastTo", normal(4, 1), Const(ints(3, 4, 5)), Tidx=I32, want=np.broadcast_to
    ),
    "mean": case(
        "Mean",
        X,
        Const(ints(0, -1)),
        Tidx=I32,
        keep_dims=True,
        want=lambda x, _: x.mean((0, 2), keepdims=True),
    ),
    "sum": case("Sum", X, Const(np.int32(1)), Tidx=I32, want=lambda x, _: x.sum(1)),
    "max": case("Max", X, Const(ints(2)), Tidx=I32, want=lambda x, _: x.max(2)),
    "prod": case("Prod", X, Const(ints(2)), Tidx=I32, want=lambda x, _: x.prod(2)),
    "any": case("Any", X > 1, Const(ints(2)), T=None, Tidx=I32, want=lambda x, _: x.any(2)),
    "argmax": case(
        "ArgMax",
        X,
        Const(np.int32(1)),
        Tidx=I32,
        output_type=I32,
        want=lambda x, _: x.argmax(1).astype(np.int32),
    ),
    "cumsum": case(
        "Cumsum", X, Const(np.int32(1)), Tidx=I32, exclusive=True, want=lambda x, _: x.cumsum(1) - x
    ),
    "top k": case(
        "TopKV2",
        X,
        Const(np.int32(2)),
        outputs=2,
        want=lambda x, _: [-np.sort(-x)[..., :2], (-x).argsort(-1)[..., :2].astype("i4")],
    ),
    "gather": case(
        "GatherV2",
        X,
        Const(ints(3, 0)),
        Const(np.int32(1)),
        T=None,
        Tparams=F32,
        Tindices=I32,
        Taxis=I32,
        want=lambda x, i, _: x.take(i, 1),
    ),
    "gather rows": case(
        "GatherV2",
        X,
        Const(ints(2, 0, 1).reshape(3, 1)),
        Const(np.int32(1)),
        T=None,
        Tparams=F32,
        Tindices=I32,
        Taxis=I32,
        batch_dims=1,
        want=lambda x, i, _: np.take_along_axis(x, i[:, :, None], 1),
    ),
    "gather last": case(
        "GatherV2",
        X,
        Const(ints(2, 0, 1).reshape(3, 1)),
        Const(np.int32(2)),
        T=None,
        Tparams=F32,
        Tindices=I32,
        Taxis=I32,
        batch_dims=1,
        want=lambda x, i, _: np.stack([x[b][:, i[b]] for b in range(3)]),
    ),
    "gather nd": case(
        "GatherNd",
        X,
        Const(ints(2, 0, 1, 3).reshape(2, 2)),
        T=None,
        Tparams=F32,
        Tindices=I32,
        want=lambda x, i: x[i[:, 0], i[:, 1]],
    ),
    "scatter nd": case(
        "ScatterNd",
        Const(ints(1, 3, 1).reshape(3, 1)),
        normal(3, 2),
        Const(ints(5, 2)),
        T=F32,
        Tindices=I32,
        want=lambda i, u, s: np.array([u[0] * 0, u[0] + u[2], u[0] * 0, u[1], u[0] * 0]),
    ),
    "one hot": case(
        "OneHot",
        ints(2, -1, 0, 5),
        Const(np.int32(3)),
        Const(np.float32(4)),
        Const(np.float32(-1)),
        T=F32,
        TI=I32,
        axis=0,
        want=lambda i, d, on, off: np.where(np.arange(3)[:, None] == i, on, off),
    ),
    "where": case("Where", X[0] > 0, T=Kind("bool"), want=lambda x: np.argwhere(x)),
    "reverse": case(
        "ReverseV2", X, Const(ints(-1, 0)), Tidx=I32, want=lambda x, _: x[::-1, :, ::-1]
    ),
    "band": case(
        "MatrixBandPart",
        X,
        Const(np.int64(1)),
        Const(np.int64(-1)),
        Tindex=I64,
        want=lambda x, *_: np.triu(x, -1),
    ),
    "select": case(
        "Select",
        X[:, 0, 0] > 0,
        X,
        -X,
        T=F32,
        want=lambda c, a, b: np.where(c[:, None, None], a, b),
    ),
    "select v2": case("SelectV2", X > 0, X, Const(np.float32(3)), T=F32, want=np.where),
    "cast": case("Cast", X * 3, T=None, SrcT=F32, DstT=I32, want=lambda x: x.astype(np.int32)),
    "floor div": case("FloorDiv", ints(-7, 7, 8), Const(ints(2, -2, 3)), want=np.floor_divide),
    "floor mod": case("FloorMod", ints(-7, 7, 8), Const(ints(2, -2, 3)), want=np.mod),
    "div": case(
        "Div", ints(-7, 7, 8), Const(ints(2, -2, 3)), want=lambda a, b: (a / b).astype(np.int32)
    ),
    "div no nan": case(
        "DivNoNan",
        X,
        Const(np.float32([0, 1, 2, 0, 4])),
        want=lambda a, b: np.where(b == 0, 0, a / np.where(b == 0, 1, b)),
    ),
    "leaky": case(
        "LeakyRelu", X, alpha=0.3, want=lambda x: np.where(x < 0, np.float32(0.3) * x, x)
    ),
    "relu6": case("Relu6", X * 5, want=lambda x: x.clip(0, 6)),
    "softmax": case("Softmax", X, want=lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "log softmax": case(
        "LogSoftmax", X, want=lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True))
    ),
    "rsqrt": case("Rsqrt", np.abs(X) + 1, want=lambda x: 1 / np.sqrt(x)),
    "squared": case("SquaredDifference", X, Const(normal(5)), want=lambda a, b: (a - b) ** 2),
    "fake quant": case(
        "FakeQuantWithMinMaxArgs",
        FAKE,
        T=None,
        min=-1.03,
        max=2.0,
        want=lambda x: fake_quant(x, -1.03, 2.0),
    ),
    "fake quant positive": case(
        "FakeQuantWithMinMaxArgs",
        FAKE,
        T=None,
        min=0.5,
        max=2.0,
        want=lambda x: fake_quant(x, 0.5, 2.0),
    ),
    "fake quant vars": case(
        "FakeQuantWithMinMaxVars",
        FAKE,
        Const(np.float32(-2)),
        Const(np.float32(3.1)),
        T=None,
        num_bits=5,
        narrow_range=True,
        want=lambda x, a, b: fake_quant(x, -2, 3.1, 5, True),
    ),
    "fake quant channels": case(
        "FakeQuantWithMinMaxVarsPerChannel",
        FAKE.reshape(20, 2),
        Const(np.float32([-1, -2])),
        Const(np.float32([1, 2])),
        T=None,
        narrow_range=True,
        want=lambda x, a, b: np.stack(
            [fake_quant(x[:, i], a[i], b[i], 8, True) for i in range(2)], 1
        ),
    ),
    "grid": case(
        "QuantizeAndDequantizeV2",
        FAKE,
        Const(np.float32(-2)),
        Const(np.float32(1.5)),
        range_given=True,
        want=lambda x, a, b: np.clip(np.rint(x * 64), -128, 127) / 64,
    ),
    "narrow grid": case(
        "QuantizeAndDequantizeV2",
        FAKE,
        Const(np.float32(-2)),
        Const(np.float32(3)),
        range_given=True,
        narrow_range=True,
        want=lambda x, a, b: np.clip(np.rint(x * 127 / 3), -127, 127) * 3 / 127,
    ),
    "positive grid": case(
        "QuantizeAndDequantizeV2",
        FAKE,
        Const(np.float32(0)),
        Const(np.float32(2.55)),
        range_given=True,
        signed_input=False,
        want=lambda x, a, b: np.clip(np.rint(x * 100), 0, 255) / 100,
    ),
    "diagonal": case("MatrixDiagPart", X, want=lambda x: np.diagonal(x, axis1=1, axis2=2)),
    "from diagonal": case("MatrixDiag", X, want=lambda x: x[..., None] * np.eye(5)),
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
    ),  # TensorFlow looks the curve up in a table
    "spectrogram": case(
        "AudioSpectrogram",
        normal(400, 2),
        T=None,
        window_size=50,
        stride=40,
        magnitude_squared=True,
        tolerance=2e-3,
        want=lambda x: np.stack(
            [
                np.abs(np.fft.rfft(x[i * 40 : i * 40 + 50].T * np.hanning(51)[:-1], 64)) ** 2
                for i in range(9)
            ],
            1,
        ),
    ),
    "mfcc": case(
        "Mfcc",
        np.abs(normal(1, 5, 129)),
        Const(np.int32(16000)),
        T=None,
        dct_coefficient_count=10,
        upper_frequency_limit=7000.0,
        tolerance=1e-3,
    ),
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
    "stored bytes": case(
        "Dequantize",
        Const(Bytes([3, 0, 255, 128])),
        Const(np.float32(-1.01)),
        Const(np.float32(2)),
        T=Kind("quint8"),
        mode="MIN_FIRST",
        want=lambda x, a, b: (x - 86.0) * 3.01 / 255,
    ),
    "lstm": case(
        "BlockLSTM",
        Const(np.int64(5)),
        normal(5, 2, 3),
        Const(normal(2, 4, seed=1)),
        Const(normal(2, 4, seed=2)),
        Const(normal(7, 16, seed=3)),
        *(Const(normal(4, seed=s)) for s in (4, 5, 6)),
        Const(normal(16, seed=7)),
        T=F32,
        use_peephole=True,
        cell_clip=0.9,
        forget_bias=0.5,
        outputs=7,
    ),
    "lstm 2": case(
        "BlockLSTMV2",
        Const(np.int64(5)),
        normal(5, 2, 3),
        Const(normal(2, 4, seed=1)),
        Const(normal(2, 4, seed=2)),
        Const(normal(7, 16, seed=3)),
        *(Const(normal(4, seed=s)) for s in (4, 5, 6)),
        Const(normal(16, seed=7)),
        T=F32,
        cell_clip=-1.0,
        outputs=7,
    ),
    "lstm cell": case(
        "LSTMBlockCell",
        normal(2, 3),
        normal(2, 4, seed=1),
        normal(2, 4, seed=2),
        Const(normal(7, 16, seed=3)),
        *(Const(normal(4, seed=s)) for s in (4, 5, 6)),
        Const(normal(16, seed=7)),
        outputs=7,
        forget_bias=0.5,
        want=lambda x, c, h, w, i, f, o, b: lstm_cell(x, c, h, w, b, 0.5),
    ),
    "gru cell": case(
        "GRUBlockCell",
        normal(2, 3),
        normal(2, 4, seed=1),
        Const(normal(7, 8, seed=2)),
        Const(normal(7, 4, seed=3)),
        Const(normal(8, seed=4)),
        Const(normal(4, seed=5)),
        outputs=4,
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
UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Abs": np.abs,
    "Neg": np.negative,
    "Exp": np.exp,
    "Sin": np.sin,
    "Cos": np.cos,
    "Tanh": np.tanh,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Sign": np.sign,
    "Square": np.square,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Asinh": np.arcsinh,
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "Softsign": lambda x: x / (1 + abs(x)),
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "Selu": lambda x: 1.0507009873554805 * np.where(x < 0, 1.6732632423543772 * np.expm1(x), x),
    "Reciprocal": np.reciprocal,
    "Expm1": np.expm1,
    "IsFinite": np.isfinite,
    "IsNan": np.isnan,
}
BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Add": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "RealDiv": np.divide,
    "Minimum": np.minimum,
    "Maximum": np.maximum,
    "Less": np.less,
    "LessEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "Equal": np.equal,
    "NotEqual": np.not_equal,
}
CASES |= {op: case(op, X, want=f) for op, f in UNARY.items()}
CASES |= {op: case(op, X, Const(normal(4, 1)), want=f) for op, f in BINARY.items()}


def ours(c: Case, folder: Path, native: bool = True) -> list[np.ndarray]:
    path, feeds = build(c, folder)
    names = [f"y:{i}" if i else "y" for i in range(c.outputs)]
    graph = intaglio.load(path, outputs=names)
    if not native:
        return list(intaglio.interpret(graph, feeds).values())
    with intaglio.open(intaglio.compile(graph)) as session:
        return [np.array(a) for a in session.run(feeds).values()]


def same(got: list[np.ndarray], want: Any, c: Case) -> None:
    for a, b in zip(got, want if isinstance(want, list) else [want], strict=True):
        assert a.shape == np.shape(b)
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, atol=c.tolerance, rtol=1e-4)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.want is not None])
def test_ops(tmp_path: Path, name: str):
    c = CASES[name]
    operands = [np.asarray(v.data) if isinstance(v, Const) else v for v in c.operands]
    want = c.want(*operands)  # type: ignore[misc]
    same(ours(c, tmp_path), want, c)


@pytest.mark.parametrize("name", CASES)
def test_ops_beside_tensorflow(tmp_path: Path, name: str):
    """What the others call right."""
    tf = pytest.importorskip("tensorflow")
    c = CASES[name]
    path, feeds = build(c, tmp_path)
    definition = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(definition, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            names = [f"y:{i}" for i in range(c.outputs)]
            want = session.run(names, {f"{k}:0": v for k, v in feeds.items()})
    same(ours(c, tmp_path, native=False), want, c)
