"""ONNX STFT in the forms that speech front ends use, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is missing")

from tests.frontends.onnx_oracle import agree

R = np.random.default_rng(4)
STEP, LENGTH = np.array(10, np.int64), np.array(32, np.int64)
WINDOW = np.hanning(32).astype(np.float32)


def signal(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(2, 100), (2, 100, 1)])
@pytest.mark.parametrize("window", [True, False])
@pytest.mark.parametrize("length", [True, False])
def test_stft_of_real_signals(shape, window, length):
    """Whisper and NeMo transform [batch, time] with a window and a frame length."""
    if not window and not length:
        pytest.skip("one of them gives the length of a frame")
    arrays = [signal(*shape), STEP, WINDOW if window else None, LENGTH if length else None]
    constant = tuple(range(1, len([a for a in arrays if a is not None])))
    for onesided in (0, 1):
        agree("STFT", arrays, domain="", constant=constant, onesided=onesided)


def test_stft_of_complex_signals():
    arrays = [signal(2, 100, 2), STEP, WINDOW, LENGTH]
    agree("STFT", arrays, domain="", constant=(1, 2, 3), onesided=0)
