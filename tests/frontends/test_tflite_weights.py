"""TFLite weights of 16, 8 and 4 bits, sparse and half-precision ones, against LiteRT."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("tflite", reason="the tflite package is missing")

from tests.frontends.test_tflite_ops import floats, ints
from tests.frontends.tflite_build import Sparse, T, model, op
from tests.frontends.tflite_oracle import agrees


def test_words_with_weights_of_bytes():
    """16 bits between layers, 8 in weights, 64 in the bias."""
    x = ints(1, 6, 6, 3, low=-30000, high=30000, dtype=np.int16)
    w = ints(4, 3, 3, 3, low=-127, high=128, dtype=np.int8)
    b = ints(4, low=-90000, high=90000, dtype=np.int64)
    unit = np.array([0.01, 0.02, 0.015, 0.03], np.float32)
    tensors = [
        T(x.shape, np.int16, scale=1 / 8000),
        T(data=w, scale=unit),
        T(data=b, scale=unit / 8000),
        T((1, 6, 6, 4), np.int16, scale=1 / 1500),
    ]
    data = model(
        tensors,
        [
            op(
                "CONV_2D",
                [0, 1, 2],
                [3],
                "Conv2DOptions",
                StrideW=1,
                StrideH=1,
                FusedActivationFunction=1,
            )
        ],
        [0],
        [3],
    )
    agrees(data, [x])


def test_weights_of_four_bits():
    x = ints(3, 15, low=-128, high=128, dtype=np.int8)
    w = ints(5, 15, low=-7, high=8, dtype=np.int8).astype(ml_dtypes.int4)
    b = ints(5, low=-900, high=900)
    tensors = [
        T(x.shape, np.int8, scale=0.02, zero=3),
        T(data=w, scale=0.1),
        T(data=b, scale=0.002),
        T((3, 5), np.int8, scale=0.11, zero=-4),
    ]
    step = op("FULLY_CONNECTED", [0, 1, 2], [3], "FullyConnectedOptions")
    agrees(model(tensors, [step], [0], [3]), [x])


@pytest.mark.parametrize("blocks", [False, True])
def test_weights_that_are_stored_sparsely(blocks):
    """A CSR matrix of numbers or of 2 x 2 blocks."""
    values = floats(3 if not blocks else 12)
    if blocks:  # blocks (0, 1) and (1, 0) and (1, 2) of 2 x 3
        how = Sparse([0, 1, 2, 3], [0, 1], [2, ([0, 1, 3], [1, 0, 2]), 2, 2])
    else:
        how = Sparse([0, 1], [], [4, ([0, 1, 1, 2, 3], [5, 0, 2])])
    x = floats(2, 6)
    tensors = [T(x.shape), T((4, 6), data=values, sparse=how), T((4, 6)), T((2, 4))]
    steps = [
        op("DENSIFY", [1], [2], "DensifyOptions"),
        op("FULLY_CONNECTED", [0, 2, -1], [3], "FullyConnectedOptions"),
    ]
    agrees(model(tensors, steps, [0], [3]), [x])


def test_weights_of_half_precision():
    x, w, b = floats(2, 6), floats(4, 6).astype(np.float16), floats(4).astype(np.float16)
    tensors = [T(x.shape), T(data=w), T((4, 6)), T(data=b), T((4,)), T((2, 4))]
    steps = [
        op("DEQUANTIZE", [1], [2]),
        op("DEQUANTIZE", [3], [4]),
        op("FULLY_CONNECTED", [0, 2, 4], [5], "FullyConnectedOptions"),
    ]
    agrees(model(tensors, steps, [0], [5]), [x])


@pytest.mark.parametrize("kernel", [0, 1, 3])
def test_bytes_as_weights_of_floats(kernel):
    """Inputs are quantised at run time: per row for linear layers, per image for convolutions."""
    if kernel:
        x = floats(2, 6, 6, 16)
        w = ints(8, kernel, kernel, 16, low=-127, high=128, dtype=np.int8)
        step = op("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", StrideW=1, StrideH=1)
    else:
        x, w = floats(2, 64), ints(8, 64, low=-127, high=128, dtype=np.int8)
        step = op("FULLY_CONNECTED", [0, 1, 2], [3], "FullyConnectedOptions")
    b = floats(8)
    tensors = [T(x.shape), T(data=w, scale=0.01), T(data=b), T((*x.shape[:-1], 8))]
    agrees(model(tensors, [step], [0], [3]), [x], tolerance=1e-5, reference=False)
