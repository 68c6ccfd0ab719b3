"""TFLite ops, one file each, against LiteRT."""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np
import pytest
from tests.frontends.tflite_build import Op, T, model, op
from tests.frontends.tflite_oracle import agrees, litert, ours

from intaglio.errors import BadInput

pytest.importorskip("tflite", reason="the tflite package is missing")

RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*shape: int, low: int = 0, high: int = 5, dtype: Any = np.int32) -> np.ndarray:
    return RNG.integers(low, high, shape).astype(dtype)


def one(name: str, operands: list[Any], result: Any, table: str = "", **options: Any) -> None:
    """An op with one result; an operand in a list is a constant."""
    results = result if isinstance(result, list) else [result]
    tensors = [T(data=a[0]) if isinstance(a, list) else T(a.shape, a.dtype) for a in operands]
    tensors += results
    n = len(operands)
    inputs = [i for i, a in enumerate(operands) if not isinstance(a, list)]
    step = op(name, list(range(n)), list(range(n, len(tensors))), table, **options)
    data = model(tensors, [step], inputs, list(range(n, len(tensors))))
    reference = name not in ODD
    agrees(data, [a for a in operands if not isinstance(a, list)], reference=reference)


# LiteRT's reference kernels lack the first op and use a wrong window for the second
ODD = ("SEGMENT_SUM", "LOCAL_RESPONSE_NORMALIZATION")
I = np.int32  # noqa: E741  # the usual element type of indices


@pytest.mark.parametrize(
    ("name", "operands", "result", "table", "options"),
    [
        ("TOPK_V2", [floats(3, 7), [I(4)]], [T((3, 4)), T((3, 4), I)], "TopKV2Options", {}),
        (
            "ONE_HOT",
            [ints(3), [I(5)], [np.float32(2)], [np.float32(-1)]],
            T((3, 5)),
            "OneHotOptions",
            {"Axis": -1},
        ),
        ("EMBEDDING_LOOKUP", [ints(4), [floats(5, 3)]], T((4, 3)), "", {}),
        ("GATHER", [floats(4, 5, 3), ints(2, 2)], T((4, 2, 2, 3)), "GatherOptions", {"Axis": 1}),
        (
            "GATHER",
            [floats(2, 4, 5, 3), ints(2, 3)],
            T((2, 4, 3, 3)),
            "GatherOptions",
            {"Axis": 2, "BatchDims": 1},
        ),
        ("GATHER_ND", [floats(5, 5, 3), ints(4, 2)], T((4, 3)), "GatherNdOptions", {}),
        ("SCATTER_ND", [ints(4, 1), floats(4, 3), [I([5, 3])]], T((5, 3)), "ScatterNdOptions", {}),
        (
            "SPARSE_TO_DENSE",
            [[I([0, 2, 3])], [I([5])], floats(3), [np.float32(9)]],
            T((5,)),
            "SparseToDenseOptions",
            {},
        ),
        (
            "DYNAMIC_UPDATE_SLICE",
            [floats(4, 6), floats(2, 3), ints(2, high=6)],
            T((4, 6)),
            "DynamicUpdateSliceOptions",
            {},
        ),
        ("REVERSE_V2", [floats(3, 4, 2), [I([1])]], T((3, 4, 2)), "ReverseV2Options", {}),
        (
            "REVERSE_SEQUENCE",
            [floats(3, 4, 2), ints(3, high=4)],
            T((3, 4, 2)),
            "ReverseSequenceOptions",
            {"SeqDim": 1, "BatchDim": 0},
        ),
        ("CUMSUM", [floats(3, 5), [I(1)]], T((3, 5)), "CumsumOptions", {"Exclusive": True}),
        (
            "REDUCE_ANY",
            [RNG.random((3, 4)) > 0.8, [I([1])]],
            T((3,), np.bool_),
            "ReducerOptions",
            {},
        ),
        (
            "REDUCE_ALL",
            [RNG.random((3, 4)) > 0.3, [I([0])]],
            T((1, 4), np.bool_),
            "ReducerOptions",
            {"KeepDims": True},
        ),
        (
            "ONE_HOT",
            [I([-1, 0, -5, 7, 2]), [I(3)], [np.float32(2)], [np.float32(-1)]],
            T((3, 5)),
            "OneHotOptions",
            {"Axis": 0},
        ),
        *(
            (
                f"UNSORTED_SEGMENT_{kind.upper()}",
                [floats(3, 2, 2), I([[0, -1], [1, -9], [3, 1]]), [I(4)]],
                T((4, 2)),
                f"UnsortedSegment{kind}Options",
                {},
            )
            for kind in ("Sum", "Prod", "Max", "Min")
        ),
        (
            "UNSORTED_SEGMENT_SUM",
            [floats(6, 2), ints(6, high=4), [I(4)]],
            T((4, 2)),
            "UnsortedSegmentSumOptions",
            {},
        ),
        (
            "UNSORTED_SEGMENT_MAX",
            [floats(6, 2), [I([0, 1, 1, 2, 3, 3])], [I(4)]],
            T((4, 2)),
            "UnsortedSegmentMaxOptions",
            {},
        ),
        ("SEGMENT_SUM", [floats(5, 2), [I([0, 0, 1, 2, 2])]], T((3, 2)), "SegmentSumOptions", {}),
        (
            "SELECT",
            [RNG.random(3) > 0.5, floats(3, 4), floats(3, 4)],
            T((3, 4)),
            "SelectOptions",
            {},
        ),
        (
            "SELECT_V2",
            [RNG.random((3, 1)) > 0.5, floats(3, 4), floats(1, 4)],
            T((3, 4)),
            "SelectV2Options",
            {},
        ),
        ("ATAN2", [floats(3, 9), floats(3, 9)], T((3, 9)), "ATan2Options", {}),
        (
            "L2_POOL_2D",
            [floats(1, 6, 6, 3)],
            T((1, 3, 3, 3)),
            "Pool2DOptions",
            {"StrideW": 2, "StrideH": 2, "FilterWidth": 3, "FilterHeight": 3},
        ),
        (
            "LOCAL_RESPONSE_NORMALIZATION",
            [floats(1, 3, 3, 8)],
            T((1, 3, 3, 8)),
            "LocalResponseNormalizationOptions",
            {"Radius": 2, "Bias": 1.5, "Alpha": 0.3, "Beta": 0.7},
        ),
        (
            "CONV_3D",
            [floats(1, 4, 6, 6, 2), [floats(2, 3, 3, 2, 5)], [floats(5)]],
            T((1, 4, 3, 3, 5)),
            "Conv3DOptions",
            {
                "StrideD": 1,
                "StrideW": 2,
                "StrideH": 2,
                "DilationDFactor": 1,
                "DilationHFactor": 1,
                "DilationWFactor": 1,
            },
        ),
        (
            "MIRROR_PAD",
            [floats(3, 4), [I([[1, 2], [2, 0]])]],
            T((6, 6)),
            "MirrorPadOptions",
            {"Mode": 1},
        ),
        ("MIRROR_PAD", [floats(3, 4), [I([[1, 2], [2, 0]])]], T((6, 6)), "MirrorPadOptions", {}),
        (
            "STRIDED_SLICE",
            [floats(4, 5, 6), [I([1, 0, 2])], [I([3, 0, 5])], [I([1, 1, 1])]],
            T((2, 1, 3, 6)),
            "StridedSliceOptions",
            {"NewAxisMask": 2},
        ),
        (
            "STRIDED_SLICE",
            [floats(4, 5, 6), [I([0, 1])], [I([0, 4])], [I([1, 2])]],
            T((4, 5, 2)),
            "StridedSliceOptions",
            {"EllipsisMask": 1},
        ),
        (
            "STRIDED_SLICE",
            [floats(4, 5, 6), [I([2, 3, 0])], [I([3, -6, 0])], [I([1, -1, 1])]],
            T((4, 6)),
            "StridedSliceOptions",
            {"ShrinkAxisMask": 1, "EndMask": 4},
        ),
        ("L2_NORMALIZATION", [floats(2, 5)], T((2, 5)), "L2NormOptions", {}),
        ("LEAKY_RELU", [floats(2, 5)], T((2, 5)), "LeakyReluOptions", {"Alpha": 0.2}),
        ("PRELU", [floats(1, 3, 3, 4), [floats(1, 1, 4)]], T((1, 3, 3, 4)), "", {}),
        (
            "FLOOR_DIV",
            [ints(6, low=-9, high=9), [I([2, 3, -2, 4, 5, -7])]],
            T((6,), I),
            "FloorDivOptions",
            {},
        ),
        (
            "FLOOR_MOD",
            [ints(6, low=-9, high=9), [I([2, 3, -2, 4, 5, -7])]],
            T((6,), I),
            "FloorModOptions",
            {},
        ),
        (
            "BATCH_MATMUL",
            [floats(2, 3, 4), floats(2, 5, 4)],
            T((2, 3, 5)),
            "BatchMatMulOptions",
            {"AdjY": True},
        ),
        (
            "SPLIT_V",
            [floats(2, 6), [I([1, 3, 2])], [I(1)]],
            [T((2, 1)), T((2, 3)), T((2, 2))],
            "SplitVOptions",
            {"NumSplits": 3},
        ),
        ("PACK", [floats(3), floats(3)], T((3, 2)), "PackOptions", {"Axis": 1, "ValuesCount": 2}),
        ("BITWISE_XOR", [ints(6, high=99), ints(6, high=99)], T((6,), I), "BitwiseXorOptions", {}),
        ("CAST", [floats(6)], T((6,), I), "CastOptions", {"InDataType": 0, "OutDataType": 2}),
        ("ARG_MAX", [floats(3, 6), [I(1)]], T((3,), np.int64), "ArgMaxOptions", {"OutputType": 4}),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_one(name, operands, result, table, options):
    one(name, operands, result, table, **options)


def test_an_argmax_of_another_type_than_its_options_say_is_refused():
    """LiteRT gives the type of the options; the numbers were cast to the declared one."""
    data = model(
        [T((3, 6)), T(data=I(1)), T((3,))],
        [op("ARG_MAX", [0, 1], [2], "ArgMaxOptions", OutputType=4)],
        [0],
        [2],
    )
    with pytest.raises(BadInput, match="declared as f32, but computed as i64"):
        ours(data, [])


# ---- quantised ops -------------------------------------------------------------------------------
@pytest.mark.parametrize("scale", [0.1, 0.2])
def test_a_reshape_keeps_stored_numbers_whatever_scale_its_result_has(scale):
    x = ints(2, 6, low=-128, high=128, dtype=np.int8)
    data = model(
        [T(x.shape, x.dtype, scale=0.1), T(data=I([3, 4])), T((3, 4), np.int8, scale=scale)],
        [op("RESHAPE", [0, 1], [2], "ReshapeOptions")],
        [0],
        [2],
    )
    (y,) = agrees(data, [x])[0]
    np.testing.assert_array_equal(y, x.reshape(3, 4))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL"])
def test_pairs_of_integers(name, kind):
    info = np.iinfo(kind)
    a, b = (RNG.integers(info.min, info.max, (2, 3, 8)).astype(kind) for _ in range(2))
    zero = 0 if kind == np.int16 else (info.min + info.max) // 2 + 5
    unit = 1 / 300 if kind == np.int16 else 1.0
    quant = [
        (0.11 * unit, zero),
        (0.07 * unit, zero),
        ((9.0 if name == "MUL" else 0.2) * unit, zero),
    ]
    if kind == np.int16 and name == "MUL":
        quant[2] = (9.0 * unit, 0)
    tensors = [T(a.shape, kind, scale=s, zero=z) for s, z in quant]
    options = {"PotScaleInt16": False} if name != "MUL" else {}
    data = model(
        tensors, [op(name, [0, 1], [2], f"{name.capitalize()}Options", **options)], [0, 1], [2]
    )
    agrees(data, [a, b])


@pytest.mark.parametrize("name", ["LOGISTIC", "TANH", "HARD_SWISH", "SOFTMAX", "MEAN", "MAXIMUM"])
def test_functions_of_bytes(name):
    x = ints(2, 4, 4, 6, low=-128, high=128, dtype=np.int8)
    share = (1 / 256, -128)  # required by LiteRT
    fixed = {"LOGISTIC": share, "SOFTMAX": share, "TANH": (1 / 128, 0)}
    scale, zero = fixed.get(name, (0.06, 2))
    result = T(x.shape, np.int8, scale=scale, zero=zero)
    tensors, inputs, table = [T(x.shape, x.dtype, scale=0.06, zero=2)], [0], ""
    options: dict[str, Any] = {}
    if name == "MEAN":
        tensors.append(T(data=I([1, 2])))
        inputs, table, result = [0, 1], "ReducerOptions", T((2, 6), np.int8, scale=0.03, zero=1)
    if name == "SOFTMAX":
        table, options = "SoftmaxOptions", {"Beta": 1.0}
    if name == "MAXIMUM":
        tensors.append(T(data=ints(6, low=-128, high=128, dtype=np.int8), scale=0.06, zero=2))
        inputs, table = [0, 1], "MaximumMinimumOptions"
    tensors.append(result)
    data = model(
        tensors, [op(name, inputs, [len(tensors) - 1], table, **options)], [0], [len(tensors) - 1]
    )
    agrees(data, [x])


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("corners", [False, True])
def test_resized_bytes_are_equal_to_the_bit(kind, corners):
    """Ties are frequent when an image is doubled, and all are rounded up."""
    info = np.iinfo(kind)
    x = RNG.integers(info.min, info.max + 1, (1, 9, 9, 8)).astype(kind)
    size = 17 if corners else 18
    quant = {"scale": 0.05, "zero": info.min + 100}
    tensors = [
        T(x.shape, kind, **quant),
        T(data=I([size, size])),
        T((1, size, size, 8), kind, **quant),
    ]
    step = op(
        "RESIZE_BILINEAR",
        [0, 1],
        [2],
        "ResizeBilinearOptions",
        AlignCorners=corners,
        HalfPixelCenters=not corners,
    )
    data = model(tensors, [step], [0], [2])
    (got,), (want,) = (
        run(data, [x])[0] for run in (ours, functools.partial(litert, reference=False))
    )
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("act", [0, 1, 3])
def test_means_of_bytes_are_equal_to_the_bit(kind, act):
    info = np.iinfo(kind)
    x = RNG.integers(info.min, info.max + 1, (1, 8, 8, 6)).astype(kind)
    quant = {"scale": 0.05, "zero": info.min + 100}
    step = op(
        "AVERAGE_POOL_2D",
        [0],
        [1],
        "Pool2DOptions",
        StrideW=2,
        StrideH=2,
        FilterWidth=2,
        FilterHeight=2,
        FusedActivationFunction=act,
    )
    data = model([T(x.shape, kind, **quant), T((1, 4, 4, 6), kind, **quant)], [step], [0], [1])
    (got,), (want,) = (run(data, [x])[0] for run in (ours, litert))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("ratio", [0.42287, 1.0, 3.3])
def test_other_scales_for_bytes_are_equal_to_the_bit(ratio):
    x = np.arange(256, dtype=np.uint8).reshape(1, 4, 8, 8)
    tensors = [
        T(x.shape, np.uint8, scale=0.1, zero=100),
        T(x.shape, np.uint8, scale=0.1 / ratio, zero=90),
    ]
    data = model(tensors, [op("QUANTIZE", [0], [1], "QuantizeOptions")], [0], [1])
    (got,), (want,) = (
        run(data, [x])[0] for run in (ours, functools.partial(litert, reference=False))
    )
    np.testing.assert_array_equal(got, want)


WIDTHS = {np.int8: -7, np.uint8: 120, np.int16: 0, np.int32: 0}  # element types, their zeros
PAIRS = "i1 u1, u1 i1, i1 i2, u1 i2, i2 i1, i2 i2, i2 i4, i4 i1, i4 i2"  # that LiteRT has


@pytest.mark.parametrize("pair", PAIRS.split(", "))
@pytest.mark.parametrize("ratio", [0.0031, 0.5, 1.0, 3.3])
def test_other_widths_are_equal_to_the_bit(pair, ratio):
    given, made = (np.dtype(name).type for name in pair.split())
    low, high = np.iinfo(given).min, np.iinfo(given).max
    x = RNG.integers(max(low, -(10**6)), min(high, 10**6), (3, 200)).astype(given)
    x[0, :9] = (max(low, -(10**6)), min(high, 10**6), *range(1, 8))
    tensors = [
        T(x.shape, given, scale=0.1, zero=WIDTHS[given]),
        T(x.shape, made, scale=0.1 / ratio, zero=WIDTHS[made]),
    ]
    data = model(tensors, [op("QUANTIZE", [0], [1], "QuantizeOptions")], [0], [1])
    (got,), (want,) = (run(data, [x])[0] for run in (ours, litert))
    np.testing.assert_array_equal(got, want)


def test_floats_and_bytes_as_steps_of_32_bits():
    """As TFLite Micro computes them; LiteRT has no such kernels."""
    x = np.float32([[0.05, -0.05, 0.149, 1e12, -1e12]])
    to = T(x.shape, np.int32, scale=0.1, zero=0)
    quantize = [op("QUANTIZE", [0], [1], "QuantizeOptions")]
    got = ours(model([T(x.shape), to], quantize, [0], [1]), [x])[0][0]
    np.testing.assert_array_equal(got, [[1, -1, 1, 2**31 - 1, -(2**31)]])
    given = T(x.shape, np.int8, scale=0.3, zero=-1)
    got = ours(model([given, to], quantize, [0], [1]), [np.int8([[-1, 0, 5, -128, 127]])])[0][0]
    np.testing.assert_array_equal(got, [[0, 3, 18, -381, 384]])


@pytest.mark.parametrize("kernel", [2, 3])
def test_mediapipes_transposed_convolution(kernel):
    """Against the builtin op, which LiteRT has."""
    x, w, b = floats(1, 4, 5, 6), floats(3, kernel, kernel, 6), floats(3)
    size = (1, 8, 10, 3)
    own = model(
        [T(x.shape), T(data=w), T(data=b), T(size)],
        [Op("Convolution2DTransposeBias", [0, 1, 2], [3], custom=struct.pack("<3i", 1, 2, 2))],
        [0],
        [3],
    )
    builtin = model(
        [T(data=I(size)), T(data=w), T(x.shape), T(data=b), T(size)],
        [op("TRANSPOSE_CONV", [0, 1, 2, 3], [4], "TransposeConvOptions", StrideW=2, StrideH=2)],
        [2],
        [4],
    )
    want = litert(builtin, [x])[0][0]
    np.testing.assert_allclose(ours(own, [x])[0][0], want, rtol=1e-4, atol=1e-5)
