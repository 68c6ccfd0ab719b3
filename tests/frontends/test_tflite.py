"""TFLite models, written by the tests, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the tflite package is missing")

from tests.frontends.tflite_build import T, model, op

import intaglio
from intaglio import ops
from intaglio.errors import BadFile, IntaglioError, Unsupported
from intaglio.frontends.tflite import load_tflite

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def run(data: bytes, *arrays: np.ndarray) -> list[np.ndarray]:
    """The interpreter's outputs, which must equal those of the compiled model."""
    graph = load_tflite(data)
    feeds = {v.name: a for v, a in zip(graph.inputs, arrays, strict=True)}
    want = list(intaglio.interpret(graph, feeds).values())
    with intaglio.open(intaglio.compile(graph)) as session:
        got = [np.array(v) for v in session.run(feeds).values()]
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1 if a.dtype.kind in "iu" else 1e-4)
    return want


def nhwc(y: np.ndarray) -> np.ndarray:
    return np.moveaxis(y, 1, -1)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("padding", "pad"), [(0, (0, 0, 1, 1)), (1, (0, 0, 0, 0))])
def test_conv(stride, padding, pad):
    """SAME puts an odd row and column at the end."""
    x, w, b = floats(1, 8, 8, 3), floats(4, 2, 2, 3), floats(4)
    if stride == 2:
        pad = (0, 0, 0, 0)
    y = ops.conv.body(
        np.moveaxis(x, -1, 1),
        np.moveaxis(w, -1, 1),
        b,
        stride=(stride,) * 2,
        pad=pad,
        dilation=(1, 1),
        groups=1,
    )
    data = model(
        [T(x.shape), T(data=w), T(data=b), T(nhwc(y).shape)],
        [
            op(
                "CONV_2D",
                [0, 1, 2],
                [3],
                "Conv2DOptions",
                StrideW=stride,
                StrideH=stride,
                Padding=padding,
                FusedActivationFunction=1,
            )
        ],
        [0],
        [3],
    )
    np.testing.assert_allclose(run(data, x)[0], np.maximum(nhwc(y), 0), rtol=1e-4, atol=1e-5)


def test_depthwise_with_a_multiplier_and_dilation():
    x, w = floats(1, 9, 9, 3), floats(1, 3, 3, 6)
    y = ops.conv.body(
        np.moveaxis(x, -1, 1),
        w.transpose(3, 0, 1, 2),
        None,
        stride=(1, 1),
        pad=(2, 2, 2, 2),
        dilation=(2, 2),
        groups=3,
    )
    data = model(
        [T(x.shape), T(data=w), T(nhwc(y).shape)],
        [
            op(
                "DEPTHWISE_CONV_2D",
                [0, 1, -1],
                [2],
                "DepthwiseConv2DOptions",
                StrideW=1,
                StrideH=1,
                DepthMultiplier=2,
                DilationWFactor=2,
                DilationHFactor=2,
            )
        ],
        [0],
        [2],
    )
    np.testing.assert_allclose(run(data, x)[0], nhwc(y), rtol=1e-4, atol=1e-5)


def test_transposed_convolution_doubles_the_image():
    x, w = floats(1, 4, 5, 3), floats(2, 3, 3, 3)
    data = model(
        [T(data=np.array([1, 8, 10, 2], np.int32)), T(data=w), T(x.shape), T((1, 8, 10, 2))],
        [op("TRANSPOSE_CONV", [0, 1, 2], [3], "TransposeConvOptions", StrideW=2, StrideH=2)],
        [2],
        [3],
    )
    full = ops.conv_transpose.body(
        np.moveaxis(x, -1, 1),
        w.transpose(3, 0, 1, 2),
        None,
        stride=(2, 2),
        pad=(0, 0, 1, 1),
        output_pad=(0, 0),
        dilation=(1, 1),
        groups=1,
    )
    np.testing.assert_allclose(run(data, x)[0], nhwc(full), rtol=1e-4, atol=1e-5)


def test_a_linear_layer_flattens_its_input():
    x, w, b = floats(2, 3, 4), floats(5, 12), floats(5)
    data = model(
        [T(x.shape), T(data=w), T(data=b), T((2, 5))],
        [op("FULLY_CONNECTED", [0, 1, 2], [3], "FullyConnectedOptions")],
        [0],
        [3],
    )
    np.testing.assert_allclose(run(data, x)[0], x.reshape(2, 12) @ w.T + b, rtol=1e-4, atol=1e-5)


def test_pools_leave_out_the_padding():
    x = floats(1, 5, 5, 2)
    options = {"FilterWidth": 2, "FilterHeight": 2, "StrideW": 2, "StrideH": 2}
    for name, reduce in (("AVERAGE_POOL_2D", np.mean), ("MAX_POOL_2D", np.max)):
        data = model(
            [T(x.shape), T((1, 3, 3, 2))],
            [op(name, [0], [1], "Pool2DOptions", **options)],
            [0],
            [1],
        )
        y = run(data, x)[0]
        np.testing.assert_allclose(y[0, 0, 0], reduce(x[0, :2, :2], (0, 1)), rtol=1e-5)
        np.testing.assert_allclose(y[0, 2, 2], x[0, 4, 4], rtol=1e-5)


def test_shapes_that_are_computed_are_constants():
    """The form in which converters write `tf.reshape(x, [tf.shape(x)[0], -1])`."""
    x = floats(2, 3, 4)
    data = model(
        [
            T(x.shape),
            T((3,), np.int32),
            T(data=np.array([0], np.int32)),
            T(data=np.array([1], np.int32)),
            T((), np.int32),
            T(data=np.array(-1, np.int32)),
            T((2,), np.int32),
            T((2, 12)),
        ],
        [
            op("SHAPE", [0], [1], "ShapeOptions"),
            op("STRIDED_SLICE", [1, 2, 3, 3], [4], "StridedSliceOptions", ShrinkAxisMask=1),
            op("PACK", [4, 5], [6], "PackOptions", ValuesCount=2),
            op("RESHAPE", [0, 6], [7]),
        ],
        [0],
        [7],
    )
    np.testing.assert_array_equal(run(data, x)[0], x.reshape(2, 12))


def test_blocks_of_a_batch_come_back_as_they_went():
    x = floats(1, 4, 6, 2)
    two, none = np.array([2, 2], np.int32), np.zeros((2, 2), np.int32)
    data = model(
        [T(x.shape), T(data=two), T(data=none), T((4, 2, 3, 2)), T(x.shape)],
        [op("SPACE_TO_BATCH_ND", [0, 1, 2], [3]), op("BATCH_TO_SPACE_ND", [3, 1, 2], [4])],
        [0],
        [3, 4],
    )
    apart, back = run(data, x)
    np.testing.assert_array_equal(apart[1], x[0, ::2, 1::2])
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("axis", [None, 0])
def test_integers_mean_what_their_scales_say(axis):
    x = RNG.integers(-128, 128, (1, 6, 6, 4)).astype(np.int8)
    w = RNG.integers(-127, 128, (8, 3, 3, 4)).astype(np.int8)
    b = RNG.integers(-500, 500, 8).astype(np.int32)
    ws = np.full(8, 0.02) if axis is not None else 0.02
    data = model(
        [
            T(x.shape, np.int8, scale=0.1, zero=-3),
            T(data=w, scale=ws),
            T(data=b, scale=123.0),
            T((1, 4, 4, 8), np.int8, scale=1.5, zero=5),
        ],
        [op("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", StrideW=1, StrideH=1, Padding=1)],
        [0],
        [3],
    )
    real = ops.conv.body(
        np.moveaxis((x + 3.0) * 0.1, -1, 1),
        np.moveaxis(w * 0.02, -1, 1),
        b * 0.002,
        stride=(1, 1),
        pad=(0,) * 4,
        dilation=(1, 1),
        groups=1,
    )
    want = np.clip(np.rint(nhwc(real) / 1.5) + 5, -128, 127)
    assert np.abs(run(data, x)[0] - want).max() <= 1
    compiled = intaglio.optimize(load_tflite(data), level=3)
    assert "qlinear_conv" in {n.op for n in compiled.nodes()}


def test_what_is_not_known_is_named():
    data = model([T((1, 4)), T((1, 4))], [op("My_Op", [0], [1])], [0], [1])
    with pytest.raises(Unsupported, match="custom op My_Op"):
        load_tflite(data)


def test_load_finds_the_format_by_content(tmp_path):
    data = model([T((1, 4)), T((1, 4))], [op("RELU6", [0], [1])], [0], [1])
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    x = floats(1, 4) * 10
    graph = intaglio.load(path)
    np.testing.assert_array_equal(intaglio.interpret(graph, {"t0": x})["t1"], np.clip(x, 0, 6))
    with pytest.raises(BadFile, match="truncated or damaged"):
        load_tflite(data[: len(data) // 3])


def test_damaged_files_are_refused_or_read_but_never_crash():
    x, w, b = floats(1, 4, 4, 2), floats(3, 3, 3, 2), floats(3)
    data = model(
        [T(x.shape), T(data=w), T(data=b), T((1, 4, 4, 3))],
        [op("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", StrideW=1, StrideH=1)],
        [0],
        [3],
    )
    load_tflite(data)
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(500):
        bad = bytearray(data)
        for at in rng.integers(8, len(bad), rng.integers(1, 6)):
            bad[at] = rng.integers(0, 256)
        try:
            load_tflite(bytes(bad))
        except IntaglioError:
            refused += 1
    assert refused > 50


def test_names_with_line_breaks_stay_on_one_line():
    """Found by mutated files: a name with a line break gave an error of two lines."""
    tensors = [T((1, 4), name="x\n\0y"), T((1, 4), name="z")]
    graph = load_tflite(model(tensors, [op("ABS", [0], [1])], [0], [1]))
    assert [v.name for v in graph.inputs] == ["x??y"]
