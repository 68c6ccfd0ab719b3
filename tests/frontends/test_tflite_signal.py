"""TFLite RFFT2D and complex tensors, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the tflite package is missing")

from tests.frontends.tflite_build import Op, T, model, op
from tests.frontends.tflite_oracle import agrees

from intaglio.errors import Unsupported
from intaglio.frontends.tflite import load_tflite

R = np.random.default_rng(6)
C = np.complex64


def floats(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def spectrum(shape: tuple[int, ...], length: tuple[int, int], last: str = "COMPLEX_ABS") -> bytes:
    bins = (*shape[:-2], length[0], length[1] // 2 + 1)
    tensors = [T(shape), T(data=np.int32(length)), T(bins, C), T(bins)]
    steps = [op("RFFT2D", [0, 1], [2], "Rfft2dOptions"), op(last, [2], [3])]
    return model(tensors, steps, [0], [3])


@pytest.mark.parametrize("last", ["COMPLEX_ABS", "REAL", "IMAG", "CAST"])
@pytest.mark.parametrize(
    ("shape", "length"),
    [((3, 1, 16), (1, 16)), ((2, 8, 16), (8, 16)), ((5, 1, 12), (1, 16)), ((6, 20), (4, 16))],
)
def test_two_axes_cut_or_padded(shape, length, last):
    agrees(spectrum(shape, length, last), [floats(*shape)])


def test_frames_as_tf_signal_stft_writes_them():
    """Frames times a window, a new axis, RFFT2D, SQUEEZE of complex numbers, absolute values."""
    window = np.hanning(32).astype(np.float32)
    tensors = [
        T((1, 7, 32)),
        T(data=window),
        T((1, 7, 32)),
        T(data=np.int32(-2)),
        T((1, 7, 1, 32)),
        T(data=np.int32([1, 32])),
        T((1, 7, 1, 17), C),
        T((1, 7, 17), C),
        T(data=np.int32([7, 17])),
        T((7, 17), C),
        T((7, 17)),
    ]
    steps = [
        op("MUL", [0, 1], [2], "MulOptions"),
        op("EXPAND_DIMS", [2, 3], [4], "ExpandDimsOptions"),
        op("RFFT2D", [4, 5], [6], "Rfft2dOptions"),
        op("SQUEEZE", [6], [7], "SqueezeOptions", SqueezeDims=[-2]),
        op("RESHAPE", [7, 8], [9], "ReshapeOptions"),
        op("COMPLEX_ABS", [9], [10]),
    ]
    agrees(model(tensors, steps, [0], [10]), [floats(1, 7, 32)])


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ([Op("MUL", [2, 2], [3], "MulOptions")], "MUL 't3' of complex numbers is not supported"),
        ([], "'t2' holds elements of complex64"),
    ],
)
def test_other_ops_on_complex_numbers_are_refused(last, words):
    tensors = [T((1, 16)), T(data=np.int32([1, 16])), T((1, 9), C), T((1, 9), C)]
    steps = [op("RFFT2D", [0, 1], [2], "Rfft2dOptions"), *last]
    with pytest.raises(Unsupported, match=words):
        load_tflite(model(tensors, steps, [0], [3 if last else 2]))
