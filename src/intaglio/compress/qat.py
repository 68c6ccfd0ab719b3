"""Quantisation-aware training: a twin of the integer graph that calibration makes.

The start is the result of `quant.calibrate`, so untrained accuracy is that of post-training
quantisation. With fewer than 8 bits, scales are searched for the least squared error first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from intaglio import passes, quant, targets
from intaglio.compress.twin import Twin
from intaglio.compress.twin.module import from_array
from intaglio.compress.twin.on_chip import OnChip
from intaglio.compress.twin.rounding import METHODS, Rounding
from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Array, Graph
from intaglio.npu.chips.packaged import rounds_otherwise

MOST_VALUES = 1 << 16  # values of a tensor that the search for a scale looks at
SHARES = 40  # scales that it tries
BITS = range(2, 9)
TERNARY = 1  # bits that stand for -1, 0 and 1


def quantized_twin(
    model: Any,
    data: Any,
    *,
    weights: int | str = 8,
    activations: int = 8,
    method: str = "lsq",
    target: str = "cpu",
    ends: int = 8,
    **options: Any,
) -> Twin:
    """A twin whose forward is the target's integer arithmetic, at its post-training start.

    `weights` and `activations` are bits; weights may also be "ternary": -1, 0 and 1. The first and
    the last product and the input keep `ends` bits. `data` and `options` are those of
    `intaglio.quantize`. Weights that are binary already stay so.
    """
    chip = targets.find(target)
    check(chip, weights, activations, method, ends)
    found = quant.calibrate(model, data, target=target, **{"accuracy": None, **options})
    graph = integer_graph(found.graph, chip)
    twin = Twin(graph, method)
    if not twin.layers:
        why = "; ".join(dict.fromkeys(found.floats.values())) or "it has no products"
        raise Unsupported(f"no layer computes in 8 bits: {why}; train the float twin instead")
    _float_masters(twin, found.float_graph)
    for layer in twin.of_weights.values():
        layer.hold_signs()
    bits = TERNARY if isinstance(weights, str) else weights
    if min(bits, activations) < 8:
        samples = [dict(s) for _, s in zip(range(16), found.dataset or [], strict=False)]
        narrow(twin, bits, activations, ends, samples)
    if rounds_otherwise(chip.chip):
        twin.on_chip = OnChip(target)
    return twin


def integer_graph(graph: Graph, chip: targets.Target | None = None) -> Graph:
    """The graph as the compiler computes it: integer ops in place of quantised float ones."""
    result = graph.copy()
    passes.run(result, passes.neutral(*[chip.cost] if chip else []))
    return result


def check(
    chip: targets.Target, weights: int | str = 8, activations: int = 8, method: str = "lsq",
    ends: int = 8,
) -> None:  # fmt: skip
    """BadInput unless the target computes with these bits, and the method is known."""
    for what, bits in (("weights", weights), ("activations", activations), ("ends", ends)):
        if what == "weights" and bits == "ternary":
            continue
        if bits not in BITS or isinstance(bits, bool | float):
            more = ", or ternary" if what == "weights" else ""
            raise BadInput(f"{what} is {bits!r}; give a number of bits from 2 to 8{more}")
    if method not in METHODS:
        raise BadInput(f"method is {method!r}; known are {', '.join(METHODS)}")
    refuse_bits(chip, min(2 if isinstance(weights, str) else weights, activations))


def refuse_bits(chip: targets.Target, bits: int) -> None:
    """BadInput if fewer than 8 bits are asked of a target that has no such products."""
    known = {t for p in chip.precisions if not p.is_float for t in p.weights.types}
    if bits < 8 and not known & {"i4", "u4"}:
        raise BadInput(
            f"{bits} bits: {chip.name} has no products of fewer than 8 bits; train with "
            "weights=8, activations=8, or for another target"
        )


def _float_masters(twin: Twin, graph: Graph) -> None:
    """Start from the float weights, as far as they round to calibration's integers."""
    known = {v.name: v for v in graph.values() if v.data is not None and v.name}
    for (w, _), layer in twin.of_weights.items():
        v = known.get(w.name.removesuffix("_stored"))
        if v is None or v.data is None or v.shape != w.shape:
            continue
        with torch.no_grad():
            scale = layer._column(layer.scale, layer.weight)
            q = layer.real / scale
            real = torch.from_numpy(np.array(v.data, np.float32)) / scale
            layer.weight.copy_(
                torch.maximum(torch.minimum(real, q + 0.49), q - 0.49) * scale / layer.unit
            )


@torch.no_grad()
def narrow(
    twin: Twin, weights: int, activations: int, ends: int,
    samples: Sequence[Mapping[str, Array]],
) -> None:  # fmt: skip
    """Fewer bits for inner layers, with scales of the least squared error on the samples."""
    layers = list(twin.of_weights.values())
    for i, layer in enumerate(layers):
        bits = ends if i in (0, len(layers) - 1) else weights
        if bits < 8:
            layer.narrow(bits)
    if activations >= 8:
        return
    twin.eval()
    twin.observed = {}
    for feeds in samples:
        twin.run([from_array(np.asarray(feeds[v.name])) for v in twin.source.inputs])
    seen, twin.observed = twin.observed, None
    for r in inner(twin):
        if seen.get(r):
            fit_scale(r, torch.cat(seen[r]), activations)
    twin.train()


def inner(twin: Twin) -> list[Rounding]:
    """Free activations except those that come right from the model's inputs."""
    first = {
        twin.slots.get((n, 1))
        for n in twin.source.nodes()
        if n.op == "quantize_linear" and n.inputs[0] in twin.source.inputs
    }
    return [r for r in twin.free_roundings() if r not in first]


def fit_scale(r: Rounding, values: torch.Tensor, bits: int) -> None:
    """The scale and zero point of `bits` bits with the least squared error on these values."""
    if len(values) > MOST_VALUES:
        values = values[:: -(-len(values) // MOST_VALUES)]
    low, levels = float(r.limits[0]), float((1 << bits) - 1)
    lo, hi = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    best, found = float("inf"), (float(r.scale), int(r.zero))
    for share in torch.linspace(0.2, 1.0, SHARES).tolist():
        scale = max((hi - lo) * share / levels, 1e-12)
        zero = low + round(min(-lo * share / scale, levels))
        q = ((values / scale).round() + zero).clamp(low, low + levels)
        error = float(((q - zero) * scale - values).square().sum())
        if error < best:
            best, found = error, (scale, int(zero))
    r.set(*found, (low, low + levels))
