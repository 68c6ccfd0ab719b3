"""Cross-layer equalisation: balance the channels between consecutive convolutions.

If only relu, leaky relu or max pooling lies between two convolutions, each channel can be scaled
freely. The scales are chosen so that small channels are not lost beside large ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intaglio.ir import Array, Graph, Value
from intaglio.quant.ranges.observe import Observation
from intaglio.quant.weights import scale_migration
from intaglio.quant.weights.scale_migration import Link

ALPHA = 0.5


def equalizable(graph: Graph) -> list[Link]:
    """The tensors between convolutions that can be equalised, in graph order."""
    return scale_migration.links(graph, ("conv",))


def equalize(
    graph: Graph, seen: Mapping[Value, Observation] | None = None, alpha: float = ALPHA
) -> list[str]:
    """Equalise in place and return the names of the tensors; the graph computes the same.

    The sizes of channels are those of the observed activations, if `seen` (with channel
    statistics) is given, otherwise those of the weights that produce them.
    """
    done = []
    for link in equalizable(graph):
        factors = scale_migration.factors_of(
            _sizes(link, seen), scale_migration.input_sizes(link), alpha
        )
        if np.allclose(factors, 1.0):
            continue
        scale_migration.rescale(graph, link, factors)
        done.append(link.tensor.name)
    return done


def _sizes(link: Link, seen: Mapping[Value, Observation] | None) -> Array:
    """The magnitude of each channel of the tensor."""
    if seen is None:
        w = link.maker.inputs[1]
        assert w is not None
        assert w.data is not None
        return np.asarray(np.abs(w.data.reshape(w.shape[0], -1)).max(1))
    known = seen[link.tensor].channels
    assert known is not None
    return known.largest
