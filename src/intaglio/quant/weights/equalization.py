"""Cross-layer equalisation: convolutions share out the size of the channels between them.

Between two convolutions with nothing but relu, leaky relu or max pooling between them, channels may
be scaled at will. They are scaled so that no channel of the tensor is lost beside a larger one.
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
    """The tensors between convolutions that can be equalised, in order."""
    return scale_migration.links(graph, ("conv",))


def equalize(
    graph: Graph, seen: Mapping[Value, Observation] | None = None, alpha: float = ALPHA
) -> list[str]:
    """Equalise in place; the graph computes the same. The names of the tensors are returned.

    With `seen` (which must hold the channels of the tensors) the sizes of activations count, else
    those of the weights that make them.
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
    """How large each channel of the tensor is."""
    if seen is None:
        w = link.maker.inputs[1]
        assert w is not None
        assert w.data is not None
        return np.asarray(np.abs(w.data.reshape(w.shape[0], -1)).max(1))
    known = seen[link.tensor].channels
    assert known is not None
    return known.largest
