from __future__ import annotations

import numpy as np
import pytest
from tests.ops.body import close, run

from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Type, Value
from intaglio.ops import dft, stft
from intaglio.ops.registry import REGISTRY

R = np.random.default_rng(6)


def complex_of(x: np.ndarray) -> np.ndarray:
    return x[..., 0] + 1j * x[..., 1]


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("length", [6, 4, 9])
@pytest.mark.parametrize("inverse", [False, True])
def test_dft(parts: int, axis: int, length: int, inverse: bool) -> None:
    x = R.standard_normal((6, 6, parts)).astype(np.float32)
    z = x[..., 0] if parts == 1 else complex_of(x)
    want = (np.fft.ifft if inverse else np.fft.fft)(z, length, axis)
    close(
        complex_of(run("dft", x, axis=axis, length=length, inverse=inverse)).view(np.float32),
        want.astype(np.complex64).view(np.float32),
    )


@pytest.mark.parametrize("length", [7, 8])
def test_half_spectrum_and_back(length: int) -> None:
    x = R.standard_normal((3, length, 1)).astype(np.float32)
    half = run("dft", x, axis=1, length=length, onesided=True)
    assert half.shape == (3, length // 2 + 1, 2)
    close(run("dft", half, axis=1, length=length, onesided=True, inverse=True), x)


@pytest.mark.parametrize("length", [3000, 2046, 4096])
@pytest.mark.parametrize("onesided", [False, True])
@pytest.mark.parametrize("inverse", [False, True])
def test_long_transforms_go_by_factors(length: int, onesided: bool, inverse: bool) -> None:
    taken, parts = (length // 2 + 1, 2) if inverse and onesided else (length, 1)
    x = R.standard_normal((2, taken, parts)).astype(np.float64)
    run("dft", x, axis=1, length=length, onesided=onesided, inverse=inverse, tolerance=1e-9)


def test_small_floats_transform_in_f32() -> None:
    x = R.standard_normal((2, 8, 1)).astype(np.float16)
    assert run("dft", x, axis=1, length=8, tolerance=2e-2).dtype == np.float16


def test_stft() -> None:
    x, window = R.standard_normal((2, 30, 1)).astype(np.float32), np.hanning(8).astype(np.float32)
    got = run("stft", x, window, frame_step=5, frame_length=8)
    assert got.shape == (2, 5, 5, 2)
    close(complex_of(got)[1, 3].real, np.fft.rfft(x[1, 15:23, 0] * window).real)
    assert run("stft", x, frame_step=5, frame_length=8, onesided=False).shape == (2, 5, 8, 2)


def test_refusals() -> None:
    x = Value(Type("f32", (2, 8, 1)))
    with pytest.raises(BadInput, match="components"):
        dft(x, axis=2, length=8)
    with pytest.raises(BadInput, match="frames"):
        stft(x, frame_step=1, frame_length=9)
    long = Value(Type("f32", (1, 100003, 1)))
    with pytest.raises(Unsupported, match="prime"):
        REGISTRY["dft"].lower(long, axis=1, length=100003)  # type: ignore[misc]
