"""Importers of stft, FFTs and complex tensors, which are stored as pairs of real numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput, Unsupported
from intaglio.frontends.torch.elementwise import atan2
from intaglio.frontends.torch.importer import importer, integer, reshaped, tensor
from intaglio.frontends.torch.pad import padded
from intaglio.frontends.torch.tensors import Complex, number
from intaglio.ir import Value


def complex_part(x: Complex, i: int) -> Value:
    """The real (0) or imaginary (1) parts."""
    pairs = x.pairs
    one = ops.part(pairs, i, i + 1, axis=pairs.type.rank - 1)
    return reshaped(one, pairs.shape[:-1])


@importer("view_as_real", "view_as_real_copy")
def view_as_real(self: Complex) -> Value:
    return self.pairs


@importer("view_as_complex", "view_as_complex_copy")
def view_as_complex(self: Value) -> Complex:
    if not self.type.rank or self.shape[-1] != 2:
        raise BadInput(f"{self.type} must have a last axis of 2")
    return Complex(self)


@importer("complex")
def complex_(real: Value, imag: Value) -> Complex:
    shape = (*real.shape, 1)
    both = (reshaped(real, shape), reshaped(imag, shape))
    return Complex(ops.concat(*both, axis=real.type.rank))


@importer("polar")
def polar(abs: Value, angle: Value) -> Complex:
    return complex_(ops.mul(abs, ops.cos(angle)), ops.mul(abs, ops.sin(angle)))


@importer("real")
def real(self: Any) -> Value:
    return complex_part(self, 0) if isinstance(self, Complex) else tensor(self)


@importer("imag")
def imag(self: Complex) -> Value:
    return complex_part(self, 1)


@importer("abs", "absolute")
def abs_(self: Any) -> Value:
    if not isinstance(self, Complex):
        result: Value = ops.abs(tensor(self))
        return result
    result = ops.reduce_l2(self.pairs, axes=(self.pairs.type.rank - 1,), keepdims=False)
    return result


@importer("angle")
def angle(self: Complex) -> Value:
    return atan2(complex_part(self, 1), complex_part(self, 0))


@importer("stft")
def stft(
    self: Value,
    n_fft: Any,
    *args: Any,
    hop_length: Any = None,
    win_length: Any = None,
    window: Value | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: Any = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """stft, in the forms with and without `center` between `window` and `normalized`."""
    given = list(args)
    hop_length, win_length, window = (
        given.pop(0) if given else v for v in (hop_length, win_length, window)
    )
    if given and len(given) > 1 and isinstance(given[1], str):
        center, pad_mode = given.pop(0), given.pop(0)
    else:
        center = bool(center) and not args
    normalized, onesided, return_complex = (
        given.pop(0) if given else v for v in (normalized, onesided, return_complex)
    )
    size = integer(n_fft)
    hop = size // 4 if hop_length is None else integer(hop_length)
    x = self if self.type.rank == 2 else reshaped(self, (1, self.type.size))
    if center:
        x = padded(x, (size // 2, size // 2), pad_mode, 0.0)
    weights = _window(window, win_length, size, x.dtype)
    frames = ops.stft(
        reshaped(x, (*x.shape, 1)),
        weights,
        frame_step=hop,
        frame_length=size,
        onesided=onesided is not False,
    )
    y = ops.transpose(frames, perm=(0, 2, 1, 3))
    if normalized:
        y = ops.mul(y, number(size**-0.5, y.dtype))
    y = y if self.type.rank == 2 else reshaped(y, y.shape[1:])
    return Complex(y) if return_complex is not False else y


def _window(window: Value | None, length: Any, size: int, dtype: str) -> Value:
    """The window, padded on both sides to the size of the transform."""
    if window is None:
        count = size if length is None else integer(length)
        window = number(np.ones(count), dtype)
    short = size - window.shape[0]
    return padded(window, (short // 2, short - short // 2), "constant", 0.0) if short else window


def _spectrum(x: Any, dim: Any, n: Any, norm: str | None, **how: Any) -> Value:
    pairs = x.pairs if isinstance(x, Complex) else reshaped(x, (*x.shape, 1))
    rank = pairs.type.rank - 1
    axis = integer(dim) % rank
    length = integer(n) if n is not None else pairs.shape[axis]
    if how.get("inverse") and how.get("onesided") and n is None:
        length = 2 * (pairs.shape[axis] - 1)
    y = ops.dft(pairs, axis=axis, length=length, **how)
    scale = {"ortho": length**-0.5, "forward": 1 / length}.get(norm or "", 1.0)
    if how.get("inverse"):
        scale = {"ortho": length**0.5, "forward": float(length)}.get(norm or "", 1.0)
    result: Value = y if scale == 1 else ops.mul(y, number(scale, y.dtype))
    return result


@importer("fft_rfft")
def fft_rfft(self: Value, n: Any = None, dim: int = -1, norm: str | None = None) -> Complex:
    return Complex(_spectrum(self, dim, n, norm, onesided=True))


@importer("fft_fft")
def fft_fft(self: Any, n: Any = None, dim: int = -1, norm: str | None = None) -> Complex:
    return Complex(_spectrum(self, dim, n, norm))


@importer("fft_ifft")
def fft_ifft(self: Any, n: Any = None, dim: int = -1, norm: str | None = None) -> Complex:
    return Complex(_spectrum(self, dim, n, norm, inverse=True))


@importer("fft_irfft")
def fft_irfft(self: Any, n: Any = None, dim: int = -1, norm: str | None = None) -> Value:
    y = _spectrum(self, dim, n, norm, inverse=True, onesided=True)
    return reshaped(y, y.shape[:-1])


def _single_axis(dim: Any) -> Any:
    if len(dim) != 1:
        raise Unsupported(f"a transform over the axes {dim}; only one axis is supported")
    return dim[0]


@importer("_fft_r2c")
def fft_r2c(self: Value, dim: Any, normalization: int, onesided: bool) -> Complex:
    norm = (None, "ortho", "forward")[normalization]
    return Complex(_spectrum(self, _single_axis(dim), None, norm, onesided=bool(onesided)))


@importer("_fft_c2r")
def fft_c2r(self: Any, dim: Any, normalization: int, last_dim_size: Any) -> Value:
    norm = ("forward", "ortho", None)[normalization]
    y = _spectrum(self, _single_axis(dim), last_dim_size, norm, inverse=True, onesided=True)
    return reshaped(y, y.shape[:-1])


@importer("hamming_window")
def hamming_window(window_length: Any, periodic: bool = True, *args: Any, **kwargs: Any) -> Value:
    return _cosine_window(window_length, periodic, 0.54, 0.46)


@importer("hann_window")
def hann_window(window_length: Any, periodic: bool = True, *args: Any, **kwargs: Any) -> Value:
    return _cosine_window(window_length, periodic, 0.5, 0.5)


def _cosine_window(length: Any, periodic: Any, a: float, b: float) -> Value:
    count = integer(length)
    if not 1 <= count <= 1 << 24:
        raise BadInput(f"the window has {count} samples, which is too large or negative")
    at = np.arange(count) / max(count if periodic is not False else count - 1, 1)
    return number((a - b * np.cos(2 * np.pi * at)).astype(dtypes.numpy_of("f32")), "f32")


@importer("as_strided", "as_strided_copy")
def as_strided(self: Value, size: Any, stride: Any, storage_offset: Any = None) -> Value:
    """A strided view of a contiguous tensor, as a gather."""
    at = np.zeros((), np.int64) + (integer(storage_offset) if storage_offset else 0)
    if np.prod([integer(d) for d in size], dtype=float) > 1 << 24:
        raise BadInput(f"a strided view has shape {size}, which is too large or negative")
    for d, s in zip(size, stride, strict=True):
        at = at[..., None] + np.arange(integer(d)) * integer(s)
    result: Value = ops.gather(reshaped(self, (self.type.size,)), at, axis=0)
    return result
