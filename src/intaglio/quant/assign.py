"""Which scale and zero every quantised tensor gets, from the ranges that were observed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Node, Value
from intaglio.quant.affine import CLIPS
from intaglio.quant.affine import affine as affine
from intaglio.quant.channels import Shares, by_channel
from intaglio.quant.formats import USUAL, Formats
from intaglio.quant.functions import fit_functions
from intaglio.quant.place import Placement, activations, keeps_scale
from intaglio.quant.round import squant
from intaglio.quant.scheme import TensorScheme

Range = tuple[float, float]
Integers = tuple[Array, TensorScheme]  # what is stored, and what it means
WIDER = ("int8", "int16")
WHOLE = CLIPS[8][:1]  # nothing is cut off
TIGHT = 2.0  # times that a part of a concatenation may be narrower than the whole: one bit


def assign(
    placement: Placement,
    ranges: Mapping[Value, Range],
    how: Formats = USUAL,
    shares: Mapping[Value, Shares] = {},
) -> dict[str, TensorScheme]:
    """A scheme for every quantised tensor; those that must share one do.

    Channels of tensors in `shares` get scales of their own.
    """
    groups = _Groups(ranges)
    inside = [n for n in placement.nodes if placement.quantized(n.outputs[0])]
    for n in inside:
        if keeps_scale(n):
            groups.join(activations(n)[0], n.outputs[0])
    for n in inside:
        if n.op == "concat":
            _join_parts(n, groups)
    made = {}
    for v in placement.tensors:
        precision = precision_of(v, placement)
        symmetric = precision in how.symmetric
        made[v.name] = affine(*groups.range(v), how.tensors[precision], symmetric)
        if v in shares:
            made[v.name] = by_channel(made[v.name], shares[v])
    fit_functions(placement, ranges, made, how)
    return made


def precision_of(v: Value, placement: Placement) -> str:
    """The widest type that a node wants of this tensor."""
    around = [placement.nodes[n] for n in v.uses if n in placement.nodes]
    if v.producer in placement.nodes:
        around.append(placement.nodes[v.producer])
    return max(around, key=WIDER.index)


def _join_parts(concat: Node, groups: _Groups) -> None:
    """Parts that lose at most a bit by it, or serve nothing else, take the whole's scale."""
    whole = concat.outputs[0]
    for part in activations(concat):
        if groups.width(whole) <= TIGHT * groups.width(part) or (
            len(part.uses) == 1 and groups.alone(part)
        ):
            groups.join(whole, part)


class _Groups:
    """Tensors of one scale, and the range that holds them all."""

    def __init__(self, ranges: Mapping[Value, Range]):
        self.ranges = ranges
        self.of: dict[Value, list[Value]] = {v: [v] for v in ranges}

    def join(self, a: Value, b: Value) -> None:
        one, other = self.of[a], self.of[b]
        if one is not other:
            one.extend(other)
            self.of.update(dict.fromkeys(other, one))

    def range(self, v: Value) -> Range:
        lows, highs = zip(*(self.ranges[u] for u in self.of[v]), strict=True)
        return min(lows), max(highs)

    def width(self, v: Value) -> float:
        lo, hi = self.range(v)
        return max(hi, 0.0) - min(lo, 0.0)

    def alone(self, v: Value) -> bool:
        return len(self.of[v]) == 1


def weight_scheme(
    w: Array, axis: int | None, dtype: str = "i8", zeros: bool = False
) -> TensorScheme:
    """One scale for each output channel (or one for all), symmetric unless `zeros` are wanted.

    The lowest integer is not used where 0 is in the middle. With one scale for all, as much is cut
    off as loses least in squares; channels of their own lose by it what their kernels sum to.
    """
    shares = CLIPS.get(dtypes.TABLE[dtype].bits, WHOLE) if axis is None else WHOLE
    rows = w.reshape(1, -1) if axis is None else np.moveaxis(w, axis, 0).reshape(w.shape[axis], -1)
    lo, hi = rows.min(1).astype(np.float64), rows.max(1).astype(np.float64)
    lo, hi = np.minimum(lo, 0), np.maximum(hi, 0)
    if not zeros:
        hi = np.maximum(-lo, hi)
        lo = -hi
    tried = [_steps(lo * share, hi * share, dtype, zeros) for share in map(float, shares)]
    best = np.zeros(len(lo), int)
    if len(tried) > 1:
        best = np.argmin([_lost(rows, *steps, dtype) for steps in tried], axis=0)
    scale, at = (np.stack(e)[best, range(len(lo))] for e in zip(*tried, strict=True))
    cut = shares[best]
    return TensorScheme(
        dtype,
        tuple(map(float, scale)),
        tuple(map(int, at)),
        axis,
        lo=float((lo * cut).min()),
        hi=float((hi * cut).max()),
    )


def _steps(lo: Array, hi: Array, dtype: str, zeros: bool) -> tuple[Array, Array]:
    """Scales and zeros that just hold these ranges."""
    first, last = dtypes.limits(dtype)
    middle = (first + last + 1) // 2
    scale = ((hi - lo) / (last - first if zeros else 2 * (last - middle))).astype(np.float32)
    scale[~(scale > np.finfo(np.float32).tiny)] = 1.0
    if not zeros:
        return scale, np.full(len(lo), middle)
    return scale, np.clip(np.rint(first - lo / scale), first, last)


def _lost(rows: Array, scale: Array, zero: Array, dtype: str) -> Array:
    """The squared error of each row."""
    first, last = (end - zero[:, None] for end in dtypes.limits(dtype))
    step = scale[:, None]
    off = np.clip(np.rint(rows / step), first, last) * step - rows
    return np.square(off).sum(1, dtype=np.float64)  # type: ignore[no-any-return]


def to_integers(w: Array, scheme: TensorScheme) -> Array:
    """The numbers that are stored for `w`, each to the nearest."""
    low, last = limits_of(scheme)
    shape = [-1 if i == scheme.axis else 1 for i in range(w.ndim)]
    scale, zero = (np.reshape(p, shape) for p in (scheme.scale, scheme.zero))
    stored: Array = np.rint(w / scale.astype(np.float32)) + zero
    return np.clip(stored, low, last).astype(dtypes.numpy_of(scheme.dtype))


def by_sums(w: Array, scheme: TensorScheme) -> Array:
    """The numbers that are stored for a convolution's `w`, so that the errors of kernels cancel."""
    low, last = limits_of(scheme)
    kernels = w.reshape(w.shape[0], w.shape[1], -1)
    scale, zero = (np.array(a, np.float32) for a in (scheme.scale, scheme.zero))
    made = squant(kernels, scale, low, last, zero)
    return made.astype(dtypes.numpy_of(scheme.dtype)).reshape(w.shape)


def limits_of(scheme: TensorScheme) -> tuple[int, int]:
    """The smallest and largest number that weights are stored in; the lowest is not used."""
    first, last = dtypes.limits(scheme.dtype)
    middle = (first + last + 1) // 2
    return (first + 1 if all(z == middle for z in scheme.zero) else first), last


def from_integers(stored: Array, scheme: TensorScheme) -> Array:
    """What stored numbers mean."""
    scale, zero = spread_scheme(scheme, stored.ndim)
    made = stored.astype(np.float32)
    if zero.any():
        made -= zero
    made *= scale
    return made


def spread_scheme(scheme: TensorScheme, rank: int) -> tuple[Array, Array]:
    """Scale and zero, shaped to broadcast against a tensor of this rank."""
    shape = [-1 if i == scheme.axis else 1 for i in range(rank)]
    scale, zero = np.array(scheme.scale, np.float32), np.array(scheme.zero, np.float32)
    return scale.reshape(shape), zero.reshape(shape)
