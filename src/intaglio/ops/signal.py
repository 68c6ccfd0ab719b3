"""Fourier transforms. A complex number is a last axis of 2: real part, imaginary part."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Array, Node, Type, Value, constant
from intaglio.ops.elementwise import floats, mul
from intaglio.ops.index import gather
from intaglio.ops.linear import matmul
from intaglio.ops.precision import widen
from intaglio.ops.registry import normalize_axis, op
from intaglio.ops.shape import pad, reshape, slice_, transpose

MATRIX_LIMIT = 1 << 28  # bytes of a transform written out as a matrix


def _dft(x: Value, *, axis: int, length: int, inverse: bool, onesided: bool) -> Type:
    axis = normalize_axis(axis, x.type.rank)
    if x.type.rank < 2 or axis == x.type.rank - 1 or x.shape[-1] not in (1, 2) or length < 1:
        raise BadInput(
            f"dft of shape {x.shape} along axis {axis}, length {length}; "
            "the last axis holds 1 or 2 components and is not the one to transform"
        )
    shape = list(x.shape)
    shape[axis] = length // 2 + 1 if onesided and not inverse else length
    shape[-1] = 1 if onesided and inverse else 2
    return floats(x).but(shape=tuple(shape))


@op(_dft)
@widen
def dft(x: Array, *, axis: int, length: int, inverse: bool = False,
        onesided: bool = False) -> Array:  # fmt: skip
    """The signal along `axis` is cut or padded with zeros to `length` first.

    `onesided` keeps the first half of the spectrum; with `inverse` it is given that half and
    returns real numbers.
    """
    z = x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    axis = normalize_axis(axis, x.ndim)
    if inverse and onesided:
        return np.fft.irfft(z, length, axis)[..., np.newaxis].astype(x.dtype)
    y = (np.fft.ifft if inverse else np.fft.fft)(z, length, axis)
    if onesided:
        y = y[(slice(None),) * axis + (slice(0, length // 2 + 1),)]
    return np.stack([y.real, y.imag], -1).astype(x.dtype)


@dft.lowers
def _(x: Value, *, axis: int, length: int, inverse: bool = False, onesided: bool = False) -> Value:
    """One matmul: move the axis beside the components, flatten both, multiply, move back."""
    axis = normalize_axis(axis, x.type.rank)
    last = x.type.rank - 2
    perm = (*[i for i in range(x.type.rank - 1) if i != axis], axis, last + 1)
    back = tuple(perm.index(i) for i in range(x.type.rank))
    taken = length // 2 + 1 if inverse and onesided else length
    moved = _resized(x if axis == last else transpose(x, perm=perm), taken)
    matrix = dft_matrix(taken, x.shape[-1], length, inverse, onesided)
    outer, parts = moved.shape[:-2], 1 if inverse and onesided else 2
    flat = reshape(moved, shape=(*outer, matrix.shape[0]))
    y = matmul(flat, constant(matrix.astype(dtypes.numpy_of(x.dtype))))
    y = reshape(y, shape=(*outer, matrix.shape[1] // parts, parts))
    return y if axis == last else transpose(y, perm=back)


def _resized(x: Value, extent: int) -> Value:
    """Axis -2 cut or padded with zeros to `extent`."""
    have, rank = x.shape[-2], x.type.rank
    if have > extent:
        stop = (*x.shape[:-2], extent, x.shape[-1])
        return slice_(x, start=(0,) * rank, stop=stop, step=(1,) * rank)
    if have < extent:
        after = (*[0] * (rank - 2), extent - have, 0)
        return pad(x, before=(0,) * rank, after=after, mode="constant", value=0.0)
    return x


def dft_matrix(taken: int, components: int, length: int, inverse: bool, onesided: bool) -> Array:
    """The transform is linear: its matrix is what it makes of the unit vectors."""
    rows = taken * components
    if rows * length * 16 > MATRIX_LIMIT:
        raise Unsupported(
            f"a Fourier transform of length {length} would need a matrix of {rows}x{2 * length}; "
            f"lengths up to {int((MATRIX_LIMIT // 32) ** 0.5)} are supported"
        )
    units = np.eye(rows).reshape(rows, taken, components)
    y: Array = dft.body(units, axis=1, length=length, inverse=inverse, onesided=onesided)
    return y.reshape(rows, -1)


# ---- short frames ------------------------------------------------------------------------------
def _stft(x: Value, window: Value | None = None, *, frame_step: int, frame_length: int,
          onesided: bool) -> Type:  # fmt: skip
    if x.type.rank != 3 or x.shape[-1] not in (1, 2) or frame_step < 1:
        raise BadInput(
            f"stft of shape {x.shape}, step {frame_step}; [batch, time, 1 or 2] and 1 up"
        )
    if not 0 < frame_length <= x.shape[1]:
        raise BadInput(f"frames of {frame_length} in a signal of {x.shape[1]}")
    if window is not None and window.shape != (frame_length,):
        raise BadInput(f"the window has shape {window.shape}, the frames {frame_length}")
    if onesided and x.shape[-1] == 2:
        raise BadInput("the spectrum of a complex signal has no redundant half; use onesided=0")
    frames = (x.shape[1] - frame_length) // frame_step + 1
    bins = frame_length // 2 + 1 if onesided else frame_length
    return floats(x).but(shape=(x.shape[0], frames, bins, 2))


def _macs(node: Node) -> int:
    x = node.inputs[0]
    assert x is not None
    return node.outputs[0].type.size * int(node.attrs["frame_length"]) * x.shape[-1]


def _places(x: Value | Array, frame_step: int, frame_length: int) -> Array:
    frames = (x.shape[1] - frame_length) // frame_step + 1
    return np.arange(frames)[:, np.newaxis] * frame_step + np.arange(frame_length)


@op(_stft, macs=_macs)
@widen
def stft(x: Array, window: Array | None = None, *, frame_step: int, frame_length: int,
         onesided: bool = True) -> Array:  # fmt: skip
    """The spectra of frames of the signal, each weighted by `window`: [batch, frame, bin, 2]."""
    frames = x[:, _places(x, frame_step, frame_length)]
    if window is not None:
        frames = frames * window[:, np.newaxis]
    return dft.body(frames, axis=2, length=frame_length, onesided=onesided)


@stft.lowers
def _(x: Value, window: Value | None = None, *, frame_step: int, frame_length: int,
      onesided: bool = True) -> Value:  # fmt: skip
    frames = gather(x, constant(_places(x, frame_step, frame_length)), axis=1)
    if window is not None:
        frames = mul(frames, reshape(window, shape=(frame_length, 1)))
    return dft(frames, axis=2, length=frame_length, onesided=onesided)
