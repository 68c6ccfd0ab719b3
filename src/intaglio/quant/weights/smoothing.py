"""SmoothQuant for transformers: move outlier channels after a norm into the weights.

A few channels after a layer norm are often tens of times larger than the rest, which then get
hardly any steps of the common scale. The norm's scale and shift are divided channel by channel, and
the weights of the products that read it are multiplied. The strength (alpha) is searched per layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from intaglio.ir import Array, Graph, Value
from intaglio.quant.ranges.observe import LIMIT, Probe, Progress, groups_by_bytes
from intaglio.quant.weights import scale_migration
from intaglio.quant.weights.scale_migration import Link

ALPHAS = (0.35, 0.5, 0.65, 0.8)
ROWS = 256  # of the tensor, on which the error is computed
GAIN = 0.9  # smoothing is kept if the error falls below this share
NORMS = ("layer_norm", "rms_norm")


def smooth(
    graph: Graph,
    samples: Sequence[Mapping[str, Array]],
    *,
    alphas: Sequence[float] = ALPHAS,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Smooth in place where the error falls, and return alpha by tensor.

    The graph computes the same.
    """
    found = scale_migration.links(graph, NORMS)
    done: dict[str, float] = {}
    kept = _gather(graph, found, samples, progress)
    for link in found:
        rows, sizes = kept[link.tensor]
        weights = [n.inputs[1].data for n in link.readers]  # type: ignore[union-attr]
        w = np.concatenate([a for a in weights if a is not None], 1)
        plain = _error(rows, w, np.ones(len(w)))
        tried = {
            a: scale_migration.factors_of(sizes, scale_migration.input_sizes(link), a)
            for a in alphas
        }
        errors = {a: _error(rows, w, f) for a, f in tried.items()}
        best = min(errors, key=errors.__getitem__)
        if errors[best] < GAIN * plain:
            scale_migration.rescale(graph, link, tried[best])
            done[link.tensor.name] = best
    return done


def _gather(
    graph: Graph,
    found: Sequence[Link],
    samples: Sequence[Mapping[str, Array]],
    progress: Progress | None,
) -> dict[Value, tuple[Array, Array]]:
    """Sampled rows of every tensor, and the largest magnitude of each channel."""
    rng = np.random.default_rng(0)
    many = -(-ROWS // max(len(samples), 1))
    results: dict[Value, tuple[Array, Array]] = {}
    for group in groups_by_bytes([link.tensor for link in found], LIMIT):
        rows: dict[Value, list[Array]] = {v: [] for v in group}
        sizes = {v: np.zeros(v.shape[-1], np.float32) for v in group}
        with Probe(graph, group, images_last=False) as probe:
            for i, sample in enumerate(samples, 1):
                if progress:
                    progress("smoothing", i - 1, len(samples))
                for v, a in probe.run(sample).items():
                    flat = a.reshape(-1, a.shape[-1])
                    sizes[v] = np.maximum(sizes[v], np.abs(flat).max(0))
                    at = rng.choice(len(flat), min(many, len(flat)), replace=False)
                    rows[v].append(flat[at].copy())
        results |= {v: (np.concatenate(rows[v]), sizes[v]) for v in group}
    return results


def _error(x: Array, w: Array, factors: Array) -> float:
    """The squared error of x @ w in int8, with the channels of x divided by `factors`."""
    a, b = x / factors, w * factors[:, None]
    step = np.abs(b).max(0) / 127
    b = np.rint(b / np.where(step > 0, step, 1)) * step
    lo, hi = min(float(a.min()), 0.0), max(float(a.max()), 0.0)
    grain = (hi - lo) / 255 or 1.0
    a = np.rint(a / grain) * grain
    return float(np.square(a @ b - x @ w).sum())
