"""How a twin runs the integer nodes of a graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from intaglio import dtypes
from intaglio.compress.twin import integer_ops
from intaglio.compress.twin.rounding import rounded
from intaglio.compress.twin.scales import INTEGERS, MAKES, is_moved
from intaglio.ir import Graph, Node

if TYPE_CHECKING:
    from intaglio.compress.twin.module import Twin

Given = list[Tensor | None]
MAX_BIAS = 2.0**30


def clamp_bounds(graph: Graph) -> dict[Node, tuple[float, float]]:
    """Makers of rounded tensors that only a clamp reads, with the clamp's bounds."""
    found = {}
    for n in graph.nodes():
        if n.op not in MAKES or not is_moved(n.outputs[0]):
            continue
        low, high = dtypes.limits(n.outputs[0].dtype)
        readers = list(n.outputs[0].uses)
        if len(readers) == 1 and readers[0].op == "clip":
            low, high = clamped(readers[0], low, high)
        found[n] = float(low), float(high)
    return found


def clamped(clip: Node, low: int, high: int) -> tuple[int, int]:
    """The integers between `low` and `high` that a clamp leaves."""
    lo, hi = clip.attrs["lo"], clip.attrs["hi"]
    return (low if lo <= low else math.ceil(lo)), (high if hi >= high else math.floor(hi))


def _round(twin: Twin, old: Node, slot: int, real: Tensor) -> Tensor:
    r = twin.slots[old, slot]
    low, high = twin.bounds[old]
    q: Tensor = r(real, (max(low, r.bounds[0]), min(high, r.bounds[1])))
    if twin.observed is not None and r.free:
        twin.observed.setdefault(r, []).append(((q - r.zero) * r.scale).detach().flatten())
    return q


def _scale(twin: Twin, old: Node, slot: int) -> tuple[Tensor, Tensor]:
    r = twin.slots[old, slot]
    return r.scale, r.zero


def _moved(old: Node, *indices: int) -> bool:
    """Are these operands quantised tensors that the graph computes?"""
    return all(is_moved(old.inputs[i]) for i in indices)


def _conv(twin: Twin, old: Node, new: Node, given: Given, exact: bool) -> Tensor | None:
    key = old.inputs[3], old.inputs[4]
    if key not in twin.of_weights or not _moved(old, 0):
        return None
    x, layer = given[0], twin.of_weights[key]
    assert x is not None
    xs, xz = _scale(twin, old, 1)
    w, ws = layer.integers(), layer.scale
    b = twin.bias(old)
    shift = None
    if b is not None:
        step = xs.double() * ws.double()
        shift = rounded(b / step).clamp(-MAX_BIAS, MAX_BIAS)
    elif given[8] is not None:
        shift = given[8].double()
    taps = math.prod(w.shape[1:])
    reach = 65535.0 if old.inputs[0].dtype == "i16" else 255.0  # type: ignore[union-attr]
    largest = taps * reach * max(abs(v) for v in layer.limits)
    acc = integer_ops.product(x - xz, w, shift, new.attrs, largest, exact)
    factor = xs * ws
    to = twin.slots.get((old, 6))
    if to is not None:
        factor = factor / to.scale
    real = acc * (factor.reshape(-1, *[1] * (acc.dim() - 2)) if factor.numel() > 1 else factor)
    residual = given[9]
    if residual is not None and to is not None:
        rs, rz = _scale(twin, old, 10)
        real = real + (residual - rz) * (rs / to.scale)
    elif residual is not None:
        real = real + residual
    return real if to is None else _round(twin, old, 6, real)


def _matmul(twin: Twin, old: Node, new: Node, given: Given, exact: bool) -> Tensor | None:
    key = old.inputs[3], old.inputs[4]
    a, b = given[0], given[3]
    if a is None or b is None or not _moved(old, 0):
        return None
    (s, z) = _scale(twin, old, 1)
    if key in twin.of_weights:
        layer = twin.of_weights[key]
        right, rs = layer.integers(), layer.scale
    elif _moved(old, 3):
        rs, rz = _scale(twin, old, 4)
        right = b - rz
    else:
        return None
    left = a - z
    acc = (left.double() @ right.double()).float() if exact else left @ right
    factor = s * rs
    to = twin.slots.get((old, 6))
    if to is None:
        return acc * factor
    return _round(twin, old, 6, acc * (factor / to.scale))


def _pair(function: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    def run(twin: Twin, old: Node, new: Node, given: Given, exact: bool) -> Tensor | None:
        if not _moved(old, 0, 3):
            return None
        (a, az), (b, bz) = _scale(twin, old, 1), _scale(twin, old, 4)
        real = function(given[0], a, az, given[3], b, bz, twin.slots[old, 6].scale)
        return _round(twin, old, 6, real)

    return run


def _mean(function: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    def run(twin: Twin, old: Node, new: Node, given: Given, exact: bool) -> Tensor | None:
        if not _moved(old, 0):
            return None
        scale, zero = _scale(twin, old, 1)
        real = function(given[0], scale, zero, twin.slots[old, 3].scale, **new.attrs)
        return _round(twin, old, 3, real)

    return run


def _quantize(twin: Twin, old: Node, new: Node, given: Given, exact: bool) -> Tensor | None:
    x = given[0]
    if (old, 1) not in twin.slots or x is None or not is_moved(old.outputs[0]):
        return None
    return _round(twin, old, 1, x / twin.slots[old, 1].scale)


def _dequantize(twin: Twin, old: Node, new: Node, given: Given, exact: bool) -> Tensor | None:
    x = given[0]
    if x is None or not _moved(old, 0) or (old, 1) not in twin.slots:
        return None
    scale, zero = _scale(twin, old, 1)
    return (x - zero) * scale


def _lookup(twin: Twin, old: Node, new: Node, given: Given, exact: bool) -> Tensor | None:
    x, table = given[0], given[1]
    if x is None or table is None or old.inputs[0].dtype not in INTEGERS:  # type: ignore[union-attr]
        return None
    return integer_ops.lookup(x, table, old.inputs[0].dtype)  # type: ignore[union-attr]


def _lookup_wide(twin: Twin, old: Node, new: Node, given: Given, exact: bool) -> Tensor | None:
    x, table = given[0], given[1]
    if x is None or table is None:
        return None
    base = old.attrs["base"]
    return integer_ops.lookup_between(x.clamp(base, base + len(table) - 1), table, base)


def _clip(twin: Twin, old: Node, new: Node, given: Given, exact: bool) -> Tensor | None:
    x = given[0]
    if x is None or not is_moved(old.inputs[0]):
        return None
    return x.clamp(*clamped(old, *dtypes.limits(old.inputs[0].dtype)))  # type: ignore[union-attr]


INTEGER: dict[str, Callable[..., Any]] = {
    "qlinear_conv": _conv,
    "qlinear_matmul": _matmul,
    "qlinear_add": _pair(integer_ops.qlinear_add),
    "qlinear_mul": _pair(integer_ops.qlinear_mul),
    "qlinear_mean": _mean(integer_ops.qlinear_mean),
    "qlinear_avg_pool": _mean(integer_ops.qlinear_avg_pool),
    "quantize_linear": _quantize,
    "dequantize_linear": _dequantize,
    "lookup": _lookup,
    "lookup_wide": _lookup_wide,
    "clip": _clip,
}
