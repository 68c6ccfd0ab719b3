"""The stored weights of all products: integers with their schemes, and bias corrections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Graph, Node, Value
from intaglio.quant.options import Options
from intaglio.quant.placement.formats import USUAL, Formats
from intaglio.quant.placement.place import PRODUCTS, Placement, weight_axis
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.ranges.observe import Observation, Progress
from intaglio.quant.ranges.probe import cpus
from intaglio.quant.samples.subset import evenly_spaced
from intaglio.quant.weights import im2col
from intaglio.quant.weights.bias_correction import correction_from_means
from intaglio.quant.weights.integers import (
    Integers,
    broadcast_scheme,
    from_integers,
    limits_of,
    squant_integers,
    to_integers,
    weight_scheme,
)
from intaglio.quant.weights.rounding import round_weights
from intaglio.quant.weights.second_moments import grams


def store_all(
    placement: Placement, options: Options, given: Mapping[str, TensorScheme], how: Formats = USUAL
) -> dict[Node, Integers]:
    """The weights of every product as integers, without samples."""
    products = [n for n in placement.nodes if n.op in PRODUCTS]
    with ThreadPoolExecutor(cpus()) as pool:  # the C code releases Python's lock
        every = pool.map(
            lambda n: stored_weights(n, options, given, how, placement.nodes[n]), products
        )
        return dict(zip(products, every, strict=True))


def rounded_by_data(
    graph: Graph,
    weights: Mapping[Node, Integers],
    samples: Sequence[Mapping[str, Array]],
    options: Options,
    progress: Progress | None = None,
) -> dict[Node, Integers]:
    """Weights as integers with the least output error of every product on the samples."""
    free = [n for n, (_, scheme) in weights.items() if scheme.block == 0]
    few = evenly_spaced(samples, 32)
    every = grams(graph, free, few, progress=progress, centered=options.bias_correction)
    return {n: (fitted_integers(n, weights[n][1], gram), weights[n][1]) for n, gram in every}


def fitted_integers(node: Node, scheme: TensorScheme, gram: Array) -> Array:
    """A product's weights as integers with the least output error for inputs of this gram."""
    w = node.inputs[1]
    assert w is not None
    scale, zero = (np.broadcast_to(a, w.shape) for a in broadcast_scheme(scheme, w.type.rank))
    low, high = limits_of(scheme)
    exact = im2col.matrix(node).astype(np.float64)
    steps, offset = (im2col.matrix(node, a).astype(np.float64) for a in (scale, zero))
    stored = round_weights(exact + offset * steps, steps, low, high, gram.astype(np.float64))
    return im2col.from_matrix(node, stored).astype(dtypes.numpy_of(scheme.dtype))


def stored_weights(
    node: Node,
    options: Options,
    given: Mapping[str, TensorScheme] = {},
    how: Formats = USUAL,
    precision: str = "int8",
) -> tuple[Array, TensorScheme]:
    """A product's weights as integers, and their scheme."""
    w, axis = node.inputs[1], weight_axis(node)
    assert w is not None
    assert w.data is not None
    assert axis is not None
    grain = axis if how.per == "channel" else None
    scheme = given.get(w.name) or weight_scheme(
        w.data, grain, how.weights[precision], how.weight_zeros
    )
    if options.rounding in ("auto", "squant") and node.op == "conv" and not scheme.block:
        return squant_integers(w.data, scheme), scheme
    return to_integers(w.data, scheme), scheme


def bias_shift(node: Node, stored: Array, seen: Mapping[Value, Observation]) -> Array | None:
    """The bias correction of a product; None if its input's channel means are unknown."""
    x = node.inputs[0]
    known = seen[x].channels if x is not None and x in seen else None
    return (
        correction_from_means(node, stored, known.mean)
        if known is not None and known.count
        else None
    )


def bias_shifts(
    weights: Mapping[Node, Integers], seen: Mapping[Value, Observation]
) -> dict[Node, Array | None]:
    """`bias_shift` of every product."""
    with ThreadPoolExecutor(cpus()) as pool:
        every = pool.map(lambda n: bias_shift(n, from_integers(*weights[n]), seen), weights)
        return dict(zip(weights, every, strict=True))
