"""Test vectors: inputs, and the results that Python computes for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from intaglio import dtypes
from intaglio.array_files import read_npy, read_npz
from intaglio.interpret import interpret
from intaglio.ir import Array, Graph, Type

SEED = 24
COUNT = 2


def make_vectors(
    graph: Graph, given: Sequence[Mapping[str, Array]] = ()
) -> list[tuple[dict[str, Array], dict[str, Array]]]:
    """Inputs (random ones if none are given) with the outputs of the interpreter."""
    random = np.random.default_rng(SEED)
    given = [_named(graph, feeds) for feeds in given]
    every = list(given) or [
        {v.name: _random(random, v.type) for v in graph.inputs} for _ in range(COUNT)
    ]
    return [(dict(feeds), interpret(graph, feeds)) for feeds in every]


def _random(random: np.random.Generator, type: Type) -> Array:
    kind = np.dtype(dtypes.numpy_of(type.dtype))
    if kind.kind == "f":
        return random.standard_normal(type.shape).astype(kind)
    low, high = (0, 1) if kind.kind == "b" else dtypes.limits(type.dtype)
    return random.integers(low, high, type.shape, endpoint=True).astype(kind)


def read_vectors(path: str | Path) -> dict[str, Array]:
    """Inputs by name of a .npz file, or the only input of a .npy file, under the name ""."""
    path = Path(path)
    return dict(read_npz(path)) if path.suffix == ".npz" else {"": read_npy(path)}


def _named(graph: Graph, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
    return {graph.inputs[0].name: feeds[""]} if list(feeds) == [""] else feeds
