"""ONNX DFT, STFT and MelWeightMatrix; window functions are ONNX functions."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes, ops
from intaglio.frontends.onnx.importer import OnnxNode, importer, scalar
from intaglio.frontends.onnx.tensors import element_type
from intaglio.ir import Value, constant
from intaglio.ops.registry import normalize_axis


@importer("DFT", since=17)
def dft_of_attribute(n: OnnxNode) -> Value:
    return _dft(n, n.attr("axis", 1))


@importer("DFT", since=20)
def dft(n: OnnxNode) -> Value:
    return _dft(n, -2 if n.input(2) is None else int(scalar(n.const(2))))


def _dft(n: OnnxNode, axis: int) -> Value:
    x = n.required(0)
    axis = normalize_axis(axis, x.type.rank)
    inverse, onesided = bool(n.attr("inverse", 0)), bool(n.attr("onesided", 0))
    if n.input(1) is not None:
        length = int(scalar(n.const(1)))
    else:
        length = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    return ops.dft(x, axis=axis, length=length, inverse=inverse, onesided=onesided)


@importer("STFT")
def stft(n: OnnxNode) -> Value:
    """The signal is [batch, time, 1 or 2], or [batch, time] of real numbers."""
    x, window = n.required(0), n.input(2)
    if x.type.rank == 2:
        x = ops.reshape(x, shape=(*x.shape, 1))
    length = x.shape[1] if window is None else window.shape[0]
    if n.input(3) is not None:
        length = int(scalar(n.const(3)))
    step, onesided = int(scalar(n.const(1))), bool(n.attr("onesided", 1))
    return ops.stft(x, window, frame_step=step, frame_length=length, onesided=onesided)


@importer("MelWeightMatrix")
def mel_weight_matrix(n: OnnxNode) -> Value:
    """Triangular filters between neighbouring points of the mel scale."""
    bands, length, rate = (int(scalar(n.const(i))) for i in range(3))
    low, high = (2595 * np.log10(1 + float(scalar(n.const(i))) / 700) for i in (3, 4))
    mels = np.arange(bands + 2) * (high - low) / (bands + 2) + low
    points = (length + 1) * 700 * (10 ** (mels / 2595) - 1) // rate
    left, middle, right = points[:-2], points[1:-1], points[2:]
    bins = np.arange(length // 2 + 1)[:, np.newaxis]
    with np.errstate(divide="ignore", invalid="ignore"):
        rising = np.where(bins == middle, 1.0, (bins - left) / (middle - left))
        falling = (right - bins) / (right - middle)
    inside = (bins >= left) & (bins <= middle) | (bins > middle) & (bins < right)
    weights = np.where(inside, np.where(bins <= middle, rising, falling), 0.0)
    dtype = element_type(n.attr("output_datatype", 1), "output_datatype")
    return constant(weights.astype(dtypes.numpy_of(dtype)))
