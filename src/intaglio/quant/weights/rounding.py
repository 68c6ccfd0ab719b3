"""Which integers to store for weights: not each the nearest, but all those that do best together.

Weights come as [..., outputs, inputs], scales broadcast against them, and `gram` [..., inputs,
inputs] is the mean of x xᵀ over a layer's inputs: an error e of one output's weights then costs
eᵀ gram e.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np

from intaglio import native
from intaglio.ir import Array

DAMP = 0.01  # of the mean power: keeps inputs that are hardly ever there from deciding
BLOCK = 128
SWEPT = 64  # inputs whose weights are moved before the others hear of it
FEW_SWEEPS = 3
SWEEPS = 8  # where moments are known well
AT_ONCE = 1 << 22  # numbers
REFITS = 3  # of scales, each followed by sweeps
SWEEP_WORK = 8e9  # products up to this size are swept: a second or two


def nearest(w: Array, scale: Array, low: int, high: int) -> Array:
    """Every weight on its own."""
    return np.clip(np.rint(w / scale), low, high)


def clipped_scale(w: Array, top: int, power: Array | None = None, least: float = 0.5) -> Array:
    """[..., outputs, 1]: the scale of the least squared error, each output's on its own.

    `power` [..., 1, inputs] weighs the errors by how strong the inputs are.
    """
    largest = np.abs(w).max(-1, keepdims=True)
    best = np.where(largest > 0, largest / top, 1.0)
    lowest = np.full(largest.shape, np.inf)
    weigh = 1.0 if power is None else power
    for share in np.linspace(1, least, 26):
        scale = np.where(largest > 0, largest * share / top, 1.0)
        off = (nearest(w, scale, -top, top) * scale - w) ** 2 * weigh
        error = off.sum(-1, keepdims=True)
        better = error < lowest
        best, lowest = np.where(better, scale, best), np.where(better, error, lowest)
    return best


@functools.cache
def _library() -> ctypes.CDLL:
    lib = native.compiler_library()
    pointer, u64, i32 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int32
    lib.itg_squant.argtypes = [pointer] * 3 + [u64] * 3 + [i32] * 2 + [pointer] * 3
    lib.itg_squant.restype = None
    return lib


def squant(w: Array, scale: Array, low: int, high: int, offset: Array | None = None) -> Array:
    """Round without data so that the errors of every kernel, and of every output, add up to least.

    `w` is [outputs, inputs, kernel], `scale` and `offset` (in steps) are by output. Inputs are
    mostly of one sign and neighbours in a kernel see much the same, so that what a kernel's errors
    sum to matters more than each of them: the weights that mind it least are moved by one.
    """
    w = np.ascontiguousarray(w, np.float32)
    outputs, inputs, kernel = w.shape
    steps, add = (
        np.ascontiguousarray(np.broadcast_to(a, outputs), np.float32)
        for a in (scale, 0.0 if offset is None else offset)
    )
    off, moved = np.empty(inputs * kernel), np.empty(inputs * kernel, np.uint32)
    made = np.empty(w.shape, np.int16)
    _library().itg_squant(
        w.ctypes.data,
        steps.ctypes.data,
        add.ctypes.data,
        outputs,
        inputs,
        kernel,
        low,
        high,
        off.ctypes.data,
        moved.ctypes.data,
        made.ctypes.data,
    )
    return made


def round_weights(
    w: Array, scale: Array, low: int, high: int, gram: Array | None = None, sweeps: int = FEW_SWEEPS
) -> Array:
    """Integers for `w`: by themselves, or, given `gram`, so that the layer's output errs least."""
    if gram is None:
        return nearest(w, scale, low, high)
    q = _carry(w, scale, low, high, gram)
    if w.size * w.shape[-1] <= SWEEP_WORK:
        q = _sweep(q, w, scale, low, high, gram, sweeps)
    plain = nearest(w, scale, low, high)
    better = loss(q, w, scale, gram) < loss(plain, w, scale, gram)
    return np.where(better[..., None], q, plain)


def loss(q: Array, w: Array, scale: Array, gram: Array) -> Array:
    """[..., outputs]: the mean squared error of every output."""
    e = q * scale - w
    return np.asarray(((e @ gram) * e).sum(-1))


def damped(gram: Array, damp: float = DAMP) -> Array:
    """With a floor under the power of inputs, so that it can be inverted."""
    n = gram.shape[-1]
    power = np.einsum("...ii->...i", gram).mean(-1)
    floor = np.where(power > 0, damp * power, 1.0)
    return gram + floor[..., None, None] * np.eye(n)


def _passed_on(gram: Array) -> Array:
    """How the error of each input goes to those after it: the Cholesky factor of the inverse.

    Moments of a few samples may not be those of any numbers: then the floor is raised.
    """
    for damp in (DAMP, 10 * DAMP, 100 * DAMP):
        try:
            inverse = np.linalg.inv(damped(gram, damp))
            inverse = (inverse + np.swapaxes(inverse, -1, -2)) / 2
            return np.swapaxes(np.linalg.cholesky(inverse), -1, -2)
        except np.linalg.LinAlgError:
            continue
    return np.broadcast_to(np.eye(gram.shape[-1]), gram.shape)  # each input by itself


def _carry(w: Array, scale: Array, low: int, high: int, gram: Array) -> Array:
    """Round input by input; those still to come make up for the error as well as they can.

    As in optimal brain quantisation: strong inputs first, all outputs at once.
    """
    n = w.shape[-1]
    order = np.argsort(-np.einsum("...ii->...i", gram), axis=-1, kind="stable")
    turned = np.take_along_axis(gram, order[..., None], -2)
    turned = np.take_along_axis(turned, order[..., None, :], -1)
    upper = _passed_on(turned.astype(np.float64))
    left = np.take_along_axis(w.astype(np.float64), order[..., None, :], -1)
    steps = np.take_along_axis(np.broadcast_to(scale, w.shape), order[..., None, :], -1)
    q = np.empty_like(left)
    for at in range(0, n, BLOCK):
        end = min(at + BLOCK, n)
        errors = np.zeros((*left.shape[:-1], end - at))
        for j in range(at, end):
            s = steps[..., j]
            q[..., j] = np.clip(np.rint(left[..., j] / s), low, high)
            e = (left[..., j] - q[..., j] * s) / upper[..., j, j][..., None]
            left[..., j:end] -= e[..., None] * upper[..., j, None, j:end]
            errors[..., j - at] = e
        left[..., end:] -= errors @ upper[..., at:end, end:]
    back = np.argsort(order, axis=-1, kind="stable")
    return np.take_along_axis(q, back[..., None, :], -1)


def _sweep(
    q: Array, w: Array, scale: Array, low: int, high: int, gram: Array, sweeps: int
) -> Array:
    """Move single weights to where the error is least while all others stay, until none moves.

    A few sweeps move each by one only: moments that few rows tell are not to lead far away. Slopes
    inside a block are kept up to date weight by weight, those outside it block by block.
    """
    q, n = q.copy(), w.shape[-1]
    steps = np.broadcast_to(scale, w.shape)
    slope = (q * steps - w) @ gram
    power = np.maximum(np.einsum("...ii->...i", gram), np.finfo(np.float32).tiny)
    most = 1 if sweeps <= FEW_SWEEPS else high - low
    for _ in range(sweeps):
        still = True
        for at in range(0, n, SWEPT):
            end = min(at + SWEPT, n)
            before, near = q[..., at:end].copy(), slope[..., at:end].copy()
            inside = gram[..., at:end, at:end]
            for j in range(at, end):
                s = steps[..., j]
                best = q[..., j] - near[..., j - at] / (power[..., j][..., None] * s)
                moved = np.clip(np.clip(np.rint(best), low, high) - q[..., j], -most, most)
                if moved.any():
                    q[..., j] += moved
                    near += (moved * s)[..., None] * inside[..., j - at, None, :]
            moved = (q[..., at:end] - before) * steps[..., at:end]
            if moved.any():
                still = False
                slope += moved @ gram[..., at:end, :]
        if still:
            break
    return q


def refit_scales(q: Array, w: Array, scale: Array, gram: Array, group: int) -> Array:
    """[outputs, groups]: the scales with which stored integers `q`, zeros taken off, err least.

    `w` and `q` are [outputs, inputs] of whole groups; scales far from the old ones are not taken.
    """
    outputs, inputs = q.shape
    groups = inputs // group
    slab = max(AT_ONCE // (groups * inputs), 1)
    if outputs > slab:
        cuts = [slice(i, i + slab) for i in range(0, outputs, slab)]
        return np.concatenate([refit_scales(q[c], w[c], scale[c], gram, group) for c in cuts])
    parts = q.reshape(outputs, groups, group)
    left = np.empty((outputs, groups, inputs))  # what each group adds, seen through the gram
    for g in range(groups):
        left[:, g] = parts[:, g] @ gram[g * group : (g + 1) * group]
    among = np.einsum("ogck,ock->ogc", left.reshape(outputs, groups, groups, group), parts)
    wanted = np.einsum("ogi,oi->og", left, w)
    floor = 1e-3 * np.einsum("ogg->o", among)[:, None] / groups + np.finfo(np.float32).tiny
    among = among + floor[..., None] * np.eye(groups)
    found = np.linalg.solve(among, (wanted + floor * scale)[..., None])[..., 0]
    near = (found > 0.5 * scale) & (found < 1.5 * scale)
    return np.where(near, found, scale)


def fit_groups(
    w: Array, scale: Array, zero: Array, low: int, high: int, gram: Array, group: int
) -> tuple[Array, Array]:
    """Integers and scales for `w` [outputs, inputs], found in turn so that outputs err least.

    `scale` and `zero` [outputs, groups] are where to begin; the scales are as f32 holds them.
    """
    gram = damped(gram.astype(np.float64))

    def spread(a: Array) -> Array:
        return np.repeat(a, group, -1)[..., : w.shape[-1]]

    def errors(q: Array, scale: Array) -> Array:
        return loss(q - spread(zero), w, spread(scale), gram)

    q = round_weights(w + spread(zero * scale), spread(scale), low, high, gram, SWEEPS)
    small = w.size * w.shape[-1] <= SWEEP_WORK
    for _ in range(REFITS if small and w.shape[-1] % group == 0 else 0):
        found = refit_scales(q - spread(zero), w, scale, gram, group).astype(np.float32)
        moved = _sweep(q, w + spread(zero * found), spread(found), low, high, gram, SWEEPS)
        better = (errors(moved, found) < errors(q, scale))[:, None]
        q, scale = np.where(better, moved, q), np.where(better, found, scale)
    return q, scale
