"""Fourier transforms (dft, stft). The last axis holds the real and the imaginary part."""

from __future__ import annotations

import math

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Array, Node, Type, Value, constant
from intaglio.ops.cast import cast
from intaglio.ops.elementwise import add, floats, mul, sub
from intaglio.ops.index import gather
from intaglio.ops.linear import matmul
from intaglio.ops.precision import widen
from intaglio.ops.registry import normalize_axis, op
from intaglio.ops.shape import concat, pad, part, reshape, transpose

DIRECT_LIMIT = 1 << 21  # elements of a DFT matrix; above, the length is factored
MATRIX_LIMIT = 1 << 28  # bytes of the largest DFT matrix


def _dft(x: Value, *, axis: int, length: int, inverse: bool, onesided: bool) -> Type:
    axis = normalize_axis(axis, x.type.rank)
    if x.type.rank < 2 or axis == x.type.rank - 1 or x.shape[-1] not in (1, 2) or length < 1:
        raise BadInput(
            f"dft of shape {x.shape} along axis {axis}, length {length}; "
            "the last axis must hold 1 or 2 components and cannot be transformed"
        )
    shape = list(x.shape)
    shape[axis] = length // 2 + 1 if onesided and not inverse else length
    shape[-1] = 1 if onesided and inverse else 2
    return floats(x).but(shape=tuple(shape))


def _dft_macs(node: Node) -> int:
    x, length = node.inputs[0], int(node.attrs["length"])
    assert x is not None
    return node.outputs[0].type.size * length * x.shape[-1]


@op(_dft, macs=_dft_macs)
@widen
def dft(
    x: Array, *, axis: int, length: int, inverse: bool = False, onesided: bool = False
) -> Array:
    """Discrete Fourier transform along `axis`, cut or zero-padded to `length` first.

    `onesided` keeps the first half of the spectrum; with `inverse` the input is that half and the
    result is real.
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
    """Transpose the axis beside the components, transform, transpose back."""
    axis = normalize_axis(axis, x.type.rank)
    last = x.type.rank - 2
    if x.dtype not in ("f32", "f64"):
        wide = cast(x, dtype="f32")
        y = dft(wide, axis=axis, length=length, inverse=inverse, onesided=onesided)
        return cast(y, dtype=x.dtype)
    perm = (*[i for i in range(x.type.rank - 1) if i != axis], axis, last + 1)
    taken = length // 2 + 1 if inverse and onesided else length
    moved = _resized(x if axis == last else transpose(x, perm=perm), taken)
    halves = x.dtype == "f64" and x.shape[-1] == 1 and onesided and not inverse and length > 2
    if halves and taken * length <= DIRECT_LIMIT:
        y = _by_halves(moved, length)
    elif taken * x.shape[-1] * length <= DIRECT_LIMIT or _factor(length) == 1:
        y = _by_matrix(moved, length, inverse, onesided)
    elif inverse and onesided:
        y = part(_by_factors(_mirrored(moved, length), length, True), 0, 1, axis=-1)
    else:
        y = _by_factors(_complex(moved), length, inverse)
        y = _resized(y, length // 2 + 1) if onesided else y
    back = tuple(perm.index(i) for i in range(x.type.rank))
    return y if axis == last else transpose(y, perm=back)


def _by_matrix(x: Value, length: int, inverse: bool, onesided: bool) -> Value:
    """One matmul. The matrix is the transform of the unit vectors."""
    *outer, taken, parts = x.shape
    rows = taken * parts
    if rows * length * 16 > MATRIX_LIMIT:
        raise Unsupported(
            f"a Fourier transform of the prime length {length} needs a matrix of {rows} x "
            f"{2 * length}; pad the signal to a length with small factors"
        )
    units = np.eye(rows).reshape(rows, taken, parts)
    y: Array = dft.body(units, axis=1, length=length, inverse=inverse, onesided=onesided)
    matrix = constant(y.reshape(rows, -1).astype(dtypes.numpy_of(x.dtype)))
    return reshape(matmul(reshape(x, shape=(*outer, rows)), matrix), shape=(*outer, *y.shape[1:]))


def _by_halves(x: Value, length: int) -> Value:
    """The first half of the spectrum of a real signal, by two matmuls of half the size.

    Elements n and length - n have the same cosines and opposite sines.
    """
    outer, pairs, bins = x.shape[:-2], (length - 1) // 2, length // 2 + 1
    x = reshape(x, shape=(*outer, length))
    low = part(x, 1, pairs + 1, axis=-1)
    high = part(x, length - 1, length - 1 - pairs, axis=-1, step=-1)
    alone = [part(x, n, n + 1, axis=-1) for n in ([0, length // 2] if length % 2 == 0 else [0])]
    even = concat(alone[0], add(low, high), *alone[1:], axis=-1)
    turns = np.outer(np.arange(bins), np.arange(bins)) % length * (2 * np.pi / length)
    cos, sin = np.cos(turns)[: even.shape[-1]], -np.sin(turns)[1 : pairs + 1]
    y = matmul(even, constant(cos)), matmul(sub(low, high), constant(sin))
    return concat(*[reshape(v, shape=(*outer, bins, 1)) for v in y], axis=-1)


def _by_factors(x: Value, length: int, inverse: bool) -> Value:
    """Cooley-Tukey: transforms of the factors of `length`, with twiddle factors between."""
    a = _factor(length)
    if length * length * 4 <= DIRECT_LIMIT or a == 1:
        return _by_matrix(x, length, inverse, False)
    b, outer, rank = length // a, x.shape[:-2], x.type.rank
    swap = (*range(rank - 2), rank - 1, rank - 2, rank)
    y = transpose(reshape(x, shape=(*outer, a, b, 2)), perm=swap)
    y = _twiddled(_by_factors(y, a, inverse), length, inverse)
    y = _by_factors(transpose(y, perm=swap), b, inverse)
    return reshape(transpose(y, perm=swap), shape=(*outer, length, 2))


def _twiddled(x: Value, length: int, inverse: bool) -> Value:
    """Element [n, k] of the last axes times the n*k-th power of the root of unity."""
    steps = np.outer(np.arange(x.shape[-3]), np.arange(x.shape[-2])) % length
    angle = (2 if inverse else -2) * np.pi * steps / length
    cos, sin = np.cos(angle), np.sin(angle)
    flipped = part(x, 1, -3, axis=-1, step=-1)
    straight = constant(np.stack([cos, cos], -1).astype(dtypes.numpy_of(x.dtype)))
    crossed = constant(np.stack([-sin, sin], -1).astype(dtypes.numpy_of(x.dtype)))
    return add(mul(x, straight), mul(flipped, crossed))


def _factor(n: int) -> int:
    """The largest divisor of `n` up to its square root."""
    return next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)


def _complex(x: Value) -> Value:
    if x.shape[-1] == 2:
        return x
    zeros = (0,) * x.type.rank
    return pad(x, before=zeros, after=(*zeros[1:], 1), mode="constant", value=0.0)


def _mirrored(x: Value, length: int) -> Value:
    """The whole spectrum of a real signal from its first half, by conjugate symmetry."""
    sign = constant(np.array([1, -1], dtypes.numpy_of(x.dtype)))
    tail = mul(part(x, length - length // 2 - 1, 0, axis=-2, step=-1), sign)
    return concat(_complex(x), tail, axis=-2)


def _resized(x: Value, extent: int) -> Value:
    """Axis -2 cut or padded with zeros to `extent`."""
    have, zeros = x.shape[-2], (0,) * x.type.rank
    if have < extent:
        after = (*zeros[2:], extent - have, 0)
        return pad(x, before=zeros, after=after, mode="constant", value=0.0)
    return part(x, 0, extent, axis=-2) if have > extent else x


# ---- stft --------------------------------------------------------------------------------------
def _stft(
    x: Value, window: Value | None = None, *, frame_step: int, frame_length: int, onesided: bool
) -> Type:
    if x.type.rank != 3 or x.shape[-1] not in (1, 2) or frame_step < 1:
        raise BadInput(
            f"stft of shape {x.shape}, step {frame_step}; [batch, time, 1 or 2] and step ≥ 1 are "
            "needed"
        )
    if not 0 < frame_length <= x.shape[1]:
        raise BadInput(f"stft: frames of {frame_length} do not fit a signal of {x.shape[1]}")
    if window is not None and window.shape != (frame_length,):
        raise BadInput(f"the window has shape {window.shape}, the frames {frame_length}")
    if onesided and x.shape[-1] == 2:
        raise BadInput("stft: onesided is for real signals; use onesided=0 for a complex one")
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
def stft(
    x: Array,
    window: Array | None = None,
    *,
    frame_step: int,
    frame_length: int,
    onesided: bool = True,
) -> Array:
    """The spectra of frames of the signal, each weighted by `window`: [batch, frame, bin, 2]."""
    frames = x[:, _places(x, frame_step, frame_length)]
    if window is not None:
        frames = frames * window[:, np.newaxis]
    return dft.body(frames, axis=2, length=frame_length, onesided=onesided)


@stft.lowers
def _(
    x: Value,
    window: Value | None = None,
    *,
    frame_step: int,
    frame_length: int,
    onesided: bool = True,
) -> Value:
    frames = gather(x, constant(_places(x, frame_step, frame_length)), axis=1)
    if window is not None:
        frames = mul(frames, reshape(window, shape=(frame_length, 1)))
    return dft(frames, axis=2, length=frame_length, onesided=onesided)
