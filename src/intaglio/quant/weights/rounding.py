"""Rounding of weights: to nearest, SQuant (without data), or fitted to second moments (GPTQ-like).

Weights are [..., outputs, inputs], and scales broadcast against them. `gram` [..., inputs, inputs]
is the mean of x xᵀ over a layer's inputs x: a weight error e of one output then adds eᵀ gram e to
its mean squared error.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np

from intaglio import native
from intaglio.ir import Array

DAMP = 0.01  # added to the diagonal, as a share of its mean, so that the gram can be inverted
BLOCK = 128  # inputs whose errors are carried to the later ones together
SWEEP_BLOCK = 64  # inputs whose moves update the slopes of the other blocks together
FEW_SWEEPS = 3
SWEEPS = 8  # if the moments are from many rows
ELEMENTS_AT_ONCE = 1 << 22  # of the largest temporary array
REFITS = 3  # of scales, each followed by sweeps
SWEEP_WORK = 8e9  # multiplications; larger layers are not swept: this takes a second or two


def nearest(w: Array, scale: Array, low: int, high: int) -> Array:
    """Every weight to the nearest integer."""
    return np.clip(np.rint(w / scale), low, high)


def clipped_scale(w: Array, top: int, power: Array | None = None, least: float = 0.5) -> Array:
    """[..., outputs, 1]: for each output the scale with the least squared error.

    `power` [..., 1, inputs], the mean square of each input, weights the errors.
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
    """SQuant: round without data so that the errors of each kernel, and of each output, sum to 0.

    `w` is [outputs, inputs, kernel]; `scale` and `offset` (in steps) are per output. Inputs mostly
    have one sign, and neighbours in a kernel are alike, so the sum of a kernel's errors matters
    more than each error: the weights nearest to a tie are rounded the other way.
    """
    w = np.ascontiguousarray(w, np.float32)
    outputs, inputs, kernel = w.shape
    steps, add = (
        np.ascontiguousarray(np.broadcast_to(a, outputs), np.float32)
        for a in (scale, 0.0 if offset is None else offset)
    )
    off, moved = np.empty(inputs * kernel), np.empty(inputs * kernel, np.uint32)
    result = np.empty(w.shape, np.int16)
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
        result.ctypes.data,
    )
    return result


def round_weights(
    w: Array, scale: Array, low: int, high: int, gram: Array | None = None, sweeps: int = FEW_SWEEPS
) -> Array:
    """Integers for `w`: to nearest or, given `gram`, with the least output error of the layer."""
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
    """The gram with a raised diagonal, so that it can be inverted."""
    n = gram.shape[-1]
    power = np.einsum("...ii->...i", gram).mean(-1)
    floor = np.where(power > 0, damp * power, 1.0)
    return gram + floor[..., None, None] * np.eye(n)


def _passed_on(gram: Array) -> Array:
    """The Cholesky factor of the inverse gram: it carries each input's error to later inputs.

    A gram from few samples may be singular: then the diagonal is raised further.
    """
    for damp in (DAMP, 10 * DAMP, 100 * DAMP):
        try:
            inverse = np.linalg.inv(damped(gram, damp))
            inverse = (inverse + np.swapaxes(inverse, -1, -2)) / 2
            return np.swapaxes(np.linalg.cholesky(inverse), -1, -2)
        except np.linalg.LinAlgError:
            continue
    return np.broadcast_to(np.eye(gram.shape[-1]), gram.shape)  # no carrying


def _carry(w: Array, scale: Array, low: int, high: int, gram: Array) -> Array:
    """Round input by input; the inputs still to come compensate for each error.

    This is optimal brain quantisation (GPTQ): strong inputs first, all outputs at once.
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
    """Coordinate descent: move single weights to the least error until none moves.

    With FEW_SWEEPS each weight moves by at most one: moments from few rows must not lead far away.
    Slopes are updated after each weight inside its block, and after each block outside.
    """
    q, n = q.copy(), w.shape[-1]
    steps = np.broadcast_to(scale, w.shape)
    slope = (q * steps - w) @ gram
    power = np.maximum(np.einsum("...ii->...i", gram), np.finfo(np.float32).tiny)
    most = 1 if sweeps <= FEW_SWEEPS else high - low
    for _ in range(sweeps):
        still = True
        for at in range(0, n, SWEEP_BLOCK):
            end = min(at + SWEEP_BLOCK, n)
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
    """[outputs, groups]: the scales with the least output error for the integers `q`.

    Zero points are subtracted from `q` already. `w` and `q` are [outputs, inputs] in whole groups.
    A scale that would change by more than half keeps its old value.
    """
    outputs, inputs = q.shape
    groups = inputs // group
    slab = max(ELEMENTS_AT_ONCE // (groups * inputs), 1)
    if outputs > slab:
        cuts = [slice(i, i + slab) for i in range(0, outputs, slab)]
        return np.concatenate([refit_scales(q[c], w[c], scale[c], gram, group) for c in cuts])
    parts = q.reshape(outputs, groups, group)
    left = np.empty((outputs, groups, inputs))  # each group times the gram
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
    """Integers and scales for `w` [outputs, inputs] with the least output error, found in turn.

    `scale` and `zero` [outputs, groups] are the start values.
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
