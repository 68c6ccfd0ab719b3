"""Importers of FFTs, complex numbers, AudioSpectrogram and Mfcc."""

from __future__ import annotations

import math

import numpy as np

from intaglio import ops, symint
from intaglio.errors import BadInput
from intaglio.frontends.tensorflow.node import Complex, EdgeValue, TfNode, importer
from intaglio.ir import Array, Value, constant

MIN_ENERGY = 1e-12  # of a mel band, before the logarithm
MAX_LENGTH = 1 << 20  # of a transform


def _complex(n: TfNode, i: int) -> Value:
    held = n.operand(i)
    if not isinstance(held, Complex):
        raise BadInput(f"operand {i} is not complex")
    return held.value


def _length(n: TfNode) -> int:
    length = n.whole(1)
    if not 0 < length <= MAX_LENGTH:
        raise BadInput(f"the transform has length {length}; 1 to {MAX_LENGTH} are supported")
    return length


def _component(v: Value, i: int) -> Value:
    result: Value = ops.reshape(ops.part(v, i, i + 1, axis=-1), shape=v.shape[:-1])
    return result


@importer("RFFT")
def rfft(n: TfNode) -> EdgeValue:
    x, length = n.value(0), _length(n)
    given = ops.reshape(x, shape=(*x.shape, 1))
    return Complex(ops.dft(given, axis=x.type.rank - 1, length=length, onesided=True))


@importer("IRFFT")
def irfft(n: TfNode) -> Value:
    x, length = _complex(n, 0), _length(n)
    y = ops.dft(x, axis=x.type.rank - 2, length=length, inverse=True, onesided=True)
    result: Value = ops.reshape(y, shape=y.shape[:-1])
    return result


@importer("FFT", "IFFT")
def fft(n: TfNode) -> EdgeValue:
    x = _complex(n, 0)
    inverse = n.op == "IFFT"
    return Complex(ops.dft(x, axis=x.type.rank - 2, length=x.shape[-2], inverse=inverse))


@importer("Complex")
def complex_(n: TfNode) -> EdgeValue:
    shape = symint.broadcast(*(v.shape for v in n.values()))
    parts = [ops.reshape(ops.expand(v, shape=shape), shape=(*shape, 1)) for v in n.values()]
    return Complex(ops.concat(*parts, axis=-1))


@importer("Real", "Imag")
def component(n: TfNode) -> Value:
    return _component(_complex(n, 0), 0 if n.op == "Real" else 1)


@importer("ComplexAbs")
def complex_abs(n: TfNode) -> Value:
    result: Value = ops.sqrt(_power(_complex(n, 0)))
    return result


def _power(v: Value) -> Value:
    a, b = _component(v, 0), _component(v, 1)
    result: Value = ops.add(ops.mul(a, a), ops.mul(b, b))
    return result


@importer("AudioSpectrogram")
def audio_spectrogram(n: TfNode) -> Value:
    """Spectrogram: [samples, channels] to [channels, windows, frequencies]."""
    x, size, stride = n.value(0), n.attr("window_size", 0), n.attr("stride", 0)
    if x.type.rank != 2 or not 2 <= size <= x.shape[0] or stride < 1 or size > MAX_LENGTH:
        n.unsupported(f"windows of {size} with stride {stride} do not fit {x.type}")
    length = 1 << (size - 1).bit_length()
    count = 1 + (x.shape[0] - size) // stride
    places = np.arange(count)[:, None] * stride + np.arange(size)
    by_channel = ops.transpose(x, perm=(1, 0))
    rows = ops.gather(by_channel, constant(places.astype(np.int64)), axis=1)
    bell = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    rows = ops.mul(rows, constant(bell, dtype="f32"))
    spectrum = ops.dft(
        ops.reshape(rows, shape=(*rows.shape, 1)), axis=2, length=length, onesided=True
    )
    power = _power(spectrum)
    result: Value = power if n.attr("magnitude_squared", False) else ops.sqrt(power)
    return result


@importer("Mfcc")
def mfcc(n: TfNode) -> Value:
    """MFCC: mel bands, logarithm, discrete cosine transform."""
    x, rate = n.value(0), n.number(1)
    low, high = n.attr("lower_frequency_limit", 20.0), n.attr("upper_frequency_limit", 4000.0)
    bands, kept = n.attr("filterbank_channel_count", 40), n.attr("dct_coefficient_count", 13)
    if x.type.rank != 3 or x.shape[2] < 2 or not 0 < bands < 4096 or not 0 < kept <= 4096:
        n.unsupported(f"{kept} coefficients of {bands} bands do not fit {x.type}")
    if not 0 <= low < high or not 0 < rate < 1e9:
        raise BadInput(f"the frequency range {low} to {high} is invalid for the sample rate {rate}")
    energy = ops.matmul(ops.sqrt(x), constant(_mel(x.shape[2], rate, bands, low, high)))
    logarithm = ops.log(ops.maximum(energy, constant(MIN_ENERGY, dtype="f32")))
    angles = np.arange(kept) * (np.arange(bands)[:, None] + 0.5) * np.pi / bands
    cosines = constant(math.sqrt(2 / bands) * np.cos(angles), dtype="f32")
    result: Value = ops.matmul(logarithm, cosines)
    return result


def _mel(count: int, rate: float, bands: int, low: float, high: float) -> Array:
    """Weights of frequencies in mel bands: triangular filters."""

    def mel(frequency: Array | float) -> Array:
        return np.asarray(1127.0 * np.log1p(np.asarray(frequency) / 700.0))

    first, span = mel(low), mel(high) - mel(low)
    centers = first + span / (bands + 1) * np.arange(1, bands + 2)
    step = 0.5 * rate / (count - 1)
    table = np.zeros((count, bands), np.float32)
    at = mel(np.arange(count) * step)
    for i in range(int(1.5 + low / step), min(int(high / step), count - 1) + 1):
        band = int(np.searchsorted(centers[:bands], at[i])) - 1  # band whose centre is below
        left = centers[band] if band >= 0 else first
        share = (centers[band + 1] - at[i]) / (centers[band + 1] - left)
        if band >= 0:
            table[i, band] += share
        if band + 1 < bands:
            table[i, band + 1] += 1 - share
    return table
