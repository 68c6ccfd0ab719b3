"""TensorFlow ops on tensors: matrix products, slices, reductions, gather, arithmetic."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from tests.frontends.tf_build import Kind
from tests.frontends.tf_case import F32, I32, I64, Case, Const, case, ints, normal

X = normal(3, 4, 5)
MASKS = {
    "begin_mask": 0,
    "end_mask": 0,
    "ellipsis_mask": 0,
    "new_axis_mask": 0,
    "shrink_axis_mask": 0,
    "Index": I32,
}


def segments(how: np.ufunc, x: np.ndarray, ids: np.ndarray, count: int) -> np.ndarray:
    """Slices with the same id reduced to one; negative ids are dropped."""
    ends = np.finfo(np.float32)
    start = {np.add: 0, np.multiply: 1, np.maximum: ends.min, np.minimum: ends.max}[how]
    rows = x.reshape(ids.size, *x.shape[ids.ndim :])
    out = np.full((count, *rows.shape[1:]), start, np.float32)
    for row, i in zip(rows, ids.flat, strict=True):
        if i >= 0:
            out[i] = how(out[i], row)
    return out


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
CASES: dict[str, Case] = {
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
    **{
        f"segments {kind}": case(
            f"UnsortedSegment{kind}",
            X[:, :2],
            Const(ints(0, -1, 1, -9, 3, 1).reshape(3, 2)),
            Const(np.int32(4)),
            Tindices=I32,
            Tnumsegments=I32,
            want=functools.partial(segments, how),
        )
        for kind, how in {"Prod": np.multiply, "Max": np.maximum, "Min": np.minimum}.items()
    },
    "segments Sum": case(
        "UnsortedSegmentSum",
        X,
        ints(1, -1, 1),
        Const(np.int32(2)),
        Tindices=I32,
        Tnumsegments=I32,
        want=functools.partial(segments, np.add),
    ),
    "segments sorted": case(
        "SegmentSum",
        X,
        Const(ints(0, 0, 1)),
        Tindices=I32,
        want=lambda x, _: np.stack([x[0] + x[1], x[2]]),
    ),
    "bincount": case(
        "Bincount",
        ints(1, 3, 1, 9),
        Const(np.int32(4)),
        Const(np.zeros(0, np.int32)),
        want=lambda *_: ints(0, 2, 0, 1),
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
    "diagonal": case("MatrixDiagPart", X, want=lambda x: np.diagonal(x, axis1=1, axis2=2)),
    "from diagonal": case("MatrixDiag", X, want=lambda x: x[..., None] * np.eye(5)),
}
CASES |= {op: case(op, X, want=f) for op, f in UNARY.items()}
CASES |= {op: case(op, X, Const(normal(4, 1)), want=f) for op, f in BINARY.items()}
